//! The paths that requests to the management API may name: block devices, and files in certain directories. The server
//! may run as root, so it does not open every path that a client names.

use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use crate::config::ServerConfig;
use std::collections::BTreeMap;

use crate::manage::{ManageError, NewPool, NewVolume};

/// The keys of a pool or a volume whose values can be paths.
const PATH_KEYS: [&str; 4] = ["flash", "journal", "cache-device", "storage-device"];

/// The directories whose files requests may name.
#[derive(Debug)]
pub struct Reach {
    directories: Vec<PathBuf>,
}

impl Reach {
    /// Returns the configured directories. By default, these are the state directory and the directories of all
    /// backends, flashes, journals and disks that are files.
    pub fn of(config: &ServerConfig) -> Reach {
        let directories = match &config.api.directories {
            Some(directories) => directories.clone(),
            None => {
                let of_volumes = config
                    .volumes
                    .iter()
                    .flat_map(|volume| [&volume.backend, &volume.flash].into_iter().chain(&volume.journal));
                let of_pools = config
                    .pools
                    .iter()
                    .flat_map(|pool| pool.disks.iter().chain([&pool.cache.flash]).chain(&pool.cache.journal));
                let files = of_volumes.chain(of_pools).filter(|path| !path.as_os_str().is_empty() && !is_device(path));
                let folder = |path: &PathBuf| Some(resolved(path).ok()?.parent()?.to_owned());
                files.filter_map(folder).chain([config.state_directory.clone()]).collect()
            }
        };
        let mut reach = Reach { directories };
        reach.directories.sort();
        reach.directories.dedup();
        reach
    }

    /// Refuses a path that is neither a block device nor in one of the directories.
    pub fn check(&self, key: &str, path: &Path) -> Result<(), ManageError> {
        // The state directory may be made while the server runs.
        let directories: Vec<PathBuf> = self.directories.iter().filter_map(|path| path.canonicalize().ok()).collect();
        let is_inside = |path: &Path| directories.iter().any(|directory| path.starts_with(directory));
        if is_device(path) || resolved(path).is_ok_and(|path| is_inside(&path)) {
            return Ok(());
        }
        let shown: Vec<String> = directories.iter().map(|path| path.display().to_string()).collect();
        let expected = if shown.is_empty() { String::new() } else { format!(", or a file in {}", shown.join(", ")) };
        Err(ManageError::Invalid(format!(
            "{key}: found {}, expected a block device{expected}; [api] directories allows more",
            path.display()
        )))
    }

    /// Checks all paths of a new pool.
    pub fn check_pool(&self, new: &NewPool) -> Result<(), ManageError> {
        new.disks.iter().try_for_each(|path| self.check("disks", Path::new(path)))?;
        self.check_settings(&new.settings)
    }

    /// Checks all paths of a new volume.
    pub fn check_volume(&self, new: &NewVolume) -> Result<(), ManageError> {
        self.check("backend", Path::new(&new.backend))?;
        self.check_settings(&new.settings)
    }

    fn check_settings(&self, settings: &BTreeMap<String, String>) -> Result<(), ManageError> {
        let is_path = |key: &str, value: &str| {
            ["flash", "journal"].contains(&key) || value.contains('/') || value.ends_with(".toml")
        };
        let of_settings = PATH_KEYS.iter().filter_map(|key| Some((*key, settings.get(*key)?)));
        of_settings
            .filter(|(key, value)| is_path(key, value))
            .try_for_each(|(key, path)| self.check(key, Path::new(path)))
    }
}

fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.file_type().is_block_device())
}

/// The path without links and dots; its last part need not exist.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Err(error), Some(folder), Some(name)) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            Ok(folder.canonicalize()?.join(name))
        }
        (found, ..) => found,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_files_in_the_directories_are_reachable_by_any_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().canonicalize().unwrap().join(name);
        for name in ["in", "in/below", "out"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        for name in ["in/file", "out/file"] {
            std::fs::write(path(name), "").unwrap();
        }
        symlink(path("out/file"), path("in/link")).unwrap();
        symlink(path("out/new"), path("in/dangling")).unwrap();
        symlink(path("out"), path("in/folder")).unwrap();
        symlink(path("in/file"), path("out/back")).unwrap();
        let reach = Reach { directories: vec![path("in")] };
        for (name, is_reached) in [
            ("in/file", true),
            ("in/new", true),
            ("in/below/new", true),
            ("in/missing/new", false),
            ("out/back", true),
            ("out/file", false),
            ("out/new", false),
            ("in/../out/file", false),
            ("in/link", false),
            ("in/dangling", false),
            ("in/folder/new", false),
            ("inner", false),
        ] {
            let checked = reach.check("flash", &path(name));
            assert_eq!(checked.is_ok(), is_reached, "{name}: {checked:?}");
        }
        let error = reach.check("flash", Path::new("/dev/null")).unwrap_err().to_string();
        let expected = format!("or a file in {}; [api] directories allows more", path("in").display());
        assert_eq!(error, format!("flash: found /dev/null, expected a block device, {expected}"));
    }

    #[test]
    fn every_path_of_a_volume_is_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("disk").display().to_string();
        let reach = Reach { directories: vec![folder.path().canonicalize().unwrap()] };
        let volume = |key: &str, path: &str| {
            let (name, backend) = ("v".to_owned(), inside.clone());
            reach.check_volume(&NewVolume { name, backend, settings: [(key.to_owned(), path.to_owned())].into() })
        };
        for key in ["flash", "journal"] {
            assert_eq!(volume(key, &inside), Ok(()), "{key}");
            assert!(volume(key, "/root/new").is_err(), "{key}");
            assert!(volume(key, "new").is_err(), "{key}");
        }
    }

    #[test]
    fn every_path_of_a_pool_is_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("disk").display().to_string();
        let reach = Reach { directories: vec![folder.path().canonicalize().unwrap()] };
        let pool = |disk: &str, settings: &[(&str, &str)]| {
            let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            reach.check_pool(&NewPool {
                name: "p".to_owned(),
                disks: vec![disk.to_owned()],
                wipe: Vec::new(),
                settings,
            })
        };
        assert_eq!(pool(&inside, &[("cache-device", "slc"), ("ram", "1GiB"), ("flash", &inside)]), Ok(()));
        assert!(pool("/etc/passwd", &[]).is_err());
        for (key, value) in [
            ("flash", "/root/new"),
            ("journal", "/root/new"),
            ("cache-device", "/etc/shadow"),
            ("storage-device", "../own.toml"),
        ] {
            assert!(pool(&inside, &[(key, value)]).is_err(), "{key}");
        }
    }
}
