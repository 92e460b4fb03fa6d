//! A detach is a lasting decision: no start makes a cache until an operator attaches one again.

use flashwise_storage::attach::attach_again;
use flashwise_storage::status::VolumeState;

use super::*;

/// A start of a detached volume serves it from its backend and touches no flash.
fn assert_served_without_flash(setting: &Setting, byte: u8, case: &str) {
    let before = std::fs::read(&setting.config.flash).ok();
    let (volume, opened) = setting.open();
    assert!(opened.detached && opened.without_flash && !opened.formatted, "{case}: {opened:?}");
    assert_eq!((volume.status().state, read(&volume)), (VolumeState::Detached, byte), "{case}");
    write(&volume, byte);
    volume.close().unwrap();
    assert!(std::fs::read(&setting.config.flash).ok() == before, "{case}: the flash is changed");
}

impl Setting {
    fn attach_again(&self) -> bool {
        let backend = Arc::new(FileDisk::open(&self.config.backend, Options::default()).unwrap());
        let id = identity(&backend, None).unwrap().id;
        attach_again(&*side_of(backend, id, &self.config.state_directory).unwrap()).unwrap()
    }

    fn assert_attached(&self, byte: u8) {
        let (volume, opened) = self.open();
        assert!(opened.formatted && !opened.detached, "{opened:?}");
        assert_eq!((volume.status().state, read(&volume)), (VolumeState::Ok, byte));
        volume.close().unwrap();
    }
}

/// It lasts over restarts, and with a flash that is the same, wiped, another, or missing.
#[test]
fn no_start_makes_a_cache_after_a_detach_until_it_is_attached_again() {
    for online in [true, false] {
        let mut setting = Setting::new(Mode::WriteBack);
        setting.write_and_close(7);
        match online {
            true => {
                let (volume, _) = setting.open();
                assert_eq!(volume.detach().unwrap(), 0);
                volume.close().unwrap();
            }
            false => drop(setting.detach().unwrap()),
        }
        assert_served_without_flash(&setting, 7, "the same flash");
        assert_served_without_flash(&setting, 7, "again");
        setting.damage(&[0, 1], true);
        assert_served_without_flash(&setting, 7, "a wiped flash");
        setting.config.flash = setting.at("other.img");
        assert_served_without_flash(&setting, 7, "a flash that is missing");
        File::create(&setting.config.flash).unwrap().set_len(8 * MIB).unwrap();
        assert_served_without_flash(&setting, 7, "another flash");
        assert!(setting.attach_again() && !setting.attach_again());
        setting.assert_attached(7);
    }
}

/// The status of a served volume shows it, and only a detached volume can be attached.
#[test]
fn a_served_volume_is_attached_at_its_next_start() {
    let setting = Setting::new(Mode::WriteBack);
    setting.write_and_close(7);
    let (volume, _) = setting.open();
    assert_eq!(
        volume.attach().unwrap_err().to_string(),
        "volume 'v': its cache is not detached, so there is nothing to attach"
    );
    volume.detach().unwrap();
    volume.attach().unwrap();
    let status = volume.status();
    assert_eq!(status.state, VolumeState::Detached);
    assert_eq!(status.state_reason.unwrap(), "the next start uses the flash again");
    write(&volume, 8);
    volume.close().unwrap();
    drop(volume);
    setting.assert_attached(8);
    // A detach after that lasts again.
    let (volume, _) = setting.open();
    volume.detach().unwrap();
    volume.attach().unwrap();
    volume.detach().unwrap();
    volume.close().unwrap();
    drop(volume);
    assert_served_without_flash(&setting, 8, "detached once more");
}

/// Only the flash knows it if the detach ended before the record was written, or if the record is lost.
#[test]
fn a_detach_that_only_the_flash_knows_lasts() {
    for lost in [false, true] {
        let setting = Setting::new(Mode::WriteBack);
        setting.write_and_close(7);
        let record = setting.record();
        setting.detach().unwrap();
        match lost {
            true => rustix::fs::removexattr(&setting.config.backend, RECORD).unwrap(),
            false => setting.set_record(&record),
        }
        assert_served_without_flash(&setting, 7, "at first");
        setting.damage(&[0, 1], true);
        assert_served_without_flash(&setting, 7, "the record knows it now");
        assert!(setting.attach_again());
        setting.assert_attached(7);
    }
}

/// An operator who leaves the flash out and names one later wants a cache.
#[test]
fn a_configuration_without_flash_ends_a_detach() {
    let mut setting = Setting::new(Mode::WriteBack);
    setting.write_and_close(7);
    setting.detach().unwrap();
    let flash = std::mem::take(&mut setting.config.flash);
    assert_eq!(setting.first_byte(), 7);
    setting.config.flash = flash;
    setting.assert_attached(7);
}
