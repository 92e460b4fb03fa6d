//! Any text as a configuration is read or refused, with words.
#![no_main]

use std::path::Path;

use flashwise_server::config::ServerConfig;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match ServerConfig::parse(Path::new("flashwise.toml"), text) {
        Ok(config) => {
            // What is served is told apart, and the cleaner has somewhere to stop.
            let names: std::collections::HashSet<&str> =
                config.volumes.iter().map(|volume| volume.name.as_str()).collect();
            assert_eq!(names.len(), config.volumes.len());
            assert!(config.volumes.iter().all(|volume| volume.cache.check().is_ok()));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
