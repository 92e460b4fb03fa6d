//! The page in a real browser: `drive.py` uses each of its views, with the mouse and with the keyboard. Needs the
//! `.venv` that `run-tests` makes, and Chromium.

use std::fs::{File, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use flashwise_testing::certificates::Certificates;

use crate::common::{flashwise, succeed};
use crate::demo::Demo;
use crate::serving::Server;

const MIB: u64 = 1 << 20;

/// Returns a free port; each call returns another.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn everything_can_be_done_by_mouse_and_by_keyboard() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for name in ["a.img", "b.img", "c.img", "d.img", "lost-one.img", "lost-two.img", "one.img", "two.img"] {
        File::create(path.join(name)).unwrap().set_len(32 * MIB).unwrap();
    }
    flashwise_testing::write_private(path.join("token"), "sesame\n");
    flashwise_testing::write_private(path.join("read-token"), "peep\n");
    let (api, iscsi) = (port(), port());
    let certificates = Certificates::default();
    let file = |name: &str| certificates.path(name).display().to_string();
    let tls = format!(
        "[tls]\nmode = 'allowed'\ncertificate = '{}'\nkey = '{}'\nclient-authorities = '{}'\n",
        file("server-cert.pem"),
        file("server-key.pem"),
        file("ca-cert.pem")
    );
    let volume = |name: &str| {
        format!(
            "[[volume]]\nname = '{name}'\nbackend = '{name}.img'\nflash = '{name}.cache'\nflash-size = \
             '16MiB'\nerase-unit = '1MiB'\n"
        )
    };
    std::fs::write(path.join("sendmail"), format!("#!/bin/sh\ncat > {}\n", path.join("mail.txt").display())).unwrap();
    std::fs::set_permissions(path.join("sendmail"), Permissions::from_mode(0o755)).unwrap();
    let webhook = port();
    let alerts = format!(
        "[alerts]\nwebhook = 'https://localhost:{webhook}/hook?key=hidden'\nmail = 'ops@example.com'\n\
         mail-command = '{}'\nmiss-latency = '1us'\n",
        path.join("sendmail").display()
    );
    // Made by a server that ran before; their backends are gone.
    for kind in ["volume", "pool"] {
        let made = ["one", "two"].map(|number| match kind {
            "volume" => format!(r#"{{"name": "gone-{number}", "settings": {{"backend": "/nowhere/{number}"}}}}"#),
            _ => format!(r#"{{"name": "gone-pool-{number}", "disks": ["/nowhere/{number}"]}}"#),
        });
        flashwise_testing::write_private(path.join(format!("{kind}s.json")), &format!("[{}]", made.join(", ")));
    }
    let config = format!(
        "listen = ['nbd+unix:///?socket=nbd.sock', 'iscsi://127.0.0.1:{iscsi}']\nstate-directory = '.'\n\
         [api]\nlisten = '127.0.0.1:{api}'\ntoken-file = 'token'\nread-token-file = 'read-token'\n{tls}{alerts}\
         [[pool]]\nname = 'tank'\ndisks = ['a.img', 'b.img', 'c.img']\nram = '4MiB'\n\
         flash = 'cache.img'\nflash-size = '16MiB'\nerase-unit = '1MiB'\ndrive-writes-per-day = 1\n\
         [[pool]]\nname = 'old'\ndisks = ['d.img']\ndegraded = true\nram = '4MiB'\n{}{}",
        // Its blocks stay dirty until a flush.
        volume("one") + "write-back-order = 'barriers'\ncommit-age = '1h'\n",
        volume("two")
    );
    std::fs::write(path.join("tank.toml"), config).unwrap();
    succeed(path, &["pool", "create", "tank", "a.img", "b.img", "c.img"]);
    succeed(path, &["pool", "create", "old", "d.img", "lost-one.img", "lost-two.img"]);
    for name in ["lost-one.img", "lost-two.img"] {
        std::fs::remove_file(path.join(name)).unwrap();
    }
    let mut command = flashwise(path, &["serve", "tank.toml"]);
    command.env("SSL_CERT_FILE", certificates.path("ca-cert.pem"));
    let server = Server::run(path, command);
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut driver = Command::new(project.join("../../.venv/bin/python"));
    driver
        .arg(project.join("tests/cli/page/drive.py"))
        .arg(format!("127.0.0.1:{api}"))
        .arg(iscsi.to_string())
        .arg(path)
        .arg(webhook.to_string())
        .arg(certificates.directory.path());
    let output = driver.output().expect("the .venv that run-tests makes");
    let told = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{told}");
    server.end();
}

#[test]
fn a_demo_is_compared_on_its_page() {
    let folder = tempfile::tempdir().unwrap();
    let demo = Demo::start(folder.path(), "3600");
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut browser = Command::new(project.join("../../.venv/bin/python"));
    let output = browser.arg(project.join("tests/cli/page/comparison.py")).arg(&demo.page).output();
    let output = output.expect("the .venv that run-tests makes");
    demo.interrupt();
    let told = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{told}");
}
