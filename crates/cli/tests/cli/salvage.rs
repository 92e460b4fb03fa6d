//! Damaged caches are salvaged, and caches are wiped, by the real program.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;

use flashwise_testing::waiting::wait_for;

use crate::common::{run, succeed};
use crate::serving::{Server, Setting};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
/// Page of the first header of the log: unit 0 has 512 pages.
const HEADER: u64 = 512;

fn content(seed: u8) -> Vec<u8> {
    (0..2 * MIB as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 16) as u8 ^ seed).collect()
}

/// The state after a killed or stopped server: 2 MiB were written and flushed, the first of them twice.
fn left_behind(killed: bool) -> Setting {
    left_behind_by("ram = \"1MiB\"\nsequential-bypass = 0\n", killed)
}

fn left_behind_by(settings: &str, killed: bool) -> Setting {
    let setting = Setting::new(64 * MIB, &format!("flash-size = \"32MiB\"\n{settings}"));
    let server = setting.serve();
    for seed in [1, 2] {
        setting.write("v", &content(seed));
    }
    if killed {
        server.kill();
    } else {
        server.end();
    }
    setting
}

impl Setting {
    /// Writes to the beginning of a served volume, and flushes.
    fn write(&self, volume: &str, bytes: &[u8]) {
        std::fs::write(self.path("in.img"), bytes).unwrap();
        let uri = self.uri().replace("///v", &format!("///{volume}"));
        let copied = Command::new("nbdcopy").arg("--flush").arg(self.path("in.img")).arg(uri).status();
        assert!(copied.unwrap().success());
    }

    fn change(&self, page: u64, change: impl FnOnce(&mut [u8; BLOCK])) {
        let flash = File::options().read(true).write(true).open(self.path("cache.img")).unwrap();
        let mut bytes = [0; BLOCK];
        flash.read_exact_at(&mut bytes, page * BLOCK as u64).unwrap();
        change(&mut bytes);
        flash.write_all_at(&bytes, page * BLOCK as u64).unwrap();
    }

    /// Neither footer of the first two units can help.
    fn spoil_footers(&self) {
        for page in [HEADER + 509, HEADER + 510, HEADER + 511, HEADER + 1021, HEADER + 1022, HEADER + 1023] {
            self.change(page, |bytes| bytes.fill(0x55));
        }
    }

    fn fails(&self, arguments: &[&str], code: i32) -> (String, String) {
        let (out, err, found) = run(self.directory.path(), arguments);
        assert_eq!(found, code, "{arguments:?}: {out}{err}");
        println!("$ flashwise {}\n{out}{err}", arguments.join(" "));
        (out, err)
    }

    fn is_whole(&self) -> bool {
        std::fs::read(self.path("disk.img")).unwrap().starts_with(&content(2))
    }
}

/// Has one wrong byte in the backend's record of its cache.
fn damage_record(setting: &Setting) {
    let (path, name) = (setting.path("disk.img"), "user.flashwise.cache");
    let mut record = vec![0; BLOCK];
    let length = rustix::fs::getxattr(&path, name, &mut record).unwrap();
    let at = record.windows(5).position(|bytes| bytes == b"cache").unwrap();
    record[at + 1] = b'b';
    rustix::fs::setxattr(&path, name, &record[..length], rustix::fs::XattrFlags::REPLACE).unwrap();
}

/// `serve` refuses it permanently and names the remedy, `check` finds it, and each command that removes the cache
/// works.
#[test]
fn a_damaged_record_of_the_backend_is_no_dead_end() {
    let pair = ["--flash", "cache.img", "--backend", "disk.img"];
    let ways: [(&[&str], bool); 3] =
        [(&["detach"], true), (&["detach", "--salvage"], true), (&["wipe", "--yes", "--discard-dirty"], false)];
    for (way, is_whole) in ways {
        let setting = left_behind(false);
        damage_record(&setting);
        let (_, err) = setting.fails(&["serve", "flashwise.toml"], 2);
        assert!(
            err.contains("the backend's record of its cache is permanently damaged")
                && err.contains("Run 'flashwise detach'"),
            "{err}"
        );
        let (out, _) = setting.fails(&[&["check"], &pair[..]].concat(), 1);
        assert!(
            out.contains("damage: The backend's record of its cache is damaged") && out.contains("'flashwise detach'")
        );
        let (_, err, code) = run(setting.directory.path(), &[way, &pair[..]].concat());
        assert_eq!(code, 0, "{way:?}: {err}");
        assert!(err.contains("the record is damaged; an outdated copy of the flash cannot be recognised"), "{err}");
        assert_eq!(setting.is_whole(), is_whole, "{way:?}");
        let server = setting.serve();
        server.end();
    }
    let setting = left_behind(false);
    damage_record(&setting);
    Server::start(setting.directory.path(), &["serve", "flashwise.toml", "--discard-cache", "v"]).end();
    setting.serve().end();
}

/// Returns the unit of the log up to which its superblocks record it as durable.
fn durable_unit(setting: &Setting) -> u64 {
    let flash = File::open(setting.path("cache.img")).unwrap();
    let sequence = |copy: u64| {
        let mut bytes = [0; 8];
        flash.read_exact_at(&mut bytes, copy * BLOCK as u64 + 104).unwrap();
        u64::from_le_bytes(bytes)
    };
    sequence(0).max(sequence(1))
}

/// Only the superblock shows that the last units of the log existed.
#[test]
fn the_last_units_of_the_log_are_missed_after_a_kill() {
    let setting = Setting::new(
        64 * MIB,
        "flash-size = \"32MiB\"\nerase-unit = \"256KiB\"\nram = \"1MiB\"\nsequential-bypass = 0",
    );
    let server = setting.serve();
    setting.write("v", &content(1));
    // 2 MiB take at least eight units, and the server notes that within seconds.
    let said = wait_for("nine units are said", || Some(durable_unit(&setting)).filter(|said| *said >= 9));
    server.kill();
    setting.flashwise(&["check", "--flash", "cache.img", "--backend", "disk.img"]);
    let whole = std::fs::read(setting.path("cache.img")).unwrap();
    for lost in [said..said + 1, said - 2..said + 1, 1..said + 1] {
        let mut flash = whole.clone();
        flash[lost.start as usize * 262_144..lost.end as usize * 262_144].fill(0);
        std::fs::write(setting.path("cache.img"), flash).unwrap();
        let (out, _) = setting.fails(&["check", "--flash", "cache.img", "--backend", "disk.img"], 1);
        assert!(out.contains("damage: The cache cannot be opened"), "{lost:?}: {out}");
        let (_, err) = setting.fails(&["serve", "flashwise.toml"], 2);
        assert!(err.contains("cache.img"), "{lost:?}: {err}");
        setting.fails(&["detach", "--backend", "disk.img", "--flash", "cache.img"], 1);
    }
    std::fs::write(setting.path("cache.img"), &whole).unwrap();
    setting.flashwise(&["detach", "--backend", "disk.img", "--flash", "cache.img"]);
    assert!(std::fs::read(setting.path("disk.img")).unwrap().starts_with(&content(1)));
}

const SALVAGE: [&str; 6] = ["detach", "--salvage", "--backend", "disk.img", "--flash", "cache.img"];

#[test]
fn uncertain_blocks_are_listed_and_dropped_only_on_request() {
    let setting = left_behind(true);
    setting.spoil_footers();
    setting.change(HEADER, |bytes| bytes.fill(0));
    for (refused, code) in
        [(&["serve", "flashwise.toml"][..], 2), (&["detach", "--backend", "disk.img", "--flash", "cache.img"], 1)]
    {
        let (_, error) = setting.fails(refused, code);
        assert!(error.contains("'flashwise detach --salvage' writes back certain blocks"), "{error}");
    }
    let (out, error) = setting.fails(&SALVAGE, 1);
    assert!(
        out.contains("The records of 253 pages of flash are missing") && error.contains("cache.img.lost.csv"),
        "{out}{error}"
    );
    let list = std::fs::read_to_string(setting.path("cache.img.lost.csv")).unwrap();
    let mut lines = list.lines();
    assert_eq!(lines.next(), Some("first_block,last_block,offset_bytes,length_bytes,reason,written_back"));
    assert!(lines.all(|line| line.ends_with(",unknown,no") || line.ends_with(",uncertain,no")), "{list}");
    let (_, error) = setting.fails(&SALVAGE, 2);
    assert!(error.contains("exists and is not overwritten"), "{error}");
    setting.fails(&["serve", "flashwise.toml"], 2);
    let more = ["--with-uncertain", "--lost-list", "second.csv"];
    setting.fails(&[&SALVAGE[..], &more].concat(), 1);
    let rest = ["--discard-rest", "--lost-list", "third.csv"];
    let (out, _) = setting.fails(&[&SALVAGE[..], &rest].concat(), 1);
    assert!(out.contains("cache.img is detached; the rest is given up."), "{out}");
    setting.serve().end();
    let (_, error) = setting.fails(&["detach", "--salvage"], 2);
    assert!(error.contains("--salvage works offline"), "{error}");
}

#[test]
fn both_copies_of_the_superblock_are_made_up_for_by_the_record_and_flags() {
    let setting = left_behind(false);
    (0..2).for_each(|page| setting.change(page, |bytes| bytes.fill(0)));
    let unit = ["--erase-unit", "1MiB"];
    let (_, error) = setting.fails(&[&SALVAGE[..], &unit].concat(), 1);
    assert!(error.contains("in 32 erase units of 1048576 bytes no page of cache"), "{error}");
    let out = succeed(setting.directory.path(), &SALVAGE);
    assert!(setting.is_whole() && out.contains("nothing is lost"), "{out}");
    let again = succeed(setting.directory.path(), &SALVAGE);
    assert_eq!(again, "cache.img was already detached; disk.img is complete without it.\n");
}

const WLFC: &str = "layout = \"wlfc\"\n";

impl Setting {
    /// The first pages of buckets that begin with this.
    fn first_pages(&self, magic: &[u8]) -> Vec<u64> {
        let flash = std::fs::read(self.path("cache.img")).unwrap();
        let first_pages = (1..16).map(|unit| unit * HEADER);
        first_pages.filter(|page| flash[*page as usize * BLOCK..].starts_with(magic)).collect()
    }
}

/// After an orderly end a first page of zeroes is no bucket that was reset.
#[test]
fn a_first_page_of_a_bucket_that_is_lost_is_named_and_what_other_logs_have_is_not_listed() {
    let setting = left_behind_by(WLFC, false);
    let headers = setting.first_pages(b"FWWL");
    setting.change(headers[0], |bytes| bytes.fill(0));
    let (out, _) = setting.fails(&["check", "--flash", "cache.img"], 1);
    assert!(out.contains("a header page is damaged: page 0 of bucket"), "{out}");
    setting.fails(&["serve", "flashwise.toml"], 2);
    let (out, error) = setting.fails(&SALVAGE, 1);
    assert!(error.contains("cache.img.lost.csv"), "{out}{error}");
    let list = std::fs::read_to_string(setting.path("cache.img.lost.csv")).unwrap();
    let listed: u64 = list.lines().skip(1).map(|line| line.split(',').nth(3).unwrap().parse::<u64>().unwrap()).sum();
    assert!(list.lines().skip(1).all(|line| line.ends_with(",unknown,no")), "{list}");
    assert!(out.contains(" are unknown: the damaged parts may have had newer data"), "{out}");
    let (certain, _) = out.split_once(" blocks").unwrap();
    let certain = certain.parse::<u64>().unwrap() * BLOCK as u64;
    assert!(certain > 0 && listed == 64 * MIB - certain, "all but what another bucket's logs have: {list}");
    let (written, content) = (std::fs::read(setting.path("disk.img")).unwrap(), content(2));
    let blocks = content.chunks(BLOCK).zip(written.chunks(BLOCK)).filter(|(expected, found)| expected == found).count();
    assert!((blocks * BLOCK) as u64 >= certain, "{blocks} blocks are there");
}

#[test]
fn buckets_are_found_where_both_copies_of_the_superblock_are_lost() {
    let setting = left_behind_by(WLFC, false);
    (0..2).for_each(|page| setting.change(page, |bytes| bytes.fill(0)));
    let before = std::fs::read(setting.path("disk.img")).unwrap();
    // Wrong geometry options change nothing.
    for wrong in [["--erase-unit", "1MiB"], ["--erase-unit", "512KiB"], ["--flash-size", "24MiB"]] {
        let (_, error) = setting.fails(&[&SALVAGE[..], &wrong].concat(), 1);
        assert!(error.contains("pages of its cache are not in their places"), "{wrong:?}: {error}");
        assert!(std::fs::read(setting.path("disk.img")).unwrap() == before, "{wrong:?}");
    }
    let out = succeed(setting.directory.path(), &SALVAGE);
    assert!(setting.is_whole() && out.contains("nothing is lost"), "{out}");
}

/// Without superblocks, only the backend's record shows if these are the newest buckets, and all of them.
#[test]
fn buckets_without_superblocks_are_certain_where_their_last_run_ends_as_the_backend_knows() {
    for (killed, older) in [(true, true), (false, true), (true, false), (false, false)] {
        let case = format!("killed {killed}, older {older}");
        let setting = left_behind_by(WLFC, false);
        let flash = |to: &str, from: &str| std::fs::copy(setting.path(from), setting.path(to)).unwrap();
        flash("older.img", "cache.img");
        let server = setting.serve();
        setting.write("v", &content(3)[..8 * BLOCK]);
        if killed {
            server.kill();
        } else {
            server.end();
        }
        flash("newest.img", "cache.img");
        let before = std::fs::read(setting.path("disk.img")).unwrap();
        if older {
            flash("cache.img", "older.img");
        } else {
            // The last written page is damaged, and nothing else on the flash shows that.
            let [old, new] = ["older.img", "cache.img"].map(|name| std::fs::read(setting.path(name)).unwrap());
            let pages = old.chunks(BLOCK).zip(new.chunks(BLOCK)).zip(0..);
            let changed = pages.filter(|((old, new), page)| *page >= 512 && old != new).map(|(_, page)| page);
            changed.for_each(|page| setting.change(page, |bytes| bytes.fill(0x55)));
        }
        (0..2).for_each(|page| setting.change(page, |bytes| bytes.fill(0)));
        let (out, error) = setting.fails(&SALVAGE, 1);
        assert!(!out.contains("nothing is lost") && !error.contains("detached"), "{case}: {out}{error}");
        assert!(std::fs::read(setting.path("disk.img")).unwrap() == before, "{case}: nothing is certain");
        flash("cache.img", "newest.img");
        std::fs::remove_file(setting.path("cache.img.lost.csv")).unwrap();
        let out = succeed(setting.directory.path(), &SALVAGE);
        assert!(out.contains("nothing is lost"), "{case}: {out}");
        let written = std::fs::read(setting.path("disk.img")).unwrap();
        assert!(written.starts_with(&[&content(3)[..8 * BLOCK], &content(2)[8 * BLOCK..]].concat()), "{case}");
    }
}

#[test]
fn a_copy_of_the_backend_is_refused_with_salvage_too() {
    let setting = left_behind(true);
    let copied = Command::new("cp").arg("-a").args([setting.path("disk.img"), setting.path("copy.img")]).status();
    assert!(copied.unwrap().success());
    let of_copy = ["detach", "--salvage", "--backend", "copy.img", "--flash", "cache.img"];
    let (_, error) = setting.fails(&of_copy, 2);
    assert!(error.contains("the backend is a copy of the file"), "{error}");
    let wiped = ["wipe", "--flash", "cache.img", "--backend", "copy.img", "--yes", "--discard-dirty"];
    let (_, error) = setting.fails(&wiped, 2);
    assert!(error.contains("without --backend only the flash is wiped"), "{error}");
    setting.serve().end();
}

/// A volume with a missing flash or backend does not prevent the detach of others, by name or all together.
#[test]
fn a_failed_detach_does_not_stop_others() {
    for (away, told) in [("cache.img", "/cache.img: "), ("disk.img", "/disk.img: ")] {
        let more = |name: &str| {
            format!(
                "[[volume]]\nname = \"{name}\"\nbackend = \"{name}.img\"\nflash = \"{name}.cache\"\nflash-size = \
                 \"32MiB\"\n"
            )
        };
        let setting = Setting::new(8 * MIB, &format!("flash-size = \"32MiB\"\n{}{}", more("b"), more("c")));
        for name in ["b", "c"] {
            File::create(setting.path(&format!("{name}.img"))).unwrap().set_len(8 * MIB).unwrap();
        }
        let server = setting.serve();
        ["v", "b", "c"].into_iter().for_each(|name| setting.write(name, &content(1)));
        server.kill();
        std::fs::rename(setting.path(away), setting.path("away")).unwrap();
        let is_whole =
            |name: &str| std::fs::read(setting.path(&format!("{name}.img"))).unwrap().starts_with(&content(1));
        setting.flashwise(&["detach", "b", "--config", "flashwise.toml"]);
        assert!(is_whole("b") && !is_whole("c"), "{away}");
        let (out, error) = setting.fails(&["detach", "--config", "flashwise.toml"], 1);
        assert!(
            is_whole("c") && out.contains("c.cache is detached") && out.contains("b.cache was already detached"),
            "{out}"
        );
        assert!(
            error.contains("flashwise: v: /") && error.contains(told) && error.contains("1 of 3 were not detached: v"),
            "{error}"
        );
        std::fs::rename(setting.path("away"), setting.path(away)).unwrap();
        setting.flashwise(&["detach", "--config", "flashwise.toml"]);
        assert!(is_whole("disk"), "{away}");
        let unknown = setting.fails(&["attach", "x", "--config", "flashwise.toml"], 2).1;
        assert!(unknown.contains("no volume or pool 'x', expected one of: v, b, c"), "{unknown}");
        setting.flashwise(&["attach", "b", "--config", "flashwise.toml"]);
        let told = setting.flashwise(&["attach", "--config", "flashwise.toml"]);
        assert!(
            told.starts_with("v is attached: ") && told.contains("\nb is not detached.\nc is attached: "),
            "{told}"
        );
    }
}

#[test]
fn a_cache_is_wiped_after_its_contents_were_shown() {
    let setting = left_behind(false);
    let wipe = ["wipe", "--flash", "cache.img", "--backend", "disk.img"];
    let (out, error) = setting.fails(&wipe, 2);
    assert!(out.starts_with("cache.img holds cache ") && out.contains(", clean, after 1 start; 512 blocks"), "{out}");
    assert!(error.contains("cache.img holds 512 blocks (2 MiB) that the backend does not have"), "{error}");
    let (_, error) = setting.fails(&[&wipe[..], &["--discard-dirty"]].concat(), 2);
    assert!(error.contains("give --yes to wipe it"), "{error}");
    let server = setting.serve();
    let (_, error) = setting.fails(&[&wipe[..], &["--yes"]].concat(), 1);
    assert!(error.contains("in use by another process"), "{error}");
    server.end();
    let out = succeed(setting.directory.path(), &[&wipe[..], &["--yes", "--discard-dirty"]].concat());
    assert!(out.ends_with("cache.img is blank.\n"), "{out}");
    assert!(std::fs::read(setting.path("cache.img")).unwrap().iter().all(|&byte| byte == 0));
    let (_, error) = setting.fails(&wipe, 2);
    assert!(error.contains("it is blank"), "{error}");
    setting.serve().end();

    // Without its backend, which then misses it.
    let setting = left_behind(true);
    let out = succeed(setting.directory.path(), &["wipe", "--flash", "cache.img", "--yes", "--discard-dirty"]);
    assert!(out.contains("start it once with --discard-cache"), "{out}");
    let (_, error) = setting.fails(&["serve", "flashwise.toml"], 2);
    assert!(error.contains("--discard-cache v"), "{error}");
    // Something else.
    std::fs::write(setting.path("other.img"), content(3)).unwrap();
    let (_, error) = setting.fails(&["wipe", "--flash", "other.img", "--yes", "--discard-dirty"], 2);
    assert!(error.contains("found data that is not a cache"), "{error}");
}
