//! A server as its users start it, and a client of its volume.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Far longer than anything takes: a test that hangs fails instead.
const PATIENCE: Duration = Duration::from_secs(60);

/// A configuration in a directory of its own, with a volume `v` on `disk.img` and `cache.img`.
pub struct Setting {
    pub directory: tempfile::TempDir,
}

impl Setting {
    /// `keys` are lines of the volume's table.
    pub fn new(backend_bytes: u64, keys: &str) -> Setting {
        Setting::with("", backend_bytes, keys)
    }

    /// `server_keys` are lines before all tables.
    pub fn with(server_keys: &str, backend_bytes: u64, keys: &str) -> Setting {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        std::fs::File::create(path.join("disk.img")).unwrap().set_len(backend_bytes).unwrap();
        let config = format!(
            "{server_keys}\nlisten = [\"nbd+unix:///?socket={0}/nbd.sock\"]\n[api]\nlisten = \"unix:{0}/api.sock\"\n\
             [[volume]]\nname = \"v\"\nbackend = \"{0}/disk.img\"\nflash = \"{0}/cache.img\"\n{keys}\n",
            path.display()
        );
        std::fs::write(path.join("flashwise.toml"), config).unwrap();
        Setting { directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What `flashwise` prints; it has to succeed.
    pub fn flashwise(&self, arguments: &[&str]) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_flashwise")).args(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "flashwise {arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Where the server's API is, for the commands that ask it.
    pub fn api(&self) -> String {
        format!("unix:{}", self.path("api.sock").display())
    }

    pub fn uri(&self) -> String {
        format!("nbd+unix:///v?socket={}", self.path("nbd.sock").display())
    }

    /// Starts the server and waits until clients can connect.
    pub fn serve(&self) -> Server {
        let child = Command::new(env!("CARGO_BIN_EXE_flashwise"))
            .arg("serve")
            .arg(self.path("flashwise.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(self.path("log")).unwrap())
            .spawn()
            .unwrap();
        let mut server = Server { child, log: self.path("log") };
        let started = Instant::now();
        while UnixStream::connect(self.path("nbd.sock")).is_err() {
            let ended = server.child.try_wait().unwrap();
            assert!(ended.is_none() && started.elapsed() < PATIENCE, "the server does not start: {}", server.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }
}

pub struct Server {
    pub child: Child,
    log: PathBuf,
}

impl Server {
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// SIGKILL: the process has no chance to do anything.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM; the server ends by itself.
    pub fn terminate(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.log());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISCONNECT: u16 = 2;
pub const FLUSH: u16 = 3;
pub const FUA: u16 = 1;

/// A plain client of the oldest kind: EXPORT_NAME and simple replies.
pub struct Client {
    socket: UnixStream,
    next_cookie: u64,
    reading: HashMap<u64, usize>,
}

/// What a request got.
pub struct Answer {
    pub cookie: u64,
    pub error: u32,
    pub data: Vec<u8>,
}

impl Client {
    pub fn connect(socket: &Path, export: &str) -> io::Result<Client> {
        let mut socket = UnixStream::connect(socket)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut greeting = [0; 18];
        socket.read_exact(&mut greeting)?;
        let mut hello = vec![0, 0, 0, 3];
        hello.extend(b"IHAVEOPT\x00\x00\x00\x01");
        hello.extend((export.len() as u32).to_be_bytes());
        hello.extend(export.as_bytes());
        socket.write_all(&hello)?;
        let mut size_and_flags = [0; 10];
        socket.read_exact(&mut size_and_flags)?;
        Ok(Client { socket, next_cookie: 0, reading: HashMap::new() })
    }

    /// Sends a request; returns its cookie.
    pub fn send(&mut self, kind: u16, flags: u16, offset: u64, length: u32, data: &[u8]) -> io::Result<u64> {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes.extend(data);
        if kind == READ {
            self.reading.insert(cookie, length as usize);
        }
        self.socket.write_all(&bytes)?;
        Ok(cookie)
    }

    /// Takes the next answer, to whichever request it is.
    pub fn receive(&mut self) -> io::Result<Answer> {
        let mut header = [0; 16];
        self.socket.read_exact(&mut header)?;
        assert_eq!(header[..4], 0x6744_6698_u32.to_be_bytes());
        let error = u32::from_be_bytes(header[4..8].try_into().unwrap());
        let cookie = u64::from_be_bytes(header[8..].try_into().unwrap());
        let length = self.reading.remove(&cookie).filter(|_| error == 0).unwrap_or(0);
        let mut data = vec![0; length];
        self.socket.read_exact(&mut data)?;
        Ok(Answer { cookie, error, data })
    }

    /// Makes a request and waits for its answer, which is no error.
    pub fn ask(&mut self, kind: u16, flags: u16, offset: u64, length: u32, data: &[u8]) {
        self.send(kind, flags, offset, length, data).unwrap();
        assert_eq!(self.receive().unwrap().error, 0, "request {kind} of {length} bytes at {offset}");
    }

    /// Says that it goes.
    pub fn disconnect(mut self) {
        self.send(DISCONNECT, 0, 0, 0, &[]).unwrap();
    }

    pub fn read(&mut self, offset: u64, length: u32) -> Vec<u8> {
        self.send(READ, 0, offset, length, &[]).unwrap();
        let answer = self.receive().unwrap();
        assert_eq!(answer.error, 0, "reading {length} bytes at {offset}");
        answer.data
    }
}
