//! A request for a new volume.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A new volume.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewVolume {
    /// Its name: 1 to 64 lower-case letters, digits, `-` and `.`.
    pub name: String,
    /// The backend, whose data stays: the absolute path of a block device or a regular file.
    pub backend: String,
    /// Keys of a table `[[volume]]` of the configuration with their values as text, such as `flash` and `/dev/nvme0n1`,
    /// or `ram` and `512MiB`.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}
