//! Shared parts of the tests, examples and benchmarks of several crates.
#![allow(clippy::unwrap_used)] // A test ends where something goes wrong.

pub mod alone;
pub mod budget;
pub mod cache_memory;
#[cfg(feature = "certificates")]
pub mod certificates;
#[cfg(feature = "nbd")]
pub mod client;
pub mod fake_disk;
pub mod history;
pub mod initiator;
pub mod memory;
pub mod mounted;
pub mod processor;
pub mod random;
pub mod virtual_time;
pub mod waiting;
pub mod work;

/// Writes a file that only this user may read, like tokens, secrets and keys.
pub fn write_private(path: impl AsRef<std::path::Path>, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// Returns the number in an environment variable, or `default`.
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is '{text}', not a number")))
}
