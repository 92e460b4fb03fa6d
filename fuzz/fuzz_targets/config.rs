//! Any text as a configuration: it is accepted, or refused with an error message.
#![no_main]

use std::path::Path;

use flashwise_server::config::ServerConfig;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match ServerConfig::parse(Path::new("flashwise.toml"), text) {
        Ok(config) => {
            // Exports have distinct names, and the cleaner has a place to stop.
            let names: std::collections::HashSet<&str> =
                config.volumes.iter().map(|volume| volume.name.as_str()).collect();
            assert_eq!(names.len(), config.volumes.len());
            assert!(config.volumes.iter().all(|volume| volume.cache.check().is_ok()));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
