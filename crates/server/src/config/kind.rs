//! The kinds of things that a running server makes.

use std::path::{Path, PathBuf};

flashwise_core::words! {
    /// A volume or a pool.
    #[derive(PartialOrd, Ord)]
    pub enum Kind {
        /// A volume.
        Volume "volume",
        /// A pool.
        Pool "pool",
    }
}

impl Kind {
    /// Returns the file in the state directory that has the volumes or pools of this kind.
    pub fn path(self, state_directory: &Path) -> PathBuf {
        state_directory.join(format!("{}.json", self.many()))
    }

    /// Its plural, for people.
    pub(super) fn many(self) -> &'static str {
        match self {
            Kind::Volume => "volumes",
            Kind::Pool => "pools",
        }
    }
}
