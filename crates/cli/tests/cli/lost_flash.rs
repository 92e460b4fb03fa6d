//! Ordered write-back: the state of the backend without its flash is shown, and named when the flash is given up.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use flashwise_server::front::nbd::protocol::command::NBD_CMD_FLUSH;
use flashwise_testing::client::Client;
use flashwise_testing::waiting::wait_until;
use serde_json::Value;

use crate::common::fail;
use crate::serving::{Server, Setting};

const BLOCK: usize = 4096;
const KEYS: &str =
    "flash-size = \"12MiB\"\nerase-unit = \"256KiB\"\nram = \"2MiB\"\nsequential-bypass = 0\npolicy = \"lru\"\n";

fn setting(keys: &str) -> Setting {
    Setting::with("state-directory = \"state\"", 8 << 20, &format!("{KEYS}{keys}"))
}

fn client(setting: &Setting) -> Client {
    Client::open(&setting.address(), "v", true).unwrap()
}

/// Writes a block, and flushes.
fn put(client: &mut Client, block: u64, byte: u8) {
    client.write(block * BLOCK as u64, &[byte; BLOCK]).unwrap();
    client.request(NBD_CMD_FLUSH, 0, 7, 0, 0).unwrap();
    assert_eq!(client.reply(0).unwrap().error, 0);
}

/// Returns the bytes that the first blocks of the backend begin with.
fn backend(setting: &Setting) -> [u8; 3] {
    let bytes = std::fs::read(setting.path("disk.img")).unwrap();
    [0, 1, 2].map(|block| bytes[block * BLOCK])
}

fn status(setting: &Setting) -> Value {
    let status = setting.flashwise(&["status", "--json", "--api", &setting.api()]);
    serde_json::from_str::<Value>(&status).unwrap()["volumes"][0].clone()
}

/// Returns the record of the backend's state, once it has so many newer blocks.
fn record(setting: &Setting, newer_blocks: u64) -> Value {
    let mut found = Value::Null;
    wait_until("the state of the backend is saved", || {
        let files = std::fs::read_dir(setting.path("state")).unwrap().map(|file| file.unwrap().path());
        let is_record = |path: &PathBuf| {
            path.to_string_lossy().contains("backend-state-") && path.extension().is_some_and(|it| it == "json")
        };
        let text = files.filter(is_record).find_map(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        found = serde_json::from_str(&text).unwrap_or_default();
        found["backend"]["newer_blocks"] == newer_blocks
    });
    found
}

#[test]
fn a_lost_flash_leaves_the_state_that_was_shown() {
    let setting = setting("write-back-order = \"barriers\"\ndirty-age = \"1s\"");
    let server = setting.serve();
    let mut first = client(&setting);
    put(&mut first, 0, 1);
    wait_until("the first epoch is written back", || backend(&setting) == [1, 0, 0]);
    setting.flashwise(&["set", "v", "dirty-age=1h", "--api", &setting.api()]);
    wait_until("it counts as written back", || status(&setting)["dirty_bytes"] == 0);
    put(&mut first, 0, 2);
    put(&mut first, 1, 3);
    put(&mut first, 2, 4);
    let backend_state = status(&setting)["backend_state"].clone();
    let (age, moment) =
        (backend_state["age_seconds"].as_f64().unwrap(), backend_state["consistent_seconds"].as_f64().unwrap());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((0.0..60.0).contains(&age) && (now - moment - age).abs() < 5.0, "{backend_state} at {now}");
    assert_eq!(
        (&backend_state["newer_blocks"], &backend_state["age_seconds_max"]),
        (&3.into(), &3600.0.into()),
        "{backend_state}"
    );
    let page = setting.flashwise(&["status", "--api", &setting.api()]);
    let line = page.lines().find(|line| line.contains("backend state")).unwrap_or_else(|| panic!("{page}"));
    assert!(line.contains("consistent as of 20") && line.contains("ago); 3 newer blocks would be lost"), "{line}");
    let said = record(&setting, 3);
    server.kill();
    drop(first);

    assert_eq!(backend(&setting), [1, 0, 0], "nothing of a later epoch is on the backend");
    std::fs::remove_file(setting.path("cache.img")).unwrap();
    let refused = fail(setting.directory.path(), &["serve", "flashwise.toml"], 2);
    assert!(refused.contains("--discard-cache"), "{refused}");
    let arguments = ["serve", "flashwise.toml", "--discard-cache", "v"];
    let server = Server::start(setting.directory.path(), &arguments);
    let told = server.told();
    let moment = flashwise_core::human::utc(said["backend"]["consistent_seconds"].as_f64().unwrap());
    let lost = told.find(&format!("the cache is given up: the backend is consistent as of {moment}, ")).expect(&told);
    let what = "before this was last recorded; 3 newer blocks, and all written since, are lost";
    assert!(told[lost..].contains(what), "{told}");
    assert!(told.find("was discarded").is_some_and(|done| lost < done), "it is said before: {told}");
    let mut second = client(&setting);
    let found = [0, 1, 2].map(|block| second.read(block * BLOCK as u64, BLOCK as u32).unwrap()[0]);
    assert_eq!(found, [1, 0, 0]);
    drop(second);
    server.end();
}

#[test]
fn the_order_begins_and_ends_at_a_start() {
    let ordered = "write-back-order = \"barriers\"";
    let setting = setting("write-back-order = \"none\"");
    let server = setting.serve();
    let mut first = client(&setting);
    (0..3).for_each(|block| put(&mut first, block, 5));
    drop(first);
    assert_eq!(status(&setting)["backend_state"], Value::Null);
    server.end();
    let config = std::fs::read_to_string(setting.path("flashwise.toml")).unwrap();
    let rewrite = |order: &str| {
        let config = config.replace("write-back-order = \"none\"", order);
        std::fs::write(setting.path("flashwise.toml"), config).unwrap();
    };

    rewrite(ordered);
    let server = setting.serve();
    let told = server.told();
    assert!(told.contains("volume v: the order of its 3 dirty blocks is unknown; "), "{told}");
    wait_until("all of them are written back", || backend(&setting) == [5, 5, 5]);
    wait_until("the backend is a state of the volume", || status(&setting)["backend_state"]["is_consistent"] == true);
    let mut second = client(&setting);
    put(&mut second, 0, 6);
    drop(second);
    server.end();
    assert_eq!(backend(&setting), [5, 5, 5]);

    // Its dirty data is found again, with and without the order.
    for order in [ordered, "write-back-order = \"none\"", ordered] {
        rewrite(order);
        let server = setting.serve();
        let mut third = client(&setting);
        assert_eq!(third.read(0, BLOCK as u32).unwrap()[0], 6, "{order}");
        drop(third);
        server.end();
    }
}
