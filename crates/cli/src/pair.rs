//! How a backend is told from others, where it cannot tell itself.

use std::path::PathBuf;

use clap::Args;
use flashwise_server::attach::stores::default_state_directory;
use flashwise_server::volume::VolumeConfig;

/// What a configuration says of a backend, for commands that work without one.
#[derive(Debug, Args)]
pub struct PairFlags {
    /// The name that was given to the backend, or its UUID, where nothing else tells it from another
    #[arg(long, value_name = "NAME", requires = "backend")]
    backend_id: Option<String>,
    /// Where the server keeps the records of backends that have no room for their own [default: $STATE_DIRECTORY or
    /// /var/lib/flashwise]
    #[arg(long, value_name = "DIRECTORY", requires = "backend")]
    state_directory: Option<PathBuf>,
}

impl PairFlags {
    pub fn apply(&self, volume: &mut VolumeConfig) {
        volume.backend_id.clone_from(&self.backend_id);
        if let Some(directory) = &self.state_directory {
            volume.state_directory.clone_from(directory);
        }
    }

    /// Where records are kept.
    pub fn state_directory(&self) -> PathBuf {
        self.state_directory.clone().unwrap_or_else(default_state_directory)
    }

    /// The name that was given to the backend.
    pub fn backend_id(&self) -> Option<&str> {
        self.backend_id.as_deref()
    }
}
