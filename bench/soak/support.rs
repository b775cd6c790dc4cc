//! The servers of `tests/support`, which the soak shares.

#[expect(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/support/binary.rs"]
pub mod binary;
#[expect(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/support/cluster.rs"]
pub mod cluster;
#[expect(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/support/nginx.rs"]
pub mod nginx;
#[path = "../../tests/support/oracle.rs"]
pub mod oracle;
#[expect(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/support/redis.rs"]
pub mod redis;
#[path = "../../tests/support/relay.rs"]
pub mod relay;
#[path = "../../tests/support/sentinel.rs"]
pub mod sentinel;
