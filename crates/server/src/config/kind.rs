//! The kinds of things that a running server makes.

use std::fmt;
use std::path::{Path, PathBuf};

/// A volume or a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A volume.
    Volume,
    /// A pool.
    Pool,
}

impl Kind {
    /// Both of them.
    pub const ALL: [Kind; 2] = [Kind::Volume, Kind::Pool];

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

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Volume => "volume",
            Kind::Pool => "pool",
        })
    }
}
