//! File systems on an export: nbdfuse shows it as a file, a loop device makes it a disk, and mount(8) mounts it. Needs
//! root.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::waiting::{found, wait_until};

/// Returns the output of a program, including its errors; `Err` if it fails.
pub fn try_run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    if output.status.success() { Ok(said) } else { Err(format!("{program} {arguments:?}: {}\n{said}", output.status)) }
}

/// Returns the output of a program, which must succeed.
pub fn run(program: &str, arguments: &[&str]) -> String {
    try_run(program, arguments).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns a path as text.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Repeats `take_away` while others use its object for a moment: a process that is starting has all files of this one
/// open until it runs.
fn until_it_succeeds(mut take_away: impl FnMut() -> std::io::Result<Output>) -> bool {
    found(|| take_away().ok().filter(|output| output.status.success())).is_some()
}

/// An export as a loop device over nbdfuse.
pub struct Device {
    nbdfuse: Child,
    /// The file of the export.
    pub file: PathBuf,
    /// The loop device.
    pub device: String,
}

impl Device {
    /// Uses `directory` for the file of the export.
    pub fn new(directory: &Path, uri: &str) -> Device {
        let file = directory.join("export");
        std::fs::write(&file, b"").unwrap();
        let nbdfuse = Command::new("nbdfuse").arg(&file).arg(uri).stdin(Stdio::null()).spawn().expect("nbdfuse runs");
        let is_shown = || std::fs::metadata(&file).is_ok_and(|metadata| metadata.len() > 0);
        wait_until("nbdfuse shows the export", is_shown);
        let device = run("losetup", &["--find", "--show", text(&file)]).trim().to_owned();
        Device { nbdfuse, file, device }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.device]).output();
        // A detached device disappears when its last user has closed it.
        if !until_it_succeeds(|| Command::new("fusermount3").args(["-u", text(&self.file)]).output()) {
            let _ = self.nbdfuse.kill();
        }
        let _ = self.nbdfuse.wait();
    }
}

/// A mounted file system.
pub struct Mount(PathBuf);

impl Mount {
    /// Mounts the file system on `device` at a directory that is created.
    pub fn new(device: &str, at: &Path) -> Mount {
        Mount::with(&[device], at).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Mounts `what`: options, and the device or image.
    pub fn with(what: &[&str], at: &Path) -> Result<Mount, String> {
        std::fs::create_dir_all(at).unwrap();
        try_run("mount", &[what, &[text(at)]].concat())?;
        Ok(Mount(at.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        until_it_succeeds(|| Command::new("umount").arg(&self.0).output());
    }
}

/// Checks the unmounted file system on a device or image.
pub fn check(file_system: &str, device: &str) -> Result<(), String> {
    let said = match file_system {
        "ext4" => try_run("e2fsck", &["-fn", device]),
        "xfs" => try_run("xfs_repair", &["-n", device]),
        _ => try_run("btrfs", &["check", device]),
    };
    said.map(drop)
}
