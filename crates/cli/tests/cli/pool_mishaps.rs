//! What befalls a pool: its cache is given up or damaged, and a disk of it is missing.

use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

use crate::common::{fail, run, succeed};
use crate::pool::{API, ask, data, folder, serve, tool};
use crate::serving::Server;

/// The cache of a pool is detached and salvaged offline as that of a volume is.
#[test]
fn the_cache_of_a_pool_is_detached_offline_whole_or_damaged() {
    let (folder, _) = folder(true);
    let path = folder.path();
    succeed(path, &["pool", "create", "tank", "a.img", "b.img", "c.img"]);
    let bytes = data(512, 3);
    std::fs::write(path.join("in"), &bytes).unwrap();
    let uri = "nbd+unix:///mail?socket=nbd.sock";
    let detach = ["detach", "--config", "tank.toml"];
    let unknown = fail(path, &[&detach[..], &["pond"]].concat(), 2);
    assert!(unknown.contains("no volume or pool 'pond', expected one of: tank"), "{unknown}");
    for damaged in [false, true] {
        let server = serve(path);
        if !damaged {
            ask(path, &["disk", "create", "mail", "--size", "4MiB", "--striped"]);
        }
        tool(path, "nbdcopy", &["--flush", "in", uri]);
        server.kill();
        if damaged {
            // Both copies of the superblock.
            let flash = std::fs::File::options().write(true).open(path.join("cache.img")).unwrap();
            flash.write_all_at(&[0; 8192], 0).unwrap();
            let refused = fail(path, &["serve", "tank.toml"], 2);
            assert!(refused.contains("flashwise detach --salvage"), "{refused}");
        }
        if damaged {
            // Without a superblock nothing says that the log has no newer part.
            let salvage = ["--salvage", "--with-uncertain", "--discard-rest"];
            let (told, err, code) = run(path, &[&detach[..], &salvage].concat());
            assert!(
                code == 1 && told.contains("cache.img is detached, and the rest is given up"),
                "{code} {told} {err}"
            );
        } else {
            let told = succeed(path, &detach);
            assert!(told.contains("cache.img is detached: ") && told.contains("pool tank alone is whole"), "{told}");
        }
        // The pool serves it without its flash.
        let config = std::fs::read_to_string(path.join("tank.toml")).unwrap();
        let without: String =
            config.lines().filter(|line| !line.starts_with("flash")).map(|line| format!("{line}\n")).collect();
        std::fs::write(path.join("bare.toml"), without).unwrap();
        let server = Server::start(path, &["serve", "bare.toml"]);
        tool(path, "nbdcopy", &[uri, "out"]);
        assert!(std::fs::read(path.join("out")).unwrap().starts_with(&bytes), "damaged: {damaged}");
        server.end();
    }
    let told = succeed(path, &["detach", "--config", "bare.toml"]);
    assert_eq!(told, "tank has no flash: there is nothing to detach.\n");
}

/// A disk that is missing has data: it is not added as a new one, which would be the end of that.
#[test]
fn a_missing_disk_of_the_pool_is_not_wiped_to_be_added() {
    let (folder, _) = folder(false);
    let path = folder.path();
    succeed(path, &["pool", "create", "tank", "a.img", "b.img", "c.img"]);
    let config = std::fs::read_to_string(path.join("tank.toml")).unwrap();
    std::fs::write(path.join("tank.toml"), config + "degraded = true\n").unwrap();
    std::fs::rename(path.join("b.img"), path.join("b.away")).unwrap();
    let server = serve(path);
    // It is not ready either: what is on that disk answers with an error.
    let mut api = UnixStream::connect(path.join("api.sock")).unwrap();
    write!(api, "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    api.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("1 of 1 volumes do not serve"), "{answer}");
    for more in [&[][..], &["--wipe", "b.away"]] {
        let refused = fail(path, &[&["pool", "add", "b.away"], more, &API].concat(), 1);
        assert!(
            refused.contains("b.away is disk 2 of this pool, which is missing: have the configuration name it"),
            "{refused}"
        );
    }
    let refused = fail(path, &[&["pool", "add", "a.img", "--wipe", "a.img"], &API[..]].concat(), 1);
    assert!(refused.contains("a.img: it is in use by this server"), "{refused}");
    server.end();
    std::fs::rename(path.join("b.away"), path.join("b.img")).unwrap();
    serve(path).end();
}
