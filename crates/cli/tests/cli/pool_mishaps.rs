//! Mishaps of a pool: its cache is given up or damaged, or a disk is missing.

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use crate::common::{fail, run, succeed};
use crate::pool::{API, ask, bare, data, folder, http, serve, tool};
use crate::serving::{Server, get};
use serde_json::json;

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
            assert!(code == 1 && told.contains("cache.img is detached; the rest is given up"), "{code} {told} {err}");
        } else {
            // Dirty blocks of a missing disk stay on flash.
            let config = std::fs::read_to_string(path.join("tank.toml")).unwrap();
            std::fs::write(path.join("degraded.toml"), config + "degraded = true\n").unwrap();
            std::fs::rename(path.join("b.img"), path.join("b.away")).unwrap();
            let refused = fail(path, &["detach", "--config", "degraded.toml"], 1);
            let expected = " of 512 blocks were written back, and cache.img still has all of them";
            assert!(refused.contains(expected), "{refused}");
            std::fs::rename(path.join("b.away"), path.join("b.img")).unwrap();
            let told = succeed(path, &detach);
            assert!(
                told.contains("cache.img is detached: ") && told.contains("pool tank is complete without it"),
                "{told}"
            );
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
    assert_eq!(told, "tank has no flash to detach.\n");
}

/// Requests to a pool are recorded like those of a volume.
#[test]
fn requests_to_a_pool_are_recorded() {
    let (folder, _) = folder(true);
    let path = folder.path();
    succeed(path, &["pool", "create", "tank", "a.img", "b.img", "c.img"]);
    let config = std::fs::read_to_string(path.join("tank.toml")).unwrap();
    std::fs::write(path.join("tank.toml"), format!("record = 'requests.csv'\n{config}")).unwrap();
    let server = serve(path);
    ask(path, &["disk", "create", "mail", "--size", "4MiB", "--striped"]);
    std::fs::write(path.join("in"), data(512, 3)).unwrap();
    tool(path, "nbdcopy", &["--flush", "in", "nbd+unix:///mail?socket=nbd.sock"]);
    server.end();
    let recorded = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let recorded = recorded.filter(|name| name.starts_with("requests")).collect::<Vec<_>>();
    let told = succeed(path, &["trace", "info", &recorded[0], "--json"]);
    let info: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(info[0]["write_bytes"], 2 << 20, "{recorded:?}: {told}");
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
    // It is not ready either: requests for that disk fail.
    let answer = get(path, "/readyz");
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("1 of 1 volumes and pools do not serve"), "{answer}");
    for more in [&[][..], &["--wipe", "b.away"]] {
        let refused = fail(path, &[&["pool", "add", "b.away"], more, &API].concat(), 1);
        assert!(
            refused.contains("b.away is disk 2 of this pool, which is missing: add it to the configuration"),
            "{refused}"
        );
    }
    let refused = fail(path, &[&["pool", "add", "a.img", "--wipe", "a.img"], &API[..]].concat(), 1);
    assert!(refused.contains("a.img: it is in use by this server"), "{refused}");
    server.end();
    std::fs::rename(path.join("b.away"), path.join("b.img")).unwrap();
    serve(path).end();
}

/// A disk's older copy, from a backup or a clone, lacks later writes: it is not accepted as a disk that was away.
#[test]
fn an_older_copy_of_a_disk_is_not_served() {
    let (folder, _) = folder(false);
    let path = folder.path();
    succeed(path, &["pool", "create", "tank", "a.img", "b.img", "c.img"]);
    let server = serve(path);
    ask(path, &["disk", "create", "mail", "--size", "4MiB", "--striped", "--mode", "write-through"]);
    let uri = "nbd+unix:///mail?socket=nbd.sock";
    let write = |seed| {
        std::fs::write(path.join("in"), data(1024, seed)).unwrap();
        tool(path, "nbdcopy", &["--flush", "in", uri]);
    };
    write(1);
    // One of while it runs, and one of after its end.
    std::fs::copy(path.join("a.img"), path.join("running")).unwrap();
    write(2);
    server.end();
    std::fs::copy(path.join("a.img"), path.join("ended")).unwrap();
    std::fs::rename(path.join("a.img"), path.join("newest")).unwrap();
    let is_refused = |copy: &str| {
        std::fs::copy(path.join(copy), path.join("a.img")).unwrap();
        let refused = fail(path, &["serve", "tank.toml"], 2);
        assert!(refused.contains("a.img contradicts the other disks of pool 'tank': it is an older copy"), "{refused}");
    };
    is_refused("running");
    std::fs::rename(path.join("newest"), path.join("a.img")).unwrap();
    let server = serve(path);
    write(3);
    server.end();
    std::fs::rename(path.join("a.img"), path.join("newest")).unwrap();
    is_refused("ended");
    std::fs::rename(path.join("newest"), path.join("a.img")).unwrap();
    let server = serve(path);
    tool(path, "nbdcopy", &[uri, "out"]);
    assert!(std::fs::read(path.join("out")).unwrap() == data(1024, 3));
    server.end();
}

/// Two servers have logical disks with the same name. Initiators of both distinguish them, also later.
#[test]
fn a_logical_disk_has_an_identity_of_its_own_over_iscsi() {
    let servers = [folder(false), folder(false)];
    let serial = |port: u16| {
        let target = format!("iscsi://127.0.0.1:{port}/iqn.2026-11.org.flashwise:mail/0");
        let [number, named] =
            ["128", "131"].map(|page| tool(Path::new("."), "iscsi-inq", &["-e", "1", "-c", page, &target]));
        let number = number.rsplit_once("Serial Number:").unwrap().1.trim().trim_matches(['[', ']']).to_owned();
        assert!(number.len() == 16 && named.contains(&number), "{number} {named}");
        number
    };
    let make = |path: &Path| drop(ask(path, &["disk", "create", "mail", "--size", "4MiB"]));
    let running = servers.each_ref().map(|(folder, _)| {
        let path = folder.path();
        succeed(path, &["pool", "create", "tank", "a.img", "b.img", "c.img"]);
        let server = serve(path);
        make(path);
        server
    });
    let before = servers.each_ref().map(|(_, port)| serial(*port));
    assert_ne!(before[0], before[1]);
    running.into_iter().for_each(|server| drop(server.end()));
    let (folder, port) = &servers[0];
    let server = serve(folder.path());
    assert_eq!(serial(*port), before[0]);
    // Another disk, though its name is the same.
    ask(folder.path(), &["disk", "delete", "mail", "--confirm", "mail"]);
    make(folder.path());
    assert_ne!(serial(*port), before[0]);
    server.end();
}

/// A change is refused as a whole.
#[test]
fn a_change_that_is_refused_changes_nothing() {
    let (folder, _) = folder(true);
    let path = folder.path();
    succeed(path, &["pool", "create", "tank", "a.img", "b.img", "c.img"]);
    // The whole map has allocated space, even if the file system is full.
    let room = std::fs::metadata(path.join("a.img")).unwrap().blocks() * 512;
    assert!(room >= 6 * (64 << 10), "{room}");
    let refused = fail(path, &["check", "--flash", "a.img"], 2);
    assert!(refused.contains("a.img is a disk of pool 'tank', so there is no cache to check"), "{refused}");
    let server = serve(path);
    ask(path, &["disk", "create", "mail", "--size", "4MiB"]);
    let before = ask(path, &["pool", "status"]);
    for change in [["--mode", "write-through"], ["--mode", "write-around"]] {
        let words = [&["disk", "cache", "mail", "on"][..], &change, &["--keep-ram", "1GiB"], &API].concat();
        let refused = fail(path, &words, 1);
        assert!(refused.contains("of the read buffer"), "{refused}");
    }
    assert_eq!(ask(path, &["pool", "status"]), before);
    // Where it is, is kept as it is found from any directory.
    let (code, _, _) = http(path, "/v1/pools/tank/disks", None, &json!({ "path": "d.img" }));
    let pool: serde_json::Value = serde_json::from_str(&ask(path, &["pool", "status", "--json"])).unwrap();
    let added = pool[0]["disks"][3]["path"].as_str().unwrap().to_owned();
    assert_eq!((code, added), (201, path.join("d.img").display().to_string()));
    ask(path, &["pool", "remove", "d.img"]);
    server.end();
}

/// A pool without one of its disks is not served, its other disks are unchanged, and the other pool is served. A
/// duplicate name stops the start.
#[test]
fn a_pool_without_a_disk_stays_unchanged_and_another_is_served() {
    let (folder, _) = folder(true);
    let path = folder.path();
    let disks = ["a.img", "b.img", "c.img", "d.img", "e.img"];
    std::fs::copy(path.join("d.img"), path.join("e.img")).unwrap();
    succeed(path, &["pool", "create", "tank", "a.img", "b.img", "c.img"]);
    succeed(path, &["pool", "create", "pond", "d.img", "e.img"]);
    serve(path).end();
    let config = std::fs::read_to_string(path.join("tank.toml")).unwrap();
    let of_both = format!("{config}\n[[pool]]\nname = \"pond\"\ndisks = [\"d.img\"]\n");
    std::fs::write(path.join("both.toml"), of_both).unwrap();
    let contents = || disks.map(|disk| std::fs::read(path.join(disk)).unwrap());
    let before = contents();
    let server = Server::start(path, &["serve", "both.toml"]);
    assert!(server.told().contains("pool 'pond' misses disk"), "{}", server.told());
    let told = ask(path, &["pool", "status"]);
    assert!(told.contains("pool pond is NOT SERVED: ") && told.contains("tank"), "{told}");
    server.end();
    assert!(contents()[3..] == before[3..], "the pool's own disks were changed");
    // A name that is taken changes no disk.
    let server = serve(path);
    ask(path, &["disk", "create", "mail", "--size", "1MiB"]);
    server.end();
    let before = contents();
    std::fs::File::create(path.join("other.img")).unwrap().set_len(1 << 20).unwrap();
    let volume = format!("{config}\n[[volume]]\nname = \"mail\"\nbackend = \"other.img\"\n");
    std::fs::write(path.join("both.toml"), volume).unwrap();
    let refused = fail(path, &["serve", "both.toml"], 2);
    assert!(refused.contains("its logical disk 'mail' has the name of another export"), "{refused}");
    assert!(contents() == before, "disks were changed");
}

/// A pool that a running server made and that lacks its flash at the next start is not served, and the others are.
#[test]
fn a_created_pool_without_its_disks_does_not_stop_others() {
    let (folder, _) = folder(true);
    let path = folder.path();
    bare(path);
    let (flashes, pools) = (path.join("flashes"), path.join("state/pools.json"));
    std::fs::create_dir(&flashes).unwrap();
    let server = serve(path);
    let flash = format!("flash={}", flashes.join("one.img").display());
    let settings = ["--set", &flash, "--set", "flash-size=16MiB", "--set", "erase-unit=1MiB", "--set", "ram=4MiB"];
    ask(path, &[&["pool", "create", "one", "a.img", "--serve"][..], &settings].concat());
    ask(path, &["pool", "create", "two", "b.img", "--serve", "--set", "ram=4MiB"]);
    server.end();
    // As for a device, whose size is not stored.
    let kept = std::fs::read_to_string(&pools).unwrap();
    let mut sizeless: serde_json::Value = serde_json::from_str(&kept).unwrap();
    sizeless[0]["settings"].as_object_mut().unwrap().remove("flash-size").unwrap();
    let mishaps: [(&str, &dyn Fn()); 3] = [
        ("its folder is gone", &|| std::fs::rename(&flashes, path.join("away")).unwrap()),
        ("it is gone", &|| {
            std::fs::rename(flashes.join("one.img"), path.join("away")).unwrap();
            std::fs::write(&pools, sizeless.to_string()).unwrap();
        }),
        ("it is empty", &|| {
            std::fs::copy(flashes.join("one.img"), path.join("away")).unwrap();
            std::fs::File::create(flashes.join("one.img")).unwrap();
        }),
    ];
    for (number, (what, befalls)) in mishaps.into_iter().enumerate() {
        befalls();
        let server = serve(path);
        let told = ask(path, &["pool", "status"]);
        assert!(told.contains("pool one is NOT SERVED: ") && told.contains("pool two, ok"), "{what}: {told}");
        server.end();
        let back = if number == 0 { flashes.clone() } else { flashes.join("one.img") };
        std::fs::rename(path.join("away"), back).unwrap();
        std::fs::write(&pools, &kept).unwrap();
        let server = serve(path);
        let told = ask(path, &["pool", "status"]);
        assert!(told.contains("pool one, ok") && told.contains("pool two, ok"), "{what}: {told}");
        server.end();
    }
}

/// Detached while no server runs, a pool that a running server made does without its flash from then on, as one that it
/// detaches itself.
#[test]
fn a_made_pool_that_is_detached_offline_goes_on_without_its_flash() {
    let (folder, _) = folder(true);
    let path = folder.path();
    let settings = bare(path);
    let server = serve(path);
    ask(path, &[&["pool", "create", "new", "a.img", "b.img", "--serve"][..], &settings].concat());
    ask(path, &["disk", "create", "mail", "--size", "4MiB"]);
    let bytes = data(512, 5);
    std::fs::write(path.join("in"), &bytes).unwrap();
    tool(path, "nbdcopy", &["--flush", "in", "nbd+unix:///mail?socket=nbd.sock"]);
    server.kill();
    let told = succeed(path, &["detach", "--config", "tank.toml"]);
    assert!(told.contains("cache.img is detached: ") && told.contains("pool new is complete without it"), "{told}");
    std::fs::remove_file(path.join("cache.img")).unwrap();
    let server = serve(path);
    tool(path, "nbdcopy", &["nbd+unix:///mail?socket=nbd.sock", "out"]);
    assert!(std::fs::read(path.join("out")).unwrap()[..bytes.len()] == bytes);
    assert!(!path.join("cache.img").exists());
    server.end();
}
