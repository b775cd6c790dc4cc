//! The servers of `tests/support` that this shares.

#[expect(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/support/binary.rs"]
pub mod binary;
#[expect(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/support/nginx.rs"]
pub mod nginx;
#[expect(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/support/random.rs"]
pub mod random;
#[expect(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/support/redis.rs"]
pub mod redis;
