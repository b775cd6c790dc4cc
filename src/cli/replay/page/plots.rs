//! The pictures of the page: what each shows, and how it is read.

mod by_limit;
mod near;
mod over_time;
mod peaks;

pub(super) use self::{
    by_limit::{by_limit, same_limit},
    near::near,
    over_time::over_time,
    peaks::peaks,
};
