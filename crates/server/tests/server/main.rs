//! A server as its clients and managers see it. Each protocol or promise has a file or folder.
//!
//! All are one binary: it is linked once, and its tests run in parallel.

#![allow(clippy::unwrap_used)] // A test ends where something goes wrong.

mod open_files;
mod support;

#[cfg(feature = "http")]
mod allocations;
#[cfg(feature = "http")]
mod api;
#[cfg(all(feature = "http", feature = "python-tests"))]
mod api_in_python;
#[cfg(feature = "device-tests")]
mod flush_points;
mod iscsi;
#[cfg(feature = "client-tests")]
mod iscsi_clients;
mod many_disks;
#[cfg(feature = "http")]
mod monitoring;
#[cfg(all(feature = "client-tests", feature = "tls"))]
mod nbd_clients;
mod nbd_hostile;
mod nbd_lifecycle;
mod nbd_memory;
mod nbd_requests;
#[cfg(feature = "tls")]
mod nbd_tls;
