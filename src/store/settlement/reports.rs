//! Reports and their lines.
