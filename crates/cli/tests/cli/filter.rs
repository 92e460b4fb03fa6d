//! The I/O filter's lists over NBD: real processes on one volume, some of them denied.

use std::process::Command;

use crate::common::fail;
use crate::serving::Setting;
use flashwise_testing::client::Client;
use flashwise_testing::random::Random;
use serde_json::{Value, json};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 1024;
const KEYS: &str = "flash-size = \"4MiB\"\nerase-unit = \"64KiB\"\nram = 0\npolicy = \"lru\"\nsequential-bypass = 0";

fn noise(seed: u64) -> Vec<u8> {
    Random(seed).bytes((BLOCKS * BLOCK) as usize)
}

/// A volume of 4 MiB of noise, with `keys`.
fn setting(server_keys: &str, keys: &str) -> (Setting, Vec<u8>) {
    let setting = Setting::with(server_keys, BLOCKS * BLOCK, &format!("{KEYS}\n{keys}"));
    let content = noise(1);
    std::fs::write(setting.path("disk.img"), &content).unwrap();
    (setting, content)
}

/// Another process, nbdcopy of libnbd.
fn nbdcopy(setting: &Setting, from: &str, to: &str) {
    let path = |name: &str| match name {
        "volume" => setting.uri(),
        file => setting.path(file).display().to_string(),
    };
    let output = Command::new("nbdcopy").args(["--flush", &path(from), &path(to)]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn read_back(setting: &Setting) -> Vec<u8> {
    nbdcopy(setting, "volume", "out.img");
    std::fs::read(setting.path("out.img")).unwrap()
}

fn volume(setting: &Setting) -> Value {
    let status = setting.flashwise(&["status", "--json", "--api", &setting.api()]);
    serde_json::from_str::<Value>(&status).unwrap()["volumes"][0].clone()
}

fn count(volume: &Value, name: &str) -> u64 {
    volume[name].as_u64().unwrap_or_else(|| panic!("{name}: {volume}"))
}

/// How a client's requests are treated that has `export` open.
fn caching(setting: &Setting, export: &str) -> Value {
    let volume = volume(setting);
    let clients = volume["clients"].as_array().unwrap();
    clients.iter().find(|client| client["export"] == export).unwrap_or_else(|| panic!("{volume}"))["caching"].clone()
}

/// nbdcopy is denied, this process is not. The recording has nbdcopy's requests, and a replay gives the same figures.
#[test]
fn a_denied_program_fills_nothing_and_reads_and_writes_correct_data() {
    for mode in ["write-back", "write-through"] {
        let place = tempfile::tempdir().unwrap();
        let record = format!("record = \"{}\"", place.path().join("requests.csv").display());
        let keys = format!("deny-clients = [\"program:nbdcopy\"]\nwrite-mode = \"{mode}\"");
        let (setting, mut content) = setting(&record, &keys);
        let server = setting.serve();
        assert!(read_back(&setting) == content, "{mode}");
        let denied = volume(&setting);
        assert_eq!(count(&denied, "filtered_blocks"), BLOCKS, "{mode}: {denied}");
        for figure in ["flash_admission_blocks", "cached_blocks", "bypasses", "sequential_blocks"] {
            assert_eq!(count(&denied, figure), 0, "{mode}: {figure} in {denied}");
        }

        let mut own = Client::open(&setting.address(), "v", true).unwrap();
        for block in 0..100 {
            let offset = block * BLOCK;
            let expected = &content[offset as usize..(offset + BLOCK) as usize];
            assert!(own.read(offset, BLOCK as u32).unwrap() == expected, "{mode}");
        }
        let written = vec![7; 20 * BLOCK as usize];
        assert_eq!(own.write(200 * BLOCK, &written).unwrap(), 0);
        content[200 * BLOCK as usize..][..written.len()].copy_from_slice(&written);
        let allowed = volume(&setting);
        assert_eq!(count(&allowed, "filtered_blocks"), BLOCKS);
        assert_eq!(count(&allowed, "cached_blocks"), 120, "{mode}: {allowed}");
        let known = &allowed["clients"][0];
        assert_eq!(known["pid"], json!(std::process::id()), "{known}");
        assert_eq!(known["uid"], json!(rustix::process::getuid().as_raw()), "{known}");
        assert_eq!((&known["caching"], &known["export"]), (&json!("usual"), &json!("v")));

        // It reads cached blocks, dirty or not, from the cache.
        assert!(read_back(&setting) == content, "{mode}");
        let hit = volume(&setting);
        assert_eq!(count(&hit, "flash_read_hits") - count(&allowed, "flash_read_hits"), 120, "{mode}: {hit}");
        assert_eq!(count(&hit, "cached_blocks"), 120);

        // Other clients read its writes over cached blocks, now and after a kill.
        content = noise(2);
        std::fs::write(setting.path("in.img"), &content).unwrap();
        nbdcopy(&setting, "in.img", "volume");
        let over = volume(&setting);
        assert_eq!(count(&over, "filtered_blocks"), 3 * BLOCKS);
        let kept = if mode == "write-back" { 20 } else { 0 };
        assert_eq!(count(&over, "dirty_blocks"), kept, "only what was dirty is written to flash: {over}");
        for block in [0, 99, 100, 200, 219, 220, BLOCKS - 1] {
            let expected = &content[(block * BLOCK) as usize..((block + 1) * BLOCK) as usize];
            assert!(own.read(block * BLOCK, BLOCK as u32).unwrap() == expected, "{mode}: block {block}");
        }
        let live = volume(&setting);
        server.end();

        let trace = place.path().join("requests.000001.csv").display().to_string();
        let options = "--size 4MiB --erase-unit 64KiB --ram 0 --policy lru --sequential-bypass 0 --json --write-mode";
        let mut arguments = vec!["simulate", &trace];
        arguments.extend(options.split_whitespace().chain([mode]));
        let rows: Value = serde_json::from_str(&setting.flashwise(&arguments)).unwrap();
        for (key, figure) in [
            ("reads", "reads"),
            ("filtered_blocks", "filtered_blocks"),
            ("flash_read_hits", "flash_read_hits"),
            ("flash_client_blocks", "flash_client_blocks"),
            ("flash_admission_blocks", "flash_admission_blocks"),
        ] {
            assert_eq!(live[key], rows[0][figure], "{mode}: {key}");
        }

        let server = setting.serve();
        assert!(read_back(&setting) == content, "{mode}");
        server.kill();
        let server = setting.serve();
        assert!(read_back(&setting) == content, "{mode}");
        server.end();
        let (disk, flash) = (setting.path("disk.img"), setting.path("cache.img"));
        let paths = [&disk, &flash].map(|path| path.to_str().unwrap());
        setting.flashwise(&["detach", "--backend", paths[0], "--flash", paths[1]]);
        assert!(std::fs::read(&disk).unwrap() == content, "{mode}");
    }
}

/// One process opens a volume by both of its names; rules change while the connections are open.
#[test]
fn an_alias_bypasses_the_cache_and_rules_change_for_connections_that_are_open() {
    let (setting, content) = setting("", "aliases = [\"v-raw\"]\ndeny-clients = [\"export:v-raw\"]");
    let server = setting.serve();
    assert!(server.told().contains("volume v is served at nbd+unix:///v-raw?socket="), "{}", server.told());
    let mut cached = Client::open(&setting.address(), "v", true).unwrap();
    let mut raw = Client::open(&setting.address(), "v-raw", false).unwrap();
    let unnamed = Client::open(&setting.address(), "", false).unwrap();
    assert_eq!(raw.size, cached.size);
    let mut reads = |by_alias: bool, block: u64| {
        let client = if by_alias { &mut raw } else { &mut cached };
        let found = client.read(block * BLOCK, BLOCK as u32).unwrap();
        assert!(found == content[(block * BLOCK) as usize..][..BLOCK as usize], "block {block}");
    };
    (0..10).for_each(|block| reads(true, block));
    (20..25).for_each(|block| reads(false, block));
    let status = volume(&setting);
    assert_eq!((count(&status, "filtered_blocks"), count(&status, "cached_blocks")), (10, 5));
    assert_eq!((caching(&setting, "v"), caching(&setting, "v-raw")), (json!("usual"), json!("never")));
    assert_eq!(status["clients"].as_array().unwrap().len(), 3, "an empty name is that of the volume: {status}");
    drop(unnamed);

    // This process is the exception: cached by any name.
    let own = format!("pid:{}", std::process::id());
    let set = |settings: &[&str]| {
        let api = setting.api();
        setting.flashwise(&[&["set", "v"], settings, &["--api", &api]].concat());
    };
    set(&[&format!("allow-clients={own}")]);
    assert_eq!((caching(&setting, "v"), caching(&setting, "v-raw")), (json!("usual"), json!("always")));
    (30..33).for_each(|block| reads(true, block));
    let status = volume(&setting);
    assert_eq!((count(&status, "filtered_blocks"), count(&status, "cached_blocks")), (10, 8));
    assert_eq!(status["changed_settings"], json!(["allow-clients"]));

    // Only the processes of another user are cached, and there are none.
    let other = format!("allow-clients=uid:{}", rustix::process::getuid().as_raw() + 1);
    set(&["cache-clients=none", &other, "deny-clients=none"]);
    assert_eq!((caching(&setting, "v"), caching(&setting, "v-raw")), (json!("never"), json!("never")));
    (40..42).for_each(|block| reads(false, block));
    let status = volume(&setting);
    assert_eq!((count(&status, "filtered_blocks"), count(&status, "cached_blocks")), (12, 8));
    let user = format!("allow-clients=uid:{}", rustix::process::getuid().as_raw());
    set(&[&user]);
    assert_eq!((caching(&setting, "v"), caching(&setting, "v-raw")), (json!("always"), json!("always")));
    let page = setting.flashwise(&["status", "--api", &setting.api()]);
    let line =
        format!("  clients       2, 0 not cached; cached: none, allowed uid:{}\n", rustix::process::getuid().as_raw());
    assert!(page.contains(&line), "{page}");

    let api = setting.api();
    let wrong = fail(setting.directory.path(), &["set", "v", "deny-clients=export:w", "--api", &api], 2);
    assert!(wrong.contains("found 'export:w', expected the name of the volume or an alias: v, v-raw"), "{wrong}");
    let wrong = fail(setting.directory.path(), &["set", "v", "deny-clients=user:1", "--api", &api], 2);
    assert!(wrong.contains("deny-clients: found 'user:1'"), "{wrong}");
    server.end();
}
