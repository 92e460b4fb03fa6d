//! A client of the management API sends any bytes, or requests valid in HTTP.
//!
//! Each valid request gets a status and, if it fails, an error in JSON. Without the token, the API only answers that it
//! is alive.
#![no_main]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};

use flashwise_core::cache::settings::Settings;
use flashwise_server::manage::{Address, Api, ApiOptions, DetachProgress, ManageError, Managed, SettingStatus, Tokens};
use flashwise_storage::status::{ServerStatus, VolumeStatus};
use flashwise_storage::what_if::WhatIfStatus;
use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;

/// Two volumes; every call succeeds.
struct Fake;

impl Managed for Fake {
    fn status(&self) -> ServerStatus {
        let volume = |name: &str| VolumeStatus { name: name.to_owned(), ..VolumeStatus::default() };
        ServerStatus { volumes: vec![volume("disk"), volume("a / b")], ..ServerStatus::default() }
    }

    fn flush(&self, volume: Option<&str>) -> Result<(), ManageError> {
        volume.map_or(Ok(()), |name| self.volume(name).map(drop))
    }

    fn what_if(&self, name: &str) -> Result<WhatIfStatus, ManageError> {
        self.volume(name).map(|_| WhatIfStatus::default())
    }

    fn check_detach(&self, name: &str) -> Result<(), ManageError> {
        self.volume(name).map(drop)
    }

    fn detach(&self, name: &str) -> Result<(), ManageError> {
        self.volume(name).map(drop)
    }

    fn check_attach(&self, _: &str) -> Result<(), ManageError> {
        Ok(())
    }

    fn attach(&self, name: &str) -> Result<(), ManageError> {
        self.check_detach(name)
    }

    fn detach_progress(&self, name: &str) -> Result<DetachProgress, ManageError> {
        self.volume(name).map(|_| DetachProgress::default())
    }

    fn settings(&self, _: &str) -> Result<Vec<SettingStatus>, ManageError> {
        Ok(Vec::new())
    }

    fn check_set(&self, name: &str, _changes: &Settings) -> Result<(), ManageError> {
        self.volume(name).map(drop)
    }

    fn set(&self, name: &str, _changes: &Settings) -> Result<(), ManageError> {
        self.volume(name).map(drop)
    }
}

const TOKEN: &str = "secret";

/// Returns the addresses of an API without a token, and of one with a token.
fn addresses() -> &'static [Address; 2] {
    static ADDRESSES: OnceLock<[Address; 2]> = OnceLock::new();
    ADDRESSES.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("flashwise-fuzz-{}.http", std::process::id()));
        let open = (Address::Unix(path), None);
        let guarded = (Address::Tcp("127.0.0.1".to_owned(), 0), Some(TOKEN.to_owned()));
        [open, guarded].map(|(address, change)| {
            let options = ApiOptions { tokens: Tokens { change, ..Tokens::default() }, ..ApiOptions::default() };
            let api = Api::start(&address, options, Arc::new(Fake)).expect("the address is free");
            let address = api.address().clone();
            // It runs as long as the program.
            std::mem::forget(api);
            address
        })
    })
}

/// Returns the reply to all bytes of a client, which closes its side afterwards if `ends`.
fn talk(address: &Address, said: &[u8], ends: bool) -> Vec<u8> {
    let socket: OwnedFd = match address {
        Address::Unix(path) => UnixStream::connect(path).expect("the API listens").into(),
        Address::Tcp(host, port) => TcpStream::connect((host.as_str(), *port)).expect("the API listens").into(),
    };
    // Both kinds of sockets are read, written and shut down in the same way.
    let mut socket = TcpStream::from(socket);
    let mut heard = Vec::new();
    // The server may close the connection before it has read everything.
    let _ = socket.write_all(said);
    if ends {
        let _ = socket.shutdown(Shutdown::Write);
    }
    let _ = socket.read_to_end(&mut heard);
    heard
}

const METHODS: [&str; 6] = ["GET", "PATCH", "POST", "HEAD", "PUT", "OPTIONS"];
const PATHS: [&str; 12] = [
    "/healthz",
    "/metrics",
    "/v1/status",
    "/v1/volumes/disk",
    "/v1/volumes/a%20%2F%20b",
    "/v1/flush",
    "/v1/volumes/disk/flush",
    "/v1/volumes/disk/detach",
    "/v1/volumes/disk/attach",
    "/v1/volumes/",
    "/openapi.json",
    "/",
];

/// Returns the path and bytes of a request valid in HTTP, and true if it has the token.
fn request(program: &mut Unstructured) -> (String, Vec<u8>, bool) {
    let [method, path, token, more] = program.arbitrary::<[u8; 4]>().unwrap_or_default();
    let path = PATHS[usize::from(path) % PATHS.len()];
    let more = program.bytes(usize::from(more % 64).min(program.len())).unwrap_or_default();
    // Bytes that a path may contain stay; the others are percent-encoded.
    let more: String = more
        .iter()
        .map(|byte| match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'/' | b'?' | b'=' | b'&' | b'.' => char::from(*byte).to_string(),
            other => format!("%{other:02x}"),
        })
        .collect();
    let more = if program.arbitrary().unwrap_or(false) { more } else { String::new() };
    let body = program.bytes(program.len()).unwrap_or_default();
    let bears = match token % 4 {
        0 => format!("Authorization: Bearer {TOKEN}\r\n"),
        1 => format!("Authorization: bearer  {TOKEN}x\r\n"),
        2 => "Authorization: \r\n".to_owned(),
        _ => String::new(),
    };
    let head = format!(
        "{} {path}{more} HTTP/1.1\r\nHost: localhost\r\n{bears}Content-Length: {}\r\nConnection: close\r\n\r\n",
        METHODS[usize::from(method) % METHODS.len()],
        body.len()
    );
    let whole = format!("{path}{more}");
    let asked = whole.split('?').next().unwrap_or_default();
    // These work without signing in.
    let public = ["/", "/healthz", "/readyz", "/v1/session"].contains(&asked) || asked.starts_with("/page/");
    ([head.as_str()].concat(), body.to_vec(), token % 4 == 0 || public)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let address = &addresses()[usize::from(first % 2)];
    if first >= 192 {
        let heard = talk(address, rest, true);
        assert!(heard.is_empty() || heard.starts_with(b"HTTP/1."), "{}", String::from_utf8_lossy(&heard));
        return;
    }
    let (head, body, may) = request(&mut Unstructured::new(rest));
    let heard = talk(address, &[head.as_bytes(), &body].concat(), false);
    let text = String::from_utf8(heard).expect("what the API says is text");
    let status: u16 = text.get(9..12).and_then(|status| status.parse().ok()).expect("an answer begins with a status");
    assert!(text.starts_with("HTTP/1.1 ") && (200..500).contains(&status), "{head}: {text}");
    if first % 2 == 1 && !may {
        assert_eq!(status, 401, "{head}: {text}");
    }
    let (head_heard, answer) = text.split_once("\r\n\r\n").expect("a head ends");
    if status >= 400 && !head.starts_with("HEAD") && !answer.is_empty() {
        assert!(head_heard.to_lowercase().contains("content-type: application/json"), "{text}");
        assert!(answer.starts_with("{\"error\":\"") && answer.ends_with("\"}"), "{head}: {text}");
    }
});
