//! WLFC in service: typical operations of users.

use std::os::unix::fs::FileExt;

use crate::common::{fail, run};
use crate::serving::Setting;
use flashwise_server::front::nbd::protocol::command::{NBD_CMD_FLUSH, NBD_CMD_TRIM, NBD_CMD_WRITE_ZEROES};
use flashwise_testing::client::Client;
use serde_json::Value;

const BLOCK: u64 = 4096;
/// A bucket of 64 pages: a header, and 63 blocks.
const BUCKET_BLOCKS: u64 = 63;
const BLOCKS: u64 = 40 * BUCKET_BLOCKS;
/// 64 buckets, and one erase unit for superblocks.
const KEYS: &str = "flash-size = \"16640KiB\"\nerase-unit = \"256KiB\"\nlayout = \"wlfc\"";

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// A request without data, which must succeed.
fn command(client: &mut Client, kind: u16, offset: u64, length: u32) {
    client.request(kind, 0, 1, offset, length).unwrap();
    assert_eq!(client.reply(0).unwrap().error, 0);
}

/// Sends random requests of all kinds; returns the contents of the volume.
fn work(client: &mut Client, seed: u64, requests: u64) -> Vec<u8> {
    let mut content = vec![0; (BLOCKS * BLOCK) as usize];
    let mut state = seed;
    for number in 0..requests {
        let block = random(&mut state) % if random(&mut state).is_multiple_of(2) { BLOCKS / 8 } else { BLOCKS };
        let count = [1, 1, 2, 7, 70][random(&mut state) as usize % 5].min(BLOCKS - block);
        let (offset, length) = (block * BLOCK, (count * BLOCK) as usize);
        let range = offset as usize..offset as usize + length;
        match random(&mut state) % 16 {
            0 => command(client, NBD_CMD_FLUSH, 0, 0),
            1 => {
                command(client, NBD_CMD_WRITE_ZEROES, offset, length as u32);
                content[range].fill(0);
            }
            2 => {
                command(client, NBD_CMD_TRIM, offset, length as u32);
                content[range].fill(0);
            }
            3..=6 => assert!(client.read(offset, length as u32).unwrap() == content[range], "request {number}"),
            _ => {
                // Some begin and end within blocks.
                let range =
                    if random(&mut state).is_multiple_of(4) { range.start + 512..range.end - 1024 } else { range };
                let data = vec![1 + (number % 255) as u8; range.len()];
                client.write(range.start as u64, &data).unwrap();
                content[range].copy_from_slice(&data);
            }
        }
    }
    content
}

fn status(setting: &Setting) -> Value {
    let status: Value =
        serde_json::from_str(&setting.flashwise(&["status", "--api", &setting.api(), "--json"])).unwrap();
    status["volumes"][0].clone()
}

/// A server's recording gives the same figures in a simulation. Flash pages are blocks here, so `simulate` has headers
/// too.
#[test]
fn a_recorded_run_has_the_figures_of_its_simulation() {
    let passed = bypasses_recorded_as_simulated("", &[]);
    let (keys, options) = ("halving = 3\nlarge-write = \"16KiB\"\n", ["--halving", "3", "--large-write", "16KiB"]);
    assert!(bypasses_recorded_as_simulated(keys, &options) > passed && passed > 0);
}

/// How many blocks went past the cache in both.
fn bypasses_recorded_as_simulated(keys: &str, given: &[&str]) -> u64 {
    let setting = Setting::with("record = \"run.csv.zst\"", BLOCKS * BLOCK, &format!("{KEYS}\n{keys}"));
    let config = std::fs::read_to_string(setting.path("flashwise.toml")).unwrap();
    let recording = setting.path("run.csv.zst").display().to_string();
    std::fs::write(setting.path("flashwise.toml"), config.replace("run.csv.zst", &recording)).unwrap();
    let server = setting.serve();
    let mut client = Client::open(&setting.address(), "v", true).unwrap();
    work(&mut client, 7, 3000);
    let live = status(&setting);
    drop(client);
    server.end();
    let recorded = setting.path("run.000001.csv.zst").display().to_string();
    let options = ["--layout", "wlfc", "--device", "femu", "--bucket", "256KiB", "--size", "16MiB", "--json"];
    let rows = setting.flashwise(&[&["simulate", &recorded][..], &options, given].concat());
    let rows: Value = serde_json::from_str(&rows).unwrap();
    let (live, simulated) =
        (|figure: &str| live[figure].as_u64().unwrap(), |figure: &str| rows[0][figure].as_u64().unwrap());
    assert_eq!(live("flash_bytes_written"), simulated("flash_writes_blocks") * BLOCK);
    assert_eq!(live("flash_client_blocks"), simulated("flash_client_blocks"));
    assert_eq!(live("flash_admission_blocks"), simulated("flash_admission_blocks"));
    assert_eq!(live("flash_copy_forward_blocks"), simulated("flash_copy_forward_blocks"));
    assert_eq!(live("flash_metadata_blocks"), simulated("flash_metadata_blocks"));
    assert_eq!(live("erasures"), simulated("erasures"));
    for figure in ["reads", "writes", "bypasses", "backend_read_blocks", "backend_written_blocks", "destaged_blocks"] {
        assert_eq!(live(figure), simulated(figure), "{figure}");
    }
    assert_eq!(live("flash_read_hits"), simulated("flash_read_hits"));
    let copies = live("flash_admission_blocks") + live("flash_copy_forward_blocks");
    assert!(live("erasures") > 10 && copies > 1000, "it did too little");
    assert_eq!(live("capacity_blocks"), simulated("capacity_blocks"));
    live("bypasses")
}

#[test]
fn it_is_served_checked_detached_and_then_the_backend_is_whole() {
    let setting = Setting::new(BLOCKS * BLOCK, KEYS);
    let server = setting.serve();
    let mut client = Client::open(&setting.address(), "v", true).unwrap();
    let content = work(&mut client, 1, 2000);
    let status = status(&setting);
    assert_eq!((&status["layout"], &status["policy"]), (&Value::from("wlfc"), &Value::from("wlfc")));
    assert!(status["dirty_blocks"].as_u64() > Some(0), "{status}");
    drop(client);
    server.end();
    let config = setting.path("flashwise.toml").display().to_string();
    let cache = setting.path("cache.img").display().to_string();
    let checked = setting.flashwise(&["check", "--flash", &cache, "--data"]);
    assert!(checked.contains("\nbuckets: ") && !checked.contains("\nlog: "), "{checked}");
    // As another layout it is refused, and stays as it is.
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("layout = \"wlfc\"", "")).unwrap();
    let refused = fail(setting.directory.path(), &["serve", "flashwise.toml"], 2);
    assert!(refused.contains("holds a cache of layout \"wlfc\", the configuration has \"log\""), "{refused}");
    std::fs::write(&config, text).unwrap();
    let server = setting.serve();
    let mut client = Client::open(&setting.address(), "v", true).unwrap();
    assert!(client.read(0, content.len() as u32).unwrap() == content, "after an orderly end");
    drop(client);
    server.kill();
    setting.flashwise(&["detach", "--config", &config]);
    assert!(std::fs::read(setting.path("disk.img")).unwrap() == content, "the backend alone");
    let checked: Value = serde_json::from_str(&setting.flashwise(&["check", "--flash", &cache, "--json"])).unwrap();
    let counts = &checked["counts"];
    let found = (&counts["dirty_blocks"], counts["cached_blocks"].as_u64() > Some(0));
    assert_eq!(found, (&Value::from(0), true), "all of it was written back: {checked}");
}

#[test]
fn a_running_volume_is_detached_and_goes_on() {
    let setting = Setting::new(BLOCKS * BLOCK, KEYS);
    let server = setting.serve();
    let mut client = Client::open(&setting.address(), "v", true).unwrap();
    let content = work(&mut client, 2, 1000);
    let before = status(&setting);
    assert!(before["flash_write_requests"].as_u64() > Some(100), "{before}");
    setting.flashwise(&["detach", "--api", &setting.api(), "v"]);
    assert!(std::fs::read(setting.path("disk.img")).unwrap() == content, "the backend alone");
    let after = status(&setting);
    for said in
        ["layout", "policy", "admission", "reads", "writes", "flash_read_hits", "flash_write_requests", "flash_bytes"]
    {
        assert_eq!(after[said], before[said], "{said}: {after}");
    }
    assert!(after["flash_bytes_written"].as_u64() >= before["flash_bytes_written"].as_u64(), "{after}");
    assert!(client.read(0, content.len() as u32).unwrap() == content, "the volume goes on");
    // The server has let go of the flash: others may have it.
    let cache = setting.path("cache.img").display().to_string();
    setting.flashwise(&["wipe", "--flash", &cache, "--yes"]);
    client.write(0, &content[..4096]).unwrap();
    drop(client);
    server.end();
    let server = setting.serve();
    let detached = status(&setting);
    assert_eq!(detached["state"], "detached");
    let reason = detached["state_reason"].as_str().unwrap_or_default();
    assert!(reason.contains("run 'flashwise attach v' and restart the server"), "{reason}");
    setting.flashwise(&["attach", "--api", &setting.api()]);
    assert_eq!(status(&setting)["state_reason"], "the next start uses the flash again");
    server.end();
    let server = setting.serve();
    assert_eq!(status(&setting)["state"], "ok");
    let mut client = Client::open(&setting.address(), "v", true).unwrap();
    command(&mut client, NBD_CMD_FLUSH, 0, 0);
    assert!(client.read(0, content.len() as u32).unwrap() == content, "the volume goes on without it");
    drop(client);
    server.end();
}

/// Buckets are zones, and only few may be open at once.
#[test]
fn it_runs_on_zones() {
    let zones = "flash-zones = \"size=256KiB,capacity=256KiB,max-active=6,max-open=6\"";
    let setting = Setting::new(BLOCKS * BLOCK, &format!("flash-size = \"17MiB\"\nlayout = \"wlfc\"\n{zones}"));
    let server = setting.serve();
    let mut client = Client::open(&setting.address(), "v", true).unwrap();
    let content = work(&mut client, 3, 2000);
    command(&mut client, NBD_CMD_FLUSH, 0, 0);
    drop(client);
    server.kill();
    // How the file is divided stands in its first page, and in a copy of that.
    let cache = std::fs::File::options().write(true).open(setting.path("cache.img")).unwrap();
    cache.write_all_at(&[0; 4096], 0).unwrap();
    let checked = setting.flashwise(&["check", "--flash", "cache.img"]);
    assert!(checked.contains("it was read from the copy\n"), "{checked}");
    let server = setting.serve();
    assert!(server.told().contains("it was read from the copy and was written again"), "{}", server.told());
    let mut client = Client::open(&setting.address(), "v", true).unwrap();
    assert!(client.read(0, content.len() as u32).unwrap() == content, "after the server was killed");
    drop(client);
    server.end();
    let few = zones.replace("max-active=6,max-open=6", "max-active=3,max-open=3");
    let setting = Setting::new(BLOCKS * BLOCK, &format!("flash-size = \"17MiB\"\nlayout = \"wlfc\"\n{few}"));
    let refused = fail(setting.directory.path(), &["serve", "flashwise.toml"], 2);
    assert!(refused.contains("at most 3 of its zones may be active and open, expected at least 4"), "{refused}");
}

#[test]
fn settings_of_the_log_are_refused_by_name() {
    let cases = [
        ("write-mode = \"write-through\"", "write-mode: layout wlfc supports only write-back"),
        ("policy = \"lru\"", "policy: layout wlfc has no such setting"),
        ("sequential-bypass = 0", "sequential-bypass: layout wlfc has no such setting"),
        ("write-queue = \"100%\"", "write-queue: found '100%', expected a share above 0% and below 100%"),
        ("write-queue = \"150%\"", "write-queue: found '150%', expected a share above 0% and below 100%"),
        ("flash-zones = \"4MiB\"", "flash-zones: found '4MiB', expected such as size=4MiB,capacity=3MiB"),
        ("flash-zones = \"size=x\"", "flash-zones: size: found 'x', expected a size"),
        ("refresh = \"never\"", "refresh: found 'never'"),
        ("cache-device = \"slc\"", "cache-device: layout wlfc has no such setting"),
    ];
    for (key, expected) in cases {
        assert_refused(&format!("{KEYS}\n{key}"), expected);
    }
    // All of them are named at once.
    let several = "policy = \"lru\"\ndirty-high = \"50%\"\nsequential-bypass = 0";
    assert_refused(
        &format!("{KEYS}\n{several}"),
        "policy: layout wlfc has no such setting, nor dirty-high, sequential-bypass; it has erase-unit, ram",
    );
    let both = "write-queue: layout log has no such setting, nor refresh; layout wlfc does";
    assert_refused("flash-size = \"32MiB\"\nwrite-queue = \"60%\"\nrefresh = \"evict\"", both);
    for key in ["write-queue = \"60%\"", "refresh = \"evict\"", "halving = 3", "large-write = \"1MiB\""] {
        assert_refused(
            &format!("flash-size = \"16MiB\"\nerase-unit = \"256KiB\"\n{key}"),
            "layout log has no such setting",
        );
    }
}

/// Unusable settings are refused before the flash file is created.
#[test]
fn units_that_cannot_be_buckets_are_refused_beforehand() {
    let large = "its buckets would have 128MiB each, expected at most 64MiB";
    assert_refused("flash-size = \"2GiB\"\nlayout = \"wlfc\"\nerase-unit = \"128MiB\"", large);
    let zones = |limits: &str| format!("flash-size = \"2GiB\"\nlayout = \"wlfc\"\nflash-zones = \"{limits}\"");
    assert_refused(&zones("size=128MiB,capacity=128MiB"), large);
    let few = "at most 3 of its zones may be active and open, expected at least 4";
    assert_refused(&zones("size=4MiB,capacity=4MiB,max-active=5,max-open=3"), few);
}

fn assert_refused(keys: &str, expected: &str) {
    let setting = Setting::new(BLOCKS * BLOCK, keys);
    for command in [&["serve", "--check-config", "flashwise.toml"][..], &["serve", "flashwise.toml"]] {
        let (_, err, code) = run(setting.directory.path(), command);
        assert!(code == 2 && err.contains(expected), "{keys}: {code}: {err}");
        assert!(!setting.path("cache.img").exists(), "{keys}");
    }
}
