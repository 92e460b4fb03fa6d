//! A request for a new volume.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A volume that is to be made.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewVolume {
    /// Its name: 1 to 64 lower-case letters, digits, `-` and `.`.
    pub name: String,
    /// The slow storage, whose data stays: a block device or a regular file, by an absolute path.
    pub backend: String,
    /// Keys of a table `[[volume]]` of the configuration with their values as text, such as `flash` and `/dev/nvme0n1`,
    /// or `ram` and `512MiB`.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}
