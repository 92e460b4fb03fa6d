//! The default management API: commands find it, the page opens, and errors are found before the start.

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;

use crate::common::{fail, succeed};
use crate::serving::Server;

const VOLUME: &str = "[[volume]]\nname = 'v'\nbackend = 'disk.img'\nram = '4MiB'\n";

/// A folder with a backend and a configuration.
fn folder(config: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    File::create(folder.path().join("disk.img")).unwrap().set_len(8 << 20).unwrap();
    std::fs::write(folder.path().join("flashwise.toml"), config).unwrap();
    folder
}

#[test]
fn commands_find_the_socket_of_a_server_that_was_given_no_address() {
    let folder = folder(&format!("listen = 'nbd+unix:///?socket=nbd.sock'\nstate-directory = '.'\n{VOLUME}"));
    let path = folder.path();
    let missing = fail(path, &["status"], 2);
    assert!(missing.contains("give --api unix:PATH or HOST:PORT"), "{missing}");
    let server = Server::start(path, &["serve", "flashwise.toml"]);
    let socket = path.join("api.sock");
    assert!(
        server.told().contains(&format!("the management API is at unix:{}", socket.display())),
        "{}",
        server.told()
    );
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(succeed(path, &["status"]).contains("volume v: ok"));
    succeed(path, &["set", "v", "dirty-age=5s"]);
    succeed(path, &["flush"]);
    let page = succeed(path, &["page"]);
    assert!(page.starts_with("http://127.0.0.1:") && page.contains("/page/enter?code="), "{page}");
    let other = fail(path, &["serve", "--backend", "disk.img", "--listen", "nbd+unix:///?socket=other.sock"], 1);
    assert!(other.contains("another program listens there"), "{other}");
    server.end();
    assert!(!socket.exists());
}

/// A bad configuration is refused before the start, with file and key, and is not changed.
#[test]
fn check_config_names_file_and_key_of_errors() {
    let folder = folder("");
    let path = folder.path();
    std::fs::write(path.join("file"), "precious").unwrap();
    File::create(path.join("tiny.img")).unwrap().set_len(100).unwrap();
    flashwise_testing::write_private(path.join("empty"), "");
    flashwise_testing::write_private(path.join("short"), "sesame\n");
    let long = "x".repeat(120);
    let listen = "listen = 'nbd+unix:///?socket=nbd.sock'\n";
    let api = |keys: &str| format!("{listen}[api]\n{keys}\n{VOLUME}");
    let volume = |keys: &str| format!("{listen}[[volume]]\nname = 'v'\n{keys}\nram = '4MiB'\n");
    let cases = [
        (
            api("listen = 'unix:file'"),
            "3: [api] listen: found file, which is a file and no socket; remove it or choose another path",
        ),
        (api("listen = 'unix:missing/s'"), "3: [api] listen: found missing/s, but no socket can be made in missing: "),
        (
            api(&format!("listen = 'unix:{long}'")),
            &format!("3: [api] listen: found {long}, a path of 120 bytes; expected at most 107 for a socket"),
        ),
        (api("listen = '127.0.0.1:0'"), "3: [api] listen: found '127.0.0.1:0' without a token-file, so every user"),
        (api("listen = '127.0.0.1:0'\ntoken-file = 'empty'"), "4: [api] token-file: found empty, which is empty"),
        (
            api("listen = '0.0.0.0:0'\ntoken-file = 'short'"),
            "4: [api] token-file: found short, which has 6 characters; expected at least 16",
        ),
        (api("directories = ['file']"), "3: [api] directories: found file, which is no directory"),
        (
            format!("listen = 'nbd+unix:///?socket=file'\n{VOLUME}"),
            "1: listen: found file, which is a file and no socket",
        ),
        (format!("{listen}state-directory = 'file'\n{VOLUME}"), "2: state-directory: found file: "),
        (format!("{listen}state-directory = 'file/below'\n{VOLUME}"), "2: state-directory: found file/below: "),
        (
            format!("{listen}state-directory = '/proc/self'\n{VOLUME}"),
            "2: state-directory: found /proc/self: where nothing can be kept",
        ),
        (
            volume("backend = 'tiny.img'"),
            "4: [[volume]] 'v' backend: found tiny.img, which has 100 bytes; expected at least one block, 4KiB",
        ),
        (
            volume("backend = 'disk.img'\nflash = 'missing/f'\nflash-size = '64MiB'"),
            "5: [[volume]] 'v' flash: found missing/f, ",
        ),
        (
            volume("backend = 'disk.img'\nflash = '/proc/f'\nflash-size = '64MiB'"),
            "5: [[volume]] 'v' flash: found /proc/f, ",
        ),
    ];
    let names = || {
        let mut names: Vec<_> = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    for (config, expected) in &cases {
        std::fs::write(path.join("flashwise.toml"), config).unwrap();
        for arguments in [&["serve", "--check-config", "flashwise.toml"][..], &["serve", "flashwise.toml"]] {
            let error = fail(path, arguments, 2);
            assert!(error.starts_with(&format!("flashwise: flashwise.toml:{expected}")), "{config}: {error}");
        }
    }
    assert_eq!(names(), before);
    assert_eq!(std::fs::read_to_string(path.join("file")).unwrap(), "precious");
}

#[test]
fn control_characters_of_a_name_are_refused_and_do_not_reach_the_terminal() {
    let folder = folder("");
    let path = folder.path();
    for (name, shown) in [("a\\u001b[31m", "a\\u{1b}[31m"), ("a\\nb", "a\\nb")] {
        let config =
            format!("listen = 'nbd+unix:///?socket=nbd.sock'\n[[volume]]\nname = \"{name}\"\nbackend = 'disk.img'\n");
        std::fs::write(path.join("flashwise.toml"), config).unwrap();
        let error = fail(path, &["serve", "--check-config", "flashwise.toml"], 2);
        let expected = format!(
            "[[volume]] '{shown}' name: found '{shown}', expected a name of at most 255 bytes without '/' and control \
             characters"
        );
        assert!(error.contains(&expected) && !error.contains('\x1b') && error.lines().count() == 1, "{error:?}");
    }
    File::create(path.join("\x1b[31m")).unwrap().set_len(8 << 20).unwrap();
    let volume = VOLUME.replace("'disk.img'", "\"\\u001b[31m\"");
    let config = format!("listen = 'nbd+unix:///?socket=nbd.sock'\nstate-directory = '.'\n{volume}");
    std::fs::write(path.join("flashwise.toml"), config).unwrap();
    let shown = succeed(path, &["serve", "--check-config", "flashwise.toml"]);
    let server = Server::start(path, &["serve", "flashwise.toml"]);
    for shown in [shown, succeed(path, &["status"]), server.end()] {
        assert!(!shown.contains('\x1b'), "{shown:?}");
    }
    let error = fail(path, &["check", "--flash", "\x1b[32m"], 1);
    assert!(!error.contains('\x1b') && error.contains("\\u{1b}[32m"), "{error:?}");
}
