//! Volumes that are made while a server runs.

use std::path::Path;
use std::sync::Arc;

use flashwise_core::human;
use flashwise_storage::disk::inventory::DiskInfo;
use flashwise_storage::pool::{PoolError, prepare};
use flashwise_storage::status::VolumeStatus;
use flashwise_storage::volume::{Opened, Volume, VolumeConfig};

use super::{Making, check_flash, error};
use crate::config::ServerConfig;
use crate::config::made::{Kind, Made};
use crate::manage::plan::Plan;
use crate::manage::{ManageError, NewVolume};

/// Keys of a volume that are no settings of one that is made: the name and the backend have their own place.
const NOT_SETTINGS: [&str; 3] = ["name", "aliases", "backend"];

/// Checks a request, and returns the volume that it describes.
fn asked(new: &NewVolume) -> Result<Made, ManageError> {
    let NewVolume { name, backend, settings } = new;
    let invalid = |what: String| Err(ManageError::Invalid(what));
    flashwise_storage::pool::metadata::check_name(name).map_err(error)?;
    if backend.is_empty() {
        return invalid("backend: found none, expected a block device or a file that holds the data".to_owned());
    }
    let paths = [("backend", Some(backend)), ("flash", settings.get("flash")), ("journal", settings.get("journal"))];
    let relative = paths.into_iter().find(|(_, path)| path.is_some_and(|path| !Path::new(path).is_absolute()));
    if let Some((key, Some(path))) = relative {
        return invalid(format!("{key}: found '{path}', expected an absolute path such as /dev/sdb"));
    }
    if let Some(key) = NOT_SETTINGS.into_iter().find(|key| settings.contains_key(*key)) {
        return invalid(format!("found {key} among the settings, expected keys such as flash or ram"));
    }
    let mut settings = settings.clone();
    settings.insert("backend".to_owned(), backend.clone());
    Ok(Made { name: name.clone(), disks: Vec::new(), settings, ended: None })
}

/// Refuses a backend that is in use, or that belongs to a pool or a cache. Its data stays.
fn check_backend(path: &Path) -> Result<DiskInfo, ManageError> {
    let conflict = |what: String| ManageError::Conflict(format!("backend: {what}"));
    let info = match prepare::check(path, true) {
        Err(PoolError::NotFree { path, what, .. }) => return Err(conflict(format!("{path}: {what}"))),
        checked => checked.map_err(error)?,
    };
    match info.holds() {
        Some(holds) => Err(conflict(format!("{}: {holds}", info.path))),
        None => Ok(info),
    }
}

impl Making {
    /// The configuration with a volume that is wanted, if that can be made, and its backend.
    fn check_volume(&self, volume: &Made) -> Result<(ServerConfig, VolumeConfig, DiskInfo), ManageError> {
        let config = self.known.lock().check_new(Kind::Volume, volume)?;
        let made = config.volumes.last().expect("the volume is the last one").clone();
        if let Some((_, problem)) = config.missing.iter().find(|(name, _)| *name == made.name) {
            return Err(ManageError::Invalid(problem.clone()));
        }
        let backend = check_backend(&made.backend)?;
        check_flash(&made.flash)?;
        Ok((config, made, backend))
    }

    /// Describes the effect of making a volume.
    pub fn plan_volume(&self, new: &NewVolume) -> Result<Plan, ManageError> {
        let (_, made, backend) = self.check_volume(&asked(new)?)?;
        let size = human::bytes(made.size_bytes.unwrap_or(backend.size_bytes) as f64);
        let held = backend.signatures.iter().map(|held| held.kind.as_str()).collect::<Vec<_>>();
        let held = if held.is_empty() { String::new() } else { format!(", such as its {}", held.join(" and ")) };
        let ram = human::bytes(made.cache.ram_bytes() as f64);
        let cache = match made.flash.as_os_str().is_empty() {
            true => format!("Its cache has {ram} of RAM and no flash."),
            false => format!("Its cache has {ram} of RAM, and lies on {}.", made.flash.display()),
        };
        let does = vec![
            format!("Volume {} has {size} of {}. Its data stays{held}.", made.name, backend.named()),
            cache,
            format!("Nothing else may use {} from then on: clients open the volume.", backend.path),
            format!("It is served at once, and after each restart: {} has it.", self.file(Kind::Volume).display()),
        ];
        Ok(Plan { does, ..Plan::default() })
    }

    /// Makes a volume and opens it.
    pub fn make_volume(&self, new: &NewVolume) -> Result<(Arc<Volume>, Opened), ManageError> {
        let volume = asked(new)?;
        let (config, made, _) = self.check_volume(&volume)?;
        let opened = Volume::open(made, &|_, _| {}).map_err(|error| ManageError::Failed(error.to_string()))?;
        let mut known = self.known.lock();
        if let Err(error) = known.change(Kind::Volume, |volumes| volumes.push(volume)) {
            // That it cannot be kept is the error to report.
            drop(opened.0.close());
            return Err(error);
        }
        known.config = config;
        Ok(opened)
    }

    /// Describes the effect of removing a volume. Refuses a volume of the configuration, and one that is in use or
    /// needs its flash.
    pub fn plan_end_volume(&self, status: &VolumeStatus) -> Result<Plan, ManageError> {
        let name = &status.name;
        let conflict = |what: String| Err(ManageError::Conflict(format!("volume '{name}' {what}")));
        if !self.keeps(Kind::Volume, name) {
            let known = self.known.lock();
            let file = known.config.path.as_deref().unwrap_or(Path::new("the configuration")).display().to_string();
            return conflict(format!("is of {file}: take it out there, and start the server again"));
        }
        self.known.lock().check_file(Kind::Volume)?;
        match status.clients.len() {
            0 => {}
            1 => return conflict("is in use: 1 client has it open; disconnect it first".to_owned()),
            many => return conflict(format!("is in use: {many} clients have it open; disconnect them first")),
        }
        if status.dirty_bytes > 0 || status.unwritten_blocks > 0 {
            let dirty = human::bytes(status.dirty_bytes as f64);
            return conflict(format!(
                "has {dirty} that are not on {} yet; detach its flash first, which writes them back",
                status.backend
            ));
        }
        let mut does = vec![format!("Volume {name} is not served any more. Its data stays on {}.", status.backend)];
        if !status.flash.is_empty() {
            does.push(format!("The cache on {} is deleted, and the flash will be blank.", status.flash));
        }
        does.push(format!("{} does not have it any more.", self.file(Kind::Volume).display()));
        Ok(Plan { does, destroys: true, ..Plan::default() })
    }

    /// Describes the effect of forgetting a volume that is not served.
    pub fn plan_forget_volume(&self, name: &str) -> Result<Plan, ManageError> {
        self.plan_forget_of(Kind::Volume, name, "Its backend and its flash are left as they are.".to_owned())
    }
}
