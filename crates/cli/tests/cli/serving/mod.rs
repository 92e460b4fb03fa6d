//! A server as its users start it.
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use flashwise_server::front::Address;
use flashwise_testing::waiting::wait_until;

use crate::common::{flashwise, succeed};

/// A configuration in its own directory, with a volume `v` on `disk.img` and `cache.img`.
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
        File::create(path.join("disk.img")).unwrap().set_len(backend_bytes).unwrap();
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

    /// Returns the output of `flashwise`, which must succeed.
    pub fn flashwise(&self, arguments: &[&str]) -> String {
        succeed(self.directory.path(), arguments)
    }

    /// Where the server's API is, for the commands that ask it.
    pub fn api(&self) -> String {
        format!("unix:{}", self.path("api.sock").display())
    }

    pub fn uri(&self) -> String {
        format!("nbd+unix:///v?socket={}", self.path("nbd.sock").display())
    }

    /// Where the volume is served, for clients of the tests' own.
    pub fn address(&self) -> Address {
        Address::Unix(self.path("nbd.sock"))
    }

    /// Starts the server and waits until clients can connect.
    pub fn serve(&self) -> Server {
        Server::start(self.directory.path(), &["serve", "flashwise.toml"])
    }
}

/// Returns the answer of the server's API at `api.sock` to a request for a path, with its head.
pub fn get(folder: &Path, path: &str) -> String {
    let mut api = UnixStream::connect(folder.join("api.sock")).unwrap();
    write!(api, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    api.read_to_string(&mut answer).unwrap();
    answer
}

/// A running `flashwise serve`, which is killed when dropped.
pub struct Server {
    pub child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts it in `folder`, with its output in `log`, and waits until it serves.
    pub fn start(folder: &Path, arguments: &[&str]) -> Server {
        Server::run(folder, flashwise(folder, arguments))
    }

    /// As [`start`](Self::start), by a command.
    pub fn run(folder: &Path, mut command: Command) -> Server {
        let log = folder.join("log");
        let child = command.stdout(Stdio::null()).stderr(File::create(&log).unwrap()).spawn().unwrap();
        let mut server = Server { child, log };
        wait_until("the server starts", || {
            let ended = server.child.try_wait().unwrap();
            assert!(ended.is_none(), "the server does not start: {}", server.told());
            ["is served at", "nothing is served yet"].iter().any(|said| server.told().contains(said))
        });
        server
    }

    /// Returns its messages so far.
    pub fn told(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// SIGKILL: the process has no chance to do anything.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it by SIGTERM and a clean shutdown. Returns its whole output.
    pub fn end(mut self) -> String {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.told());
        self.told()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended if all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
