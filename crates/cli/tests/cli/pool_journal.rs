//! Commands over a pool with a journal, whose server was killed.

use std::fs::File;
use std::path::Path;

use flashwise_server::front::Address;
use flashwise_server::front::nbd::protocol::command::NBD_CMD_FLUSH;
use flashwise_storage::disk::file::{FileDisk, Options};
use flashwise_testing::client::Client;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{fail, succeed};
use crate::serving::Server;

const BLOCK: usize = 4096;
const BLOCKS: u64 = 64;
const API: [&str; 2] = ["--api", "unix:api.sock"];
const DISKS: [&str; 2] = ["a.img", "b.img"];

fn serve(folder: &Path, arguments: &[&str]) -> Server {
    Server::start(folder, &[&["serve", "tank.toml"], arguments].concat())
}

fn client(folder: &Path) -> Client {
    Client::open(&Address::Unix(folder.join("nbd.sock")), "mail", true).unwrap()
}

/// A pool whose server was killed after a flush.
fn killed() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let config = "listen = 'nbd+unix:///?socket=nbd.sock'\nstate-directory = '.'\n[api]\nlisten = 'unix:api.sock'\n\
        [[pool]]\nname = 'tank'\ndisks = ['a.img', 'b.img']\nram = '4MiB'\nflash = 'cache.img'\nflash-size = '16MiB'\n\
        erase-unit = '1MiB'\nwrite-back-order = 'journal'\njournal = 'tank.journal'\njournal-size = '64MiB'\n";
    std::fs::write(path.join("tank.toml"), config).unwrap();
    DISKS.iter().for_each(|disk| File::create(path.join(disk)).unwrap().set_len(16 << 20).unwrap());
    succeed(path, &[&["pool", "create", "tank"][..], &DISKS].concat());
    let server = serve(path, &[]);
    succeed(path, &[&["disk", "create", "mail", "--size", "1MiB", "--striped"][..], &API].concat());
    let mut client = client(path);
    for block in 0..BLOCKS {
        client.write(block * BLOCK as u64, &[block as u8 + 1; BLOCK]).unwrap();
    }
    client.request(NBD_CMD_FLUSH, 0, 7, 0, 0).unwrap();
    assert_eq!(client.reply(0).unwrap().error, 0);
    server.kill();
    folder
}

fn check(folder: &Path) {
    let server = serve(folder, &[]);
    let mut client = client(folder);
    for block in 0..BLOCKS {
        assert_eq!(client.read(block * BLOCK as u64, BLOCK as u32).unwrap(), vec![block as u8 + 1; BLOCK]);
    }
    drop(client);
    server.end();
}

#[test]
fn a_lost_journal_is_named_and_the_flash_has_its_blocks() {
    let folder = killed();
    let path = folder.path();
    std::fs::remove_file(path.join("tank.journal")).unwrap();
    let refused = fail(path, &["serve", "tank.toml"], 2);
    assert!(refused.contains("pool 'tank': journal 'tank.journal': it does not exist; the backend has "), "{refused}");
    assert!(refused.contains("remove the key journal, and set write-back-order = \"barriers\""), "{refused}");
    let refused = fail(path, &["serve", "tank.toml", "--discard-cache", "tank"], 2);
    assert!(refused.contains("give a new journal that is blank"), "{refused}");
    let salvage = ["detach", "--salvage", "--config", "tank.toml"];
    let refused = fail(path, &salvage, 2);
    assert!(refused.contains("backend pool tank: journal tank.journal: it does not exist; "), "{refused}");
    assert!(refused.contains("'flashwise detach --salvage --discard-rest' gives it up"), "{refused}");
    let refused = fail(path, &[&salvage[..], &["--journal", "away"]].concat(), 2);
    assert!(refused.contains("--journal: away does not exist"), "{refused}");
    let told = succeed(path, &["check", "--flash", "cache.img"]);
    assert!(told.contains("in front of a pool") && told.contains("The cache is sound"), "{told}");
    let told = succeed(path, &["detach", "--config", "tank.toml"]);
    assert!(told.contains(" were written back, and pool tank is complete without it"), "{told}");
    check(path);
}

#[test]
fn a_damaged_journal_is_refused_and_a_salvage_can_give_it_up() {
    let folder = killed();
    let path = folder.path();
    std::fs::write(path.join("tank.journal"), vec![9; 64 << 20]).unwrap();
    let salvage = ["detach", "--salvage", "--config", "tank.toml"];
    for refused in [fail(path, &["serve", "tank.toml"], 2), fail(path, &salvage, 2)] {
        assert!(refused.contains("it is blank or damaged, expected journal "), "{refused}");
    }
    let told = succeed(path, &[&salvage[..], &["--discard-rest"]].concat());
    assert!(told.contains("nothing is lost, and pool tank is complete without it"), "{told}");
    // The record names no journal any more, and this file is not overwritten.
    let refused = fail(path, &["serve", "tank.toml"], 2);
    assert!(refused.contains("it is not blank, expected a journal or zeroes"), "{refused}");
    std::fs::remove_file(path.join("tank.journal")).unwrap();
    check(path);
}

/// A disk that a process has locked is not available, even if it is blank.
#[test]
fn disks_that_a_server_uses_are_not_spare() {
    let folder = killed();
    let path = folder.path();
    File::create(path.join("blank.img")).unwrap().set_len(16 << 20).unwrap();
    let list = |expected: [(&str, &str); 4]| {
        let names = ["blank.img", "a.img", "cache.img", "tank.journal"];
        let told: Value = serde_json::from_str(&succeed(path, &[&["disks", "--json"][..], &names].concat())).unwrap();
        let told = told.as_array().unwrap().iter();
        let told: Vec<_> =
            told.map(|disk| (disk["role"].as_str().unwrap(), disk["refused"].as_str().unwrap_or("-"))).collect();
        assert_eq!(told, expected);
    };
    let at_rest = [("data", "it belongs to a pool"), ("cache", "it holds a cache")];
    let journal = ("cache", "it holds the journal of a cache");
    list([("spare", "-"), at_rest[0], at_rest[1], journal]);
    let server = serve(path, &[]);
    let _blank = FileDisk::open(&path.join("blank.img"), Options::default()).unwrap();
    let [server_has, this_has] =
        [server.child.id(), std::process::id()].map(|it| format!("it is in use by process {it}"));
    list([("system", &this_has), ("data", &server_has), ("cache", &server_has), ("cache", &server_has)]);
    server.end();
}

#[test]
fn a_disk_of_a_pool_is_no_backend_for_other_commands() {
    let folder = killed();
    let path = folder.path();
    let pair = ["--flash", "cache.img", "--backend", "a.img"];
    let wipe = ["wipe", "--yes", "--discard-dirty"];
    for command in [&["check"][..], &["detach"], &wipe] {
        let refused = fail(path, &[command, &pair].concat(), 2);
        assert!(refused.contains("a.img is a disk of pool 'tank', which has no --backend"), "{refused}");
    }
    let refused = fail(path, &["attach", "--backend", "a.img"], 2);
    assert!(refused.contains("Give --config to detach or attach"), "{refused}");
    check(path);
}

/// The server has another working directory than the command.
#[test]
fn a_pool_gets_its_journal_where_the_command_is() {
    let folder = tempfile::tempdir().unwrap();
    let (path, inner) = (folder.path(), folder.path().join("inner"));
    std::fs::create_dir(&inner).unwrap();
    File::create(inner.join("a.img")).unwrap().set_len(16 << 20).unwrap();
    let config = "listen = 'nbd+unix:///?socket=nbd.sock'\nstate-directory = 'state'\n[api]\nlisten = \
        'unix:api.sock'\ndirectories = '.'\n";
    std::fs::write(path.join("tank.toml"), config).unwrap();
    let server = serve(path, &[]);
    let settings = ["flash=cache.img", "flash-size=16MiB", "erase-unit=1MiB", "ram=4MiB", "write-back-order=journal"];
    let settings = settings.into_iter().chain(["journal=tank.journal", "journal-size=64MiB"]);
    let settings: Vec<&str> = settings.flat_map(|setting| ["--set", setting]).collect();
    let create = ["pool", "create", "tank", "a.img", "--serve", "--api", "unix:../api.sock"];
    succeed(&inner, &[&create[..], &settings].concat());
    assert_eq!(std::fs::metadata(inner.join("tank.journal")).unwrap().len(), 64 << 20);
    server.end();
}
