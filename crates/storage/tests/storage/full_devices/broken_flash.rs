//! A flash that fails while a volume is on it, or before a start.

use super::*;

/// A volume on a flash that is [`Breakable`].
fn on_breakable_flash(layout: &'static dyn CacheLayout, error: &str) -> (Setting, Breakable, Arc<Volume>) {
    let (setting, flash) = with_breakable_flash(layout, error);
    File::create(&setting.config.backend).unwrap().set_len(64 * MIB).unwrap();
    let volume = setting.open();
    (setting, flash, volume)
}

/// Creates the flash, before there is a backend.
fn with_breakable_flash(layout: &'static dyn CacheLayout, error: &str) -> (Setting, Breakable) {
    let mut setting = Setting::new();
    let flash = Breakable::new(setting.directory.path(), error);
    setting.config.flash = flash.device.device.clone().into();
    setting.config.layout = layout;
    // Nothing is written back by itself.
    setting.config.flash_size_bytes = Some(32 * MIB);
    if !layout.grows() {
        setting.config.cache = Settings::of(&[("erase-unit", "256KiB")]).unwrap();
    }
    (setting, flash)
}

fn await_state(volume: &Volume, state: VolumeState) {
    wait_until(&format!("the volume is {state:?}"), || volume.status().state == state);
}

/// Nothing was flushed, and the volume goes on with all that was answered.
#[test]
fn a_flash_that_dies_with_its_first_write_takes_nothing_with_it() {
    for (_, layout) in LAYOUTS {
        for error in ["error-rate=100%", "error-pwrite-rate=100%"] {
            let (setting, flash, volume) = on_breakable_flash(layout, error);
            File::create(&flash.broken).unwrap();
            // Each is answered, with the parts of blocks that come last.
            (0..100).for_each(|block| write(&volume, block).unwrap());
            ask(&volume, Operation::Write, 5 * BLOCK + 512, 512, vec![9; 512]).unwrap();
            volume.flush().unwrap_or_else(|error| panic!("{layout:?}: {error}"));
            await_state(&volume, VolumeState::WithoutFlash);
            assert_eq!(volume.status().lost_blocks, [0; 0], "{layout:?}");
            let mut changed = content(5);
            changed[512..1024].fill(9);
            let expected = |block| if block == 5 { changed.clone() } else { content(block) };
            (0..100).for_each(|block| assert!(read(&volume, block) == Ok(expected(block)), "{layout:?}: {block}"));
            write(&volume, 200).unwrap();
            volume.flush().unwrap();
            let bytes = std::fs::read(&setting.config.backend).unwrap();
            (0..100).for_each(|block| assert!(bytes[(block * BLOCK) as usize..].starts_with(&expected(block))));
        }
    }
}

/// Flushed data stays readable, and other acknowledged data is in memory.
#[test]
fn a_flash_that_cannot_be_written_any_more_is_detached_with_all_that_was_answered() {
    for (_, layout) in LAYOUTS {
        let (setting, flash, volume) = on_breakable_flash(layout, "error-pwrite-rate=100%");
        (0..100).for_each(|block| write(&volume, block).unwrap());
        volume.flush().unwrap();
        File::create(&flash.broken).unwrap();
        // Some that are there, and some that are not.
        let newer = 90..110;
        newer
            .clone()
            .for_each(|block| drop(ask(&volume, Operation::Write, block * BLOCK, BLOCK, NEWER.to_vec()).unwrap()));
        // Layout wlfc moves the blocks of failed buckets. Until it knows of the failure, no block may be only on the
        // flash.
        if volume.flush().is_err() {
            await_state(&volume, VolumeState::FlashFailed);
            assert_eq!(write(&volume, 200), Err(Error::Io));
            // Blocks that could not be written are read from memory.
            newer.clone().for_each(|block| assert!(read(&volume, block) == Ok(NEWER.to_vec()), "{layout:?}: {block}"));
            assert_eq!(volume.detach().unwrap_or_else(|error| panic!("{layout:?}: {error}")), 0, "{layout:?}");
        } else {
            assert_eq!((layout.grows(), volume.status().state), (false, VolumeState::WithoutFlash));
        }
        let bytes = std::fs::read(&setting.config.backend).unwrap();
        for block in 0..110 {
            let expected = if newer.contains(&block) { NEWER.to_vec() } else { content(block) };
            assert!(read(&volume, block).as_ref() == Ok(&expected), "{layout:?}: {block}");
            assert!(bytes[(block * BLOCK) as usize..].starts_with(&expected), "{layout:?}: {block}");
        }
        write(&volume, 200).unwrap();
        volume.flush().unwrap();
    }
}

/// Detaching fails, as the backend takes nothing: what the flash has counts as before, also at a start after that.
#[test]
fn a_flash_that_could_not_be_detached_counts_at_the_next_start() {
    for (_, layout) in LAYOUTS {
        let (mut setting, flash) = with_breakable_flash(layout, "error-pwrite-rate=100%");
        setting.config.backend = setting.on_tmpfs("backend", 64 * MIB, 1);
        let volume = setting.open();
        let filler = setting.directory.path().join("backend/filler");
        std::fs::write(&filler, vec![0; 2 * MIB as usize]).expect_err("there is no more room");
        // Each in a bucket of its own.
        let blocks = || (0..30).map(|number| number * 64);
        blocks().for_each(|block| write(&volume, block).unwrap());
        volume.flush().unwrap();
        File::create(&flash.broken).unwrap();
        blocks().for_each(|block| drop(ask(&volume, Operation::Write, (block + 1) * BLOCK, BLOCK, NEWER.to_vec())));
        volume.flush().expect_err("neither takes it");
        await_state(&volume, VolumeState::FlashFailed);
        volume.detach().expect_err("the backend is full");
        let _ = volume.close();
        drop(volume);
        std::fs::remove_file(&flash.broken).unwrap();
        std::fs::remove_file(&filler).unwrap();
        setting.enlarge("backend");
        let volume = setting.open();
        blocks().for_each(|block| assert!(read(&volume, block) == Ok(content(block)), "{layout:?}: {block}"));
        assert_eq!(volume.detach().unwrap(), 0);
        let bytes = std::fs::read(&setting.config.backend).unwrap();
        blocks().for_each(|block| assert!(bytes[(block * BLOCK) as usize..].starts_with(&content(block))));
    }
}

/// Acknowledged data that was on the flash without a flush is lost with it. No flush succeeds until new data is written
/// there.
#[test]
fn blocks_lost_with_the_flash_fail_until_they_are_rewritten() {
    let (_setting, flash, volume) = on_breakable_flash(LAYOUTS[0].1, "error-rate=100%");
    // More than fits into RAM.
    (0..1_500).for_each(|block| write(&volume, block).unwrap());
    File::create(&flash.broken).unwrap();
    // The kernel may have what it was given last, and then nothing is gone.
    std::fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    let flushed = volume.flush();
    await_state(&volume, VolumeState::WithoutFlash);
    if flushed.is_ok() {
        assert_eq!(volume.status().lost_blocks, [0; 0]);
        return (0..1_500).for_each(|block| assert!(read(&volume, block) == Ok(content(block)), "{block}"));
    }
    let lost = volume.status().lost_blocks;
    assert!(!lost.is_empty() && lost.len() < 1_500, "{} blocks", lost.len());
    for block in 0..1_500 {
        let expected = if lost.contains(&block) { Err(Error::Io) } else { Ok(content(block)) };
        assert!(read(&volume, block) == expected, "{block}");
    }
    volume.flush().expect_err("some of it is still gone");
    lost.iter().for_each(|&block| write(&volume, block).unwrap());
    volume.flush().unwrap();
    assert_eq!(volume.status().lost_blocks, [0; 0]);
    (0..1_500).for_each(|block| assert!(read(&volume, block) == Ok(content(block)), "{block}"));
}

/// A start does without a flash that is dead and still there, if nothing is only on it or that is given up.
#[test]
fn a_start_does_without_a_dead_flash_that_nothing_is_only_on() {
    for (_, layout) in LAYOUTS {
        for error in ["error-rate=100%", "error-pwrite-rate=100%"] {
            let (mut setting, flash, volume) = on_breakable_flash(layout, error);
            write(&volume, 1).unwrap();
            volume.close().unwrap();
            drop(volume);
            File::create(&flash.broken).unwrap();
            std::fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
            let refusal =
                Volume::open(setting.config.clone(), &|_, _| ()).err().expect("data is only there").to_string();
            assert!(refusal.contains("The flash may hold unwritten data"), "{layout:?}: {refusal}");
            setting.config.discard_cache = true;
            let (volume, opened) = Volume::open(setting.config.clone(), &|_, _| ()).unwrap();
            assert!(
                opened.without_flash && opened.notes[0].contains("data that only it had is given up"),
                "{opened:?}"
            );
            assert!(read(&volume, 1) == Ok(vec![0; BLOCK as usize]));
            write(&volume, 2).unwrap();
            volume.flush().unwrap();
            let status = volume.status();
            assert_eq!((status.state, status.dirty_blocks), (VolumeState::WithoutFlash, 0));
            assert!(status.state_reason.unwrap().contains("flash: "), "{layout:?}");
            assert!(!volume.has_flash());
            assert_eq!(volume.detach().unwrap(), 0);
            assert_eq!(volume.status().state, VolumeState::Detached);
            volume.attach().unwrap();
            volume.close().unwrap();
            drop(volume);
            // Nothing is missed now: what was given up is so for good.
            setting.config.discard_cache = false;
            let (volume, opened) = Volume::open(setting.config.clone(), &|_, _| ()).unwrap();
            assert!(opened.notes[0].contains("the backend has all of its data"), "{opened:?}");
            assert!(read(&volume, 2) == Ok(content(2)));
            volume.close().unwrap();
            drop(volume);
            // It is not believed when it comes back.
            std::fs::remove_file(&flash.broken).unwrap();
            let (volume, opened) = Volume::open(setting.config.clone(), &|_, _| ()).unwrap();
            assert!(opened.notes.iter().any(|note| note.contains("the cache was dropped")), "{opened:?}");
            assert!(opened.formatted, "{layout:?}");
            assert!(read(&volume, 1) == Ok(vec![0; BLOCK as usize]) && read(&volume, 2) == Ok(content(2)));
        }
    }
}

/// A cache that had nothing that the backend has not is dropped when its flash works again.
#[test]
fn a_flash_that_was_dead_for_a_start_begins_anew_when_it_works_again() {
    for (_, layout) in LAYOUTS {
        let (mut setting, flash, volume) = on_breakable_flash(layout, "error-rate=100%");
        File::create(&flash.broken).unwrap();
        // It dies in use, with nothing that is only there.
        write(&volume, 0).unwrap();
        volume.flush().unwrap();
        await_state(&volume, VolumeState::WithoutFlash);
        volume.close().unwrap();
        drop(volume);
        let (volume, opened) =
            Volume::open(setting.config.clone(), &|_, _| ()).unwrap_or_else(|error| panic!("{error}"));
        assert!(opened.without_flash, "{layout:?}: {opened:?}");
        write(&volume, 1).unwrap();
        drop(volume);
        std::fs::remove_file(&flash.broken).unwrap();
        let (volume, opened) =
            Volume::open(setting.config.clone(), &|_, _| ()).unwrap_or_else(|error| panic!("{error}"));
        assert!(
            opened.formatted && opened.notes.iter().any(|note| note.contains("was dropped")),
            "{layout:?}: {opened:?}"
        );
        assert!(read(&volume, 1) == Ok(content(1)), "{layout:?}");
        drop(volume);
        // One that is not there is done without where that is said.
        (setting.config.flash, setting.config.flash_size_bytes) = (setting.directory.path().join("none"), None);
        let refusal = Volume::open(setting.config.clone(), &|_, _| ()).err().expect("it is not there").to_string();
        assert!(refusal.contains("or start without it with --discard-cache v"), "{refusal}");
        setting.config.discard_cache = true;
        assert!(Volume::open(setting.config.clone(), &|_, _| ()).unwrap().1.without_flash);
    }
}
