//! The budget of flash writes of a volume: per day and over the life of the flash.

use std::path::PathBuf;

use uuid::Uuid;

use super::write_account::WriteAccount;
use super::{BLOCK, Inner, Volume, VolumeConfig};
use crate::attach::Attachment;
use crate::disk::identity::device_id;
use crate::driver::Driver;
use crate::status::WriteBudgetStatus;
use crate::time;

/// Opens the account of a flash. Notes for the operator are added to `notes`.
pub(super) fn open_account(config: &VolumeConfig, attachment: &Attachment, notes: &mut Vec<String>) -> WriteAccount {
    let (account, error) = WriteAccount::open(path_of(config, attachment), time::unix_seconds());
    notes.extend(
        error.map(|error| {
            format!("{}: the count of flash writes begins anew and is not saved: {error}", config.whose())
        }),
    );
    account
}

/// A device is known by its serial number or UUID, so that its account outlives the cache. A file is known by its
/// cache.
fn path_of(config: &VolumeConfig, attachment: &Attachment) -> Option<PathBuf> {
    let id = device_id(&config.flash).unwrap_or(attachment.superblock().cache);
    let name = format!("flash-writes-{}.json", Uuid::from_bytes(id));
    (!time::is_virtual()).then(|| config.state_directory.join(name))
}

/// The budget of flash writes of a volume, and its use.
pub(super) struct Budget {
    /// `None` without a flash.
    account: Option<WriteAccount>,
    /// Rated drive writes per day of the flash.
    rated: Option<f64>,
}

/// Returns the bytes per day that the admission rule allows; `None` without a budget.
fn rule_bytes_per_day(engine: &dyn Driver) -> Option<f64> {
    Some(engine.log()?.budget_blocks_per_day()? * BLOCK as f64)
}

impl Budget {
    pub fn new(account: Option<WriteAccount>, rated: Option<f64>) -> Budget {
        Budget { account, rated }
    }

    /// Returns the bytes per day of the budget: that of the rule, or else the rated ones.
    fn bytes_per_day(&self, engine: &dyn Driver) -> Option<f64> {
        rule_bytes_per_day(engine).or_else(|| Some(self.rated? * engine.flash_bytes().0 as f64))
    }

    /// Returns the use of the budget of flash writes; `None` without a budget or a flash.
    pub fn status(&self, engine: &dyn Driver) -> Option<WriteBudgetStatus> {
        let bytes_per_day = self.bytes_per_day(engine)?;
        Some(self.account.as_ref()?.status(bytes_per_day))
    }

    /// Ends the account, when the volume removes its flash or closes.
    pub fn close(&mut self, engine: &mut dyn Driver, volume: &str) {
        let now = time::unix_seconds();
        self.settle(engine, None, now);
        self.save(engine, volume, now);
        self.account = None;
    }

    fn save(&mut self, engine: &dyn Driver, volume: &str, now_seconds: f64) {
        let has_budget = self.bytes_per_day(engine).is_some();
        let Some(account) = self.account.as_mut().filter(|_| has_budget) else { return };
        if let Err(error) = account.save(now_seconds) {
            tracing::warn!(event = "write-count-not-saved", volume, %error, "the count of flash writes could not be \
                saved");
        }
    }

    fn settle(&mut self, engine: &mut dyn Driver, counter_bytes: Option<u64>, now_seconds: f64) {
        let (budget, rule) = (self.bytes_per_day(engine), rule_bytes_per_day(engine));
        let (_, own_bytes) = engine.flash_bytes();
        let Some(account) = &mut self.account else { return };
        // Without a budget, the account restarts each time.
        let Some(bytes_per_day) = budget else { return account.begin(own_bytes, now_seconds) };
        account.update(own_bytes, counter_bytes, bytes_per_day, now_seconds);
        let Some(bytes_per_day) = rule else { return };
        let left = account.left_bytes(bytes_per_day).min(account.left_today_bytes(bytes_per_day));
        let credit = account.take_credit(bytes_per_day);
        if let Some(cache) = engine.log_mut() {
            cache.settle_budget(credit / BLOCK as f64, left / BLOCK as f64);
        }
    }
}

/// Updates the account of the flash, and the budget of the admission rule. The cache may write the smaller rest: of
/// today, or of the life of the flash.
pub(super) fn keep_account(volume: &Volume) {
    let now = time::unix_seconds();
    let mut inner = volume.lock();
    let is_due = inner.budget.account.as_ref().is_some_and(|account| account.is_due(now));
    let mut counter = None;
    if is_due {
        drop(inner);
        // A drive may answer slowly; no request waits for it.
        counter = volume.pair.flash.drive_written_bytes();
        inner = volume.lock();
    }
    let Inner { budget, engine, .. } = &mut *inner;
    budget.settle(&mut **engine, counter, now);
    if is_due {
        budget.save(&**engine, &volume.config.name, now);
    }
}
