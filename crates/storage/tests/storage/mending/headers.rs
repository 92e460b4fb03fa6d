//! Damaged or missing headers, and other evidence of them.

use flashwise_core::format::{BLOCK_BYTES, Resets, Superblock};
use flashwise_core::wlfc::header::reset_mark;
use flashwise_engine::engine::FLASH;
use flashwise_storage::disk::Disk;
use flashwise_storage::driver::recover;
use flashwise_storage::export::{Error, Operation};
use flashwise_storage::flash::{cache_tag, read_superblock};
use flashwise_storage::layout::End;
use flashwise_storage::wlfc::start;

use crate::mending::block;
use crate::mending::world::{GEOMETRY, World, bytes_of};

/// The last header of a bucket is zeroed. The next header elsewhere shows that it existed, and the one after that shows
/// that it was durable.
#[test]
fn a_lost_last_header_is_refused_once_another_says_that_it_was_there() {
    for (flushed, next) in [(true, true), (true, false), (false, true)] {
        let mut world = World::new();
        world.ask(Operation::Write, 3, &block(5)).unwrap();
        world.ask(Operation::Write, 3, &block(6)).unwrap();
        if flushed {
            world.ask(Operation::Flush, 0, &[]).unwrap();
        }
        if next {
            world.ask(Operation::Write, 40, &block(7)).unwrap();
        }
        let header = world.page_of(&block(6)) - 1;
        world.disks[FLASH].write_at(&block(0), header * BLOCK_BYTES as u64).unwrap();
        let superblock = read_superblock(&world.disks[FLASH]).unwrap();
        match start::scan(&world.disks[FLASH], &superblock, 1, &|_, _| ()) {
            Ok(_) => assert!(!flushed || !next, "it may never have been written"),
            Err(error) => {
                assert!(flushed && next);
                assert!(error.to_string().contains("a header page is damaged: page 2 of bucket 0"), "{error}");
            }
        }
    }
}

/// The last header of a bucket has no successor. Other headers of its run, or the superblock after a pause, distinguish
/// a damaged header from one that was never written.
#[test]
fn a_damaged_last_header_is_refused_once_anything_says_that_it_was_durable() {
    for (elsewhere, pause) in [(true, false), (false, true), (false, false)] {
        let mut world = World::new();
        world.ask(Operation::Write, 3, &block(5)).unwrap();
        world.ask(Operation::Write, 3, &block(6)).unwrap();
        world.ask(Operation::Flush, 0, &[]).unwrap();
        if elsewhere {
            world.ask(Operation::Write, 40, &block(7)).unwrap();
        }
        assert_eq!(world.engine.pause(), None, "it was just written");
        world.settle();
        let place = world.engine.pause();
        assert_eq!((place.is_some(), world.engine.pause()), (true, None));
        if pause {
            world.attachment.note_durable(&world.disks[FLASH], End::from(place.unwrap())).unwrap();
        }
        world.damage(world.page_of(&block(6)) - 1);
        let superblock = read_superblock(&world.disks[FLASH]).unwrap();
        let found = start::scan(&world.disks[FLASH], &superblock, 1, &|_, _| ());
        match found {
            Ok(_) => assert!(!elsewhere && !pause, "it counts as torn"),
            Err(error) => {
                assert!(elsewhere || pause);
                assert!(error.to_string().contains("a header page is damaged: page 2 of bucket 0"), "{error}");
            }
        }
    }
}

/// The superblock names the last durable header after a pause and after a clean shutdown, also for earlier runs. A page
/// without a header and without the mark of a reset is a lost header.
#[test]
fn a_header_that_is_lost_as_a_whole_is_refused_after_a_pause_though_nothing_follows_it() {
    for (lost, fill) in [(5, 0), (5, 0xA5), (6, 0), (6, 0xA5)] {
        for starts in 1..=3 {
            let mut world = World::new();
            world.ask(Operation::Write, 3, &block(5)).unwrap();
            world.ask(Operation::Write, 3, &block(6)).unwrap();
            world.ask(Operation::Flush, 0, &[]).unwrap();
            assert_eq!(world.engine.pause(), None, "it was just written");
            let end = world.engine.pause().unwrap();
            assert_eq!((end.run.run, end.run.sequence), (1 << 32, 3));
            world.attachment.note_durable(&world.disks[FLASH], End::from(end)).unwrap();
            for start in 2..=starts {
                world = world.reopened(start);
                world.ask(Operation::Write, 20 + start as usize, &block(7)).unwrap();
                world.ask(Operation::Flush, 0, &[]).unwrap();
                world.engine.pause();
                let end = world.engine.pause().unwrap();
                world.attachment.note_durable(&world.disks[FLASH], End::from(end)).unwrap();
            }
            let header = world.page_of(&block(lost)) - 1;
            world.disks[FLASH].write_at(&block(fill), header * BLOCK_BYTES as u64).unwrap();
            let error = World::open(world.disks, starts + 1).err().expect("it is refused").to_string();
            let page = if lost == 5 { 0 } else { 2 };
            assert!(error.contains(&format!("a header page is damaged: page {page} of bucket 0")), "{error}");
        }
    }
}

/// No header has a witness of a bucket that was reset. The digest in the superblock has, and names the bucket. A bucket
/// that was begun after the digest is sound.
#[test]
fn a_bucket_with_older_content_is_named_after_a_pause() {
    let mut world = World::new();
    world.ask(Operation::Write, 3, &block(5)).unwrap();
    world.ask(Operation::Flush, 0, &[]).unwrap();
    let mut earlier = vec![0; GEOMETRY.unit_pages as usize * BLOCK_BYTES];
    world.disks[FLASH].read_at(&mut earlier, bytes_of(0).start).unwrap();
    world.engine.destage_all(0);
    world.settle();
    world.engine.close(0);
    world.settle();
    world.engine.pause();
    let end = world.engine.pause().unwrap();
    world.attachment.note_durable(&world.disks[FLASH], End::from(end)).unwrap();
    let found = |world: &World| {
        let superblock = read_superblock(&world.disks[FLASH]).unwrap();
        start::scan(&world.disks[FLASH], &superblock, 1, &|_, _| ()).map_err(|error| error.to_string())
    };
    assert_eq!(found(&world).unwrap().blocks(), (0, 0));
    world.ask(Operation::Write, 40, &block(7)).unwrap();
    assert_eq!(found(&world).unwrap().blocks(), (1, 1));
    world.disks[FLASH].write_at(&earlier, bytes_of(0).start).unwrap();
    let error = found(&world).unwrap_err();
    assert!(error.contains("bucket 0 has changed"), "{error}");
}

/// Pages between and after headers may hold anything. Caches before version 7 also have zeroes of resets there. Caches
/// of version 7 may have anything after the first sector of a page.
#[test]
fn a_cache_whose_resets_were_not_marked_in_every_sector_is_from_its_next_start_on() {
    for before in [Resets::Unmarked, Resets::FirstSector] {
        let mut world = World::new();
        world.ask(Operation::Write, 3, &block(5)).unwrap();
        world.ask(Operation::Flush, 0, &[]).unwrap();
        let mut superblock = read_superblock(&world.disks[FLASH]).unwrap();
        superblock.resets = before;
        let unit = u64::from(GEOMETRY.unit_pages) * BLOCK_BYTES as u64;
        for bucket in 1..GEOMETRY.log_units() {
            let mut page = block(0);
            if before == Resets::FirstSector {
                page[..512].copy_from_slice(&reset_mark(cache_tag(&superblock), bucket, (0, 0))[..512]);
            }
            world.disks[FLASH].write_at(&page, (u64::from(bucket) + 1) * unit).unwrap();
        }
        let held = |resets: Resets| {
            start::scan(&world.disks[FLASH], &Superblock { resets, ..superblock.clone() }, 2, &|_, _| ())
        };
        let mut found = held(before).unwrap();
        match held(Resets::EverySector) {
            Ok(held) => assert!(before == Resets::FirstSector && held.scans[1].torn, "it is written again"),
            Err(_) => assert_eq!(before, Resets::Unmarked, "zeroes are damage"),
        }
        assert!(found.marks_from_now_on());
        found.settle(&world.disks[FLASH]).unwrap();
        for resets in [before, Resets::EverySector] {
            let again = held(resets).unwrap();
            let are_marked = resets == Resets::EverySector;
            assert_eq!((again.blocks(), again.marks_from_now_on()), ((1, 1), !are_marked));
            assert!(!again.scans[1].torn);
        }
    }
}

/// A process dies right after a flush, before it has noted the durable end. The next start notes it. So later damage is
/// an error, and does not pass for a torn write, which would restore old data.
#[test]
fn recovered_data_is_durable() {
    let mut world = World::new();
    world.ask(Operation::Write, 3, &block(5)).unwrap();
    world.ask(Operation::Write, 4, &block(6)).unwrap();
    world.ask(Operation::Flush, 0, &[]).unwrap();
    let flash = &world.disks[FLASH];
    let superblock = read_superblock(flash).unwrap();
    let mut held = start::scan(flash, &superblock, 1, &|_, _| ()).unwrap();
    held.settle(flash).unwrap();
    let [end] = held.ends[..] else { panic!("{:?}", held.ends) };
    assert_eq!((end.run, end.sequence, end.last.map(|last| (last.bucket, last.page))), (1 << 32, 3, Some((0, 2))));
    world.damage(world.page_of(&block(5)));
    for (ends, found) in [(Vec::new(), 0), (held.ends.clone(), 2)] {
        let next = Superblock { attach: superblock.attach + 1, ends, ..superblock.clone() };
        let held = start::scan(flash, &next, 1, &|_, _| ()).unwrap();
        assert_eq!(held.blocks(), (found, found));
    }
    // An incomplete write is not, and neither are later ones.
    let held = start::scan(flash, &superblock, 1, &|_, _| ()).unwrap();
    assert_eq!(held.ends, []);
}

/// A later header of the same bucket, from another run, shows that the pages before it were durable.
#[test]
fn later_headers_of_a_bucket_prove_earlier_ones_durable() {
    let mut world = World::new();
    world.ask(Operation::Write, 3, &block(5)).unwrap();
    world.ask(Operation::Flush, 0, &[]).unwrap();
    let mut world = world.reopened(2);
    world.ask(Operation::Write, 4, &block(6)).unwrap();
    world.ask(Operation::Flush, 0, &[]).unwrap();
    world.damage(world.page_of(&block(5)));
    let mut world = world.reopened(3);
    assert_eq!(world.ask(Operation::Read, 3, &[]), Err(Error::Io));
    assert_eq!(world.ask(Operation::Read, 4, &[]), Ok(block(6)));
}

/// A cache that is found again while its process runs: what was flushed was not torn, though no pause came yet.
#[test]
fn recovery_reports_damage_of_flushed_data() {
    let mut world = World::new();
    world.ask(Operation::Write, 3, &block(5)).unwrap();
    world.ask(Operation::Write, 4, &block(6)).unwrap();
    world.ask(Operation::Flush, 0, &[]).unwrap();
    world.damage(world.page_of(&block(5)));
    recover(&mut world.engine, &world.disks[FLASH], &mut world.attachment, false).unwrap();
    world.settle();
    assert_eq!(world.ask(Operation::Read, 3, &[]), Err(Error::Io));
    assert_eq!(world.ask(Operation::Read, 4, &[]), Ok(block(6)));
}
