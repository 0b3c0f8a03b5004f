//! The steps an event takes, one a file, named by the verb. Every event takes the same ones, however it came.

pub mod apply;
pub mod backfill;
pub mod bring_back;
pub mod claim;
pub mod correct;
pub mod deliver;
pub mod fetch;
mod gather;
mod judge;
pub mod mail;
mod note;
mod pieces;
pub mod preview;
pub mod read;
pub mod receive;
pub mod repair;
pub mod retain;
mod scores;
pub mod settle;
pub mod sweep;
