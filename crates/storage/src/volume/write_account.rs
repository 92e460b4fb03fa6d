//! The account of flash writes per day and over the life of the flash, compared with the budget.
//!
//! A drive's own counter includes writes of others, such as another partition's file system. The account uses the
//! larger count, because the counter of a drive may lag.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::replace::replace_file;
use crate::status::WriteBudgetStatus;

const DAY_SECONDS: f64 = 86_400.0;
/// Seconds between two looks at the counter of a drive, and between two saves.
const PERIOD_SECONDS: f64 = 60.0;

/// The part of the account that outlives the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct WriteRecord {
    /// When the account began, in seconds since 1970.
    since_seconds: f64,
    /// When it was last brought up to date.
    at_seconds: f64,
    /// Bytes that this cache wrote since the account began.
    own_bytes: u64,
    /// Bytes that all hosts wrote since then, by the counter of the drive; those of this cache before the first look at
    /// that counter.
    drive_bytes: u64,
    /// The counter of the drive at the last look; none if it has none.
    counter_bytes: Option<u64>,
    /// Bytes that budgets allowed since the account began.
    allowed_bytes: f64,
    /// The day that is today: days since 1970, UTC.
    day: u64,
    /// Bytes that were written today.
    today_bytes: u64,
}

impl WriteRecord {
    fn new(now_seconds: f64) -> WriteRecord {
        let day = day_of(now_seconds);
        WriteRecord { since_seconds: now_seconds, at_seconds: now_seconds, day, ..WriteRecord::default() }
    }

    fn written_bytes(&self) -> u64 {
        self.own_bytes.max(self.drive_bytes)
    }
}

/// The account of a flash while a volume is open.
#[derive(Debug)]
pub(super) struct WriteAccount {
    record: WriteRecord,
    /// The file that keeps the record; none in virtual time.
    path: Option<PathBuf>,
    /// The cache's count at the last update, in bytes.
    counted_bytes: u64,
    /// When the counter of the drive is read and the record saved next.
    due_seconds: f64,
    /// True once the cache has what was left when the account was opened.
    credit_is_taken: bool,
}

impl WriteAccount {
    /// Opens the account that is kept at `path`, or begins one at `now_seconds` since 1970.
    ///
    /// # Errors
    /// A file that cannot be read, or holds something else; with the new account to go on with.
    pub fn open(path: Option<PathBuf>, now_seconds: f64) -> (WriteAccount, Option<io::Error>) {
        let (found, error) = match path.as_deref().map(read).transpose() {
            Ok(found) => (found.flatten(), None),
            Err(error) => (None, Some(error)),
        };
        // An unreadable file is not replaced.
        let path = path.filter(|_| error.is_none());
        let record = found.unwrap_or_else(|| WriteRecord::new(now_seconds));
        (WriteAccount { record, path, counted_bytes: 0, due_seconds: now_seconds, credit_is_taken: false }, error)
    }

    /// Restarts the account, after the cache counted `own_bytes`.
    pub fn begin(&mut self, own_bytes: u64, now_seconds: f64) {
        (self.record, self.counted_bytes) = (WriteRecord::new(now_seconds), own_bytes);
    }

    /// True if the counter of the drive is to be read.
    pub fn is_due(&self, now_seconds: f64) -> bool {
        now_seconds >= self.due_seconds
    }

    /// Brings the account up to date. `own_bytes` is the cache's count since it was opened, and `bytes_per_day` the
    /// budget. `counter_bytes` is the drive's count, if it was read.
    pub fn update(&mut self, own_bytes: u64, counter_bytes: Option<u64>, bytes_per_day: f64, now_seconds: f64) {
        let record = &mut self.record;
        let before = record.written_bytes();
        // The count restarts with the cache.
        record.own_bytes += own_bytes.checked_sub(self.counted_bytes).unwrap_or(own_bytes);
        self.counted_bytes = own_bytes;
        if let Some(counter) = counter_bytes {
            record.drive_bytes = match record.counter_bytes {
                // Another drive, or one that counts from the beginning again.
                Some(last) if counter < last => record.drive_bytes.max(before),
                Some(last) => record.drive_bytes + (counter - last),
                None => record.own_bytes,
            };
            record.counter_bytes = Some(counter);
        }
        let written = record.written_bytes() - before;
        record.allowed_bytes += bytes_per_day * (now_seconds - record.at_seconds).max(0.0) / DAY_SECONDS;
        record.at_seconds = now_seconds;
        if record.day != day_of(now_seconds) {
            (record.day, record.today_bytes) = (day_of(now_seconds), 0);
        }
        record.today_bytes += written;
    }

    /// Takes the present rest as credit for the cache, whose budget begins with nothing. Returns 0 from the second time
    /// on.
    pub fn take_credit(&mut self, bytes_per_day: f64) -> f64 {
        let is_taken = std::mem::replace(&mut self.credit_is_taken, true);
        if is_taken { 0.0 } else { self.left_bytes(bytes_per_day) }
    }

    /// Returns the rest of the bytes that budgets have allowed since the account began, at most a day of
    /// `bytes_per_day`. It is negative if more was written than allowed.
    pub fn left_bytes(&self, bytes_per_day: f64) -> f64 {
        (self.record.allowed_bytes - self.record.written_bytes() as f64).min(bytes_per_day)
    }

    /// Returns the bytes that are left of today's; below 0 if more was written.
    pub fn left_today_bytes(&self, bytes_per_day: f64) -> f64 {
        bytes_per_day - self.record.today_bytes as f64
    }

    /// Saves the record, if it is kept.
    ///
    /// # Errors
    /// With the file's path.
    pub fn save(&mut self, now_seconds: f64) -> io::Result<()> {
        self.due_seconds = now_seconds + PERIOD_SECONDS;
        let Some(path) = &self.path else { return Ok(()) };
        let json = serde_json::to_vec_pretty(&self.record)?;
        replace_file(path, &json).map_err(|error| named(path, &error))
    }

    /// The account as a status has it, with a budget of `bytes_per_day`.
    pub fn status(&self, bytes_per_day: f64) -> WriteBudgetStatus {
        let WriteRecord { since_seconds, at_seconds, allowed_bytes, today_bytes, counter_bytes, .. } = self.record;
        let written_bytes = self.record.written_bytes();
        let share = |bytes: f64, of: f64| if of > 0.0 { bytes / of } else { 0.0 };
        WriteBudgetStatus {
            source: if counter_bytes.is_some() { "drive" } else { "flashwise" }.to_owned(),
            bytes_per_day,
            today_bytes,
            today_used: share(today_bytes as f64, bytes_per_day),
            life_days: (at_seconds - since_seconds).max(0.0) / DAY_SECONDS,
            life_bytes: written_bytes,
            life_used: share(written_bytes as f64, allowed_bytes),
            drive_bytes: counter_bytes,
        }
    }
}

fn day_of(seconds: f64) -> u64 {
    (seconds / DAY_SECONDS) as u64
}

fn named(path: &Path, error: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}

fn read(path: &Path) -> io::Result<Option<WriteRecord>> {
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|error| named(path, &error))?,
    };
    let expected =
        |error| format!("found {error}, expected the account of a flash as JSON; move it away to begin a new one");
    serde_json::from_slice(&text).map(Some).map_err(|error| named(path, &expected(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;
    const PER_DAY: f64 = 86_400e6;
    /// The beginning of a day.
    const START: f64 = 20_000.0 * DAY_SECONDS;

    /// The budget is 1 MB per second. By hand: after 100 s, this cache has written 60 MB and others 30 MB, and the
    /// drive counts 90 MB. After 200 s, this cache has written 150 MB; the drive counts 150 MB too, and lags behind.
    #[test]
    fn the_drive_counts_writes_of_others_and_may_lag() {
        let (mut account, error) = WriteAccount::open(None, START);
        assert!(error.is_none() && account.is_due(START));
        account.update(0, Some(7000 * MB), PER_DAY, START);
        account.update(60 * MB, Some(7090 * MB), PER_DAY, START + 100.0);
        assert_eq!(account.left_bytes(PER_DAY), 10e6);
        account.update(150 * MB, Some(7120 * MB), PER_DAY, START + 200.0);
        assert_eq!((account.left_bytes(PER_DAY), account.left_today_bytes(PER_DAY)), (50e6, PER_DAY - 150e6));
        let status = account.status(PER_DAY);
        assert_eq!((status.source.as_str(), status.drive_bytes), ("drive", Some(7120 * MB)));
        assert_eq!((status.life_bytes, status.life_used, status.today_bytes), (150 * MB, 0.75, 150 * MB));
        // A drive that begins to count again.
        account.update(150 * MB, Some(MB), PER_DAY, START + 200.0);
        assert_eq!(account.left_bytes(PER_DAY), 50e6);
        account.update(150 * MB, Some(3 * MB), PER_DAY, START + 200.0);
        assert_eq!(account.left_bytes(PER_DAY), 48e6);
    }

    /// Half of a day is saved in the first day, and a day at most in ten.
    #[test]
    fn a_day_begins_with_all_of_its_budget_and_at_most_a_day_is_saved() {
        let (mut account, _) = WriteAccount::open(None, START);
        account.update(43_200 * MB, None, PER_DAY, START + DAY_SECONDS - 1.0);
        assert_eq!(account.status(PER_DAY).today_used, 0.5);
        assert_eq!(account.left_today_bytes(PER_DAY), 43_200e6);
        account.update(43_200 * MB, None, PER_DAY, START + DAY_SECONDS);
        assert_eq!((account.left_bytes(PER_DAY), account.left_today_bytes(PER_DAY)), (43_200e6, PER_DAY));
        account.update(43_200 * MB, None, PER_DAY, START + 10.0 * DAY_SECONDS);
        assert_eq!((account.left_bytes(PER_DAY), account.status(PER_DAY).life_used), (PER_DAY, 0.05));
    }

    #[test]
    fn the_account_continues_after_a_restart_and_a_damaged_one_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/flash.json");
        let open = || WriteAccount::open(Some(path.clone()), START + 1000.0);
        let mut account = WriteAccount::open(Some(path.clone()), START).0;
        account.update(500 * MB, Some(9000 * MB), PER_DAY, START + 300.0);
        account.save(START + 300.0).unwrap();
        assert!(!account.is_due(START + 359.0) && account.is_due(START + 360.0));
        let (mut account, error) = open();
        assert!(error.is_none());
        // Others wrote 20 MB while the server was down, and 200 MB came in before it and 700 MB meanwhile.
        account.update(0, Some(9020 * MB), PER_DAY, START + 1000.0);
        assert_eq!((account.take_credit(PER_DAY), account.status(PER_DAY).life_bytes), (480e6, 520 * MB));
        assert_eq!((account.take_credit(PER_DAY), account.left_bytes(PER_DAY)), (0.0, 480e6));
        std::fs::write(&path, "{}").unwrap();
        let (mut account, error) = open();
        let error = error.unwrap().to_string();
        assert!(error.contains("flash.json: found missing field") && error.contains("move it away"), "{error}");
        account.save(START).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}");
    }
}
