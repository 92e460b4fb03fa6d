//! The report: its text, its picture in the README, and how browsers show it.
//!
//! All are one binary: it is linked once, and its tests run side by side.

#![allow(clippy::unwrap_used)] // A test ends where something goes wrong.

mod reports;

mod readme_picture;
mod report;
#[cfg(feature = "browser-tests")]
mod report_in_browser;
