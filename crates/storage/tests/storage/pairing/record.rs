//! The backend's record: damaged, or older than the flash.

use super::*;

impl Setting {
    pub(super) fn record(&self) -> Vec<u8> {
        let mut record = vec![0; BLOCK];
        let length = rustix::fs::getxattr(&self.config.backend, RECORD, &mut record).unwrap();
        record.truncate(length);
        record
    }

    pub(super) fn set_record(&self, record: &[u8]) {
        rustix::fs::setxattr(&self.config.backend, RECORD, record, XattrFlags::empty()).unwrap();
    }

    /// One byte of the backend's record is another.
    fn damage_record(&self) {
        let mut record = self.record();
        let at = record.windows(5).position(|bytes| bytes == b"cache").unwrap();
        record[at + 1] = b'b';
        self.set_record(&record);
    }

    /// As `flashwise detach` with backend and flash.
    pub(super) fn detach(&self) -> Result<Detached, DetachError> {
        let open = |path| FileDisk::open(path, Options::default()).unwrap();
        let (backend, flash) = (Arc::new(open(&self.config.backend)), open(&self.config.flash));
        let id = identity(&backend, None).unwrap().id;
        let side = side_of(backend.clone(), id, &self.config.state_directory).unwrap();
        let pairing = Pairing { backend: id, is_identified: false, discards: false };
        let (journal, side) = (GivenJournal::Nothing, &*side);
        let pair = Pair { flash: &flash, backend: &*backend, journal, side, pairing: &pairing };
        detach(pair, &|_, _| (), &mut |_, _| ())
    }
}

/// A detach may end after its mark on the flash and before the backend's record: the next finishes it.
#[test]
fn a_detach_that_was_cut_off_is_finished_by_the_next() {
    let mut setting = Setting::new(Mode::WriteBack);
    setting.write_and_close(7);
    let record = setting.record();
    assert_eq!(setting.detach().unwrap(), Detached::Now { destaged_blocks: 4 });
    let (finished, flash) = (setting.record(), setting.config.flash.clone());
    setting.set_record(&record);
    setting.config.flash = setting.at("new.img");
    assert!(setting.refusal().contains("may hold data that was not written back"), "{}", setting.refusal());
    setting.config.flash = flash;
    assert_eq!(setting.detach().unwrap(), Detached::Before);
    assert_eq!(setting.record(), finished);
    setting.config.flash = setting.at("new.img");
    assert_eq!(setting.first_byte(), 7);
}

/// A start is refused for good and names the command that helps: detaching the flash writes the record anew.
#[test]
fn a_damaged_record_is_refused_until_the_flash_is_detached() {
    let setting = Setting::new(Mode::WriteBack);
    setting.write_and_close(7);
    setting.damage_record();
    let error = Volume::open(setting.config.clone(), &|_, _| ()).err().unwrap();
    assert!(error.is_permanent());
    let error = error.to_string();
    let starts = "volume 'v': the backend's record of its cache is permanently damaged (";
    assert!(error.starts_with(starts) && error.contains("extended attribute user.flashwise.cache: found "), "{error}");
    assert!(error.contains("Run 'flashwise detach' with backend and flash"), "{error}");
    assert!(error.ends_with("use --discard-cache v"), "{error}");
    assert_eq!(setting.detach().unwrap(), Detached::Now { destaged_blocks: 4 });
    let (volume, opened) = setting.open();
    assert!(opened.detached && read(&volume) == 7, "{opened:?}");
}

/// A flash that was detached before does not know which blocks the backend misses since.
#[test]
fn only_an_operator_gives_up_a_damaged_record_beside_a_detached_flash() {
    let mut setting = Setting::new(Mode::WriteBack);
    setting.write_and_close(7);
    setting.detach().unwrap();
    setting.damage_record();
    let error = setting.detach().unwrap_err();
    assert!(error.is_misuse(), "{error}");
    let expected = "the flash does not show which blocks the backend lacks";
    assert!(error.to_string().contains(expected), "{error}");
    setting.refusal();
    setting.config.discard_cache = true;
    assert_eq!(setting.first_byte(), 7);
    setting.config.discard_cache = false;
    assert_eq!(setting.first_byte(), 7);
}

/// Dirty blocks are lost then, but no cache of another backend.
#[test]
fn a_damaged_record_is_discarded_with_its_cache_and_no_other() {
    let mut setting = Setting::new(Mode::WriteBack);
    setting.write_and_close(7);
    let other = Setting::new(Mode::WriteBack);
    other.write_and_close(8);
    setting.damage_record();
    setting.config.discard_cache = true;
    let own = std::mem::replace(&mut setting.config.flash, other.config.flash.clone());
    assert!(setting.refusal().contains("found a cache of another backend"), "{}", setting.refusal());
    assert_eq!(other.first_byte(), 8);
    setting.config.flash = own;
    let (volume, opened) = setting.open();
    let note = "volume v: the backend's record of its cache was damaged; blocks that were not written back are lost";
    assert!(opened.formatted && opened.notes.iter().any(|found| found == note), "{opened:?}");
    assert_eq!(read(&volume), 0);
    volume.close().unwrap();
    drop(volume);
    // A record without its flash is discarded too.
    setting.damage_record();
    std::fs::remove_file(&setting.config.flash).unwrap();
    assert_eq!(setting.first_byte(), 0);
}

/// Whichever byte of the record is wrong, the start is refused for good, or finds what was written.
#[test]
fn a_record_with_any_wrong_byte_is_refused_or_says_the_same() {
    let setting = Setting::new(Mode::WriteBack);
    setting.write_and_close(7);
    let (mut at, mut refused) = (0, 0);
    loop {
        let mut record = setting.record();
        let Some(byte) = record.get_mut(at) else { break };
        *byte ^= 1;
        let whole = setting.record();
        setting.set_record(&record);
        match Volume::open(setting.config.clone(), &|_, _| ()) {
            Ok((volume, opened)) => {
                assert!(!opened.formatted && read(&volume) == 7, "byte {at}: {opened:?}");
                volume.close().unwrap();
            }
            Err(error) => {
                assert!(error.is_permanent() && error.to_string().contains("damaged ("), "byte {at}: {error}");
                setting.set_record(&whole);
                refused += 1;
            }
        }
        at += 1;
    }
    assert!(refused > 100 && at - refused < 20, "{refused} of {at}");
    assert_eq!(setting.first_byte(), 7);
}
