//! docs/format.md and the code agree on every offset.

use std::collections::HashMap;

use flashwise_core::format::{
    BLOCK_BYTES, Digest, Geometry, Header, Kind, Layout, Page, Place, RECORDS_PER_PAGE, Record, Resets, Role, RunEnd,
    State, Superblock, Witness, encode_metadata,
};
use flashwise_core::journal::{Group, Head};
use flashwise_core::wlfc::header::Missing;
use flashwise_core::wlfc::{self, Log, Oob, State as BucketState};

/// Returns the cells of the rows of the table with that head.
fn rows(head: &str) -> Vec<Vec<String>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format.md");
    let text = std::fs::read_to_string(path).expect("the document is there");
    text.lines()
        .skip_while(|line| *line != head)
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

/// Returns the rows of the table whose last column is headed `title`: offset, bytes, field.
fn table(title: &str) -> Vec<(usize, usize, String)> {
    let number = |cell: &str| cell.replace(',', "").parse().expect("a number");
    rows(&format!("| Offset | Bytes | {title} |"))
        .into_iter()
        .map(|cells| (number(&cells[0]), number(&cells[1]), cells[2].clone()))
        .collect()
}

/// Returns the numbers of the kinds of records, by name.
fn kinds() -> HashMap<String, u32> {
    let kinds: HashMap<String, u32> = rows("| Kind | Name | Data | Meaning |")
        .into_iter()
        .map(|cells| {
            let capitalised = |word: &str| word[..1].to_uppercase() + &word[1..];
            (cells[1].split(' ').map(capitalised).collect(), cells[0].parse().expect("a number"))
        })
        .collect();
    assert_eq!(kinds.len(), Kind::ALL.len(), "kinds of records");
    kinds
}

/// Asserts that each row has the name, length and bytes of its field, without gaps between rows.
fn assert_rows(title: &str, bytes: &[u8], fields: &[(&str, Vec<u8>)]) {
    let rows = table(title);
    assert_eq!(rows.len(), fields.len(), "rows of {title}");
    let mut end = 0;
    for ((offset, length, name), (field, expected)) in rows.iter().zip(fields) {
        assert!(name.starts_with(field), "{title}: {name}, not {field}");
        assert_eq!(*offset, end, "{title}: {name} follows the row before");
        assert_eq!(*length, expected.len(), "{title}: {name}");
        assert_eq!(bytes[*offset..offset + length], expected[..], "{title}: {name}");
        end = offset + length;
    }
}

#[test]
fn the_superblock_is_as_documented() {
    let superblock = Superblock {
        generation: 0x0102_0304_0506_0708,
        cache: [0x11; 16],
        backend: [0x22; 16],
        geometry: Geometry { units: 77, unit_pages: 512 },
        volume_bytes: 0x33_4455_6677,
        state: State::Detached,
        attach: 0x41,
        attach_confirmed: 0x42,
        may_be_dirty: true,
        durable: Place { sequence: 0x44, page: 0x43 },
        clean_from: Place { sequence: 0x45, page: 0x46 },
        in_order: false,
        layout: Layout::Log,
        epochs: None,
        failed_units: Vec::new(),
        resets: Resets::Unmarked,
        digest: None,
        ends: Vec::new(),
    };
    let page = superblock.encode();
    let fields = [
        ("magic number", b"flashwis".to_vec()),
        ("checksum", crc32c::crc32c(&page[12..]).to_le_bytes().to_vec()),
        ("version", 3_u32.to_le_bytes().to_vec()),
        ("generation", superblock.generation.to_le_bytes().to_vec()),
        ("cache", vec![0x11; 16]),
        ("backend", vec![0x22; 16]),
        ("block size", 4096_u32.to_le_bytes().to_vec()),
        ("pages in an erase unit", 512_u32.to_le_bytes().to_vec()),
        ("erase units", 77_u32.to_le_bytes().to_vec()),
        ("state", 3_u32.to_le_bytes().to_vec()),
        ("size of the volume", superblock.volume_bytes.to_le_bytes().to_vec()),
        ("starts", superblock.attach.to_le_bytes().to_vec()),
        ("confirmed starts", superblock.attach_confirmed.to_le_bytes().to_vec()),
        ("may be dirty", 1_u32.to_le_bytes().to_vec()),
        ("durable page", superblock.durable.page.to_le_bytes().to_vec()),
        ("durable sequence", superblock.durable.sequence.to_le_bytes().to_vec()),
        ("clean from sequence", superblock.clean_from.sequence.to_le_bytes().to_vec()),
        ("clean from page", superblock.clean_from.page.to_le_bytes().to_vec()),
        ("in order", vec![0; 4]),
        ("failed units", vec![0; 4]),
        ("failed", vec![0; 4 * Superblock::FAILED_UNITS_MAX]),
        ("digest", vec![0; 80]),
        ("ends of runs", vec![0; 32 * Superblock::ENDS_MAX]),
    ];
    assert_rows("Superblock", &page, &fields);
    assert!(page[128..].iter().all(|&byte| byte == 0), "of no failed unit anything is said");
    let epochs = Some(Place { sequence: 0x47, page: 0x48 });
    let page = Superblock { in_order: true, epochs, ..superblock.clone() }.encode();
    let of_epochs = [&1_u32.to_le_bytes()[..], &[0; 4], &0x47_u64.to_le_bytes(), &0x48_u32.to_le_bytes()].concat();
    assert_eq!((page[12], &page[124..144]), (9, &of_epochs[..]));
    // The text under "Buckets" describes the last row.
    let last = Witness { bucket: 0x33, epoch: 0x34, page: 0x35 };
    let ends =
        vec![RunEnd { run: 0x31, sequence: 0x32, last: None }, RunEnd { run: 0x36, sequence: 0, last: Some(last) }];
    let digest = Some(Digest::new(0x37, 0x38, [5, 0, 7].into_iter()));
    let page = Superblock { layout: Layout::Wlfc, resets: Resets::EverySector, digest, ends, ..superblock }.encode();
    let words = [0x31_u64, 0x32, 0, 0, 0x36, 0, 0x34, 0x35 << 32 | 0x34];
    assert_eq!(page[12], 8);
    assert_eq!(page[3840..3904], words.map(u64::to_le_bytes).concat()[..]);
    let sums = (0..8).map(|power| 5 + 7 * 3_u64.pow(power));
    let words: Vec<u8> = [0x37, 0x38].into_iter().chain(sums).flat_map(u64::to_le_bytes).collect();
    assert_eq!(page[3760..3840], words[..]);
}

#[test]
fn pages_of_a_journal_are_as_documented() {
    let end = Place { sequence: 0x16, page: 0x17 };
    let (journal, backend) = ([0x11; 16], [0x12; 16]);
    let head = Head { journal, backend, cache: 0x13, number: 0x14, end, ended_unix_us: 0x18 };
    let blocks: Vec<(u32, u32)> = (0..501).map(|number| (number + 0x19, number * 3)).collect();
    let entries: Vec<u8> =
        blocks[..500].iter().flat_map(|&(block, crc)| [block, crc]).flat_map(u32::to_le_bytes).collect();
    let index: Vec<Page> = Group { head, blocks }.index().collect();
    for (page, magic, count, at, entries) in [
        (head.mark(), b"FWJM", 0_u32, 0_u32, vec![0; 4000]),
        (index[0], b"FWJI", 501, 0, entries),
        (index[1], b"FWJI", 501, 1, [(500 + 0x19_u32).to_le_bytes(), 1500_u32.to_le_bytes()].concat()),
    ] {
        let fields = [
            ("magic number", magic.to_vec()),
            ("checksum", crc32c::crc32c(&page[8..]).to_le_bytes().to_vec()),
            ("version", 1_u32.to_le_bytes().to_vec()),
            ("journal", vec![0x11; 16]),
            ("backend", vec![0x12; 16]),
            ("cache", 0x13_u64.to_le_bytes().to_vec()),
            ("number of the group", 0x14_u64.to_le_bytes().to_vec()),
            ("end sequence", 0x16_u64.to_le_bytes().to_vec()),
            ("end page", 0x17_u32.to_le_bytes().to_vec()),
            ("time", 0x18_u64.to_le_bytes().to_vec()),
            ("blocks", count.to_le_bytes().to_vec()),
            ("number of this page", at.to_le_bytes().to_vec()),
            ("zeroes", vec![0; 8]),
            ("entries", [entries.clone(), vec![0; 4000 - entries.len()]].concat()),
        ];
        assert_rows("Page of a journal", &page, &fields);
    }
}

/// The text under "Buckets" describes a bucket after a reset.
#[test]
fn the_mark_of_a_bucket_that_was_reset_is_as_documented() {
    let page = wlfc::header::reset_mark(0x0102, 0x33, (0x44, 0x55));
    for (number, sector) in (0_u32..).zip(page.chunks(512)) {
        let checksum = crc32c::crc32c(&sector[8..]).to_le_bytes();
        let (cache, at) = (0x0102_u64.to_le_bytes(), [0x44_u64, 0x55].map(u64::to_le_bytes).concat());
        let fields = [&b"FWWR"[..], &checksum, &cache, &0x33_u32.to_le_bytes(), &number.to_le_bytes(), &at].concat();
        assert!(sector.starts_with(&fields) && sector[fields.len()..].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn bucket_headers_are_as_documented() {
    let oob = Oob { state: BucketState::Write, backend: 0x11, epoch: 0x12, log: Log::Data, at: 0x13, blocks: 900 };
    let header = wlfc::header::Header {
        cache: 0x21,
        oob,
        run: 0x22,
        sequence: 0x23,
        durable: 0x24,
        page: 0x25,
        durable_end: 0x26,
        previous: 0x27,
        part: 0,
        before: Some(Witness { bucket: 0x28, epoch: 0x29, page: 0x2A }),
    };
    let checksums: Vec<wlfc::header::Crc> = (0..896)
        .map(|block| match block {
            9 => Err(Missing::Lost),
            10 => Err(Missing::OfBackend),
            _ => Ok(block + 7),
        })
        .collect();
    let mut page: Page = [0; BLOCK_BYTES];
    header.encode(&checksums, &mut page);
    let mut absent = vec![0; 112];
    absent[1] = 6;
    let fields = [
        ("magic number", b"FWWL".to_vec()),
        ("checksum", crc32c::crc32c(&page[8..]).to_le_bytes().to_vec()),
        ("sector checksum", crc32c::crc32c(&page[12..512]).to_le_bytes().to_vec()),
        ("state", vec![3]),
        ("log", vec![1]),
        ("part", vec![0; 2]),
        ("cache", 0x21_u64.to_le_bytes().to_vec()),
        ("epoch", 0x12_u64.to_le_bytes().to_vec()),
        ("run", 0x22_u64.to_le_bytes().to_vec()),
        ("sequence", 0x23_u64.to_le_bytes().to_vec()),
        ("durable", 0x24_u64.to_le_bytes().to_vec()),
        ("backend bucket", 0x11_u32.to_le_bytes().to_vec()),
        ("at", 0x13_u32.to_le_bytes().to_vec()),
        ("blocks", 900_u32.to_le_bytes().to_vec()),
        ("page", 0x25_u32.to_le_bytes().to_vec()),
        ("durable end", 0x26_u32.to_le_bytes().to_vec()),
        ("previous", 0x27_u32.to_le_bytes().to_vec()),
        ("sectors", page[512..].chunks(512).flat_map(|sector| crc32c::crc32c(sector).to_le_bytes()).collect()),
        ("epoch before", 0x29_u64.to_le_bytes().to_vec()),
        ("bucket before", 0x29_u32.to_le_bytes().to_vec()),
        ("page before", 0x2A_u32.to_le_bytes().to_vec()),
        ("zeroes", vec![0; 4]),
        ("absent", absent),
        ("zeroes", vec![0; 272]),
        (
            "checksums",
            checksums
                .iter()
                .flat_map(|crc| crc.unwrap_or_else(|missing| u32::from(missing == Missing::OfBackend)).to_le_bytes())
                .collect(),
        ),
    ];
    assert_rows("Bucket header", &page, &fields);
}

#[test]
fn metadata_pages_and_records_are_as_documented() {
    let header = Header {
        cache: 0x1112_1314,
        epoch: 0x2122,
        sequence: 0x3132,
        tail: 0x3042,
        previous_end: 0x51,
        page: 0x61,
        data_pages: 0x71,
        durable_end: 0x81,
        footer_pages: 0x91,
        skipped: 0x92,
    };
    let records: Vec<Record> = (0_u32..RECORDS_PER_PAGE as u32)
        .map(|n| Record {
            kind: Kind::ALL[n as usize % Kind::ALL.len()],
            block: n + 1000,
            slot: n + 2000,
            crc: n + 3000,
        })
        .collect();
    let numbers = kinds();
    for (role, magic) in [(Role::Segment, b"FWSG"), (Role::Footer, b"FWFT")] {
        let mut page: Page = [0; BLOCK_BYTES];
        encode_metadata(role, &header, &records, &mut page);
        let fields = [
            ("magic number", magic.to_vec()),
            ("checksum", crc32c::crc32c(&page[8..]).to_le_bytes().to_vec()),
            ("cache", header.cache.to_le_bytes().to_vec()),
            ("epoch", header.epoch.to_le_bytes().to_vec()),
            ("sequence", header.sequence.to_le_bytes().to_vec()),
            ("tail", header.tail.to_le_bytes().to_vec()),
            ("previous end", header.previous_end.to_le_bytes().to_vec()),
            ("page", header.page.to_le_bytes().to_vec()),
            ("number of records", 252_u32.to_le_bytes().to_vec()),
            ("data pages", header.data_pages.to_le_bytes().to_vec()),
            ("durable end", header.durable_end.to_le_bytes().to_vec()),
            (
                "pages of the footer",
                (if role == Role::Footer { header.footer_pages } else { header.skipped }).to_le_bytes().to_vec(),
            ),
            ("records", page[64..].to_vec()),
        ];
        assert_rows("Metadata page", &page, &fields);
        for (record, bytes) in records.iter().zip(page[64..].chunks(16)) {
            let fields = [
                ("block", record.block.to_le_bytes().to_vec()),
                ("kind", numbers[&format!("{:?}", record.kind)].to_le_bytes().to_vec()),
                ("slot", record.slot.to_le_bytes().to_vec()),
                ("checksum", record.crc.to_le_bytes().to_vec()),
            ];
            assert_rows("Record", bytes, &fields);
        }
    }
}
