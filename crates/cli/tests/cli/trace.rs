//! `flashwise trace`: whole outputs on small generated traces, round trips on the bundled one.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::common::{fail, flashwise, parts, project, run, succeed};
use tempfile::TempDir;

/// A folder with the bundled trace and a small generated one: 40 blocks of 4 KiB, requests of 1 to 4 blocks.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::copy(project().join("traces/netsfs.csv.zst"), folder.path().join("netsfs.csv.zst")).unwrap();
    let generate =
        ["trace", "generate", "small.arrow", "--blocks", "40", "--requests", "200", "--request-blocks", "1..4"];
    succeed(folder.path(), &generate);
    folder
}

/// Two volumes, six requests, one a second: blocks 0 and 1 of h,0, then block 0 of h,1, and so on.
const TWO_VOLUMES: &str = "10000000,h,0,Read,0,8192,0\n20000000,h,1,Write,100,50,0\n30000000,h,0,Read,4096,4096,0\n\
                           40000000,h,1,Read,0,4096,0\n50000000,h,0,Write,8192,12288,0\n60000000,h,1,Read,4000,200,0\n";

#[test]
fn an_exported_trace_is_read_back_as_it_was() {
    let folder = folder();
    fs::write(folder.path().join("two.csv"), TWO_VOLUMES).unwrap();
    for trace in ["two.csv", "netsfs.csv.zst"] {
        succeed(folder.path(), &["trace", "export", trace, "exported.csv", "--force"]);
        let again = succeed(folder.path(), &["trace", "export", "exported.csv"]);
        assert!(again.as_bytes() == read(&folder, "exported.csv"));
        assert_eq!(simulated(folder.path(), "exported.csv"), simulated(folder.path(), trace));
    }
}

/// Returns the results of policies over a trace, without its name.
fn simulated(folder: &Path, trace: &str) -> String {
    let arguments = ["simulate", trace, "--policy", "lru", "--policy", "larc", "--policy", "min", "--size", "1%,10%"];
    let csv = succeed(folder, &[&arguments[..], &["--csv"]].concat());
    csv.lines().map(|line| format!("{}\n", line.trim_start_matches(trace))).collect()
}

/// The requests of a trace without their times.
fn requests(folder: &Path, trace: &str) -> String {
    let csv = succeed(folder, &["trace", "export", trace]);
    csv.lines().map(|line| format!("{}\n", line.split_once(',').unwrap().1)).collect()
}

fn read(folder: &TempDir, name: &str) -> Vec<u8> {
    fs::read(folder.path().join(name)).unwrap()
}

#[test]
fn info_is_a_table_with_a_column_for_each_trace_or_json() {
    let folder = folder();
    fs::write(folder.path().join("two.csv"), TWO_VOLUMES).unwrap();
    insta::assert_snapshot!("info_table", succeed(folder.path(), &["trace", "info", "small.arrow", "two.csv"]));
    insta::assert_snapshot!("info_json", succeed(folder.path(), &["trace", "info", "small.arrow", "--json"]));
}

#[test]
fn reuse_is_a_table_or_json() {
    let folder = folder();
    insta::assert_snapshot!("reuse_table", succeed(folder.path(), &["trace", "reuse", "small.arrow"]));
    let json = succeed(folder.path(), &["trace", "reuse", "small.arrow", "--distance", "accesses", "--json"]);
    insta::assert_snapshot!("reuse_json", json);
}

#[test]
fn a_converted_trace_simulates_as_its_original_and_converts_to_itself() {
    let folder = folder();
    succeed(folder.path(), &["trace", "convert", "netsfs.csv.zst", "netsfs.arrow"]);
    assert_eq!(simulated(folder.path(), "netsfs.arrow"), simulated(folder.path(), "netsfs.csv.zst"));
    succeed(folder.path(), &["trace", "convert", "netsfs.csv.zst", "again.arrow"]);
    assert!(read(&folder, "netsfs.arrow") == read(&folder, "again.arrow"));
    // Existing files are not replaced without confirmation, and written files are reported.
    let again = ["trace", "convert", "netsfs.arrow", "again.arrow"];
    let refused = fail(folder.path(), &again, 2);
    assert_eq!(refused, "flashwise: again.arrow: found a file, expected none, or --force to replace it\n");
    let told = succeed(folder.path(), &[&again[..], &["--force"]].concat());
    assert_eq!(told, "again.arrow: 232,202 requests, 6.03 MiB\n");
    assert_eq!(succeed(folder.path(), &[&again[..], &["--force", "-q"]].concat()), "");
    // That also holds for parts, joined and generated traces in files, but not for traces on standard output.
    for (command, expected) in [
        ("cut netsfs.arrow cut.arrow --requests ..1000", "cut.arrow: 1,000 requests, "),
        ("concat cut.arrow cut.arrow --out two.arrow", "two.arrow: 2,000 requests, "),
        ("generate made.arrow --blocks 10 --requests 5", "made.arrow: 5 requests, "),
        ("generate made.csv --csv --blocks 10 --requests 1", "made.csv: 1 request, "),
        ("generate week.arrow --like msr-wdev --accesses 20000", "week.arrow: "),
    ] {
        let told = succeed(folder.path(), &[&["trace"], &command.split(' ').collect::<Vec<_>>()[..]].concat());
        assert!(told.starts_with(expected) && told.lines().count() == 1, "{command}: {told}");
    }
    let printed = succeed(folder.path(), &["trace", "generate", "--csv", "--blocks", "10", "--requests", "1"]);
    assert_eq!(printed.lines().count(), 2, "{printed}");
    assert!(read(&folder, "netsfs.arrow") == read(&folder, "again.arrow"));
}

#[test]
fn blocks_made_larger_are_those_of_the_original() {
    let folder = folder();
    succeed(folder.path(), &["trace", "convert", "netsfs.csv.zst", "sectors.arrow", "--block-size", "512"]);
    succeed(folder.path(), &["trace", "convert", "sectors.arrow", "large.arrow", "--block-size", "64KiB"]);
    succeed(folder.path(), &["trace", "convert", "netsfs.csv.zst", "expected.arrow", "--block-size", "64KiB"]);
    assert!(read(&folder, "large.arrow") == read(&folder, "expected.arrow"));
    assert_eq!(simulated(folder.path(), "sectors.arrow").lines().nth(1).unwrap().split(',').nth(4), Some("512"));
}

#[test]
fn two_parts_of_a_trace_joined_are_the_whole() {
    let folder = folder();
    succeed(folder.path(), &["trace", "convert", "netsfs.csv.zst", "whole.arrow"]);
    // Parts by requests from the original, and by accesses from the normalised trace.
    for (trace, option) in [("netsfs.csv.zst", "--requests"), ("whole.arrow", "--accesses")] {
        succeed(folder.path(), &["trace", "cut", trace, "head.arrow", "--force", option, "..100000"]);
        succeed(folder.path(), &["trace", "cut", trace, "tail.arrow", "--force", option, "100000.."]);
        succeed(folder.path(), &["trace", "concat", "head.arrow", "tail.arrow", "--out", "joined.arrow", "--force"]);
        assert_eq!(simulated(folder.path(), "joined.arrow"), simulated(folder.path(), "whole.arrow"));
        assert!(requests(folder.path(), "joined.arrow") == requests(folder.path(), "whole.arrow"));
    }
}

#[test]
fn a_cut_of_an_original_keeps_its_bytes_and_counts_anew() {
    let folder = folder();
    fs::write(folder.path().join("two.csv"), TWO_VOLUMES).unwrap();
    let cut = |options: &[&str]| {
        succeed(folder.path(), &[&["trace", "cut", "two.csv", "cut.arrow", "--force"], options].concat());
        let info = succeed(folder.path(), &["trace", "info", "cut.arrow", "--json"]);
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        let count = |key: &str| info[0][key].as_u64().unwrap();
        let csv = requests(folder.path(), "cut.arrow");
        (count("requests"), count("read_bytes") + count("write_bytes"), count("duration_us"), count("volumes"), csv)
    };
    let header = "volume,op,offset_bytes,length_bytes\n";
    let (requests, bytes, duration_us, volumes, csv) = cut(&["--volume", "h.1"]);
    assert_eq!((requests, bytes, duration_us, volumes), (3, 50 + 4096 + 200, 4_000_000, 1));
    assert_eq!(csv, format!("{header}h.1,write,0,4096\nh.1,read,0,4096\nh.1,read,0,8192\n"));
    let (requests, bytes, duration_us, volumes, _) = cut(&["--time", "1s..3s"]);
    assert_eq!((requests, bytes, duration_us, volumes), (2, 50 + 4096, 1_000_000, 2));
    // Requests 2 to 4 by number; their first accesses are 3, 4 and 5. All conditions hold together.
    let (requests, bytes, ..) = cut(&["--rows", "2..5", "--accesses", "4..", "--volume", "h.0", "--volume", "h.1"]);
    assert_eq!((requests, bytes), (2, 4096 + 12288));
}

#[test]
fn joined_traces_share_blocks_unless_apart_and_follow_in_time() {
    let folder = folder();
    fs::write(folder.path().join("two.csv"), TWO_VOLUMES).unwrap();
    let joined = |options: &[&str]| {
        let concat = ["trace", "concat", "two.csv", "two.csv", "--out", "joined.arrow", "--force"];
        succeed(folder.path(), &[&concat, options].concat());
        let info = succeed(folder.path(), &["trace", "info", "joined.arrow", "--json"]);
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        ["requests", "unique_blocks", "volumes", "duration_us"].map(|key| info[0][key].as_u64().unwrap())
    };
    assert_eq!(joined(&[]), [12, 7, 2, 10_000_000]);
    assert_eq!(joined(&["--gap", "1.5s"]), [12, 7, 2, 11_500_000]);
    assert_eq!(joined(&["--apart"]), [12, 14, 4, 10_000_000]);
    let apart = requests(folder.path(), "joined.arrow");
    assert!(apart.contains("1:h.0,read,0,8192\n") && apart.contains("2:h.1,read,0,8192\n"), "{apart}");
}

#[test]
fn traces_are_merged_by_time_where_a_name_is_a_sum_or_a_pattern() {
    let folder = folder();
    let write = |name: &str, contents: &str| fs::write(folder.path().join(name), contents).unwrap();
    write("two.csv", TWO_VOLUMES);
    let lines: Vec<&str> = TWO_VOLUMES.split_inclusive('\n').collect();
    write("part-a.csv", &[lines[1], lines[3], lines[4]].concat());
    write("part-b.csv", &[lines[0], lines[2], lines[5]].concat());
    let whole = requests(folder.path(), "two.csv");
    assert_eq!(requests(folder.path(), "part-b.csv + part-a.csv"), whole);
    assert_eq!(requests(folder.path(), "part-?.csv"), whole);
    succeed(folder.path(), &["trace", "convert", "part-a.csv", "+", "part-b.csv", "merged.arrow"]);
    assert_eq!(requests(folder.path(), "merged.arrow"), requests_of_converted(folder.path(), "two.csv"));
    let rows = |trace: &[&str], options: &[&str]| {
        let simulate = [&["simulate"], trace, &["--csv"], options].concat();
        succeed(folder.path(), &simulate).lines().nth(1).unwrap().split_once(',').unwrap().1.to_owned()
    };
    for options in [&["--size", "2"][..], &["--size", "50%", "--sample", "1"], &["--layout", "log", "--size", "64MiB"]]
    {
        assert_eq!(rows(&["part-a.csv", "+", "part-b.csv"], options), rows(&["two.csv"], options), "{options:?}");
    }
    // Any name of a volume is accepted.
    write("lun0-1.csv", "1455592800.1,0.1,R,0,0,4096\n1455592800.3,0.1,R,0,4096,4096\n");
    write("lun0-2.csv", "1455592800.2,0.1,W,0,0,4096\n");
    let (named, told, code) = run(folder.path(), &["trace", "export", "--format", "systor", "lun0-?.csv"]);
    assert!(code == 0 && !told.contains("of their own"), "{told}");
    let of = |line: &str| line.split(',').skip(1).collect::<Vec<_>>().join(",");
    assert_eq!(
        named.lines().skip(1).map(of).collect::<Vec<_>>(),
        ["0,read,0,4096", "0,write,0,4096", "0,read,4096,4096"]
    );
    // So it is where the files were normalised before.
    for (number, name) in ["a.arrow", "b.arrow"].into_iter().enumerate() {
        let of = format!("lun0-{}.csv", number + 1);
        succeed(folder.path(), &["trace", "convert", "--format", "systor", &of, name]);
    }
    let volumes = |trace: &str| {
        let (info, _, _) = run(folder.path(), &["trace", "info", trace, "--json"]);
        serde_json::from_str::<serde_json::Value>(&info).unwrap()[0]["volumes"].clone()
    };
    assert_eq!(volumes("a.arrow + b.arrow"), 1);
    // Formats without volume numbers are not mistaken for a single volume.
    write("disk0.csv", "time_us,op,offset,length\n1,read,0,4096\n3,read,0,4096\n");
    write("disk1.csv", "time_us,op,offset,length\n2,read,0,4096\n4,write,0,4096\n");
    let (disks, told, code) = run(folder.path(), &["trace", "export", "disk0.csv + disk1.csv"]);
    let note = "disk1.csv: its blocks are a volume of their own, since it names none\n";
    assert!(code == 0 && told.contains(note), "{told}");
    let expected =
        "1,disk0.csv,read,0,4096\n2,disk1.csv,read,0,4096\n3,disk0.csv,read,0,4096\n4,disk1.csv,write,0,4096\n";
    assert_eq!(disks.split_once('\n').unwrap().1, expected);
    for disk in ["disk0", "disk1"] {
        succeed(folder.path(), &["trace", "convert", &format!("{disk}.csv"), &format!("{disk}.arrow")]);
    }
    assert_eq!(volumes("disk0.arrow + disk1.arrow"), 2);
    let refused = |name: &str| fail(folder.path(), &["trace", "info", name], 1);
    assert_eq!(refused("none*.csv"), "flashwise: none*.csv: found none, expected files that fit the pattern\n");
    let twice = refused("two.csv + - + -");
    assert_eq!(
        twice,
        "flashwise: two.csv + - + -: found standard input, -, more than once, expected it once at most\n"
    );
    write("blocks.txt", "1\n2\n");
    let without = refused("blocks.txt + two.csv");
    assert!(without.contains("blocks.txt: found requests without times, expected times to merge it by"), "{without}");
    let over = ["trace", "convert", "--force", "part-?.csv", "part-a.csv"];
    assert!(fail(folder.path(), &over, 2).contains("part-a.csv: it is also an input"));
}

#[test]
fn each_volume_has_a_cache_of_its_own_where_that_is_asked_for() {
    let folder = folder();
    fs::write(folder.path().join("two.csv"), TWO_VOLUMES).unwrap();
    for volume in ["h.0", "h.1"] {
        succeed(folder.path(), &["trace", "cut", "two.csv", &format!("{volume}.arrow"), "--volume", volume]);
    }
    // Except for the trace's name, the rows equal those of separate volumes.
    let rows = |traces: &[&str], options: &[&str]| -> Vec<(String, serde_json::Value, serde_json::Value)> {
        let out = succeed(folder.path(), &[&["simulate", "--json"], traces, options].concat());
        let rows: Vec<serde_json::Value> = serde_json::from_str(&out).unwrap();
        rows.iter()
            .map(|row| (row["trace"].as_str().unwrap().to_owned(), row["hits"].clone(), row["accesses"].clone()))
            .collect()
    };
    for options in [&["--size", "50%,2", "--policy", "lru,larc"][..], &["--size", "50%", "--sample", "1"]] {
        let (apart, alone) = (rows(&["two.csv", "--per-volume"], options), rows(&["h.0.arrow", "h.1.arrow"], options));
        assert!(apart.iter().zip(&alone).all(|(apart, alone)| (&apart.1, &apart.2) == (&alone.1, &alone.2)));
        assert_eq!(apart.len(), alone.len());
        assert_eq!(
            (apart[0].0.as_str(), apart.last().unwrap().0.as_str()),
            ("two.csv, volume h.0", "two.csv, volume h.1")
        );
    }
    // A volume without blocks in the sample is simulated completely.
    let whole = rows(&["two.csv", "--per-volume"], &["--size", "50%", "--policy", "lru"]);
    assert_eq!(
        rows(&["two.csv", "--per-volume"], &["--size", "50%", "--policy", "lru", "--sample", "0.00001%"]),
        whole
    );
    let log = ["--layout", "log", "--size", "64MiB", "--policy", "lru"];
    let apart = rows(&["two.csv", "--per-volume"], &log);
    assert_eq!(apart.iter().map(|row| row.2.as_u64().unwrap()).collect::<Vec<_>>(), [6, 4]);
    let joined = rows(&["two.csv", "two.csv", "--join", "--per-volume"], &log);
    assert_eq!(joined.iter().map(|row| row.2.as_u64().unwrap()).collect::<Vec<_>>(), [12, 8]);
}

/// A volume used on one of ten days wears flash as in a separate trace, in all figures that depend on time.
#[test]
fn rows_of_a_volume_are_those_of_a_cut_of_it() {
    let folder = folder();
    let mut lines = Vec::new();
    let mut state = 1_u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for (volume, tenths_of_a_second) in [("b", 864_000), ("a", 8_640_000)] {
        for request in 0..3000 {
            let time = tenths_of_a_second / 3000 * request;
            let op = if draw(3) == 0 { "read" } else { "write" };
            lines.push((time + 1, format!("{volume},{op},{},4096", 4096 * draw(400))));
        }
    }
    lines.sort();
    let lines = lines.iter().map(|(time, rest)| format!("{time}00000,{rest}\n")).collect::<String>();
    fs::write(folder.path().join("all.csv"), "time_us,volume,op,offset,length\n".to_owned() + &lines).unwrap();
    for volume in ["a", "b"] {
        succeed(folder.path(), &["trace", "cut", "all.csv", &format!("{volume}.arrow"), "--volume", volume]);
    }
    let rows = |traces: &[&str], options: &[&str]| {
        let simulate = ["simulate", "--json"];
        let out = succeed(folder.path(), &[&simulate[..], traces, options].concat());
        let mut rows: Vec<serde_json::Value> = serde_json::from_str(&out).unwrap();
        rows.iter_mut().for_each(|row| drop(row.as_object_mut().unwrap().remove("trace")));
        rows
    };
    let device = ["--size", "20%", "--erase-unit", "16KiB", "--device", "samsung-slc", "--spare", "60%"];
    let log = ["--layout", "log", "--size", "64MiB", "--policy", "lru", "--erase-unit", "128KiB"];
    for options in [
        &[&device[..], &["--policy", "lru", "--admission", "none", "--epoch", "500"]].concat()[..],
        &[&device[..], &["--policy", "lru", "--admission", "adaptive:timeframe=1%"]].concat(),
        &[&device[..], &["--policy", "m_t:epbpd=2"]].concat(),
        &[&log[..], &["--device", "samsung-slc", "--epoch", "1000"]].concat(),
        &[&log[..], &["--arrivals", "trace", "--cache-device", "p4500"]].concat(),
    ] {
        let (apart, alone) = (rows(&["all.csv", "--per-volume"], options), rows(&["a.arrow", "b.arrow"], options));
        assert_eq!(apart, alone, "{options:?}");
    }
}

/// Returns the requests of a normalised trace, in whole blocks.
fn requests_of_converted(folder: &Path, trace: &str) -> String {
    succeed(folder, &["trace", "convert", trace, "whole.arrow", "--force"]);
    requests(folder, "whole.arrow")
}

#[test]
fn generated_traces_are_the_same_for_the_same_seed_and_in_csv() {
    let folder = folder();
    let generate = |out: &str, options: &[&str]| {
        let pattern = ["--pattern", "phases:skew=1.2,requests=500", "--blocks", "3000", "--requests", "2000"];
        succeed(folder.path(), &[&["trace", "generate", out, "--force"], &pattern[..], options].concat());
        read(&folder, out)
    };
    let first = generate("a.arrow", &[]);
    assert!(first == generate("b.arrow", &["--seed", "1"]));
    assert!(first != generate("b.arrow", &["--seed", "2"]));
    generate("a.csv", &["--csv"]);
    assert_eq!(simulated(folder.path(), "a.csv"), simulated(folder.path(), "a.arrow"));
    let loops = ["trace", "generate", "--csv", "--pattern", "loop", "--blocks", "3", "--accesses", "4"];
    let options = ["--arrivals", "constant", "--rate", "10/s", "--read-share", "100%", "--block-size", "512"];
    insta::assert_snapshot!("generated_csv", succeed(folder.path(), &[&loops[..], &options].concat()));
}

#[test]
fn traces_go_through_pipes() {
    let folder = folder();
    let through = |arguments: &[&str], input: &[u8]| {
        let mut child = flashwise(folder.path(), arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
        output.stdout
    };
    let converted = through(&["trace", "convert", "-", "-"], TWO_VOLUMES.as_bytes());
    fs::write(folder.path().join("two.arrow"), &converted).unwrap();
    assert_eq!(through(&["trace", "export", "-"], &converted), through(&["trace", "export", "two.arrow"], b""));
    let cut = ["trace", "cut", "-", "-", "--requests", "1.."];
    assert!(through(&cut, &converted).starts_with(b"ARROW1"));
}

#[test]
fn misuse_ends_with_2_and_failures_with_1_and_nothing_is_written() {
    let folder = folder();
    let write = |name: &str, contents: &str| fs::write(folder.path().join(name), contents).unwrap();
    write("two.csv", TWO_VOLUMES);
    write("bad.csv", &TWO_VOLUMES.replace("Write,100", "Fetch,100"));
    succeed(
        folder.path(),
        &["trace", "generate", "large.arrow", "--blocks", "9", "--requests", "9", "--block-size", "8KiB"],
    );
    let files = || fs::read_dir(folder.path()).unwrap().count();
    let before = (files(), read(&folder, "small.arrow"));
    let failed = |code: i32, line: &str| {
        let err = fail(folder.path(), &[&["trace"], &line.split(' ').collect::<Vec<_>>()[..]].concat(), code);
        assert_eq!((files(), read(&folder, "small.arrow")), before, "{line}");
        format!("{line}\n{}", err.lines().take(2).map(|line| format!("{}\n", line.trim())).collect::<String>())
    };
    let misuses = [
        "convert small.arrow small.arrow",
        "convert two.csv ./two.csv",
        "convert small.arrow out.arrow --block-size 512",
        "convert small.arrow out.arrow --format msr",
        "info small.arrow --block-size 8KiB",
        "info small.arrow --format msr",
        "cut two.csv out.arrow",
        "cut two.csv out.arrow --requests 5..5",
        "cut two.csv out.arrow --requests 5-7",
        "cut two.csv out.arrow --time 10..20",
        "cut two.csv out.arrow --time 60s..10s",
        "cut two.csv out.arrow --volume h.2",
        "concat small.arrow large.arrow --out out.arrow",
        "concat small.arrow two.csv --out two.csv",
        "generate out.arrow --blocks 10",
        "generate out.arrow --blocks 0 --requests 5",
        "generate out.arrow --blocks 10 --requests 0",
        "generate out.arrow --blocks 10 --requests 5 --accesses 5",
        "generate out.arrow --blocks 10 --requests 5 --request-blocks 4..11",
        "generate out.arrow --blocks 10 --requests 5 --read-share 1.5",
        "generate out.arrow --blocks 10 --requests 5 --rate fast",
        "generate out.arrow --blocks 10 --requests 5 --pattern zipf:shape=1",
        "generate out.arrow --blocks 10 --requests 11 --pattern scan",
        "generate --blocks 10 --requests 5",
        "cut two.csv small.arrow --requests ..5",
        "concat two.csv two.csv --out small.arrow",
        "generate small.arrow --blocks 10 --requests 5",
        "export two.csv small.arrow",
        "convert two.csv out.csv",
        "cut two.csv out.csv.zst --requests ..5",
        "concat two.csv two.csv --out out.parquet",
        "generate out.txt --blocks 10 --requests 5",
    ];
    insta::assert_snapshot!("misuse", misuses.map(|line| failed(2, line)).join("\n"));
    let failures = [
        "convert missing.csv out.arrow",
        "convert bad.csv out.arrow --format msr",
        "convert two.csv no/such/out.arrow",
        "convert two.csv /dev/full",
        "convert small.arrow .",
        "cut two.csv out.arrow --requests 100..",
        "concat two.csv bad.csv --out small.arrow --force --format msr",
        "generate /dev/full --csv --blocks 10 --requests 5",
    ];
    insta::assert_snapshot!("failures", failures.map(|line| failed(1, line)).join("\n"));
}

#[test]
fn skipped_records_are_reported_and_reading_ends_at_a_cut() {
    let folder = folder();
    fs::write(folder.path().join("bad.csv"), format!("{TWO_VOLUMES}not a request\n")).unwrap();
    let lenient = ["trace", "convert", "bad.csv", "out.arrow", "--format", "msr", "--lenient"];
    let (out, err, code) = parts(flashwise(folder.path(), &lenient).output().unwrap());
    assert_eq!((out.split(',').next(), code), (Some("out.arrow: 6 requests"), 0));
    assert_eq!(err, "flashwise: bad.csv: 1 malformed record was skipped\n");
    // Malformed records come long after the part that is cut out.
    let long = format!("{}not a request\n", TWO_VOLUMES.repeat(100_000));
    fs::write(folder.path().join("long.csv"), long).unwrap();
    succeed(folder.path(), &["trace", "cut", "long.csv", "out.arrow", "--force", "--requests", "..1000", "--quiet"]);
    fail(folder.path(), &["trace", "cut", "long.csv", "out.arrow", "--force", "--time", "..1s", "--quiet"], 1);
}
