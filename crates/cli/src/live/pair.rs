//! Identity of a backend, for commands that work without a configuration.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use flashwise_storage::attach::stores::side_of;
use flashwise_storage::attach::{BackendSide, Pairing, is_damaged};
use flashwise_storage::disk::Disk;
use flashwise_storage::disk::file::{FileDisk, Options};
use flashwise_storage::disk::identity::{Identity, IdentityError, identity};
use flashwise_storage::flash::is_blank;
use flashwise_storage::pool::label::Label;
use flashwise_storage::volume::{Storage, VolumeConfig};

use crate::failure::Misuse;
use crate::log::warning;

/// Options for a backend that a configuration would otherwise describe.
#[derive(Debug, Args)]
pub struct PairFlags {
    /// Name that the backend was given as its identity, or its UUID
    #[arg(long, value_name = "NAME", requires = "backend", hide_short_help = true)]
    backend_id: Option<String>,
    /// The server's directory for records of backends without room for their own [default: $STATE_DIRECTORY or
    /// /var/lib/flashwise]
    #[arg(long, value_name = "DIRECTORY", requires = "backend", hide_short_help = true)]
    state_directory: Option<PathBuf>,
}

impl PairFlags {
    /// Returns the volume of a backend and a flash, with these options.
    pub fn volume(&self, backend: &Path, flash: &Path) -> anyhow::Result<VolumeConfig> {
        if same(backend, flash) {
            let shown = flash.display();
            return Err(Misuse(format!("--flash: {shown} is the backend too; give the cache's flash")).into());
        }
        let mut volume = VolumeConfig::of("volume", backend, flash);
        volume.backend_id.clone_from(&self.backend_id);
        if let Some(directory) = &self.state_directory {
            volume.state_directory.clone_from(directory);
        }
        Ok(volume)
    }
}

/// True if two paths lead to the same file or device.
fn same(one: &Path, other: &Path) -> bool {
    let known = |path: &Path| std::fs::metadata(path).ok().map(|known| (known.dev(), known.ino()));
    known(one).is_some_and(|one| known(other) == Some(one))
}

/// A backend that no server uses, with the record of its cache.
pub struct OpenBackend {
    pub disk: Arc<dyn Disk>,
    pub identity: Identity,
    pub side: Box<dyn BackendSide>,
    pub pairing: Pairing,
}

impl OpenBackend {
    /// Opens the backend of a volume.
    pub fn of(volume: &VolumeConfig, options: Options) -> anyhow::Result<OpenBackend> {
        refuse_disk_of_pool(volume)?;
        let disk = Arc::new(FileDisk::open(&volume.backend, options)?);
        let identity = identity(&disk, volume.backend_id.as_deref())?;
        let side = side_of(disk.clone(), identity.id, &volume.state_directory)?;
        let pairing = Pairing { backend: identity.id, is_identified: volume.backend_id.is_some(), discards: false };
        Ok(OpenBackend { disk, identity, side, pairing })
    }

    /// The error of the cache's record, if that is damaged.
    pub fn damaged_record(&self) -> Option<std::io::Error> {
        self.side.read().err().filter(is_damaged)
    }

    /// Warns of a damaged record, for commands that continue without it.
    pub fn warn_of_damaged_record(&self) {
        if let Some(error) = self.damaged_record() {
            warning!("{error}: the record is damaged; an outdated copy of the flash cannot be recognised without it");
        }
    }

    /// Wraps the disks of a pool that no server uses.
    pub fn of_pool(storage: Storage) -> OpenBackend {
        let Storage { disk, identity, side, notes } = storage;
        notes.iter().for_each(|note| warning!("{note}"));
        // The labels of its disks identify a pool.
        let pairing = Pairing { backend: identity.id, is_identified: false, discards: false };
        OpenBackend { disk, identity, side, pairing }
    }
}

/// Refuses a disk of a pool as a backend, unless it is one whose clients made a pool. It gets no identity.
fn refuse_disk_of_pool(volume: &VolumeConfig) -> anyhow::Result<()> {
    let options = Options { read_only: true, ..Options::default() };
    let disk = Arc::new(FileDisk::open(&volume.backend, options)?);
    let (Ok(Ok(label)), None) = (Label::read(&*disk), &volume.backend_id) else { return Ok(()) };
    let has_record = match identity(&disk, None) {
        Err(IdentityError::Never { .. }) => false,
        identity => match side_of(disk, identity?.id, &volume.state_directory)?.read() {
            Err(error) => is_damaged(&error),
            record => record?.is_some(),
        },
    };
    if has_record {
        return Ok(());
    }
    Err(Misuse(format!(
        "{} is a disk of pool '{}', which has no --backend. Give --config to detach or attach its cache, and only \
         --flash to check or wipe it",
        volume.backend.display(),
        label.pool_name
    ))
    .into())
}

/// Refuses a flash that has no superblock because it is blank there or is a disk of a pool.
pub fn refuse_no_flash(flash: &dyn Disk, to: &str) -> anyhow::Result<()> {
    // No disk of a pool has zones.
    if flash.zoned().is_none()
        && let Ok(label) = Label::read(flash)?
    {
        return Err(Misuse(format!(
            "{} is a disk of pool '{}', so there is no cache to {to}; give the flash of a cache",
            flash.description(),
            label.pool_name
        ))
        .into());
    }
    if is_blank(flash)? {
        return Err(Misuse(format!(
            "{} is blank where a cache begins, so there is none to {to}. If it had a cache whose first pages are lost, \
             recover that \
             with 'flashwise detach --salvage'",
            flash.description()
        ))
        .into());
    }
    Ok(())
}
