//! Buckets with single damaged pages.

use super::*;
use crate::wlfc::bucket::Oob;
use crate::wlfc::header::reset_mark;

/// The pages of a bucket that is not a zone, and the effect of its resets.
struct Bucket(Vec<[u8; BLOCK_BYTES]>, Resets);

impl Buckets for Bucket {
    type Error = std::convert::Infallible;

    fn read(&self, _: u32, page: u32, bytes: &mut [u8]) -> Result<(), Self::Error> {
        let pages = &self.0[page as usize..page as usize + bytes.len() / BLOCK_BYTES];
        bytes.copy_from_slice(pages.as_flattened());
        Ok(())
    }

    fn in_order(&self) -> bool {
        false
    }

    fn resets(&self) -> Resets {
        self.1
    }

    fn written_pages(&self, _: u32) -> Result<u32, Self::Error> {
        Ok(self.0.len() as u32)
    }
}

/// Creates a bucket of 8 pages, and a header of one page for one block of zeroes.
fn bucket() -> (Config, Bucket, Header) {
    let config = Config { header_blocks: 896, volume_blocks: 64, ..Config::new(8, 7, 1, 0.5).unwrap() };
    let oob = Oob { state: State::Write, backend: 0, epoch: 5, log: Log::Zeroes, at: 0, blocks: 1 };
    let header = Header { cache: 1, oob, run: 3, ..Header::default() };
    let pages = vec![[0; BLOCK_BYTES]; config.bucket_pages() as usize];
    (config, Bucket(pages, Resets::EverySector), header)
}

fn judged(config: &Config, bucket: &Bucket) -> Result<Scan, ScanError<std::convert::Infallible>> {
    let walk = walk(config, 1, 0, bucket)?;
    let mut durable = Durable::default();
    walk.tell(&mut durable);
    judge(config, 0, &walk, &durable, bucket).map(|found| found.scan)
}

/// The last header of bucket 0 is zeroes, and the next header, in bucket 1, proves that it existed.
#[test]
fn a_lost_last_header_is_missed_where_it_was_durable() {
    let (config, mut lost, first) = bucket();
    first.encode(&[], &mut lost.0[0]);
    let witness = Witness { bucket: 0, epoch: 5, page: 1 };
    let before = Some(witness);
    let next = Header { oob: Oob { epoch: 6, ..first.oob }, sequence: 2, durable: 2, before, ..first };
    let mut missing = |next: Header, first: Header, ends: &[RunEnd]| {
        let (_, mut witness, _) = bucket();
        next.encode(&[], &mut witness.0[0]);
        first.encode(&[], &mut lost.0[0]);
        let mut walks = [&lost, &witness].map(|bucket| walk(&config, 1, 0, bucket).ok());
        let mut durable = Durable::default();
        walks.iter().flatten().for_each(|walk| walk.tell(&mut durable));
        ends.iter().for_each(|end| durable.add(end.run, end.sequence));
        confront(&mut walks, &durable, ends);
        judge(&config, 0, walks[0].as_ref().unwrap(), &durable, &lost).map(|found| found.scan.end)
    };
    let damaged = Err(ScanError::Damaged { bucket: 0, page: 1 });
    assert_eq!(missing(next, first, &[]), damaged);
    let untold = Header { durable: 1, ..next };
    assert_eq!(missing(untold, first, &[]), Ok(1), "it was not durable");
    assert_eq!(missing(next, Header { run: 4, ..first }, &[]), Ok(1), "a later run gave the epoch again");
    assert_eq!(missing(next, Header { oob: Oob { epoch: 7, ..first.oob }, ..first }, &[]), Ok(1), "it was reset");
    let there = Some(Witness { page: 0, ..witness });
    assert_eq!(missing(Header { before: there, ..next }, first, &[]), Ok(1), "it is there");
    // The superblock contains it, for this run or another.
    let alone = Header { before: None, ..next };
    let end = RunEnd { run: 3, sequence: 2, last: before };
    assert_eq!(missing(untold, first, &[RunEnd { last: None, ..end }]), damaged, "the next header says where it was");
    assert_eq!(missing(alone, first, &[RunEnd { last: None, ..end }]), Ok(1), "nothing does");
    assert_eq!(missing(alone, first, &[RunEnd { run: 9, ..end }, end]), damaged);
    assert_eq!(missing(alone, first, &[RunEnd { last: there, ..end }]), Ok(1), "it is there");
    assert_eq!(missing(alone, Header { run: 4, ..first }, &[end]), Ok(1), "a later run gave the epoch again");
}

#[test]
fn a_first_page_of_zeroes_is_damage_where_resets_are_marked() {
    let (config, mut bucket, header) = bucket();
    let damaged = Err(ScanError::Damaged { bucket: 0, page: 0 });
    assert_eq!(judged(&config, &bucket), damaged);
    bucket.1 = Resets::Unmarked;
    assert_eq!(judged(&config, &bucket).map(|scan| scan.torn), Ok(false), "it may be a reset of before");
    let mark = reset_mark(1, 0, (2, 7));
    let mut of_one_sector = [0; BLOCK_BYTES];
    of_one_sector[..512].copy_from_slice(&reset_mark(1, 0, (0, 0))[..512]);
    for (resets, mark) in [
        (Resets::Unmarked, of_one_sector),
        (Resets::FirstSector, of_one_sector),
        (Resets::FirstSector, mark),
        (Resets::EverySector, mark),
    ] {
        bucket.1 = resets;
        bucket.0[0] = mark;
        assert_eq!(judged(&config, &bucket), Ok(Scan::default()));
        // Torn: the mark over a header, and a header over the mark.
        header.encode(&[], &mut bucket.0[0]);
        let whole = bucket.0[0];
        bucket.0[0][..512].copy_from_slice(&mark[..512]);
        assert_eq!(judged(&config, &bucket), Ok(Scan { torn: true, ..Scan::default() }));
        bucket.0[0] = mark;
        bucket.0[0][..512].copy_from_slice(&whole[..512]);
        let scan = judged(&config, &bucket).unwrap();
        assert_eq!((scan.torn, scan.found.len()), (true, 0));
    }
    bucket.1 = Resets::EverySector;
    bucket.0[0] = of_one_sector;
    assert_eq!(judged(&config, &bucket), Ok(Scan { torn: true, ..Scan::default() }), "it is written again");
    for other in [reset_mark(2, 0, (2, 7)), reset_mark(1, 1, (2, 7))] {
        bucket.0[0] = other;
        assert_eq!(judged(&config, &bucket), damaged, "it is of another cache or bucket");
    }
    // Its first sector is lost, and its end contains its backend bucket.
    Header { oob: Oob { backend: 6, ..header.oob }, ..header }.encode(&[], &mut bucket.0[0]);
    bucket.0[0][..512].fill(0);
    let walk = walk(&config, 1, 0, &bucket).unwrap();
    assert_eq!((walk.backend(), judged(&config, &bucket)), (Some(6), damaged));
}

/// A sector of a first header is zeroes, or the rest of a mark: it was torn by a power failure, or it is damaged.
#[test]
fn only_a_reset_tears_a_durable_header() {
    let (config, mut bucket, header) = bucket();
    let header = Header { run: 3, sequence: 5, oob: Oob { log: Log::Data, blocks: 6, ..header.oob }, ..header };
    header.encode(&[Ok(0x0101_0101); 6], &mut bucket.0[0]);
    let whole = bucket.0[0];
    let mut with_sector = |sector: &[u8], durable_to: u64| {
        bucket.0[0] = whole;
        bucket.0[0][512..1024].copy_from_slice(sector);
        let walk = walk(&config, 1, 0, &bucket).unwrap();
        let mut durable = Durable::default();
        durable.add(3, durable_to);
        judge(&config, 0, &walk, &durable, &bucket).map(|found| found.scan.found.len())
    };
    let damaged = Err(ScanError::Damaged { bucket: 0, page: 0 });
    let (before, since) = (reset_mark(1, 0, (3, 4)), reset_mark(1, 0, (3, 6)));
    assert_eq!([5, 6].map(|durable| with_sector(&[0; 512], durable)), [damaged, damaged]);
    assert_eq!([5, 6].map(|durable| with_sector(&before[512..1024], durable)), [Ok(0), damaged]);
    assert_eq!([5, 6].map(|durable| with_sector(&since[512..1024], durable)), [Ok(0), Ok(0)]);
    // Only its checksum is wrong.
    bucket.0[0] = whole;
    bucket.0[0][5] ^= 1;
    assert_eq!(judged(&config, &bucket).map(|scan| scan.found.len()), damaged);
}

#[test]
fn headers_of_an_earlier_use_of_an_epoch_do_not_make_the_later_one_damaged() {
    let (config, mut bucket, header) = bucket();
    header.encode(&[], &mut bucket.0[0]);
    let mut left_over = Header { run: 2, page: 4, durable_end: 4, ..header };
    left_over.encode(&[], &mut bucket.0[4]);
    let scan = judged(&config, &bucket).unwrap();
    assert_eq!((scan.end, scan.torn), (1, false));
    left_over.run = 3;
    left_over.encode(&[], &mut bucket.0[4]);
    assert_eq!(judged(&config, &bucket), Err(ScanError::Damaged { bucket: 0, page: 1 }), "it was durable");
}

/// The first sector of the next header was written, the others still have their old contents.
#[test]
fn nothing_is_written_over_a_header_that_came_in_part() {
    let (config, mut bucket, header) = bucket();
    header.encode(&[], &mut bucket.0[0]);
    let (_, previous) = Header::decode(&bucket.0[0]).unwrap();
    let next = Header { page: 1, sequence: 1, previous, ..header };
    next.encode(&[], &mut bucket.0[1]);
    let scan = judged(&config, &bucket).unwrap();
    assert_eq!((scan.end, scan.torn, scan.found.len()), (2, false, 2));
    bucket.0[1][2048..2560].fill(0xA5);
    let scan = judged(&config, &bucket).unwrap();
    assert_eq!((scan.end, scan.torn, scan.found.len()), (1, true, 1));
    bucket.0[1][..512].fill(0);
    let scan = judged(&config, &bucket).unwrap();
    assert_eq!((scan.end, scan.torn, scan.found.len()), (1, false, 1), "nothing of it can come back");
}
