//! Input that is easily misread, or has unusual forms: results, notes and errors.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{fail, flashwise, parts, run, succeed};
use flashwise_testing::waiting::wait_until;
use serde_json::Value;

/// 2,000 requests of 8 sectors, one a second, in seconds since 1970 and sectors, below `header`.
fn epoch_and_sectors(header: &str) -> String {
    let lines = (0..2000)
        .map(|at| format!("{},{},8,{}\n", 1_538_323_200 + at, at * 7 % 1000 * 8, "RW".as_bytes()[at % 2] as char));
    format!("{header}\n{}", lines.collect::<String>())
}

/// Returns the output of `trace info` for a trace, and standard error.
fn info(folder: &Path, arguments: &[&str]) -> (Value, String) {
    let (out, err, code) = run(folder, &[&["trace", "info", "--json"], arguments].concat());
    assert_eq!(code, 0, "{err}");
    (serde_json::from_str::<Value>(&out).unwrap()[0].clone(), err)
}

#[test]
fn units_that_nothing_says_are_taken_from_the_values_or_refused_and_always_shown() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("vague.csv", &epoch_and_sectors("time,lba,length,op"));
    let refused = fail(folder.path(), &["trace", "info", "vague.csv"], 2);
    assert_eq!(
        refused,
        "flashwise: vague.csv: found offsets in sectors beside requests of 8 bytes, expected other columns or units: \
         use --format \
         csv:time=0,op=3,offset=1,length=2,time-unit=s,offset-unit=512,length-unit=512 if these are right (flashwise \
         does not check units \
         that you name)\n"
    );
    let spec = "csv:time=0,op=3,offset=1,length=2,offset-unit=512,length-unit=512";
    let (vague, err) = info(folder.path(), &["vague.csv", "--format", spec]);
    let read_as = "csv:time=0,op=3,offset=1,length=2,time-unit=s,offset-unit=512,length-unit=512";
    let columns = format!("{read_as} (by its values, s since 1970: time-unit)");
    assert_eq!(err, format!("flashwise: vague.csv: read as {columns}\n"));
    // Units given by the user are neither repeated nor doubted.
    let (_, err) = info(folder.path(), &["vague.csv", "--format", &format!("{spec},time-unit=us")]);
    assert_eq!(err, "");
    write("clear.csv", &epoch_and_sectors("ts_s,lba,sectors,op"));
    let (clear, err) = info(folder.path(), &["clear.csv"]);
    assert!(err.contains(&format!("{read_as} (by the header: time-unit, offset-unit, length-unit)")), "{err}");
    for key in ["duration_us", "request_bytes_min", "request_bytes_max", "unique_blocks"] {
        assert_eq!(vague[key], clear[key], "{key}");
    }
    assert_eq!((clear["duration_us"].as_u64(), clear["request_bytes_max"].as_u64()), (Some(1_999_000_000), Some(4096)));
    // The normalised file keeps it, and is no news any more.
    run(folder.path(), &["trace", "convert", "clear.csv", "clear.arrow"]);
    let (kept, err) = info(folder.path(), &["clear.arrow"]);
    assert_eq!((&kept["columns"], err.as_str()), (&clear["columns"], ""));
    let shown = succeed(folder.path(), &["trace", "info", "clear.arrow"]);
    assert!(shown.split_whitespace().collect::<String>().contains(read_as), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let many = succeed(folder.path(), &[&["trace", "info"][..], &["clear.arrow"; 7]].concat());
    assert!(many.lines().all(|line| line.chars().count() <= 80) && many.matches("working set").count() > 1, "{many}");
}

#[test]
fn dates_in_any_unit_are_recognised_and_times_with_decimals_need_one() {
    let folder = tempfile::tempdir().unwrap();
    let write = |text: &str| fs::write(folder.path().join("t.csv"), text).unwrap();
    // 2007-02-22 17:33:23, and a minute later.
    let dates = [
        ("s", "1172165603", "1172165663"),
        ("ms", "1172165603000", "1172165663000"),
        ("us", "1172165603000000", "1172165663000000"),
        ("ns", "1172165603000000000", "1172165663000000000"),
        ("filetime", "128166392030000000", "128166392630000000"),
        ("s", "1172165603.25", "1172165663.25"),
    ];
    for (unit, first, last) in dates {
        write(&format!("time,op,offset,length\n{first},R,0,4096\n{last},R,4096,4096\n"));
        let (found, err) = info(folder.path(), &["t.csv"]);
        assert_eq!(found["duration_us"].as_u64(), Some(60_000_000), "{unit}");
        assert!(err.contains(&format!(",time-unit={unit},")) && err.contains("by its values"), "{err}");
    }
    write("time,op,offset,length\n0.5,R,0,4096\n1.5,R,4096,4096\n");
    let err = fail(folder.path(), &["trace", "info", "t.csv"], 2);
    assert!(err.contains("found times with decimals, such as 0.500000, expected a unit of time"), "{err}");
    write("time,op,offset,length\n0,R,0,4096\n5,R,4096,4096\n");
    let (_, err) = info(folder.path(), &["t.csv"]);
    assert!(err.contains("(assumed: time-unit, offset-unit, length-unit)"), "{err}");
    // The header's or the user's units apply, with a warning.
    write("ts_us,op,offset,length\n1172165603,R,0,4096\n1172165663,R,4096,4096\n");
    let (found, err) = info(folder.path(), &["t.csv"]);
    assert_eq!(found["duration_us"].as_u64(), Some(60));
    assert!(err.contains("its times look like s since 1970 and are read in us; time-unit= decides"), "{err}");
}

#[test]
fn contradictory_units_are_refused_until_the_user_decides() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        (
            "time,op,offset,length\n1,R,512,8\n2,W,4096,16\n",
            "length-unit",
            "that are multiples of 512 beside requests of 8 bytes",
        ),
        (
            "time,op,offset,len_bytes\n1,R,512,8\n2,W,4096,16\n",
            "length-unit",
            "that are multiples of 512 beside requests of 8 bytes",
        ),
        (
            "time,op,offset,sectors\n1,R,8,8\n2,W,24,16\n",
            "offset-unit",
            "lengths in sectors beside a request at byte 8",
        ),
    ];
    for (text, option, found) in cases {
        fs::write(folder.path().join("t.csv"), text).unwrap();
        let err = fail(folder.path(), &["trace", "info", "t.csv"], 2);
        assert!(
            err.contains(found) && err.contains("use --format csv:") && err.contains(&format!(",{option}=512")),
            "{err}"
        );
        let spec = format!("csv:{option}=1");
        assert_eq!(run(folder.path(), &["trace", "info", "t.csv", "--format", &spec]).2, 0);
    }
    // Files have requests of any length at any byte.
    fs::write(folder.path().join("t.csv"), "time,op,offset,length\n1,R,517,300\n2,W,4098,77\n").unwrap();
    let (_, err) = info(folder.path(), &["t.csv"]);
    assert!(
        err.contains("most requests begin and end within sectors; offset-unit=512 and length-unit=512 read them"),
        "{err}"
    );
}

#[test]
fn surplus_fields_are_errors_and_empty_ones_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("c.csv", "time_us,op,offset,length\n1,R,0,4096,\n2,R,4096,4096,7\n");
    write("m.csv", "10000000,h,0,Read,0,8192,0\n20000000,h,1,Write,100,50,0,9\n");
    write("s.csv", "ts_us op offset length x\n1 R 0 4096 a\n2 R 0 4096 a b\n");
    let quoted = "time_us,op,offset,length,name\n1,R,0,4096,\"a,b\"\n2,R,0,4096,\"a,b\",c\n";
    write("q.csv", quoted);
    for (name, line, fields) in [("c.csv", 3, 4), ("m.csv", 2, 7), ("s.csv", 3, 5), ("q.csv", 3, 5)] {
        let err = fail(folder.path(), &["trace", "info", name], 1);
        assert!(err.contains(&format!("{name}, line {line}: found ")), "{err}");
        assert!(err.contains(&format!("expected a line of {fields} fields")), "{err}");
    }
}

#[test]
fn dates_hexadecimal_offsets_and_other_delimiters_are_read_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let write = |text: &str| fs::write(folder.path().join("t.csv"), text).unwrap();
    write("time|op|lba|sectors\n2024-01-31T12:00:00Z|R|0x8|8\n2024-01-31 13:01:00+01:00|W|16.0|8\n");
    let (found, err) = info(folder.path(), &["t.csv"]);
    assert_eq!((found["duration_us"].as_u64(), found["read_bytes"].as_u64()), (Some(60_000_000), Some(4096)));
    let read_as = "csv:time=0,op=1,offset=2,length=3,time-unit=date,offset-unit=512,length-unit=512 (by the header: \
        offset-unit, \
                   length-unit; by its values, dates: time-unit)";
    assert_eq!(err, format!("flashwise: t.csv: read as {read_as}\n"));
    write("time_s;op;offset;length\n0,25;R;4096;4096\n1,5;R;8192;4096\n");
    let refused = fail(folder.path(), &["trace", "info", "t.csv"], 1);
    assert!(refused.contains("found \"0,25\"") && refused.contains("decimal=comma in --format reads"), "{refused}");
    let (found, err) = info(folder.path(), &["t.csv", "--format", "csv:decimal=comma"]);
    assert_eq!(found["duration_us"].as_u64(), Some(1_250_000));
    assert!(err.contains("read as csv:time=0,op=1,offset=2,length=3,decimal=comma,time-unit=s,"), "{err}");
    // Units without a name must be given, and the error shows how.
    write("1;R;4096;4096\n2;W;8192;4096\n");
    let refused = fail(folder.path(), &["trace", "info", "t.csv"], 1);
    assert!(
        refused.contains("name the columns, from 0, as in --format csv:time=0,op=1,offset=2,length=3"),
        "{refused}"
    );
    let (found, _) = info(folder.path(), &["t.csv", "--format", "csv:time=0,op=1,offset=2,length=3"]);
    assert_eq!(found["requests"].as_u64(), Some(2));
}

#[test]
fn integers_in_binary_are_read_if_the_user_says_which() {
    let folder = tempfile::tempdir().unwrap();
    let numbers = [7_i32, 3, 7, 2_000_000];
    let of_32: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let of_64: Vec<u8> = numbers.iter().flat_map(|number| i64::from(*number).to_le_bytes()).collect();
    fs::write(folder.path().join("32"), of_32).unwrap();
    fs::write(folder.path().join("64"), of_64).unwrap();
    for (name, spec) in [("32", "raw-blocks:type=int32"), ("64", "raw-blocks:type=int64")] {
        let (found, _) = info(folder.path(), &[name, "--format", spec]);
        assert_eq!((found["accesses"].as_u64(), found["unique_blocks"].as_u64()), (Some(4), Some(3)));
        fail(folder.path(), &["trace", "info", name], 1);
    }
    fail(folder.path(), &["trace", "info", "32", "--format", "raw-blocks"], 2);
}

#[test]
fn times_that_are_no_clock_are_counted_and_rates_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let trace = |name: &str, times: Vec<u64>| {
        let lines = times.iter().enumerate().map(|(at, time)| format!("{time},R,{},4096\n", at * 7 % 300 * 4096));
        fs::write(folder.path().join(name), format!("time_us,op,offset,length\n{}", lines.collect::<String>()))
            .unwrap();
    };
    let seconds = |from: u64| (0..1000).map(move |at| 1_000_000 * (from + at));
    let year = 365 * 86_400;
    trace("good.csv", seconds(0).collect());
    trace("back.csv", seconds(0).rev().collect());
    trace("some.csv", seconds(20 * year).enumerate().map(|(at, us)| if at % 100 == 99 { 0 } else { us }).collect());
    let of = |name: &str| {
        let (found, err) = info(folder.path(), &[name]);
        let figures =
            ["duration_us", "out_of_order_requests", "absurd_requests"].map(|key| found[key].as_u64().unwrap());
        (
            figures,
            err.lines().filter(|line| !line.contains("read as")).map(str::to_owned).collect::<Vec<_>>().join("\n"),
        )
    };
    assert_eq!(of("good.csv"), ([999_000_000, 0, 0], String::new()));
    let (figures, err) = of("back.csv");
    assert_eq!(figures, [999_000_000, 999, 0]);
    let refused = "nothing is said per day or per year, since its times are no clock: of 1,000 requests, 998 more than \
        a second \
                   earlier than one before; expected at most 10% of them";
    assert_eq!(err, format!("flashwise: back.csv: {refused}"));
    let (figures, err) = of("some.csv");
    assert_eq!(figures, [998_000_000, 10, 10]);
    assert_eq!(err, "flashwise: some.csv: of 1,000 requests, 10 more than a year away from most");
    let rates = |name: &str| {
        let line =
            format!("simulate {name} --policy lru --size 50% --erase-unit 16KiB --ram 0 --layout in-place --json");
        let (out, err, code) = run(folder.path(), &line.split(' ').collect::<Vec<_>>());
        assert_eq!(code, 0, "{err}");
        let rows: Value = serde_json::from_str(&out).unwrap();
        (rows[0]["epbpd"].as_f64(), rows[0]["caveat"].as_str().unwrap_or_default().to_owned())
    };
    let epbpd = |name: &str| rates(name).0;
    assert!(epbpd("good.csv").is_some());
    let (none, caveat) = rates("back.csv");
    assert_eq!(none, None);
    assert!(
        caveat.starts_with("the times of the trace say no rates and lifetimes: of 1,000 requests, 998 "),
        "{caveat}"
    );
    let (good, some) = (epbpd("good.csv").unwrap(), epbpd("some.csv").unwrap());
    assert!((some / good - 1.0).abs() < 0.01, "{some} against {good}");
}

#[test]
fn a_flipped_bit_of_a_normalised_file_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let made = ["trace", "generate", "t.arrow", "--blocks", "500", "--requests", "5000"];
    succeed(folder.path(), &made);
    let whole = fs::read(folder.path().join("t.arrow")).unwrap();
    // In the times of the first batch, where any bits are a time.
    let mut flipped = whole.clone();
    flipped[2000] ^= 0x10;
    fs::write(folder.path().join("flipped.arrow"), flipped).unwrap();
    let err = fail(folder.path(), &["trace", "info", "flipped.arrow"], 1);
    assert!(err.contains("flipped.arrow: damaged since it was written: found a message at bytes "), "{err}");
}

#[test]
fn memory_that_is_not_there_is_not_called_another_format() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("t.arrow"), b"ARROW1\0\0").unwrap();
    fs::File::options().write(true).open(folder.path().join("t.arrow")).unwrap().set_len(8 << 30).unwrap();
    let program = env!("CARGO_BIN_EXE_flashwise");
    let script = format!("ulimit -v 4000000; exec {program} trace info t.arrow");
    let (_, err, code) = parts(Command::new("bash").args(["-c", &script]).current_dir(folder.path()).output().unwrap());
    assert_eq!((code, err.as_str()), (1, "flashwise: t.arrow: Cannot allocate memory (os error 12)\n"));
}

#[test]
fn a_temporary_file_that_cannot_be_is_called_by_its_directory() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("t.csv"), "10000000,h,0,Read,0,8192,0\n").unwrap();
    let run =
        |options: &[&str]| parts(flashwise(folder.path(), options).env("TMPDIR", "/nowhere/at/all").output().unwrap());
    let (_, err, code) = run(&["simulate", "t.csv", "--policy", "lru", "--size", "1"]);
    assert_eq!(code, 1);
    let begins = "flashwise: temporary file in /nowhere/at/all (TMPDIR names another directory): ";
    assert!(err.starts_with(begins), "{err}");
    // These commands read the trace once and need no copy.
    for options in [&["trace", "info", "t.csv"][..], &["trace", "reuse", "t.csv"], &["curve", "t.csv", "--size", "1"]] {
        let (_, err, code) = run(options);
        assert_eq!((code, err.as_str()), (0, ""), "{options:?}");
    }
}

#[test]
fn names_that_are_not_utf_8_are_read_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let name = |bytes: &[u8]| folder.path().join(std::ffi::OsStr::from_bytes(bytes));
    let (trace, out) = (name(b"t\xFFr.csv"), name(b"o\xFEt.arrow"));
    fs::write(&trace, "10000000,h,0,Read,0,8192,0\n").unwrap();
    let converted = flashwise(folder.path(), &["trace", "convert"]).args([&trace, &out]).output().unwrap();
    assert_eq!(parts(converted).2, 0);
    let simulated =
        flashwise(folder.path(), &["simulate", "--policy", "lru", "--size", "1", "--csv"]).arg(&out).output().unwrap();
    let (rows, err, code) = parts(simulated);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(rows.contains("o\u{FFFD}t.arrow,lru"), "{rows}");
}

#[test]
fn output_goes_where_links_lead_and_keeps_modes() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("t.csv"), "10000000,h,0,Read,0,8192,0\n").unwrap();
    let (there, link) = (folder.path().join("there.arrow"), folder.path().join("link.arrow"));
    symlink("there.arrow", &link).unwrap();
    succeed(folder.path(), &["trace", "convert", "t.csv", "link.arrow"]);
    fs::set_permissions(&there, fs::Permissions::from_mode(0o600)).unwrap();
    succeed(folder.path(), &["trace", "convert", "t.csv", "link.arrow", "--force"]);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::metadata(&there).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn signals_leave_no_partial_files() {
    for signal in ["TERM", "HUP", "INT", "KILL"] {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        fs::create_dir(&out).unwrap();
        // The test runner may have ignored signals, as with nohup.
        let mut child = Command::new("env")
            .args(["--default-signal", env!("CARGO_BIN_EXE_flashwise")])
            .args(["trace", "convert", "-", "out/t.arrow", "--format", "msr"])
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        // It has opened its output and waits for more input.
        let process = child.id();
        let has_output = || {
            let open = fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
            let mut leads = open.filter_map(|entry| fs::read_link(entry.path()).ok());
            leads.any(|target| target.starts_with(&out)) || fs::read_dir(&out).unwrap().count() > 0
        };
        let input = child.stdin.take();
        std::io::Write::write_all(
            &mut input.as_ref().unwrap(),
            b"10000000,h,0,Read,0,8192,0\n".repeat(20_000).as_slice(),
        )
        .unwrap();
        wait_until("an output is open", has_output);
        assert!(
            Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap().success()
        );
        assert!(!child.wait().unwrap().success());
        assert_eq!(fs::read_dir(&out).unwrap().count(), 0, "{signal}");
        drop(input);
    }
}
