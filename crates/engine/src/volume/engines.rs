//! The engine of a volume, made of what a start found.

use flashwise_core::cache::LogCache;
use flashwise_core::quantity::Share;
use flashwise_core::recovery::Recovered;

use super::config::cache_config;
use super::driver::Driver;
use super::{Opened, READ_PATIENCE, READ_PAUSE, SPARE_FRAMES, VolumeConfig, VolumeError};
use crate::attach::Attachment;
use crate::disk::Disk;
use crate::disk::zoned::ZonedFlash;
use crate::engine::{Engine, Settings};
use crate::flash::{FlashError, cache_tag};
use crate::wlfc::start::{self, Options};
use crate::wlfc::{self};

/// The engine of a log.
pub(super) fn log_engine(
    config: &VolumeConfig,
    flash: &dyn Disk,
    attachment: &Attachment,
    recovered: Recovered,
    size_bytes: u64,
    opened: &mut Opened,
) -> Result<Driver, VolumeError> {
    let volume = || config.whose();
    if recovered.log.free_units() == 0 {
        return Err(VolumeError::LogFull { volume: volume(), path: config.flash.display().to_string() });
    }
    opened.cached_blocks = recovered.log.len() as u64;
    opened.dirty_blocks = recovered.log.dirty_blocks();
    opened.lost_blocks = recovered.lost.len() as u64;
    let superblock = attachment.superblock();
    let cache = LogCache::new(cache_config(config, superblock.geometry, size_bytes), recovered.log, recovered.lost);
    let settings = Settings {
        cache: cache_tag(superblock),
        epoch: recovered.epoch,
        retries: 2,
        patience: READ_PATIENCE,
        holds_failed: true,
        pauses: true,
        discard: config.discard || flash.zoned().is_some(),
        write_streams: flash.write_streams(),
        spare_frames: SPARE_FRAMES,
        answers_flushes_at_once: config.unsafe_ignore_flushes,
        planted: config.planted,
    };
    let engine = Engine::new(cache, settings, recovered.checksums, recovered.head_records);
    Ok(Driver::Log(Box::new(engine)))
}

/// The engine of buckets.
pub(super) fn wlfc_engine(
    config: &VolumeConfig,
    flash: &dyn Disk,
    attachment: &Attachment,
    held: start::Held,
    size_bytes: u64,
    opened: &mut Opened,
) -> Result<Driver, VolumeError> {
    let superblock = attachment.superblock();
    let refuse = |error| VolumeError::Cache {
        volume: config.whose(),
        path: config.flash.display().to_string(),
        error: FlashError::Config(error),
    };
    let options = Options { written_max: flash.zoned().and_then(ZonedFlash::written_max), ..config.buckets };
    let cache = start::config(superblock.geometry, &options, size_bytes).map_err(refuse)?;
    if let Some(zones) = options.written_max {
        let unlimited = Options { written_max: None, ..options };
        let asked = start::config(superblock.geometry, &unlimited, size_bytes).map_err(refuse)?.write_queue;
        if cache.write_queue < asked {
            let found = cache.write_queue;
            let share = (1e3 * f64::from(found) / f64::from(found + cache.read_queue)).round() / 1e3;
            let share = Share::new(share).unwrap_or_default();
            opened.notes.push(format!(
                "{} {}: its write queue has {found} buckets, {share} of them, where write-queue asks for {asked}: {zones} zones of its flash can be \
                 written at a time",
                config.whose().kind(),
                config.name
            ));
        }
    }
    (opened.cached_blocks, opened.dirty_blocks) = held.blocks();
    let (wlfc, started) = held.start(cache).map_err(refuse)?;
    let settings = wlfc::Settings {
        cache: cache_tag(superblock),
        start: superblock.attach,
        found_again: 0,
        retries: 2,
        patience: READ_PATIENCE,
        read_pause: READ_PAUSE,
        zoned: flash.zoned().is_some(),
        skips_bad: false,
        holds_failed: true,
        answers_flushes_at_once: config.unsafe_ignore_flushes,
    };
    Ok(Driver::Wlfc(Box::new(wlfc::Engine::new(wlfc, settings, started))))
}
