//! The budget of flash writes of a volume: per day and over the life of the flash.

use std::path::PathBuf;

use uuid::Uuid;

use super::write_account::WriteAccount;
use super::{BLOCK, Inner, Volume, VolumeConfig};
use crate::attach::Attachment;
use crate::disk::identity::device_id;
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

impl Inner {
    /// The bytes per day that the admission rule allows; none without a rule that has a budget.
    fn rule_bytes_per_day(&self) -> Option<f64> {
        Some(self.engine.log()?.budget_blocks_per_day()? * BLOCK as f64)
    }
}

impl Volume {
    /// The bytes per day of the budget: the rule's, else those that the flash is rated for.
    fn budget_bytes_per_day(&self, inner: &Inner) -> Option<f64> {
        let rated = || Some(self.config.drive_writes_per_day? * inner.engine.flash_bytes().0 as f64);
        inner.rule_bytes_per_day().or_else(rated)
    }

    /// Returns how much of the budget of flash writes is used; `None` without a budget or without a flash.
    pub(super) fn budget_status(&self, inner: &Inner) -> Option<WriteBudgetStatus> {
        let bytes_per_day = self.budget_bytes_per_day(inner)?;
        Some(inner.account.as_ref()?.status(bytes_per_day))
    }

    /// Brings the account of the flash up to date, and with it the budget of the admission rule. The cache may write
    /// the smaller rest: of today, or of the life of the flash.
    pub(super) fn keep_account(&self) {
        let now = time::unix_seconds();
        let mut inner = self.lock();
        let is_due = inner.account.as_ref().is_some_and(|account| account.is_due(now));
        if !is_due {
            return self.settle(&mut inner, None, now);
        }
        drop(inner);
        // A drive may take a while to answer: no request waits for that.
        let counter = self.flash.drive_written_bytes();
        inner = self.lock();
        self.settle(&mut inner, counter, now);
        self.save(&mut inner, now);
    }

    /// Ends the account: the volume goes on without its flash, or ends.
    pub(super) fn close_account(&self, inner: &mut Inner) {
        let now = time::unix_seconds();
        self.settle(inner, None, now);
        self.save(inner, now);
        inner.account = None;
    }

    fn save(&self, inner: &mut Inner, now_seconds: f64) {
        let has_budget = self.budget_bytes_per_day(inner).is_some();
        let Some(account) = inner.account.as_mut().filter(|_| has_budget) else { return };
        if let Err(error) = account.save(now_seconds) {
            tracing::warn!(event = "write-count-not-saved", volume = self.config.name, %error, "the count of flash \
                writes could not be saved");
        }
    }

    fn settle(&self, inner: &mut Inner, counter_bytes: Option<u64>, now_seconds: f64) {
        let (budget, rule) = (self.budget_bytes_per_day(inner), inner.rule_bytes_per_day());
        let (_, own_bytes) = inner.engine.flash_bytes();
        let Some(account) = &mut inner.account else { return };
        // An account of no budget begins anew all the time.
        let Some(bytes_per_day) = budget else { return account.begin(own_bytes, now_seconds) };
        account.update(own_bytes, counter_bytes, bytes_per_day, now_seconds);
        let Some(bytes_per_day) = rule else { return };
        let left = account.left_bytes(bytes_per_day).min(account.left_today_bytes(bytes_per_day));
        let credit = account.take_credit(bytes_per_day);
        if let Some(cache) = inner.engine.log_mut() {
            cache.settle_budget(credit / BLOCK as f64, left / BLOCK as f64);
        }
    }
}
