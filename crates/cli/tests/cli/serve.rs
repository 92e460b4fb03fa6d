//! `flashwise serve` and the commands around it, as their users see them: real files, real processes, a real NBD
//! client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};

use crate::common::{fail, run, succeed};
use crate::serving::Server;
use serde_json::Value;
use tempfile::TempDir;

/// A folder with a backend of 8 MiB.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::File::create(folder.path().join("disk.img")).unwrap().set_len(8 << 20).unwrap();
    folder
}

const FLAGS: [&str; 14] = [
    "serve",
    "--backend",
    "disk.img",
    "--flash",
    "cache.img",
    "--flash-size",
    "4MiB",
    "--erase-unit",
    "64KiB",
    "--ram",
    "1MiB",
    "--api",
    "off",
    "--listen",
];
const URI: &str = "nbd+unix:///?socket=nbd.sock";

fn serve(folder: &Path) -> Server {
    Server::start(folder, &[&FLAGS[..], &[URI]].concat())
}

/// Copies a file into a volume or out of it with libnbd's nbdcopy, flushing at the end.
fn copy(folder: &Path, from: &str, to: &str) {
    let output = Command::new("nbdcopy").args(["--flush", from, to]).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Bytes that differ from block to block.
fn content(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..8 << 20).map(|_| next()).collect()
}

#[test]
fn writes_survive_sigterm_and_kill_and_reach_the_backend_by_a_detach() {
    let folder = folder();
    let path = folder.path();
    let bytes = content(1);
    std::fs::write(path.join("in.img"), &bytes).unwrap();

    let server = serve(path);
    assert!(server.told().contains("volume disk: its cache is new"), "{}", server.told());
    copy(path, "in.img", URI);
    let told = server.end();
    assert!(told.contains("everything is flushed, stopped"), "{told}");

    let server = serve(path);
    assert!(server.told().contains("its cache, closed cleanly, has "), "{}", server.told());
    copy(path, URI, "out.img");
    assert!(std::fs::read(path.join("out.img")).unwrap() == bytes, "read back something else");
    let bytes = content(2);
    std::fs::write(path.join("in.img"), &bytes).unwrap();
    copy(path, "in.img", URI);
    server.kill();

    let server = serve(path);
    assert!(server.told().contains("its cache, recovered after a crash, has "), "{}", server.told());
    copy(path, URI, "out.img");
    assert!(std::fs::read(path.join("out.img")).unwrap() == bytes, "read back something else after a kill");
    server.end();

    assert!(std::fs::read(path.join("disk.img")).unwrap() != bytes, "nothing was cached, so nothing is tested");
    for command in [&["detach"][..], &["check"], &["wipe", "--yes"]] {
        let err = fail(path, &[command, &["--backend", "disk.img", "--flash", "disk.img"]].concat(), 2);
        assert_eq!(err, "flashwise: --flash: disk.img is the backend too; give the cache's flash\n");
    }
    let out = succeed(path, &["detach", "--backend", "disk.img", "--flash", "cache.img"]);
    assert!(out.starts_with("cache.img is detached: ") && out.contains("disk.img is complete without it"), "{out}");
    assert!(std::fs::read(path.join("disk.img")).unwrap() == bytes, "the backend alone is not whole");
    let out = succeed(path, &["detach", "--backend", "disk.img", "--flash", "cache.img"]);
    assert_eq!(out, "cache.img was already detached; disk.img is complete without it.\n");
    let out = succeed(path, &["check", "--flash", "cache.img", "--backend", "disk.img", "--data"]);
    assert!(out.contains("starts use no cache for it until 'flashwise attach'"), "{out}");
    assert!(out.contains("is detached") && out.ends_with("The cache is sound.\n"), "{out}");
}

#[test]
fn a_second_server_and_offline_commands_are_refused_while_one_runs() {
    let folder = folder();
    let path = folder.path();
    let server = serve(path);
    let other = [&FLAGS[..], &["nbd+unix:///?socket=other.sock"]].concat();
    let errors = [
        fail(path, &other, 1),
        fail(path, &["check", "--flash", "cache.img"], 1),
        fail(path, &["detach", "--backend", "disk.img", "--flash", "cache.img"], 1),
    ];
    for error in errors {
        assert!(error.contains("in use by another process, or mounted"), "{error}");
    }
    server.end();
    // The socket went with the server.
    assert!(!path.join("nbd.sock").exists());
}

/// The flash of one volume beside the backend of another, and flash and backend the wrong way round: nothing is
/// damaged.
#[test]
fn check_tells_devices_that_are_no_pair_from_damage() {
    let folder = folder();
    let path = folder.path();
    serve(path).end();
    std::fs::File::create(path.join("other.img")).unwrap().set_len(4 << 20).unwrap();
    let other = FLAGS.map(|flag| match flag {
        "disk.img" => "other.img",
        "cache.img" => "other-cache.img",
        flag => flag,
    });
    Server::start(path, &[&other[..], &[URI]].concat()).end();
    let (out, err, code) = run(path, &["check", "--flash", "cache.img", "--backend", "other.img"]);
    assert_eq!((code, err.as_str()), (1, "flashwise: cache.img: the backend does not belong to it\n"), "{out}");
    for part in [
        "no pair: The cache belongs to backend ",
        "no pair: other.img belongs to cache ",
        "; give the flash of that cache, or the backend of this one.\n",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(!out.contains("damage") && out.ends_with("The cache is sound, but this is not its backend.\n"), "{out}");
    let err = fail(path, &["check", "--flash", "disk.img", "--backend", "cache.img"], 2);
    let expected = "flashwise: --flash disk.img holds no cache, but --backend cache.img holds one; swap them\n";
    assert_eq!(err, expected);
}

#[test]
fn check_explains_damage_and_ends_with_1() {
    let folder = folder();
    let path = folder.path();
    std::fs::write(path.join("in.img"), content(3)).unwrap();
    let server = serve(path);
    copy(path, "in.img", URI);
    server.end();
    let sound = succeed(path, &["check", "--flash", "cache.img", "--backend", "disk.img", "--data", "--json"]);
    let sound: Value = serde_json::from_str(&sound).unwrap();
    assert_eq!((&sound["sound"], &sound["description"]["state"]), (&Value::from(true), &Value::from("clean")));
    let counts = &sound["counts"];
    assert!(counts["verified_blocks"].as_u64().unwrap() > 100 && counts["verified_blocks"] == counts["cached_blocks"]);

    // Every page of the first units of the log, which hold what was written.
    let mut bytes = std::fs::read(path.join("cache.img")).unwrap();
    let half = bytes.len() / 2;
    for page in bytes[64 << 10..half].chunks_mut(4096) {
        page[2000] ^= 0x10;
    }
    std::fs::write(path.join("cache.img"), &bytes).unwrap();
    let (out, err, code) = run(path, &["check", "--flash", "cache.img", "--data"]);
    assert_eq!((code, err.as_str()), (1, "flashwise: cache.img: damage was found\n"));
    assert!(out.contains("damage: ") && out.ends_with("The cache is damaged.\n"), "{out}");
    assert!(std::fs::read(path.join("cache.img")).unwrap() == bytes, "check wrote to the cache");
    std::fs::write(path.join("else.img"), vec![7; 1 << 20]).unwrap();
    let (out, _, code) = run(path, &["check", "--flash", "else.img"]);
    assert_eq!(code, 1);
    assert!(out.contains("damage: The cache cannot be opened: no superblock of a cache"), "{out}");
    // A blank one is not damaged.
    std::fs::write(path.join("blank.img"), vec![0; 1 << 20]).unwrap();
    for command in
        [&["check", "--flash", "blank.img"][..], &["detach", "--backend", "disk.img", "--flash", "blank.img"]]
    {
        let error = fail(path, command, 2);
        assert!(error.contains("blank.img is blank where a cache begins, so there is none to "), "{error}");
    }
}

#[test]
fn misuse_ends_with_2_and_says_what_to_do() {
    let folder = folder();
    std::fs::write(folder.path().join("bad.toml"), "listen = 'nbd://localhost'\nlistn = 5\n").unwrap();
    let flags = |flag: &'static str, value: &'static str| -> Vec<&str> {
        let mut arguments: Vec<&str> = [&FLAGS[..], &[URI]].concat();
        match arguments.iter().position(|argument| *argument == flag) {
            Some(at) => arguments[at + 1] = value,
            None => arguments.extend([flag, value]),
        }
        arguments
    };
    let rows = [
        vec!["serve"],
        vec!["serve", "missing.toml"],
        vec!["serve", "bad.toml"],
        vec!["serve", "bad.toml", "--ram", "1GiB"],
        vec!["serve", "--backend", "disk.img", "--flash", "cache.img", "--flash-size", "64MiB"],
        flags("--backend", "missing.img"),
        flags("--backend-size", "10PB"),
        flags("--backend-size", "1GiB"),
        flags("--record", "missing/requests.csv"),
        flags("--record-size-max", "64KiB"),
        flags("--dirty-high", "30%"),
        flags("--commit-age", "5"),
        flags("--write-buffer-share", "150%"),
        flags("--flash-size", "128KiB"),
        flags("--policy", "fif"),
        flags("--admission", "size:max=64PB"),
        flags("--storage-device", "hddd"),
        flags("--listen", "localhost"),
        flags("--flash", "disk.img"),
        [&FLAGS[..], &[URI, "--write-back", "--write-through"]].concat(),
        vec!["detach", "--backend", "disk.img"],
        vec!["detach", "--config", "bad.toml"],
        vec!["set", "disk", "dirty-high"],
        vec!["set", "disk", "dirty-hihg=40%"],
        vec!["set", "disk", "dirty-high=140%"],
        vec!["set", "disk", "policy=lru", "policy=larc"],
        vec!["set", "disk", "admission=probability:p=2"],
        vec!["status", "--api", "unix:"],
        vec!["status", "--api", "http://a/b"],
    ];
    let errors = rows.map(|arguments| {
        let err = fail(folder.path(), &arguments, 2);
        format!("{}\n{}", arguments.join(" "), err.lines().next().unwrap())
    });
    insta::assert_snapshot!(errors.join("\n\n"));
}

/// Permanent errors: systemd does not retry, because of `RestartPreventExitStatus=2`.
#[test]
fn permanent_errors_exit_with_2_and_name_the_volume() {
    let folder = folder();
    let path = folder.path();
    serve(path).end();
    let with = |flag: &str, value: &str| -> Vec<String> {
        let mut arguments: Vec<String> = FLAGS.iter().chain(&[URI]).map(|&argument| argument.to_owned()).collect();
        match arguments.iter().position(|argument| argument == flag) {
            Some(at) => arguments[at + 1] = value.to_owned(),
            None => arguments.extend([flag.to_owned(), value.to_owned()]),
        }
        arguments
    };
    let refused = |arguments: Vec<String>, code: i32, expected: &str| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let error = fail(path, &arguments, code);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    };
    flashwise_testing::write_private(path.join("empty"), "");
    std::fs::write(path.join("foreign.img"), vec![7; 4 << 20]).unwrap();
    std::fs::File::create(path.join("other.img")).unwrap().set_len(8 << 20).unwrap();
    let name = "volume 'disk': ";
    refused(with("--api", "127.0.0.1:0"), 2, "--api: found '127.0.0.1:0' without a token-file, so every user");
    let token = |arguments, file: &str| [arguments, vec!["--api-token-file".to_owned(), file.to_owned()]].concat();
    refused(
        token(with("--api", "0.0.0.0:0"), "empty"),
        2,
        "--api-token-file: found empty, which is empty or has other than visible ASCII characters",
    );
    flashwise_testing::write_private(path.join("short"), "0123456789abcde\n");
    std::fs::write(path.join("open"), "0123456789abcdef\n").unwrap();
    std::fs::set_permissions(path.join("open"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let with_token = |file: &str| token(with("--api", "0.0.0.0:0"), file);
    refused(
        with_token("short"),
        2,
        "--api-token-file: found short, which has 15 characters; expected at least 16, as other machines",
    );
    refused(
        with_token("open"),
        2,
        "its mode is 644, so that every user of this machine may use it; run: chmod o= open",
    );
    refused(
        with_token("/dev/zero"),
        2,
        "--api-token-file: found /dev/zero, which cannot be read: it is not a regular file",
    );
    refused(
        with("--api", "unix:missing/api.sock"),
        2,
        "--api: found missing/api.sock, but no socket can be made in missing",
    );
    refused(
        with("--listen", "nbd+unix:///?socket=missing/nbd.sock"),
        2,
        "--listen: found missing/nbd.sock, but no socket",
    );
    refused(with("--backend", "other.img"), 2, "volume 'other': flash 'cache.img': found a cache of another backend");
    refused(with("--flash", "foreign.img"), 2, "found data that is not a cache");
    refused(with("--flash-size", "2MiB"), 2, &format!("{name}flash 'cache.img': found a cache with flash size "));
    refused(with("--erase-unit", "128KiB"), 2, &format!("{name}flash 'cache.img': found a cache with erase unit "));
    refused(with("--backend-size", "4MiB"), 2, &format!("{name}flash 'cache.img': found a cache with volume size "));
    let large = with("--backend-size", "16MiB");
    refused(large, 2, "volume 'disk', expected at most the size of its backend disk.img, 8MiB");
    // The backend lost its end.
    std::fs::File::options().write(true).open(path.join("disk.img")).unwrap().set_len(4 << 20).unwrap();
    let shorter =
        format!("{name}backend 'disk.img': found 4194304 bytes, expected 8388608, the volume size of its cache");
    refused(with("--ram", "1MiB"), 2, &shorter);
    std::fs::File::options().write(true).open(path.join("disk.img")).unwrap().set_len(8 << 20).unwrap();

    // Temporary errors exit with 1.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap();
    refused(with("--listen", &format!("nbd://{taken}")), 1, "address in use");
    refused(token(with("--api", &taken.to_string()), "short"), 1, "cannot listen on ");
    // Files of a volume that cannot be served are not created either.
    let at = FLAGS.iter().position(|flag| *flag == "--flash").unwrap();
    let new = |flag: &str, value: &str| {
        let mut arguments = with(flag, value);
        arguments[at + 1] = "new.img".to_owned();
        arguments
    };
    refused(new("--listen", &format!("nbd://{taken}")), 1, "address in use");
    refused(token(new("--api", &taken.to_string()), "short"), 1, "cannot listen on ");
    assert!(!path.join("new.img").exists());
    let server = serve(path);
    refused(with("--listen", "nbd+unix:///?socket=other.sock"), 1, "in use by another process, or mounted");
    server.end();
}

/// A disk with foreign data is not accepted as blank, nor a part of a pool or a cache as a backend.
#[test]
fn devices_with_contents_become_neither_flash_nor_backend() {
    let folder = folder();
    let path = folder.path();
    let with = |backend: &str, flash: &[&str]| {
        let listen = ["--listen", "nbd+unix:///?socket=nbd.sock", "--api", "off", "--state-directory", "."];
        [&["serve", "--backend", backend], flash, &listen[..]].concat().into_iter().map(str::to_owned).collect()
    };
    let refused = |arguments: Vec<String>, expected: &str| {
        let before = std::fs::read(path.join("kept.img")).unwrap();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let error = fail(path, &arguments, 2);
        assert!(error.contains(expected), "{arguments:?}: {error}");
        assert!(std::fs::read(path.join("kept.img")).unwrap() == before, "{arguments:?}");
    };
    let flash = ["--flash", "kept.img", "--erase-unit", "256KiB"];
    // btrfs leaves the first 64 KiB blank, ZFS and ISO 9660 the first 32 and more.
    for (at, magic, kind) in [
        (0x1_0040, &b"_BHRfS_M"[..], "btrfs"),
        (0x8001, &b"CD001"[..], "iso9660"),
        (128 << 10, &0x00ba_b10c_u64.to_le_bytes()[..], "zfs_member"),
        ((64 << 20) - 512, &b"EFI PART"[..], "gpt"),
    ] {
        let file = std::fs::File::create(path.join("kept.img")).unwrap();
        file.set_len(64 << 20).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, magic, at).unwrap();
        let expected = format!("flash 'kept.img': it holds {kind}; give another, or clear it");
        refused(with("disk.img", &flash), &expected);
    }
    // A disk of a pool, and a cache, are no backends.
    std::fs::remove_file(path.join("kept.img")).unwrap();
    std::fs::File::create(path.join("kept.img")).unwrap().set_len(64 << 20).unwrap();
    succeed(path, &["pool", "create", "tank", "kept.img"]);
    refused(with("kept.img", &[]), "backend 'kept.img': it belongs to a pool, which [[pool]] serves");
    serve(path).end();
    std::fs::copy(path.join("cache.img"), path.join("kept.img")).unwrap();
    refused(with("kept.img", &[]), "backend 'kept.img': it holds a cache. Give another device, or wipe it if ");
    // One that never was a backend is no pair with any flash.
    std::fs::File::create(path.join("never.img")).unwrap().set_len(8 << 20).unwrap();
    let check = ["check", "--flash", "cache.img", "--backend", "never.img", "--state-directory", "."];
    let (out, err, code) = run(path, &check);
    let expected = "no pair: never.img was never the backend of a cache; give this cache's backend.\n";
    assert!(code == 1 && out.contains(expected), "{code} {out} {err}");
}

#[test]
fn each_thing_that_is_wrong_with_a_configuration_is_a_message() {
    let folder = folder();
    let path = folder.path();
    let text = "listen = 'nbd://localhost'\nlog-levle = 'info'\n[[volume]]\nname = 'a'\nbackend = 'disk.img'\npolicy = \
        'lark'\n";
    std::fs::write(path.join("wrong.toml"), text).unwrap();
    for more in [&[][..], &["--log-format", "json"]] {
        let err = fail(path, &[&["serve", "--check-config", "wrong.toml"], more].concat(), 2);
        let lines: Vec<&str> = err.lines().collect();
        assert!(lines.len() == 2 && lines[0].contains("wrong.toml:2: log-levle: unknown key"), "{err}");
        assert!(lines[1].contains("wrong.toml:6: [[volume]] 'a' policy: unknown policy 'lark'"), "{err}");
        let is_json = |line: &&str| serde_json::from_str::<serde_json::Value>(line).is_ok();
        assert_eq!(lines.iter().all(is_json), !more.is_empty());
    }
}

/// Flags beside a configuration file are refused, not ignored.
#[test]
fn a_volume_is_of_flags_or_of_a_file() {
    let folder = folder();
    let path = folder.path();
    let text = "listen = 'nbd://localhost'\n[[volume]]\nname = 'a'\nbackend = 'disk.img'\n";
    std::fs::write(path.join("flashwise.toml"), text).unwrap();
    succeed(path, &["serve", "--check-config", "flashwise.toml"]);
    for flag in [&["--config", "flashwise.toml"][..], &["--config=flashwise.toml"]] {
        let err = fail(path, &[&["serve"], flag].concat(), 2);
        assert_eq!(err, "flashwise: serve has no flag --config; give the file only: flashwise serve FILE\n");
    }
    for (flag, value) in [
        ("--backend", "disk.img"),
        ("--flash", "cache.img"),
        ("--ram", "1MiB"),
        ("--name", "b"),
        ("--record", "r.csv"),
        ("--listen", "nbd://127.0.0.1:1"),
        ("--api", "off"),
        ("--api-token-file", "token"),
    ] {
        let err = fail(path, &["serve", "--check-config", "flashwise.toml", flag, value], 2);
        let expected = "does not go with the configuration flashwise.toml; give either flags or a file\n";
        assert_eq!(err, format!("flashwise: {flag} {expected}"));
    }
}

#[test]
fn failures_end_with_1() {
    let folder = folder();
    let path = folder.path();
    let server = serve(path);
    server.end();
    std::fs::copy(path.join("disk.img"), path.join("copy.img")).unwrap();
    std::fs::write(path.join("else.img"), vec![7; 8 << 20]).unwrap();
    let error = fail(path, &["detach", "--backend", "copy.img", "--flash", "cache.img"], 2);
    assert!(error.contains("flash cache.img and backend copy.img: it is a cache of another backend"), "{error}");
    let error = fail(path, &["detach", "--backend", "disk.img", "--flash", "else.img"], 1);
    assert!(error.contains("flash else.img: no superblock of a cache"), "{error}");
    let error = fail(path, &["check", "--flash", "missing.img"], 1);
    assert!(error.contains("missing.img: cannot be opened: No such file"), "{error}");
    // Nothing listens at the lowest port.
    for address in ["127.0.0.1:1", "unix:missing.sock"] {
        let error = fail(path, &["status", "--api", address], 1);
        assert!(error.contains(&format!("{address}: no server: ")), "{error}");
    }
}

/// Answers requests one after the other with `answers` (status, body), and reports the requests.
fn stub(
    answers: Vec<(u16, String)>,
    mut accept: impl FnMut() -> Box<dyn ReadWrite> + Send + 'static,
) -> Receiver<String> {
    let (asked, receiver) = channel();
    std::thread::spawn(move || {
        for (status, body) in answers {
            let mut stream = BufReader::new(accept());
            let (mut request, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                let lower = line.to_lowercase();
                if let Some(value) = lower.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line == "\r\n" {
                    break;
                }
                if request.is_empty() || lower.starts_with("authorization:") {
                    request += &line;
                }
            }
            let mut sent = vec![0; length];
            stream.read_exact(&mut sent).unwrap();
            asked.send(format!("{request}{}", String::from_utf8(sent).unwrap())).unwrap();
            let length = body.len();
            write!(
                stream.get_mut(),
                "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            )
            .unwrap();
        }
    });
    receiver
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

fn tcp_stub(answers: &[(u16, &str)]) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answers = answers.iter().map(|(status, body)| (*status, (*body).to_owned())).collect();
    (address, stub(answers, move || Box::new(listener.accept().unwrap().0)))
}

const STATUS: &str = r#"{"version": "0.1.0", "pid": 42, "connections": 3, "request_memory_bytes": 5242880,
 "request_memory_bytes_max": 536870912, "listening": ["nbd+unix:///?socket=/run/nbd.sock"],
 "recording": {"path": "/srv/today.zst", "segment": "/srv/today.000003.zst", "state": "full", "size_bytes": 10737000000,
 "size_bytes_max": 10737418240, "recorded_requests": 81234, "dropped_requests": 12, "error": "move segments away"},
 "volumes": [{"name": "data", "size_bytes": 10737418240, "backend": "/srv/data.img", "flash": "/dev/nvme0n1p4", "policy": "larc",
 "admission": "adaptive:target=20ms", "admission_choice": "p=0.25", "admission_threshold": 0.25, "admission_decisions": 7,
 "write_mode": "write-back", "cache_clients": "all", "allow_clients": "none", "deny_clients": "program:rsync,address:10.0.0.0/8",
 "clients": [{"export": "data", "caching": "usual", "address": null, "pid": 7, "uid": 1000, "gid": 1000, "program": "qemu", "tls_names": []},
 {"export": "data", "caching": "never", "address": "10.0.0.9", "pid": null, "uid": null, "gid": null, "program": null, "tls_names": ["backup"]}],
 "state": "ok", "uptime_seconds": 93784.5, "reads": 200000, "writes": 50000,
 "ram_read_hits": 20000, "flash_read_hits": 100000, "ram_write_hits": 5000, "read_hit_ratio": 0.6, "flash_client_blocks": 45000, "flash_write_requests": 9000,
 "flash_admission_blocks": 30000, "flash_copy_forward_blocks": 2000, "flash_metadata_blocks": 1500,
 "flash_bytes_written": 321536000, "erasures": 153, "flash_bytes_per_day": 296221736.5, "drive_writes_per_day": 0.28,
 "drive_writes_per_day_rated": 1.0, "lifetime_years_rated": 17.9, "backend_read_blocks": 80000, "backend_written_blocks": 10,
 "destaged_blocks": 40000, "destaging_blocks": 512, "dropped_blocks": 9000, "refused_read_blocks": 40, "refused_write_blocks": 2,
 "throttled_seconds": 12.5, "queue_depth": 3, "sequential_blocks": 1024, "filtered_blocks": 2560, "bypasses": 30720, "flushes": 700, "flash_bytes": 1073741824, "capacity_blocks": 230000,
 "flash_room_blocks": 250000, "changed_settings": ["dirty-high", "policy"], "cached_blocks": 75000, "dirty_blocks": 5000, "dirty_bytes": 20971520, "buffered_blocks": 120, "oldest_dirty_seconds": 754.25,
 "write_back_order": "barriers",
 "backend_state": {"is_consistent": true, "consistent_seconds": 1796047400.0, "age_seconds": 250.0,
 "age_seconds_max": 900.0, "newer_blocks": 1204},
 "backend_load": {"under_way": 5, "transfers": 120000, "transfer_seconds": 1440.5, "busy_seconds": 480.25}, "lost_blocks": [7, 4711],
 "memory_bytes": 150000000, "faults": {"flash_read_errors": 0, "flash_checksum_errors": 2, "flash_write_errors": 0,
 "backend_read_errors": 0, "backend_write_errors": 0, "failed_requests": 1}, "latencies": [{"operation": "read",
 "count": 12345, "mean_us": 250.4, "p50_us": 90, "p99_us": 4100, "p999_us": 12000, "max_us": 1500000},
 {"operation": "trim", "count": 0, "mean_us": 0.0, "p50_us": 0, "p99_us": 0, "p999_us": 0, "max_us": 0}]}]}"#;

#[test]
fn status_is_a_page_for_people_or_json_over_tcp_and_unix_sockets() {
    let folder = folder();
    let (address, asked) = tcp_stub(&[(200, STATUS)]);
    let page = succeed(folder.path(), &["status", "--api", &address]);
    assert_eq!(asked.recv().unwrap(), "GET /v1/status HTTP/1.1\r\n");
    insta::assert_snapshot!(page);

    let listener = UnixListener::bind(folder.path().join("api.sock")).unwrap();
    let asked = stub(vec![(200, STATUS.to_owned())], move || Box::new(listener.accept().unwrap().0));
    let json = succeed(folder.path(), &["status", "--json", "--api", "unix:api.sock"]);
    assert_eq!(asked.recv().unwrap(), "GET /v1/status HTTP/1.1\r\n");
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json, serde_json::from_str::<Value>(STATUS).unwrap());
}

#[test]
fn flush_set_and_detach_match_the_api() {
    let folder = folder();
    let path = folder.path();
    flashwise_testing::write_private(path.join("token"), "secret\n");
    let (address, asked) = tcp_stub(&[(200, "{}"), (204, "")]);
    let out = succeed(path, &["flush", "--api", &address, "--token-file", "token"]);
    assert_eq!(out, "Flushed.\n");
    assert_eq!(asked.recv().unwrap(), "POST /v1/flush HTTP/1.1\r\nauthorization: Bearer secret\r\n");
    let out = succeed(path, &["set", "my disk", "dirty-high=60%", "policy=lru", "--api", &address]);
    assert_eq!(
        out,
        "Set dirty-high=60%, policy=lru of volume my disk until the server restarts.\n\
         To keep it, set dirty-high, policy in the configuration too.\n"
    );
    let asked = asked.recv().unwrap();
    let (line, body) = asked.split_once("\r\n").unwrap();
    assert_eq!(line, "PATCH /v1/volumes/my%20disk HTTP/1.1");
    let expected = serde_json::json!({"dirty-high": "60%", "policy": "lru"});
    assert_eq!(serde_json::from_str::<Value>(body).unwrap(), expected);

    let detaching = r#"{"state": "detaching", "dirty_blocks": 10, "destaged_blocks": 2}"#;
    let detached = r#"{"state": "detached", "dirty_blocks": 0, "destaged_blocks": 12}"#;
    let (address, asked) = tcp_stub(&[(200, STATUS), (202, "{}"), (200, detaching), (200, detached)]);
    let out = succeed(path, &["detach", "--api", &address]);
    assert_eq!(out, "Volume data is detached: the backend is complete without it.\n");
    let asked: Vec<String> = asked.iter().collect();
    assert_eq!(asked[1..3], ["POST /v1/volumes/data/detach HTTP/1.1\r\n", "GET /v1/volumes/data/detach HTTP/1.1\r\n"]);
    assert_eq!(asked.len(), 4);
    let (address, asked) = tcp_stub(&[(204, "")]);
    let out = succeed(path, &["attach", "data", "--api", &address]);
    assert_eq!(out, "data is attached: the next start of the server uses its flash.\n");
    assert_eq!(asked.recv().unwrap(), "POST /v1/volumes/data/attach HTTP/1.1\r\n");
}

#[test]
fn what_a_server_refuses_is_told_in_its_own_words() {
    let folder = folder();
    let answers = [
        (404, r#"{"error": "no volume 'x', expected one of: data"}"#),
        (401, r#"{"error": "found no bearer token"}"#),
        (500, "<html>"),
        (200, "<html>"),
        (200, r#"{"volumes": 5}"#),
    ];
    let (address, _asked) = tcp_stub(&answers);
    let errors = answers.map(|(status, _)| {
        let code = if status == 404 { 2 } else { 1 };
        let error = fail(folder.path(), &["status", "--api", &address], code);
        error.replace(&address, "ADDRESS")
    });
    // It failed; the server was started anew meanwhile; it is another program's.
    let progress = [
        (500, r#"{"error": "volume data: 5 blocks could not be written back"}"#),
        (200, r#"{"state": "attached", "dirty_blocks": 5, "destaged_blocks": 0}"#),
        (200, r#"{"state": "lost"}"#),
    ];
    let failed = progress.map(|answer| {
        let (address, _asked) = tcp_stub(&[(202, "{}"), answer]);
        fail(folder.path(), &["detach", "data", "--api", &address], 1)
    });
    insta::assert_snapshot!(format!("{}{}", errors.concat(), failed.concat()));
}
