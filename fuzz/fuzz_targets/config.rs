//! Any text as a configuration is read or refused.
#![no_main]

use std::path::Path;

use flashwise_server::config::ServerConfig;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(error) = ServerConfig::parse(Path::new("flashwise.toml"), text) {
        assert!(!error.to_string().is_empty());
    }
});
