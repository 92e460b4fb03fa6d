//! A virtual machine, from power on to power off.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use flashwise_testing::waiting::wait_for;

/// Parameters on the machine's kernel command line.
pub struct Task<'a> {
    pub layout: &'a str,
    pub file_system: &'a str,
    pub step: &'a str,
    pub boot: u64,
}

pub struct Machine {
    qemu: Child,
    console: PathBuf,
    told: Receiver<String>,
    pub started: Instant,
}

/// The result of a machine.
pub enum Told {
    Line(String),
    /// Nothing, until the time that was asked for.
    Nothing,
    /// It is off.
    Off,
}

impl Machine {
    /// Boots the guest of `tests/power-cuts/run`, with disks of these names from the NBD server at `nbd.sock` in
    /// `directory`.
    pub fn start(directory: &Path, disks: impl Iterator<Item = &'static str>, task: &Task) -> Machine {
        let guest = std::env::var("FLASHWISE_GUEST").expect("FLASHWISE_GUEST is set by tests/power-cuts/run");
        // Emulated, it runs wherever QEMU does.
        let accelerator = std::env::var("FLASHWISE_ACCELERATOR").unwrap_or("tcg".to_owned());
        let console = directory.join("console");
        let channel_path = directory.join("told.sock");
        // It stays from the machine before.
        let _ = std::fs::remove_file(&channel_path);
        let listener = UnixListener::bind(&channel_path).unwrap();
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args(["-accel", &accelerator, "-cpu", "max", "-m", "768", "-nodefaults", "-no-reboot"])
            .args(["-display", "none", "-device", "virtio-rng-pci"])
            .arg("-kernel")
            .arg(Path::new(&guest).join("vmlinuz"))
            .arg("-initrd")
            .arg(Path::new(&guest).join("initramfs.img"))
            .arg("-append")
            .arg(format!(
                "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check rdinit=/init LAYOUT={} FILE_SYSTEM={} \
                 STEP={} BOOT={}",
                task.layout, task.file_system, task.step, task.boot
            ))
            .arg("-serial")
            .arg(format!("file:{}", console.display()))
            .args(["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=told", "-chardev"])
            .arg(format!("socket,id=told,path={}", channel_path.display()));
        for name in disks {
            let socket = directory.join("nbd.sock");
            command
                .arg("-drive")
                .arg(format!(
                    "file=nbd+unix:///{name}?socket={},format=raw,if=none,id={name},cache=none,discard=unmap",
                    socket.display()
                ))
                .arg("-device")
                .arg(format!("virtio-blk-pci,drive={name},serial={name}"));
        }
        let errors = File::create(directory.join("qemu")).unwrap();
        let mut qemu = command.stdin(Stdio::null()).stderr(errors).spawn().expect("qemu-system-x86_64 runs");
        listener.set_nonblocking(true).unwrap();
        let started = Instant::now();
        let (socket, _) = wait_for("QEMU connects", || {
            let connected = listener.accept().ok();
            if let Some(status) = qemu.try_wait().unwrap().filter(|_| connected.is_none()) {
                panic!("QEMU: {status}: {}", std::fs::read_to_string(directory.join("qemu")).unwrap());
            }
            connected
        });
        socket.set_nonblocking(false).unwrap();
        let (sender, told) = channel();
        std::thread::spawn(move || {
            let mut socket = BufReader::new(socket);
            let mut line = String::new();
            // A line without an end was cut off.
            while socket.read_line(&mut line).is_ok_and(|_| line.ends_with('\n')) {
                if sender.send(line.trim_end().to_owned()).is_err() {
                    break;
                }
                line.clear();
            }
        });
        Machine { qemu, console, told, started }
    }

    /// The next line, until `deadline`.
    pub fn told(&self, deadline: Instant) -> Told {
        match self.told.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => Told::Line(line),
            Err(RecvTimeoutError::Timeout) => Told::Nothing,
            Err(RecvTimeoutError::Disconnected) => Told::Off,
        }
    }

    /// Cuts the power. Returns the output so far.
    pub fn kill(mut self) -> Vec<String> {
        self.end();
        self.told.iter().collect()
    }

    /// Returns the last output of the kernel and the first process.
    pub fn console(&self) -> String {
        let console = String::from_utf8_lossy(&std::fs::read(&self.console).unwrap()).into_owned();
        let lines: Vec<&str> = console.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    fn end(&mut self) {
        // It may be off already.
        let _ = self.qemu.kill();
        self.qemu.wait().unwrap();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end();
    }
}
