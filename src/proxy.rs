//! The Pingora callbacks, and nothing else.

pub mod response;
pub mod upstream;
