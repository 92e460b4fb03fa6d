//! Checks of the files and devices that a configuration names.

use std::collections::HashMap;
use std::fs::Metadata;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use flashwise_core::format::BLOCK_BYTES;
use flashwise_core::quantity::ByteSize;
use rustix::fs::Access;

use super::consistency::check_flash_size;
use super::keys::VOLUME_BYTES_MAX;
use super::{ConfigError, Origin, Problem, Section, ServerConfig, TlsMode};
use crate::front;
use crate::front::iscsi::chap::read_secret;
use crate::manage::{Address, SOCKET_PATH_BYTES_MAX, is_runtime_directory};
use crate::secret::{self, CHARACTERS_MIN};
use flashwise_storage::disk::device;
use flashwise_storage::disk::zoned::may_have_zones;
use flashwise_storage::journal;
use flashwise_storage::record::segments::Names;
use flashwise_storage::volume::VolumeConfig;

/// Checks the files. Disables discards on regular files unless the configuration enables them.
pub(super) fn check(config: &mut ServerConfig, origin: &Origin<'_>) -> Result<(), ConfigError> {
    check_readable(config, origin)?;
    check_directories(config, origin).map_err(|(section, key, problem)| origin.refuse(section, key, problem))?;
    let mut used: HashMap<FileId, String> = HashMap::new();
    let mut memory_bytes = 0;
    let is_alone = config.volumes.len() + config.pools.len() == 1;
    for (number, volume) in config.volumes.iter_mut().enumerate() {
        let section = Section::Volume(number);
        if let Some(problem) = missing(volume).filter(|_| !is_alone || origin.was_made(section)) {
            // The other volumes and pools are served.
            config.missing.push((volume.name.clone(), origin.refuse(section, problem.0, problem.1).to_string()));
            continue;
        }
        let is_device = match check_of_volume(&mut used, origin, section, volume) {
            Err(error) if origin.was_made(section) => {
                config.missing.push((volume.name.clone(), error.to_string()));
                continue;
            }
            checked => checked?,
        };
        if !origin.tables.entries(section).iter().any(|entry| entry.key == "discard") {
            volume.discard = is_device;
        }
        memory_bytes += volume.cache.ram_bytes();
        check_memory(memory_bytes).map_err(|problem| origin.refuse(section, "ram", problem))?;
    }
    for (number, pool) in config.pools.iter_mut().enumerate() {
        let section = Section::Pool(number);
        let whose = format!("pool '{}'", pool.cache.name);
        // A volume that a running server created may have lost its devices since. Opening it reports that, and the
        // others are served.
        let was_made = origin.was_made(section);
        let is_found = |path: &Path| !was_made || FileId::of(path).is_ok();
        for path in pool.disks.iter().filter(|path| is_found(path)) {
            take(&mut used, origin, section, "disks", path, &whose)?;
        }
        let of_journal = pool.cache.journal.iter().map(|path| ("journal", path));
        for (key, path) in [("flash", &pool.cache.flash)].into_iter().chain(of_journal) {
            if is_found(path) {
                take(&mut used, origin, section, key, path, &whose)?;
            }
        }
        let is_device = match check_journal(&pool.cache).and_then(|()| check_flash(&pool.cache)) {
            Err(_) if was_made => false,
            checked => checked.map_err(|(key, problem)| origin.refuse(section, key, problem))?,
        };
        if !origin.tables.entries(section).iter().any(|entry| entry.key == "discard") {
            pool.cache.discard = is_device;
        }
        memory_bytes += pool.cache.cache.ram_bytes();
        check_memory(memory_bytes).map_err(|problem| origin.refuse(section, "ram", problem))?;
    }
    if let Some(record) = &config.record {
        let refuse = |problem| origin.refuse(Section::Server, "record", problem);
        if device::names_a_device(record) {
            return Err(refuse(format!("found {}, which names a device; expected a file", record.display())));
        }
        let id = FileId::of(record).map_err(|error| refuse(format!("found {}: {error}", record.display())))?;
        if let Some(other) = used.get(&id) {
            return Err(refuse(format!("found {}, which is {other}; expected a file of its own", record.display())));
        }
        let names = Names::of(record);
        let access = rustix::fs::access(names.folder(), Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK);
        if let Err(error) = access {
            let folder = names.folder().display();
            return Err(refuse(format!("found {}, but no file can be made in {folder}: {error}", record.display())));
        }
    }
    Ok(())
}

/// Checks and registers the devices of a volume. Returns true if its flash is a block device.
fn check_of_volume(
    used: &mut HashMap<FileId, String>,
    origin: &Origin<'_>,
    section: Section,
    volume: &VolumeConfig,
) -> Result<bool, ConfigError> {
    let whose = format!("volume '{}'", volume.name);
    let of_journal = volume.journal.iter().map(|path| ("journal", path));
    for (key, path) in [("backend", &volume.backend), ("flash", &volume.flash)].into_iter().chain(of_journal) {
        take(used, origin, section, key, path, &whose)?;
    }
    check_backend(volume).map_err(|(key, problem)| origin.refuse(section, key, problem))?;
    check_journal(volume).map_err(|(key, problem)| origin.refuse(section, key, problem))?;
    check_flash(volume).map_err(|(key, problem)| origin.refuse(section, key, problem))
}

/// Registers a used file, or refuses one that is used twice. Ignores an empty path.
fn take(
    used: &mut HashMap<FileId, String>,
    origin: &Origin<'_>,
    section: Section,
    key: &'static str,
    path: &Path,
    whose: &str,
) -> Result<(), ConfigError> {
    if path.as_os_str().is_empty() {
        return Ok(());
    }
    let id = FileId::of(path).map_err(|error| {
        origin.refuse(section, key, format!("found {}, which cannot be examined: {error}", path.display()))
    })?;
    if let Some(other) = used.get(&id) {
        let problem = format!("found {}, which is {other} too; expected a file of its own", path.display());
        return Err(origin.refuse(section, key, problem));
    }
    let what = if key == "disks" { "a disk" } else { key };
    let article = if key == "disks" { String::new() } else { "the ".to_owned() };
    used.insert(id, format!("{article}{what} of {whose}"));
    Ok(())
}

/// Identifies a file, independent of its names.
#[derive(Debug, PartialEq, Eq, Hash)]
enum FileId {
    Device(u64),
    File {
        device: u64,
        inode: u64,
    },
    /// The file does not exist yet.
    Path(PathBuf),
}

impl FileId {
    fn of(path: &Path) -> io::Result<FileId> {
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.file_type().is_block_device() => Ok(FileId::Device(metadata.rdev())),
            Ok(metadata) => Ok(FileId::File { device: metadata.dev(), inode: metadata.ino() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(FileId::Path(folder_of(path).canonicalize()?.join(path.file_name().unwrap_or_default())))
            }
            Err(error) => Err(error),
        }
    }
}

fn check_readable(config: &ServerConfig, origin: &Origin<'_>) -> Result<(), ConfigError> {
    let tls = &config.tls;
    let mut files = vec![
        (Section::Api, "token-file", &config.api.token_file),
        (Section::Api, "read-token-file", &config.api.read_token_file),
    ];
    if tls.mode != TlsMode::Off {
        files.push((Section::Tls, "certificate", &tls.certificate));
        files.push((Section::Tls, "key", &tls.key));
        files.push((Section::Tls, "client-authorities", &tls.client_authorities));
    }
    let secrets = [
        ("chap-secret-file", &config.iscsi.chap_secret_file),
        ("mutual-chap-secret-file", &config.iscsi.mutual_chap_secret_file),
    ];
    let mut read = Vec::new();
    for (key, path) in secrets {
        let Some(path) = path else { continue };
        let refuse = |what: String| origin.refuse(Section::Iscsi, key, format!("{}: {what}", path.display()));
        let secret = read_secret(path).map_err(|error| refuse(error.to_string()))?;
        if secret.len() < CHARACTERS_MIN && has_iscsi_for_others(config) {
            let found = secret.len();
            return Err(refuse(format!(
                "found {found} bytes, expected at least {CHARACTERS_MIN}, as other machines can connect"
            )));
        }
        if read.contains(&secret) {
            return Err(refuse("found the secret of initiators, expected another one (RFC 7143)".to_owned()));
        }
        read.push(secret);
    }
    for (section, key, path) in files {
        let Some(path) = path else { continue };
        let is_public = ["certificate", "client-authorities"].contains(&key);
        let read = if is_public { secret::read_public(path, secret::BYTES_MAX) } else { secret::read(path) };
        let problem = match read {
            Err(error) => Some(format!("which cannot be read: {error}")),
            Ok(text) if section == Section::Api => check_token(config, text.trim()).err(),
            Ok(_) => None,
        };
        if let Some(problem) = problem {
            return Err(origin.refuse(section, key, format!("found {}, {problem}", path.display())));
        }
    }
    Ok(())
}

fn has_iscsi_for_others(config: &ServerConfig) -> bool {
    let endpoints = config.listen.iter().filter_map(|uri| Some(uri.parse::<front::Uri>().ok()?.endpoint));
    endpoints.into_iter().any(|endpoint| endpoint.protocol.guarded && !endpoint.address.is_local())
}

/// Refuses an invalid token, and one too short for an address that other machines can reach.
fn check_token(config: &ServerConfig, token: &str) -> Result<(), Problem> {
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(
            "which is empty or has other than visible ASCII characters; expected a token on one line".to_owned()
        );
    }
    let addresses = config.api.address().and_then(|address| address.parse::<Address>().ok()?.resolved().ok());
    let is_for_others =
        addresses.is_some_and(|all| all.iter().any(|address| !address.ip().to_canonical().is_loopback()));
    if is_for_others && token.len() < CHARACTERS_MIN {
        let found = token.len();
        return Err(format!(
            "which has {found} characters; expected at least {CHARACTERS_MIN}, as other machines reach the management \
             API"
        ));
    }
    Ok(())
}

/// Checks the directories and sockets of the server itself.
fn check_directories(config: &ServerConfig, origin: &Origin<'_>) -> Result<(), (Section, &'static str, Problem)> {
    let state = &config.state_directory;
    let there = state.ancestors().find_map(|folder| folder.canonicalize().ok());
    let problem = match there.filter(|_| !state.as_os_str().is_empty()) {
        Some(there) if !there.is_dir() => Some(format!("{} is a file; expected a directory", there.display())),
        Some(there) if is_of_the_kernel(&there) => {
            Some("where nothing can be kept; expected a directory on a disk".to_owned())
        }
        _ => None,
    };
    if let Some(problem) = problem {
        return Err((Section::Server, "state-directory", format!("found {}: {problem}", state.display())));
    }
    if let Some(directory) = config.api.directories.iter().flatten().find(|directory| !directory.is_dir()) {
        let problem = format!("found {}, which is no directory; expected directories", directory.display());
        return Err((Section::Api, "directories", problem));
    }
    let endpoints = config.listen.iter().filter_map(|uri| Some(uri.parse::<front::Uri>().ok()?.endpoint.address));
    let of_clients = endpoints.filter_map(|address| match address {
        front::Address::Unix(path) => Some((Section::Server, path)),
        front::Address::Tcp { .. } => None,
    });
    // The default depends on the user who starts the server.
    let is_given = origin.tables.entries(Section::Api).iter().any(|entry| entry.key == "listen");
    let of_api = match config.api.address().map(str::parse) {
        Some(Ok(Address::Unix(path))) if is_given => Some((Section::Api, path)),
        _ => None,
    };
    for (section, path) in of_clients.chain(of_api) {
        check_socket(&path).map_err(|problem| (section, "listen", format!("found {}, {problem}", path.display())))?;
    }
    Ok(())
}

/// Refuses a path where no Unix socket can be created. An existing socket belongs to a running server, or to one that
/// was killed.
fn check_socket(path: &Path) -> Result<(), Problem> {
    let bytes = path.as_os_str().len();
    if bytes > SOCKET_PATH_BYTES_MAX {
        return Err(format!("a path of {bytes} bytes; expected at most {SOCKET_PATH_BYTES_MAX} for a socket"));
    }
    if path.symlink_metadata().is_ok_and(|found| !found.file_type().is_socket()) {
        return Err("which is a file and no socket; remove it or choose another path".to_owned());
    }
    match folder_of(path) {
        folder if is_runtime_directory(folder) && !folder.exists() => Ok(()),
        folder => check_folder(folder, "socket"),
    }
}

/// Refuses a directory that cannot be written.
fn check_folder(folder: &Path, what: &str) -> Result<(), Problem> {
    let refuse = |why: &dyn std::fmt::Display| Err(format!("but no {what} can be made in {}: {why}", folder.display()));
    match rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        Err(error) => refuse(&error),
        Ok(()) if folder.canonicalize().is_ok_and(|folder| is_of_the_kernel(&folder)) => refuse(&"it is the kernel's"),
        Ok(()) => Ok(()),
    }
}

fn is_of_the_kernel(folder: &Path) -> bool {
    ["/proc", "/sys"].iter().any(|root| folder.starts_with(root))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

type KeyProblem = (&'static str, Problem);

fn size(path: &Path, metadata: &Metadata) -> io::Result<u64> {
    if metadata.is_file() { Ok(metadata.len()) } else { std::fs::File::open(path)?.seek(SeekFrom::End(0)) }
}

/// Returns the size and metadata of a file or device, or `None` if it does not exist.
fn examine(key: &'static str, path: &Path) -> Result<Option<(u64, Metadata)>, KeyProblem> {
    let found = |what: String| (key, format!("found {}, {what}", path.display()));
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(found(format!("which cannot be examined: {error}"))),
    };
    if !metadata.is_file() && !metadata.file_type().is_block_device() {
        return Err(found("which is neither; expected a regular file or a block device".to_owned()));
    }
    if metadata.file_type().is_block_device() && key != "flash" {
        device::check_zones(&device::sysfs(metadata.rdev())).map_err(found)?;
    }
    match size(path, &metadata) {
        Ok(bytes) => Ok(Some((bytes, metadata))),
        Err(error) => Err(found(format!("whose size cannot be found: {error}"))),
    }
}

/// Refuses to create a regular file below `/dev`.
fn refuse_missing_device(key: &'static str, path: &Path) -> Result<(), KeyProblem> {
    if !device::names_a_device(path) {
        return Ok(());
    }
    let problem = format!(
        "found {}, which does not exist; expected a device that does: no file is made below /dev",
        path.display()
    );
    Err((key, problem))
}

/// Returns an error if the backend, or the device of the flash or the journal, does not exist.
fn missing(volume: &VolumeConfig) -> Option<KeyProblem> {
    if matches!(examine("backend", &volume.backend), Ok(None)) {
        return check_backend(volume).err();
    }
    match examine("flash", &volume.flash) {
        Ok(None) => refuse_missing_device("flash", &volume.flash).err(),
        _ => check_journal(volume).err().filter(|_| volume.journal.as_ref().is_some_and(|path| !path.exists())),
    }
}

/// Checks the size of a journal that exists.
fn check_journal(volume: &VolumeConfig) -> Result<(), KeyProblem> {
    let Some(path) = &volume.journal else { return Ok(()) };
    match examine("journal", path)? {
        None => refuse_missing_device("journal", path),
        Some((bytes, _)) if bytes < journal::BYTES_MIN => {
            let [found, expected] = [bytes, journal::BYTES_MIN].map(|bytes| ByteSize::new(bytes).to_string());
            let problem = format!("found {}, which has {found}; expected at least {expected}", path.display());
            Err(("journal", problem))
        }
        Some(_) => Ok(()),
    }
}

fn check_backend(volume: &VolumeConfig) -> Result<(), KeyProblem> {
    let shown = |bytes| ByteSize::new(bytes).to_string();
    let backend = volume.backend.display();
    let Some((bytes, _)) = examine("backend", &volume.backend)? else {
        refuse_missing_device("backend", &volume.backend)?;
        // An empty file would be accepted as the backend of the cache on the flash, or refused next to it.
        let hint = match volume.flash.exists() {
            true => "its flash may hold a cache of it",
            false => "`truncate --size SIZE FILE` makes an empty one",
        };
        let problem =
            format!("found {backend}, which does not exist; expected a regular file or a block device; {hint}");
        return Err(("backend", problem));
    };
    match volume.size_bytes {
        Some(size) if bytes < size => {
            let (name, size, most) = (&volume.name, shown(size), shown(bytes));
            let problem =
                format!("found {size} for volume '{name}', expected at most the size of its backend {backend}, {most}");
            Err(("backend-size", problem))
        }
        None if bytes > 0 && bytes < BLOCK_BYTES as u64 => {
            let problem = format!(
                "found {backend}, which has {bytes} bytes; expected at least one block, {}",
                shown(BLOCK_BYTES as u64)
            );
            Err(("backend", problem))
        }
        None if bytes == 0 => Err(("backend", format!("found {backend}, which is empty; expected the volume's bytes"))),
        None if bytes > VOLUME_BYTES_MAX => {
            let problem = format!("is missing; {backend} has {}, expected at most 16TiB", shown(bytes));
            Err(("backend-size", problem))
        }
        _ => Ok(()),
    }
}

/// Checks the flash. Returns true if it is a block device.
fn check_flash(volume: &VolumeConfig) -> Result<bool, KeyProblem> {
    if volume.flash.as_os_str().is_empty() {
        return Ok(false);
    }
    let shown = |bytes| ByteSize::new(bytes).to_string();
    let flash = volume.flash.display();
    if volume.flash.is_dir() && may_have_zones(&volume.flash) {
        // This is a zonefs. Opening it checks its zones.
        return Ok(false);
    }
    let examined = examine("flash", &volume.flash)?;
    if examined.is_none() {
        refuse_missing_device("flash", &volume.flash)?;
    }
    match (examined, volume.flash_size_bytes) {
        (None, None) => {
            let problem =
                format!("is missing; {flash} does not exist yet, expected how large to make it, such as 1GiB");
            Err(("flash-size", problem))
        }
        (None, Some(_)) => {
            let problem = |problem| ("flash", format!("found {flash}, {problem}"));
            check_folder(folder_of(&volume.flash), "file").map(|()| false).map_err(problem)
        }
        (Some((bytes, metadata)), wanted) => {
            let is_device = metadata.file_type().is_block_device();
            match wanted {
                // Opening the device checks its zones.
                _ if may_have_zones(&volume.flash) => Ok(is_device),
                Some(wanted) if wanted > bytes => {
                    let problem =
                        format!("found {}, expected at most the size of {flash}, {}", shown(wanted), shown(bytes));
                    Err(("flash-size", problem))
                }
                Some(_) => Ok(is_device),
                None => {
                    let check = check_flash_size(bytes, volume.cache.erase_unit_bytes());
                    check.map(|()| is_device).map_err(|problem| ("flash", problem))
                }
            }
        }
    }
}

fn check_memory(ram_bytes: u64) -> Result<(), Problem> {
    let info = rustix::system::sysinfo();
    let memory_bytes = (info.totalram as u64).saturating_mul(info.mem_unit.into());
    if ram_bytes < memory_bytes {
        return Ok(());
    }
    let shown = |bytes| ByteSize::new(bytes).to_string();
    Err(format!(
        "found {} for the volumes so far, expected less than this machine's memory, {}",
        shown(ram_bytes),
        shown(memory_bytes)
    ))
}
