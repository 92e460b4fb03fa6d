//! Pools as their operators and clients use them: the real program, nbdcopy, and qemu-io over iSCSI.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use crate::common::{fail, succeed};
use crate::serving::{Server, get};
use flashwise_testing::waiting::wait_until;
use serde_json::{Value, json};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// Three files and a configuration that names them as a pool, with a flash or without.
pub fn folder(flash: bool) -> (TempDir, u16) {
    let folder = TempDir::new().unwrap();
    for name in ["a.img", "b.img", "c.img", "d.img"] {
        std::fs::File::create(folder.path().join(name)).unwrap().set_len(16 * MIB).unwrap();
    }
    // Another process may take this port; then the server fails to start.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let flash = if flash { "flash = 'cache.img'\nflash-size = '16MiB'\nerase-unit = '1MiB'\n" } else { "" };
    let config = format!(
        "listen = ['nbd+unix:///?socket=nbd.sock', 'iscsi://127.0.0.1:{port}']\nstate-directory = '.'\n\
         [api]\nlisten = 'unix:api.sock'\n[[pool]]\nname = 'tank'\ndisks = ['a.img', 'b.img', 'c.img']\nram = \
         '4MiB'\n{flash}"
    );
    std::fs::write(folder.path().join("tank.toml"), config).unwrap();
    (folder, port)
}

pub fn serve(folder: &Path) -> Server {
    Server::start(folder, &["serve", "tank.toml"])
}

pub const API: [&str; 2] = ["--api", "unix:api.sock"];

pub fn ask(folder: &Path, arguments: &[&str]) -> String {
    succeed(folder, &[arguments, &API].concat())
}

fn status(folder: &Path) -> Value {
    let pools: Value = serde_json::from_str(&ask(folder, &["pool", "status", "--json"])).unwrap();
    pools[0].clone()
}

pub fn tool(folder: &Path, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    said
}

/// Bytes that differ from block to block.
pub fn data(blocks: u64, seed: u64) -> Vec<u8> {
    (0..blocks * 512).map(|word| (word * 0x9E37_79B9 + seed).to_le_bytes()).collect::<Vec<_>>().into_flattened()
}

#[test]
fn logical_disks_are_made_served_over_both_protocols_and_whole_after_a_kill() {
    for flash in [true, false] {
        let (folder, port) = folder(flash);
        let path = folder.path();
        let made = succeed(path, &["pool", "create", "tank", "a.img", "b.img", "c.img"]);
        assert!(made.starts_with("Pool tank has 3 disks with "), "{made}");
        let error = fail(path, &["pool", "create", "tank", "a.img"], 2);
        assert!(error.contains("a.img: it belongs to a pool; to use it anyway"), "{error}");
        let server = serve(path);
        ask(path, &["disk", "create", "mail", "--size", "24MiB", "--striped"]);
        ask(path, &["disk", "create", "web", "--size", "8MiB", "--thick", "--uncached"]);
        let error = fail(path, &[&["disk", "create", "web", "--size", "8MiB"][..], &API].concat(), 1);
        assert!(error.contains("there is an export 'web' already"), "{error}");
        let error = fail(path, &[&["disk", "create", "big", "--size", "1GiB", "--thick"][..], &API].concat(), 1);
        assert!(error.contains("bytes are needed"), "{error}");
        let bytes = data(1024, 7);
        std::fs::write(path.join("data.img"), &bytes).unwrap();
        tool(path, "nbdcopy", &["--flush", "data.img", "nbd+unix:///mail?socket=nbd.sock"]);
        let target = format!("iscsi://127.0.0.1:{port}/iqn.2026-11.org.flashwise:web/0");
        tool(path, "qemu-io", &["-f", "raw", "-c", "write -P 0x5a 1M 2M", "-c", "flush", &target]);
        tool(path, "qemu-io", &["-f", "raw", "-c", "read -P 0 0 1M", "-c", "read -P 0x5a 1M 2M", &target]);
        ask(path, &["disk", "grow", "web", "--size", "9MiB"]);
        server.kill();

        let server = serve(path);
        tool(path, "qemu-io", &["-f", "raw", "-c", "read -P 0x5a 1M 2M", "-c", "read -P 0 8M 1M", &target]);
        tool(path, "nbdcopy", &["nbd+unix:///mail?socket=nbd.sock", "back.img"]);
        let back = std::fs::read(path.join("back.img")).unwrap();
        assert_eq!(back.len() as u64, 24 * MIB);
        assert!(back[..bytes.len()] == bytes && back[bytes.len()..].iter().all(|byte| *byte == 0), "flash {flash}");
        let pool = status(path);
        assert_eq!(
            (pool["state"].as_str(), pool["logical_disks"][1]["size_bytes"].as_u64()),
            (Some("ok"), Some(9 * MIB))
        );
        let server_status: Value = serde_json::from_str(&ask(path, &["status", "--json"])).unwrap();
        assert_eq!(server_status["volumes"][0]["size_bytes"], pool["size_bytes"], "its cache is as large as its disks");
        let map: Value = serde_json::from_str(&ask(path, &["disk", "map", "mail", "--json"])).unwrap();
        let length: u64 = map.as_array().unwrap().iter().map(|run| run["length_bytes"].as_u64().unwrap()).sum();
        assert_eq!(length, 4 * MIB, "{map}");
        let page = ask(path, &["pool", "status"]);
        let volume = ask(path, &["status"]);
        let told = ["flash writes", "wear", "RAM only, write-back"].map(|words| volume.contains(words));
        assert_eq!(told, [flash, flash, !flash], "{volume}");
        assert!(
            page.contains("pool tank, ok") && page.contains("thick linear") && page.contains("thin striped"),
            "{page}"
        );
        server.end();
    }
}

/// Writes a configuration without volumes and pools; returns the settings for a pool created by the running server.
pub fn bare(folder: &Path) -> Vec<&'static str> {
    let config = "listen = ['nbd+unix:///?socket=nbd.sock']\nstate-directory = 'state'\n[api]\nlisten = \
        'unix:api.sock'\ndirectories = '.'\n";
    std::fs::write(folder.join("tank.toml"), config).unwrap();
    let settings = ["flash=cache.img", "flash-size=16MiB", "erase-unit=1MiB", "ram=4MiB"];
    settings.into_iter().flat_map(|setting| ["--set", setting]).collect()
}

fn disks(pool: &Value) -> Vec<String> {
    let name = |disk: &Value| disk["path"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    pool["disks"].as_array().unwrap().iter().map(name).collect()
}

#[test]
fn a_running_server_makes_a_pool_which_is_served_at_once_and_after_each_restart() {
    let (folder, _) = folder(true);
    let path = folder.path();
    let settings = bare(path);
    let server = serve(path);
    assert!(server.told().contains("nothing is served yet"), "{}", server.told());
    assert!(ask(path, &["pool", "status"]).starts_with("the server has no pool"));
    let error = fail(path, &[&["disk", "create", "mail", "--size", "8MiB"][..], &API].concat(), 2);
    assert!(error.contains("the server has no pool; create one with flashwise pool create --serve"), "{error}");
    let flash = path.join("cache.img").display().to_string();
    let absolute: Vec<String> =
        settings.iter().map(|word| word.replace("flash=cache.img", &format!("flash={flash}"))).collect();
    let settings: Vec<&str> = absolute.iter().map(String::as_str).collect();
    let made = ask(path, &[&["pool", "create", "new", "a.img", "b.img", "--serve"][..], &settings].concat());
    assert!(made.starts_with("Pool new has 2 disks with ") && made.contains("and is served"), "{made}");
    ask(path, &["disk", "create", "mail", "--size", "8MiB"]);
    let bytes = data(1024, 11);
    std::fs::write(path.join("data.img"), &bytes).unwrap();
    tool(path, "nbdcopy", &["--flush", "data.img", "nbd+unix:///mail?socket=nbd.sock"]);
    let dirty: Value = serde_json::from_str(&ask(path, &["status", "--json"])).unwrap();
    assert!(dirty["volumes"][0]["dirty_bytes"].as_u64().unwrap() > 0, "{dirty}");
    server.kill();
    let check = |server: &str| {
        let pool = status(path);
        assert_eq!((pool["name"].as_str(), pool["state"].as_str()), (Some("new"), Some("ok")), "{server}");
        tool(path, "nbdcopy", &["nbd+unix:///mail?socket=nbd.sock", "back.img"]);
        assert!(std::fs::read(path.join("back.img")).unwrap()[..bytes.len()] == bytes, "{server}");
        disks(&pool)
    };
    // It has the disks that it was left with, and not those that it was made of.
    let server = serve(path);
    assert_eq!(check("after a kill"), ["a.img", "b.img"]);
    ask(path, &["pool", "add", "c.img"]);
    ask(path, &["pool", "remove", &path.join("a.img").display().to_string()]);
    // The file follows the pool; who is killed in between has one more in it, which is left out.
    let kept = || std::fs::read_to_string(path.join("state/pools.json")).unwrap();
    wait_until("the disk has gone", || disks(&status(path)) == ["b.img", "c.img"] && !kept().contains("a.img"));
    server.kill();
    let server = serve(path);
    assert_eq!(check("with other disks"), ["b.img", "c.img"]);
    server.end();
    let told = succeed(path, &["serve", "tank.toml", "--check-config"]);
    assert!(told.contains("pool new: 2 disks"), "{told}");
    // This table can be copied to the configuration.
    let table = format!(
        "[[pool]]\nname = 'new'\ndisks = ['b.img', 'c.img']\nflash = '{flash}'\nerase-unit = '1MiB'\nram = '8MiB'\n"
    );
    let config = std::fs::read_to_string(path.join("tank.toml")).unwrap() + &table;
    std::fs::write(path.join("tank.toml"), config).unwrap();
    let server = serve(path);
    assert_eq!(check("from the configuration"), ["b.img", "c.img"]);
    server.end();
}

#[test]
fn definitions_of_pools_survive_damage_of_the_file() {
    let (folder, _) = folder(true);
    let path = folder.path();
    bare(path);
    let file = path.join("state/pools.json");
    let names = || -> Vec<String> {
        let pools: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        pools.as_array().unwrap().iter().map(|pool| pool["name"].as_str().unwrap().to_owned()).collect()
    };
    let flash = format!("flash={}", path.join("cache.img").display());
    let server = serve(path);
    let made = ["pool", "create", "one", "a.img", "--serve", "--set", "ram=4MiB", "--set", "erase-unit=1MiB"];
    ask(path, &[&made[..], &["--set", &flash, "--set", "flash-size=16MiB"]].concat());
    // The file can be removed without loss.
    std::fs::remove_file(&file).unwrap();
    ask(path, &["pool", "create", "two", "b.img", "--serve", "--set", "ram=4MiB"]);
    assert_eq!(names(), ["one", "two"]);
    // A file changed by others is not overwritten, and changes that could not be stored are refused.
    let kept = std::fs::read_to_string(&file).unwrap();
    for other in ["garbage", "[]"] {
        std::fs::write(&file, other).unwrap();
        for words in [&["pool", "create", "three", "c.img", "--serve"][..], &["pool", "add", "c.img", "--pool", "two"]]
        {
            let error = fail(path, &[words, &API].concat(), 1);
            assert!(error.contains("pools.json cannot be written"), "{error}");
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), other);
        assert!(std::fs::read(path.join("c.img")).unwrap().iter().all(|byte| *byte == 0));
    }
    std::fs::write(&file, &kept).unwrap();
    let told = ask(path, &["pool", "add", "c.img", "--pool", "two"]);
    assert!(!told.contains("configuration"), "{told}");
    // A flash that was detached is not taken again.
    ask(path, &["detach", "one"]);
    server.end();
    std::fs::remove_file(path.join("cache.img")).unwrap();
    // A disk that is gone keeps its own pool from being served, and no other.
    std::fs::rename(path.join("b.img"), path.join("gone.img")).unwrap();
    let server = serve(path);
    assert!(server.told().contains("the pool is not served") && server.told().contains("b.img"), "{}", server.told());
    assert_eq!((status(path)["name"].as_str(), names()), (Some("one"), vec!["one".to_owned(), "two".to_owned()]));
    // Both commands show it.
    for words in [&["pool", "status"][..], &["status"]] {
        let told = ask(path, words);
        assert!(told.contains("pool two is NOT SERVED: ") && told.contains("b.img"), "{told}");
    }
    let ready = get(path, "/readyz");
    assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("1 of 2 volumes and pools do not serve"), "{ready}");
    assert!(get(path, "/metrics").contains("\nflashwise_unserved_pools 1\n"));
    let error = fail(path, &[&["pool", "create", "two", "d.img", "--serve"][..], &API].concat(), 1);
    assert!(error.contains("there is a pool 'two' already"), "{error}");
    server.end();
    let degraded = std::fs::read_to_string(&file).unwrap().replacen("\"ram\"", "\"degraded\": \"true\", \"ram\"", 2);
    std::fs::write(&file, degraded).unwrap();
    let server = serve(path);
    let pools: Value = serde_json::from_str(&ask(path, &["pool", "status", "--json"])).unwrap();
    assert_eq!((pools[0]["state"].as_str(), pools[1]["state"].as_str()), (Some("ok"), Some("degraded")), "{pools}");
    server.end();
    std::fs::remove_file(&file).unwrap();
    tool(path, "mkfifo", &[&file.display().to_string()]);
    let error = fail(path, &["serve", "tank.toml"], 2);
    assert!(error.contains("pools.json: is no regular file"), "{error}");
    std::fs::remove_file(&file).unwrap();
    for (text, expected) in [
        ("garbage", "expected pools as JSON; move the file away to start without"),
        (r#"[{"name": "one", "disks": ["/a"], "setings": {}}]"#, "unknown field `setings`"),
        (r#"[{"name": "one", "disks": ["/a"]}, {"name": "one", "disks": ["/b"]}]"#, "found pool 'one' twice"),
    ] {
        std::fs::write(&file, text).unwrap();
        let error = fail(path, &["serve", "tank.toml"], 2);
        assert!(error.contains("pools.json") && error.contains(expected), "{error}");
    }
}

#[test]
fn a_pool_that_cannot_be_made_leaves_no_trace() {
    let (folder, _) = folder(true);
    let path = folder.path();
    bare(path);
    let server = serve(path);
    let refused = |words: &[&str], code: i32| {
        fail(path, &[&["pool", "create", "new", "a.img", "b.img", "--serve"], words, &API].concat(), code)
    };
    let flash = format!("flash={}", path.join("full.img").display());
    std::fs::write(path.join("full.img"), data(8192, 5)).unwrap();
    for (words, code, expected) in [
        (&["--set", "rem=4MiB"][..], 2, "pool 'new' rem: unknown key (did you mean 'ram'?)"),
        (&["--set", "ram=much"], 2, "pool 'new' ram: found 'much'"),
        (&["--set", "ram"], 2, "--set: found 'ram', expected a key and a value"),
        (&["--set", "name=other"], 2, "found name among the settings"),
        (
            &["--set", &flash],
            1,
            "full.img: it holds data of an unknown kind; to use it anyway and lose that data, wipe it first",
        ),
        (&["--set", "layout=wlfc"], 2, "pool 'new' layout: found wlfc, expected log"),
        (&["--wipe", "c.img"], 2, "--wipe: c.img is not one of the pool's disks"),
    ] {
        let error = refused(words, code);
        assert!(error.contains(expected), "{words:?}: {error}");
    }
    // A pool that cannot be stored is not served, and its disks are unchanged.
    std::fs::create_dir_all(path.join("state/pools.new")).unwrap();
    let error = refused(&["--set", "ram=4MiB"], 1);
    assert!(error.contains("pools.json cannot be written"), "{error}");
    for name in ["a.img", "b.img"] {
        assert!(std::fs::read(path.join(name)).unwrap().iter().all(|byte| *byte == 0), "{name}");
    }
    std::fs::remove_dir(path.join("state/pools.new")).unwrap();
    ask(path, &["pool", "create", "new", "a.img", "b.img", "--serve", "--set", "ram=4MiB"]);
    let error = refused(&[], 1);
    assert!(error.contains("there is a pool 'new' already"), "{error}");
    server.end();
    // A server by flags has one volume, and is not asked for more.
    std::fs::File::create(path.join("disk.img")).unwrap().set_len(16 * MIB).unwrap();
    let flags = ["--backend", "disk.img", "--flash", "f.img", "--flash-size", "64MiB", "--state-directory", "state"];
    let listen = ["--listen", "nbd+unix:///?socket=nbd.sock", API[0], API[1]];
    let server = Server::start(path, &[&["serve"][..], &flags, &listen].concat());
    let error = fail(path, &[&["pool", "create", "more", "c.img", "--serve"][..], &API].concat(), 1);
    assert!(error.contains("this server was started by flags"), "{error}");
    server.end();
}

/// Posts to the API with a tag, if there is one: the status of the answer, its tag, and its body.
pub fn http(folder: &Path, path: &str, tag: Option<&str>, body: &Value) -> (u16, Option<String>, Value) {
    send(folder, "POST", path, tag, body)
}

/// The same with another method.
pub fn send(folder: &Path, method: &str, path: &str, tag: Option<&str>, body: &Value) -> (u16, Option<String>, Value) {
    let body = body.to_string();
    let tag = tag.map(|tag| format!("If-Match: {tag}\r\n")).unwrap_or_default();
    let mut api = UnixStream::connect(folder.join("api.sock")).unwrap();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{tag}");
    write!(api, "{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    api.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).map(str::to_owned);
    (status, tag, serde_json::from_str(body).unwrap_or_default())
}

/// A wipe applies to the examined disk, even if another disk takes its path meanwhile.
#[test]
fn no_other_disk_is_wiped_than_the_one_that_was_looked_at() {
    let (folder, _) = folder(false);
    let path = folder.path();
    bare(path);
    succeed(path, &["pool", "create", "seen", "a.img"]);
    succeed(path, &["pool", "create", "other", "b.img"]);
    let server = serve(path);
    let [a, b] = ["a.img", "b.img"].map(|name| path.join(name));
    let change_places = || {
        std::fs::rename(&a, path.join("aside")).unwrap();
        std::fs::rename(&b, &a).unwrap();
        std::fs::rename(path.join("aside"), &b).unwrap();
    };
    let wipe = json!({ "path": a, "confirm": a });
    let pool = json!({ "name": "new", "disks": [a], "wipe": [a] });
    for (route, body) in [("/v1/disks/wipe", &wipe), ("/v1/pools", &pool)] {
        let (status, tag, plan) = http(path, &format!("{route}?dry-run=true"), None, body);
        assert!(status == 200 && plan["does"].to_string().contains("'seen'"), "{status} {plan}");
        let before = std::fs::read(&b).unwrap();
        change_places();
        let (status, _, refused) = http(path, route, tag.as_deref(), body);
        assert_eq!((status, refused["error"].as_str()), (412, Some("it has changed since you read it; read it again")));
        assert!(std::fs::read(&a).unwrap() == before, "{route}");
        change_places();
    }
    // Another file of the same kind and size.
    let (bytes, other) = (std::fs::read(&b).unwrap(), path.join("c.img"));
    let wipe = json!({ "path": other, "confirm": other });
    std::fs::write(&other, vec![7; bytes.len()]).unwrap();
    let (_, tag, _) = http(path, "/v1/disks/wipe?dry-run=true", None, &wipe);
    std::fs::remove_file(&other).unwrap();
    std::fs::write(&other, vec![8; bytes.len()]).unwrap();
    assert_eq!(http(path, "/v1/disks/wipe", tag.as_deref(), &wipe).0, 412);
    let (_, tag, _) = http(path, "/v1/pools?dry-run=true", None, &pool);
    assert_eq!(http(path, "/v1/pools", tag.as_deref(), &pool).0, 201);
    // Of a disk that a pool takes, with the pool's own tag too.
    let (add, route) = (json!({ "path": b, "wipe": b }), "/v1/pools/new/disks");
    let (_, tag, _) = http(path, &format!("{route}?dry-run=true"), None, &add);
    std::fs::copy(&b, path.join("copy")).unwrap();
    std::fs::write(&b, vec![7; 16 << 20]).unwrap();
    assert_eq!(http(path, route, tag.as_deref(), &add).0, 412);
    std::fs::rename(path.join("copy"), &b).unwrap();
    let (_, tag, _) = http(path, &format!("{route}?dry-run=true"), None, &add);
    assert_eq!(http(path, route, tag.as_deref(), &add).0, 201);
    server.end();
}

/// A pool that a running server made goes without a trace once nothing is in it; one of the configuration does not.
#[test]
fn a_pool_that_was_made_is_deleted_and_its_disks_are_free() {
    let (folder, _) = folder(true);
    let path = folder.path();
    let settings = bare(path);
    let server = serve(path);
    let create = [&["pool", "create", "new", "a.img", "b.img", "--serve"][..], &settings].concat();
    ask(path, &create);
    ask(path, &["pool", "create", "stays", "c.img", "--serve", "--set", "ram=4MiB"]);
    ask(path, &["disk", "create", "mail", "--size", "8MiB", "--pool", "new"]);
    std::fs::write(path.join("data.img"), data(1024, 3)).unwrap();
    tool(path, "nbdcopy", &["--flush", "data.img", "nbd+unix:///mail?socket=nbd.sock"]);
    let delete =
        |confirm: &str, code| fail(path, &[&["pool", "delete", "new", "--confirm", confirm][..], &API].concat(), code);
    assert!(delete("old", 2).contains("--confirm: found 'old', expected 'new', the pool to delete"));
    let refused = delete("new", 1);
    assert!(refused.contains("it has the logical disks mail; delete them first"), "{refused}");
    ask(path, &["disk", "delete", "mail", "--confirm", "mail", "--pool", "new"]);
    assert_eq!(
        ask(path, &["pool", "delete", "new", "--confirm", "new"]),
        "Pool new is deleted. Its disks are blank.\n"
    );
    assert_eq!(status(path)["name"], "stays");
    let kept = std::fs::read_to_string(path.join("state/pools.json")).unwrap();
    assert!(kept.contains("stays") && !kept.contains("\"new\""), "{kept}");
    // Of the same disks and flash, with no word of wiping.
    ask(path, &create);
    ask(path, &["disk", "create", "mail", "--size", "8MiB", "--pool", "new"]);
    tool(path, "qemu-io", &["-f", "raw", "-c", "read -P 0 0 8M", "nbd+unix:///mail?socket=nbd.sock"]);
    ask(path, &["disk", "delete", "mail", "--confirm", "mail", "--pool", "new"]);
    ask(path, &["pool", "delete", "new", "--confirm", "new"]);
    server.end();
    let server = serve(path);
    let pools: Value = serde_json::from_str(&ask(path, &["pool", "status", "--json"])).unwrap();
    assert_eq!((pools.as_array().unwrap().len(), pools[0]["name"].as_str()), (1, Some("stays")));
    server.end();
    // A table of the configuration is its operator's.
    succeed(path, &["pool", "create", "tank", "a.img"]);
    let config = std::fs::read_to_string(path.join("tank.toml")).unwrap();
    std::fs::write(
        path.join("tank.toml"),
        format!("{config}[[pool]]\nname = 'tank'\ndisks = ['a.img']\nram = '4MiB'\n"),
    )
    .unwrap();
    let server = serve(path);
    let refused = fail(path, &[&["pool", "delete", "tank", "--confirm", "tank"][..], &API].concat(), 1);
    assert!(refused.contains("pool 'tank' is of tank.toml: take it out there"), "{refused}");
    let names = |path| -> Vec<String> {
        let pools: Value = serde_json::from_str(&ask(path, &["pool", "status", "--json"])).unwrap();
        pools.as_array().unwrap().iter().map(|pool| pool["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(path), ["tank", "stays"], "what is refused changes nothing");
    // One that was there at the start is let go of too.
    ask(path, &["pool", "delete", "stays", "--confirm", "stays"]);
    ask(path, &["pool", "create", "stays", "c.img", "--serve", "--set", "ram=4MiB"]);
    server.end();
}

/// If the server is killed while it deletes a pool, the disks are blank after the next start. A pool that is not served
/// can be forgotten.
#[test]
fn an_interrupted_deletion_resumes_and_unserved_pools_can_be_forgotten() {
    let (folder, _) = folder(true);
    let path = folder.path();
    let settings = bare(path);
    let server = serve(path);
    ask(path, &[&["pool", "create", "new", "a.img", "b.img", "--serve"][..], &settings].concat());
    ask(path, &["pool", "create", "lacks", "c.img", "d.img", "--serve", "--set", "ram=4MiB"]);
    let uuid = status(path)["uuid"].clone();
    server.kill();
    let file = path.join("state/pools.json");
    let mut pools: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    pools[0]["ended"] = uuid;
    std::fs::write(&file, pools.to_string()).unwrap();
    std::fs::rename(path.join("d.img"), path.join("gone.img")).unwrap();
    let server = serve(path);
    assert!(
        server.told().contains("the server ended while it deleted the pool; the disks are blank now"),
        "{}",
        server.told()
    );
    for name in ["a.img", "b.img", "cache.img"] {
        let start = std::fs::read(path.join(name)).unwrap()[..8192].iter().all(|byte| *byte == 0);
        assert!(start, "{name}");
    }
    assert!(ask(path, &["pool", "status"]).starts_with("pool lacks is NOT SERVED: "));
    let refused = fail(path, &[&["pool", "create", "lacks", "a.img", "--serve"][..], &API].concat(), 1);
    assert!(refused.contains("pools.json, which is not served; to forget it, delete it"), "{refused}");
    let told = ask(path, &["pool", "delete", "lacks", "--confirm", "lacks"]);
    assert_eq!(told, "Pool lacks was not served and is forgotten. Its disks keep their data.\n");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "[]");
    assert!(ask(path, &["pool", "status"]).starts_with("the server has no pool"));
    assert!(std::fs::read(path.join("c.img")).unwrap().iter().any(|byte| *byte != 0));
    let none = fail(path, &[&["pool", "delete", "lacks", "--confirm", "lacks"][..], &API].concat(), 2);
    assert!(none.contains("no pool 'lacks': this server serves none"), "{none}");
    server.end();
}

/// A disk at the path of a missing one is in the file once, so the next start uses it.
#[test]
fn another_disk_comes_to_the_path_of_a_missing_one() {
    let (folder, _) = folder(false);
    let path = folder.path();
    bare(path);
    let server = serve(path);
    let create = ["pool", "create", "new", "a.img", "b.img", "--serve", "--set", "ram=4MiB", "--set", "degraded=true"];
    ask(path, &create);
    server.end();
    std::fs::remove_file(path.join("b.img")).unwrap();
    let server = serve(path);
    std::fs::File::create(path.join("b.img")).unwrap().set_len(16 * MIB).unwrap();
    ask(path, &["pool", "add", "b.img"]);
    server.end();
    let kept = std::fs::read_to_string(path.join("state/pools.json")).unwrap();
    assert_eq!(kept.matches("b.img").count(), 1, "{kept}");
    let server = serve(path);
    assert_eq!(status(path)["disks"].as_array().unwrap().len(), 3);
    server.end();
}

#[test]
fn a_disk_is_added_and_another_emptied_and_the_pool_starts_without_it() {
    let (folder, _) = folder(true);
    let path = folder.path();
    succeed(path, &["pool", "create", "tank", "a.img", "b.img", "c.img"]);
    let server = serve(path);
    ask(path, &["disk", "create", "mail", "--size", "24MiB", "--striped"]);
    let bytes = data(4096, 3);
    std::fs::write(path.join("data.img"), &bytes).unwrap();
    tool(path, "nbdcopy", &["--flush", "data.img", "nbd+unix:///mail?socket=nbd.sock"]);
    ask(path, &["pool", "add", "d.img"]);
    let error = fail(path, &[&["pool", "remove", "a.img", "--stop"][..], &API].concat(), 1);
    assert!(error.contains("pool 'tank': disk 1, a.img, is not being emptied"), "{error}");
    // Asking once more changes nothing.
    ask(path, &["pool", "remove", "b.img"]);
    ask(path, &["pool", "remove", "2"]);
    wait_until("the disk has gone", || status(path)["disks"].as_array().unwrap().len() < 4);
    let told = server.told();
    assert!(!told.contains("ERROR"), "{told}");
    server.end();
    let config = std::fs::read_to_string(path.join("tank.toml")).unwrap();
    let error = fail(path, &["serve", "tank.toml"], 2);
    assert!(
        ["misses disk", "d.img); give it", "b.img is another: it is blank"].iter().all(|what| error.contains(what)),
        "{error}"
    );
    std::fs::write(path.join("tank.toml"), config.replace("'b.img'", "'d.img'")).unwrap();
    let server = serve(path);
    tool(path, "nbdcopy", &["nbd+unix:///mail?socket=nbd.sock", "back.img"]);
    assert!(std::fs::read(path.join("back.img")).unwrap()[..bytes.len()] == bytes);
    let error = fail(path, &[&["disk", "delete", "mail", "--confirm", "male"][..], &API].concat(), 2);
    assert!(error.contains("found 'male', expected 'mail'"), "{error}");
    ask(path, &["disk", "delete", "mail", "--confirm", "mail"]);
    assert_eq!(status(path)["used_bytes"], 0);
    server.end();
    // One that is missing is named, and the others start when they may.
    std::fs::rename(path.join("c.img"), path.join("away.img")).unwrap();
    let named = std::fs::read_to_string(path.join("tank.toml")).unwrap();
    let error = fail(path, &["serve", "tank.toml"], 2);
    let expected =
        "c.img: cannot be opened: No such file or directory (os error 2); if the disk is gone, set degraded = true";
    assert!(error.contains(expected), "{error}");
    let config = named.replace(", 'c.img'", "");
    std::fs::write(path.join("tank.toml"), &config).unwrap();
    let error = fail(path, &["serve", "tank.toml"], 2);
    assert!(error.contains("misses disk") && error.contains("last seen as c.img"), "{error}");
    // With and without its name.
    std::fs::write(path.join("tank.toml"), format!("{config}degraded = true\n")).unwrap();
    serve(path).end();
    std::fs::write(path.join("tank.toml"), format!("{named}degraded = true\n")).unwrap();
    let server = serve(path);
    assert!(server.told().contains("pool tank: c.img: cannot be opened"), "{}", server.told());
    assert_eq!(status(path)["state"], "degraded");
    let missing = status(path)["disks"][1]["path"].as_str().unwrap().to_owned();
    let error = fail(path, &[&["pool", "remove", "3", "--give-up", "a.img"][..], &API].concat(), 1);
    assert!(error.contains("found 'a.img' as the disk to give up, expected"), "{error}");
    ask(path, &["pool", "remove", "3", "--give-up", &missing]);
    assert_eq!(status(path)["state"], "ok");
    ask(path, &["disk", "create", "new", "--size", "1MiB", "--mode", "write-through"]);
    ask(path, &["disk", "cache", "new", "on", "--mode", "write-around"]);
    assert_eq!(status(path)["logical_disks"][0]["mode"], "write-around");
    server.end();
    std::fs::write(path.join("tank.toml"), config).unwrap();
    serve(path).end();
}

#[test]
fn disks_are_listed_with_reasons_against_their_use() {
    let (folder, _) = folder(false);
    let path = folder.path();
    std::fs::write(path.join("b.img"), vec![1; MIB as usize]).unwrap();
    succeed(path, &["pool", "create", "tank", "a.img"]);
    let disks: Value = serde_json::from_str(&succeed(path, &["disks", "--json", "a.img", "b.img", "c.img"])).unwrap();
    let told: Vec<_> = disks.as_array().unwrap().iter().map(|disk| (&disk["role"], &disk["refused"])).collect();
    let expected = [
        (Value::from("data"), Value::from("it belongs to a pool")),
        (Value::from("foreign"), Value::from("it holds data of an unknown kind")),
        (Value::from("spare"), Value::Null),
    ];
    assert!(
        told.iter().zip(&expected).all(|(told, expected)| (told.0, told.1) == (&expected.0, &expected.1)),
        "{told:?}"
    );
    let error = fail(path, &["pool", "create", "other", "b.img", "--wipe", "c.img"], 2);
    assert!(error.contains("--wipe: c.img is not one of the pool's disks"), "{error}");
    let error = fail(path, &["pool", "create", "Other", "c.img"], 2);
    assert!(error.contains("found 'Other' as a name"), "{error}");
    succeed(path, &["pool", "create", "other", "b.img", "--wipe", "b.img"]);
    let error = fail(path, &["disks", "none.img"], 1);
    assert!(error.contains("none.img: No such file"), "{error}");
}
