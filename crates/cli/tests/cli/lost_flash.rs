//! Ordered write-back: the state of the backend without its flash is shown, and named when the flash is given up.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flashwise_server::front::Address;
use flashwise_server::front::nbd::protocol::command::NBD_CMD_FLUSH;
use flashwise_testing::client::Client;
use flashwise_testing::random::Random;
use flashwise_testing::setting as number;
use flashwise_testing::waiting::wait_until;
use serde_json::Value;

use crate::common::{fail, succeed};
use crate::serving::{Server, Setting, get};

const BLOCK: usize = 4096;
/// Writes go to flash, and end no epoch.
const KEYS: &str = "flash-size = \"12MiB\"\nerase-unit = \"256KiB\"\nram = 0\nsequential-bypass = 0\n\
                    policy = \"lru\"\ncommit-age = \"1h\"\n";

fn setting(keys: &str) -> Setting {
    Setting::with("state-directory = \"state\"", 8 << 20, &format!("{KEYS}{keys}"))
}

fn client(setting: &Setting) -> Client {
    Client::open(&setting.address(), "v", true).unwrap()
}

/// The seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

fn write(client: &mut Client, block: u64, byte: u8) {
    client.write(block * BLOCK as u64, &[byte; BLOCK]).unwrap();
}

fn flush(client: &mut Client) {
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
    let setting = setting("write-back-order = \"barriers\"\ndirty-age = \"1h\"");
    let server = setting.serve();
    let mut first = client(&setting);
    write(&mut first, 0, 1);
    flush(&mut first);
    wait_until("the first epoch is written back", || backend(&setting) == [1, 0, 0]);
    wait_until("it counts as written back", || status(&setting)["dirty_bytes"] == 0);
    write(&mut first, 0, 2);
    write(&mut first, 1, 3);
    write(&mut first, 2, 4);
    let backend_state = status(&setting)["backend_state"].clone();
    let (age, moment) =
        (backend_state["age_seconds"].as_f64().unwrap(), backend_state["consistent_seconds"].as_f64().unwrap());
    let now = now();
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
    (0..3).for_each(|block| write(&mut first, block, 5));
    flush(&mut first);
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
    server.end();

    rewrite("write-back-order = \"none\"");
    let server = setting.serve();
    let mut second = client(&setting);
    assert_eq!(second.read(0, BLOCK as u32).unwrap()[0], 5);
    write(&mut second, 0, 6);
    flush(&mut second);
    drop(second);
    server.end();
    assert_eq!(backend(&setting), [5, 5, 5]);

    rewrite(ordered);
    let server = setting.serve();
    let mut third = client(&setting);
    assert_eq!(third.read(0, BLOCK as u32).unwrap()[0], 6);
    drop(third);
    wait_until("dirty data of the last run is written back", || backend(&setting) == [6, 5, 5]);
    server.end();
}

const DISKS: [&str; 2] = ["one", "two"];
/// Blocks of each logical disk.
const BLOCKS: u64 = 256;

/// A block that was written to a logical disk, and the time when its flush was answered, if it was.
struct Put {
    disk: usize,
    block: u64,
    flushed: Option<f64>,
}

/// Writes to two logical disks in turn, and flushes each write, until the server ends.
fn put_until_killed(folder: &Path, random: &mut Random, puts: &mut Vec<Put>) {
    let mut clients = connect(folder);
    loop {
        let (disk, block) = (puts.len() % DISKS.len(), random.below(BLOCKS));
        puts.push(Put { disk, block, flushed: None });
        let content = (puts.len() as u64).to_le_bytes().repeat(BLOCK / 8);
        let client = &mut clients[disk];
        let put = client.write(block * BLOCK as u64, &content).and_then(|_| {
            client.request(NBD_CMD_FLUSH, 0, 7, 0, 0)?;
            client.reply(0)
        });
        match put {
            Ok(reply) => assert_eq!(reply.error, 0),
            Err(_) => return,
        }
        puts.last_mut().expect("it was added").flushed = Some(now());
    }
}

fn connect(folder: &Path) -> [Client; 2] {
    let address = Address::Unix(folder.join("nbd.sock"));
    DISKS.map(|disk| Client::open(&address, disk, true).unwrap())
}

/// Compares both logical disks with the state after some of these writes. Returns their number.
fn writes_there(folder: &Path, puts: &[Put]) -> usize {
    let found = connect(folder).map(|mut client| {
        let bytes = client.read(0, (BLOCKS * BLOCK as u64) as u32).unwrap();
        bytes.chunks(BLOCK).map(|block| u64::from_le_bytes(block[..8].try_into().unwrap())).collect::<Vec<_>>()
    });
    let count = found.iter().flatten().max().copied().unwrap_or(0);
    let mut expected = [(); 2].map(|()| vec![0; BLOCKS as usize]);
    for (put, number) in puts.iter().zip(1..=count) {
        expected[put.disk][put.block as usize] = number;
    }
    assert!(found == expected, "after {count} writes, {expected:?} is expected, and {found:?} is there");
    count as usize
}

/// A pool with a journal is as both of its logical disks were together after some write, which is no older than the
/// server stated. `FLASHWISE_ORDERED` sets the number of lost flashes.
#[test]
fn a_pool_that_lost_its_flash_is_as_its_logical_disks_were_together() {
    let (mut there, mut all) = (0, 0);
    for seed in (number("FLASHWISE_SEED", 1)..).take(number("FLASHWISE_ORDERED", 2) as usize) {
        let mut random = Random(seed);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let config = format!(
            "listen = 'nbd+unix:///?socket=nbd.sock'\nstate-directory = '.'\n[api]\nlisten = 'unix:api.sock'\n\
             [[pool]]\nname = 'tank'\ndisks = ['a.img', 'b.img', 'c.img']\nram = '4MiB'\nflash = 'cache.img'\n\
             flash-size = '16MiB'\nerase-unit = '1MiB'\nwrite-back-order = 'journal'\njournal = 'tank.journal'\n\
             journal-size = '64MiB'\ndirty-high = '{}'\ndirty-low = '0%'\n",
            random.pick(&["0%", "1%"])
        );
        std::fs::write(path.join("tank.toml"), config).unwrap();
        let disks = ["a.img", "b.img", "c.img"];
        disks.iter().for_each(|disk| File::create(path.join(disk)).unwrap().set_len(16 << 20).unwrap());
        succeed(path, &[&["pool", "create", "tank"][..], &disks].concat());
        let serve = |arguments: &[&str]| Server::start(path, &[&["serve", "tank.toml"], arguments].concat());
        let mut server = serve(&[]);
        for disk in DISKS {
            let api = ["--striped", "--api", "unix:api.sock"];
            succeed(path, &[&["disk", "create", disk, "--size", "1MiB"][..], &api].concat());
        }
        let mut puts = Vec::new();
        let mut stated = None;
        for is_last in [false, true] {
            let (duration, started) = (Duration::from_millis(100 + random.below(900)), now());
            thread::scope(|scope| {
                scope.spawn(|| put_until_killed(path, &mut random, &mut puts));
                wait_until("the server is killed", || now() - started > duration.as_secs_f64());
                let answer = get(path, "/v1/status");
                let status: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
                stated = status["volumes"][0]["backend_state"]["consistent_seconds"].as_f64();
                server.kill();
            });
            if is_last {
                std::fs::remove_file(path.join("cache.img")).unwrap();
                server = serve(&["--discard-cache", "tank"]);
                assert!(server.told().contains("is given up: the backend is consistent as of "), "{}", server.told());
            } else {
                server = serve(&[]);
                let count = writes_there(path, &puts);
                assert!(puts[count..].iter().all(|put| put.flushed.is_none()), "seed {seed}: a flushed write is lost");
                puts.truncate(count);
            }
        }
        let (count, stated) = (writes_there(path, &puts), stated.expect("the order is good"));
        let lost = puts[count..].iter().filter_map(|put| put.flushed).next();
        assert!(lost.is_none_or(|lost| lost > stated), "seed {seed}: {lost:?} is lost, {stated} was stated");
        (there, all) = (there + count, all + puts.len());
        server.end();
    }
    println!("the disks had {there} of {all} writes");
    assert!(there > 0, "the disks had none of {all} writes");
}
