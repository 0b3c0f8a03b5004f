//! The steps an event takes, one a file, named by the verb. Every event takes the same ones, however it came.

pub mod apply;
pub mod claim;
pub mod deliver;
pub mod fetch;
pub mod read;
pub mod receive;
pub mod sweep;
