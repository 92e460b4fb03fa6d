//! Reading traces, from compressed bytes to a mapped trace: every format in every compression, and the positions of
//! errors.

use crate::fixtures::{
    self, COMPRESSIONS, Fixture, all, bundled, bzip2, gzip, input, lz4, read, tar, trace, xz, zip, zstandard,
};
use flashwise_trace::formats::FORMATS;
use flashwise_trace::normalised::{self, Settings};
use flashwise_trace::progress::Silent;

const REQUESTS: usize = 2000;

fn name(fixture: &Fixture) -> &'static str {
    fixture.spec.split(':').next().unwrap()
}

fn settings(spec: &str) -> Settings {
    Settings { format: Some(spec.parse().unwrap()), ..Settings::default() }
}

#[test]
fn every_format_has_a_fixture() {
    let fixtures = all(10);
    for format in FORMATS {
        assert!(fixtures.iter().any(|fixture| name(fixture) == format.name), "{}", format.name);
    }
}

#[test]
fn every_format_is_recognised_and_gives_the_same_requests_in_every_compression() {
    // Any bytes are integers, so raw blocks are never recognised.
    for fixture in all(REQUESTS).into_iter().filter(|fixture| name(fixture) != "raw-blocks") {
        for (compression, compress) in COMPRESSIONS {
            let (format, requests) = read(compress(&fixture.contents)).unwrap();
            assert_eq!(format, name(&fixture), "{compression}");
            let expected = fixture.requests.iter().map(|request| (fixture.volume.to_owned(), *request));
            assert!(requests.into_iter().eq(expected), "{} in {compression}", fixture.spec);
        }
    }
}

#[test]
fn every_format_gives_the_same_blocks() {
    for fixture in all(REQUESTS) {
        let trace = trace(fixture.contents, &settings(fixture.spec)).unwrap();
        let about = trace.description();
        assert_eq!((about.requests, about.malformed_records, about.skipped_records), (REQUESTS as u64, 0, 0));
        let blocks = fixture.requests.iter().flat_map(|request| {
            let first = request.offset_bytes / 4096;
            (first..first + request.length_bytes / 4096).map(|block| (block, request.op))
        });
        let found = trace.accesses().map(|(id, op)| (trace.addresses()[id as usize], op));
        assert!(found.eq(blocks), "{}", fixture.spec);
    }
}

#[test]
fn members_frames_and_layers_are_read_one_after_the_other_and_one_in_the_other() {
    let fixture = &all(REQUESTS)[0];
    let (head, tail) = fixture.contents.split_at(fixture.contents.len() / 3);
    for (compression, compress) in COMPRESSIONS {
        let (_, requests) = read([compress(head), compress(tail)].concat()).unwrap();
        assert_eq!(requests.len(), REQUESTS, "{compression} twice");
    }
    let skippable = [&[0x5A, 0x2A, 0x4D, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    for nested in [
        zstandard(&gzip(&fixture.contents)),
        gzip(&xz(&bzip2(&fixture.contents))),
        [skippable, zstandard(&fixture.contents)].concat(),
    ] {
        assert_eq!(read(nested).unwrap().1.len(), REQUESTS);
    }
}

#[test]
fn a_zstd_frame_may_ask_for_a_window_of_2_gib() {
    let line = b"134397293101803864,nfs,0,Read,8007278592,4096,20640\n";
    // Frame header without content size, window of 2^(10 + 21) bytes, and one last raw block.
    let block = (line.len() as u32) << 3 | 1;
    let frame = [&[0x28, 0xB5, 0x2F, 0xFD, 0x00, 21 << 3], &block.to_le_bytes()[..3], line].concat();
    assert_eq!(read(frame).unwrap().1.len(), 1);
}

#[test]
fn damaged_compression_is_named_with_the_byte() {
    let contents = &all(REQUESTS)[0].contents;
    let cases: [(&str, Vec<u8>); 6] = [
        ("gzip", gzip(contents)),
        ("zstd", zstandard(contents)),
        ("xz", xz(contents)),
        ("bzip2", bzip2(contents)),
        ("lz4", lz4(contents)),
        ("gzip", zstandard(&gzip(&gzip(contents)[..1000]))),
    ];
    for (compression, whole) in cases {
        let nested = whole.starts_with(&[0x28]) && compression == "gzip";
        let cut = if nested { whole.len() } else { whole.len() / 2 };
        let error = trace(whole[..cut].to_vec(), &settings("msr")).unwrap_err();
        let begins = format!("trace: damaged {compression} data after byte ");
        assert!(error.starts_with(&begins), "{error}");
        let byte: usize = error[begins.len()..].split_once(' ').unwrap().0.parse().unwrap();
        assert!(byte < contents.len(), "{error}");
        if !nested {
            let mut flipped = whole.clone();
            flipped[whole.len() / 2] ^= 0x10;
            let error = trace(flipped, &settings("msr")).unwrap_err();
            // The data decompressed before the damage is found may already be an invalid line.
            assert!(error.starts_with(&begins) || error.starts_with("trace, line "), "{error}");
        }
    }
}

#[test]
fn a_cut_of_lz4_between_two_blocks_is_damage() {
    let contents = all(REQUESTS).swap_remove(0).contents.repeat(40);
    let whole = lz4(&contents);
    // The header of a frame without sizes has 7 bytes; each block has its length before it and its checksum after it.
    let length = u32::from_le_bytes(whole[7..11].try_into().unwrap()) & 0x7FFF_FFFF;
    let cut = whole[..7 + 4 + length as usize + 4].to_vec();
    assert!(cut.len() < whole.len());
    let error = trace(cut, &settings("msr")).unwrap_err();
    assert!(error.starts_with("trace: damaged lz4 data after byte "), "{error}");
}

/// Opens the file at `path`, which continues inside an archive.
fn open(path: &std::path::Path) -> Result<u64, String> {
    let opened = flashwise_trace::normalised::open(path, &Settings::default(), &flashwise_trace::progress::Silent);
    opened.map(|trace| trace.description().requests).map_err(|error| fixtures::chain(&error))
}

#[test]
fn the_file_of_an_archive_is_read_and_of_several_the_one_that_the_path_names() {
    let contents = &all(REQUESTS)[0].contents;
    let lines: Vec<&[u8]> = contents.split_inclusive(|&byte| byte == b'\n').collect();
    let half = lines[..REQUESTS / 2].concat();
    let long = format!("{}/{}.csv", "d".repeat(120), "f".repeat(120));
    let folder = tempfile::tempdir().unwrap();
    /// Packs files, by name, into an archive.
    type Pack = fn(&[(&str, &[u8])]) -> Vec<u8>;
    let packed: [(&str, Pack); 4] = [
        ("tar", tar),
        ("tar.gz", |files| gzip(&tar(files))),
        ("stored.zip", |files| zip(files, false)),
        ("deflated.zip", |files| zip(files, true)),
    ];
    for (name, pack) in packed {
        let path = folder.path().join(name);
        let write = |files: &[(&str, &[u8])]| std::fs::write(&path, pack(files)).unwrap();
        for compress in [<[u8]>::to_vec, gzip, zstandard] {
            write(&[("empty", b""), ("msr/._hm_0.csv", b"attributes"), ("msr/hm_0.csv", &compress(contents))]);
            assert_eq!(open(&path), Ok(REQUESTS as u64), "{name}");
            assert_eq!(open(&path.join("msr/hm_0.csv")), Ok(REQUESTS as u64), "{name}");
        }
        write(&[("msr/hm_0.csv", contents), ("./msr/hm_1.csv", &half), (&long, &half)]);
        assert_eq!(open(&path.join("msr/hm_1.csv")), Ok(REQUESTS as u64 / 2), "{name}");
        assert_eq!(open(&path.join(&long)), Ok(REQUESTS as u64 / 2), "{name}");
        let several = "found an archive of more than one file (msr/hm_0.csv, ";
        assert!(open(&path).unwrap_err().contains(several), "{name}");
        let missing = open(&path.join("msr/hm_2.csv")).unwrap_err();
        assert!(missing.contains("found no such file in the archive, expected one of: msr/hm_0.csv, "), "{missing}");
        write(&[]);
        assert!(open(&path).is_err(), "{name}");
        write(&[("msr/hm_0.csv", contents)]);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let cut = open(&path).unwrap_err();
        assert!(cut.contains("expected a whole one") || cut.contains("damaged"), "{cut}");
    }
    let plain = folder.path().join("plain.csv");
    std::fs::write(&plain, contents).unwrap();
    assert!(open(&plain.join("hm_0.csv")).unwrap_err().contains("not a directory"));
}

#[test]
fn marks_and_ends_of_lines_of_other_systems_are_read_and_mixed_ones_are_errors() {
    for fixture in all(REQUESTS).into_iter().filter(|fixture| std::str::from_utf8(&fixture.contents).is_ok()) {
        if matches!(name(&fixture), "raw-blocks" | "vscsi" | "oracle-general" | "lcs" | "blktrace") {
            continue;
        }
        let text = String::from_utf8(fixture.contents.clone()).unwrap();
        let expected = trace(fixture.contents, &Settings::default()).unwrap();
        let others = [text.replace('\n', "\r\n"), text.replace('\n', "\r"), format!("\u{FEFF}{text}")];
        for other in others.into_iter().chain([format!("\u{FEFF}{}", text.replace('\n', "\r"))]) {
            for format in [None, Some(fixture.spec.parse().unwrap())] {
                let settings = Settings { format, ..Settings::default() };
                let found = trace(other.clone().into_bytes(), &settings).unwrap();
                assert!(found.accesses().eq(expected.accesses()), "{}", fixture.spec);
                assert_eq!(found.description(), expected.description());
            }
        }
        // Two requests in one line.
        let mut ends = text.match_indices('\n').map(|(at, _)| at).skip(1500);
        let at = ends.next().unwrap();
        let mixed = format!("{}\r{}", &text[..at], &text[at + 1..]);
        let error = trace(mixed.into_bytes(), &Settings::default()).unwrap_err();
        assert!(error.contains("expected no carriage return within a line that ends in a newline"), "{error}");
    }
}

#[test]
fn an_error_names_the_line_however_far_it_is() {
    let head = all(REQUESTS).swap_remove(0).contents;
    let mut contents = head.repeat(100);
    // 200,000 valid lines of about 55 bytes, so about 40 chunks, then an invalid one; blank lines count too.
    contents.extend(b"\n\r\n134397293101803864,nfs,0,Raed,8007278592,4096,20640\r\n");
    contents.extend(&head);
    let expected = r#"trace, line 200003: found "Raed", expected Read or Write"#;
    assert_eq!(trace(contents.clone(), &Settings::default()).unwrap_err(), expected);
    assert_eq!(trace(zstandard(&contents), &Settings::default()).unwrap_err(), expected);
    let lenient = Settings { lenient: true, ..Settings::default() };
    let trace = trace(contents, &lenient).unwrap();
    assert_eq!((trace.description().requests, trace.description().malformed_records), (202_000, 1));
}

#[test]
fn an_error_names_the_byte_of_a_binary_record_however_far_it_is() {
    let head = all(REQUESTS).into_iter().find(|fixture| fixture.spec == "vscsi:version=2").unwrap().contents;
    let mut contents = head.repeat(100);
    let damaged = contents.len() - 40 * 7;
    contents[damaged + 3] = 9;
    let expected = format!("trace, byte {damaged}: found a record of version 9, expected version 2");
    assert_eq!(trace(contents.clone(), &Settings::default()).unwrap_err(), expected);
    contents[damaged + 3] = 2;
    contents.pop();
    let last = contents.len() - 39;
    let expected = format!("trace, byte {last}: found the last 39 bytes, expected a record of 40 bytes");
    assert_eq!(trace(contents, &Settings::default()).unwrap_err(), expected);
}

#[test]
fn a_line_without_end_is_an_error_and_not_read_whole() {
    let mut contents = all(10).swap_remove(0).contents;
    let first_byte = contents.len();
    contents.resize(8 << 20, b'1');
    let error = trace(contents, &Settings::default()).unwrap_err();
    let begins = format!("trace, byte {first_byte}: found a line of more than ");
    assert!(error.starts_with(&begins) && error.ends_with("expected lines shorter than 1048576 bytes"), "{error}");
}

#[test]
fn empty_and_tiny_inputs_are_errors() {
    let empty = "trace: it holds no requests";
    for (compression, compress) in COMPRESSIONS {
        assert_eq!(trace(compress(b""), &Settings::default()).unwrap_err(), empty, "{compression}");
    }
    assert_eq!(trace(b"\n\n".to_vec(), &settings("msr")).unwrap_err(), empty);
    assert_eq!(trace(b"1,nfs,0,Read,0,0,1\n".to_vec(), &settings("msr")).unwrap_err(), empty);
    for tiny in [&b"x"[..], b"\n", b"\x28", b"\x28\xB5", b"\x1F", b"BZ", b"\xFD7zXZ", b"\0\0\0\0\0\0\0\0"] {
        let error = trace(tiny.to_vec(), &Settings::default()).unwrap_err();
        assert!(error.starts_with("trace: its format is not recognised; its first bytes are "), "{error}");
    }
    for cut in [&b"\x28\xB5\x2F\xFD"[..], b"\x1F\x8B", b"\xFD7zXZ\0", b"BZh9", b"\x04\x22\x4D\x18"] {
        let error = trace(cut.to_vec(), &Settings::default()).unwrap_err();
        assert!(error.starts_with("trace: damaged "), "{error}");
    }
    assert_eq!(trace(b"42".to_vec(), &Settings::default()).unwrap().len(), 1);
}

/// Returns the requests, reads, bytes and skipped records of a file in `tests/files`.
fn counts(name: &str, format: Option<&str>) -> (u64, u64, u64, u64) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files").join(name);
    let settings = Settings { format: format.map(|spec| spec.parse().unwrap()), ..Settings::default() };
    let trace = normalised::open(&path, &settings, &Silent).unwrap();
    let about = trace.description();
    (about.requests, about.read_requests, about.read_bytes + about.write_bytes, about.skipped_records)
}

/// `sdb.iolog` was written by fio 3.33, whose summary counts 15 reads, 17 writes and 1 sync. The program `awk '$3 ==
/// "read" || $3 == "write" { n += $5 } END { print n }'` counts the bytes.
#[test]
fn a_log_of_fio_has_the_requests_that_fio_counted() {
    assert_eq!(counts("sdb.iolog", None), (32, 15, 131_072, 1));
}

/// `sdb.blkparse` is the output of blkparse 1.2.0 for `sdb.blktrace`: events of a logical volume (253,0) on a disk
/// (8,0), and of another disk. The program `awk '$6 == "Q" && $1 != "8,0" && $7 ~ /^F?[RW]/ && $9 == "+" { n++; b +=
/// 512 * $10 } END { print n, b }'` counts them.
#[test]
fn binary_events_are_the_same_requests_as_their_text() {
    for options in ["", ":action=D", ":action=I", ":action=C", ":stacked=all", ":action=C,stacked=all"] {
        let text = counts("sdb.blkparse", Some(&format!("blkparse{options}")));
        assert_eq!(counts("sdb.blktrace", Some(&format!("blktrace{options}"))), text, "{options}");
    }
    assert_eq!(counts("sdb.blktrace", None), (16, 6, 282_624, 8));
    assert_eq!(counts("sdb.blkparse", None), (16, 6, 282_624, 8));
}

/// Captured by `perf record -e block:...` and in an instance of tracefs while dd read and wrote a file, on a virtual
/// disk. Each line with `block_bio_queue:` is a request, counted by awk: reads by their letter, bytes by the number
/// after the +.
#[test]
fn block_tracepoints_have_the_requests_that_were_queued() {
    assert_eq!(counts("vda.perf", None), (20, 6, 253_952, 0));
    // Two discards.
    assert_eq!(counts("vda.ftrace", None), (25, 11, 319_488, 2));
}

/// blktrace writes a file for each processor: here one that queued all requests, one that completed them, and one that
/// was idle.
#[test]
fn binary_events_of_several_processors_are_merged() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files/sdb.blktrace");
    let events = std::fs::read(path).unwrap();
    let (mut queued, mut completed, mut rest) = (Vec::new(), Vec::new(), &events[..]);
    while !rest.is_empty() {
        let length = 48 + usize::from(u16::from_le_bytes([rest[46], rest[47]]));
        let is_completion = rest[28..30] == [8, 0];
        if is_completion { &mut completed } else { &mut queued }.extend(&rest[..length]);
        rest = &rest[length..];
    }
    let folder = tempfile::tempdir().unwrap();
    for (processor, events) in [queued, completed, Vec::new()].into_iter().enumerate() {
        std::fs::write(folder.path().join(format!("sdb.blktrace.{processor}")), events).unwrap();
    }
    let about = |name: &str| {
        let trace = normalised::open(folder.path().join(name), &Settings::default(), &Silent).map(|trace| {
            let about = trace.description();
            (about.requests, about.read_requests, about.read_bytes + about.write_bytes)
        });
        trace.map_err(|error| fixtures::chain(&error))
    };
    assert_eq!(about("sdb.blktrace.*"), Ok((16, 6, 282_624)));
    for without_requests in ["sdb.blktrace.1", "sdb.blktrace.2", "sdb.blktrace.[12]"] {
        let error = about(without_requests).unwrap_err();
        assert!(error.ends_with(": it holds no requests"), "{error}");
    }
}

/// The pipe is opened once: its writer is still there when the trace is read, and no reader waits for another writer.
#[cfg(target_os = "linux")]
#[test]
fn a_named_pipe_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("trace.csv");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    let fixture = &all(REQUESTS)[0];
    let (contents, to) = (fixture.contents.clone(), pipe.clone());
    let writer = std::thread::spawn(move || std::fs::write(to, contents));
    let read = normalised::open(&pipe, &settings(fixture.spec), &Silent).unwrap();
    assert_eq!(read.description().requests, REQUESTS as u64);
    writer.join().unwrap().unwrap();
}

#[test]
fn the_bundled_trace_matches_its_readme() {
    let trace = trace(bundled("netsfs.csv.zst"), &Settings::default()).unwrap();
    let about = trace.description();
    assert_eq!((about.format.as_str(), about.requests), ("msr", 232_202));
    assert_eq!((trace.len(), trace.unique_blocks()), (1_126_563, 617_197));
    assert_eq!((1000.0 * about.read_requests as f64 / about.requests as f64).round(), 464.0);
}

#[test]
fn a_failure_to_read_is_not_called_damage() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the disk is gone"))
        }
    }
    let cut = gzip(&all(REQUESTS)[0].contents)[..100].to_vec();
    let source = std::io::Read::chain(std::io::Cursor::new(cut), Broken);
    let mut input =
        flashwise_trace::input::Input::new("trace", Box::new(source), &flashwise_trace::progress::Silent).unwrap();
    let error = input.fill(&mut [0; 1 << 20]).unwrap_err();
    assert_eq!(fixtures::chain(&error), "trace: the disk is gone");
    assert!(self::input(Vec::new()).is_ok());
}

/// `version-1.arrow` was written by `flashwise trace convert version-1.csv` when the version was 1.
#[test]
fn a_normalised_trace_of_the_version_before_is_read() {
    let file = |name: &str| std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files").join(name);
    let [old, new] = ["version-1.arrow", "version-1.csv"]
        .map(|name| normalised::open(file(name), &Settings::default(), &Silent).unwrap());
    let description =
        flashwise_trace::normalised::trace::Description { tells_volumes: None, ..new.description().clone() };
    assert_eq!((old.addresses(), old.description()), (new.addresses(), &description));
    assert!(old.accesses().eq(new.accesses()));
    for (old, new) in old.batches().zip(new.batches()) {
        assert_eq!((&old.request[..], &old.request_blocks[..]), (&new.request[..], &new.request_blocks[..]));
        assert_eq!(old.time_us[..], new.time_us[..]);
    }
    // A file that was truncated and padded is rejected with a message.
    let mut bytes = std::fs::read(file("version-1.arrow")).unwrap();
    bytes[4000..].fill(0);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.arrow");
    std::fs::write(&path, &bytes).unwrap();
    let error = normalised::open(&path, &Settings::default(), &Silent).unwrap_err().to_string();
    assert!(
        error.ends_with("found 4890 bytes without a whole Arrow footer, expected a whole Arrow IPC file"),
        "{error}"
    );
}

/// A progress can cancel the work by a panic, which reaches its caller, regardless of the thread that read the trace.
#[test]
fn a_progress_can_cancel_the_work_by_a_panic() {
    struct Unwilling;
    impl flashwise_trace::progress::Progress for Unwilling {
        fn advance(&self, amount: u64) {
            if amount > 0 {
                std::panic::resume_unwind(Box::new("enough"));
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.csv");
    let line = |number| format!("{},h,0,Read,{},4096,0\n", 128_166_372_003_061_629_u64 + number, number % 1000 * 4096);
    std::fs::write(&path, (0..100_000).map(line).collect::<String>()).unwrap();
    let open = || normalised::open(&path, &Settings::default(), &Unwilling).map(drop);
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(open)).unwrap_err();
    assert_eq!(unwound.downcast_ref::<&str>(), Some(&"enough"));
}
