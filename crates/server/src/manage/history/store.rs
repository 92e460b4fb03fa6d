//! The history on disk, so that it outlives the process: a redb database in the state directory.
//!
//! A point is a row, its key the volume's name, the range's number and the time, its value JSON. What a range does not reach back to is
//! deleted, so that the file stays as large as the history of the volumes there are, and of those there were in the last 30 days.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError, TableDefinition};

use super::{Point, Range};

const POINTS: TableDefinition<'_, (&str, u8, u64), &[u8]> = TableDefinition::new("points");

/// Why the history is not kept.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has it open.
    #[error("another process keeps its history there")]
    InUse,
    /// It is not what was written.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// The device or the file system failed.
    #[error("{0}")]
    Failed(String),
}

impl<E: Into<redb::Error>> From<E> for StoreError {
    fn from(error: E) -> StoreError {
        match error.into() {
            redb::Error::DatabaseAlreadyOpen => StoreError::InUse,
            redb::Error::Io(error) if !is_of_contents(&error) => StoreError::Failed(error.to_string()),
            error => StoreError::Damaged(error.to_string()),
        }
    }
}

/// Whether a file is not what it should be, while the device works.
fn is_of_contents(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

/// The file.
pub struct Store {
    database: Database,
}

impl Store {
    /// Opens the file, or makes it, and reads what is not too old at `now`. `each` is told of the points of each volume.
    pub fn open(path: &Path, now_seconds: u64, each: impl FnMut(&str, Range, Point)) -> Result<Store, StoreError> {
        without_panic(|| Store::open_whole(path, now_seconds, each))
    }

    fn open_whole(path: &Path, now_seconds: u64, each: impl FnMut(&str, Range, Point)) -> Result<Store, StoreError> {
        let mut database = match Database::create(path) {
            Ok(database) => database,
            // A file of other bytes, which redb tells as a failed read.
            Err(DatabaseError::Storage(StorageError::Io(error))) if is_of_contents(&error) => {
                return Err(StoreError::Damaged(error.to_string()));
            }
            Err(error) => return Err(error.into()),
        };
        database.check_integrity()?;
        let store = Store { database };
        store.read(now_seconds, each)?;
        Ok(store)
    }

    fn read(&self, now_seconds: u64, mut each: impl FnMut(&str, Range, Point)) -> Result<(), StoreError> {
        let writing = self.database.begin_write()?;
        {
            let mut points = writing.open_table(POINTS)?;
            points.retain(|(_, range, time), _| {
                Range::ALL.get(usize::from(range)).is_some_and(|range| time >= range.begins(now_seconds))
            })?;
        }
        writing.commit()?;
        let points = self.database.begin_read()?.open_table(POINTS)?;
        for row in points.iter()? {
            let (key, value) = row?;
            let (volume, range, _) = key.value();
            let point = serde_json::from_slice(value.value());
            each(
                volume,
                Range::ALL[usize::from(range)],
                point.map_err(|error| StoreError::Damaged(error.to_string()))?,
            );
        }
        Ok(())
    }

    /// Adds points, durably, and deletes those of the same volumes that are too old at `now`.
    pub fn keep(&self, new: &[(String, Range, Point)], now_seconds: u64) -> Result<(), StoreError> {
        without_panic(|| self.write(new, now_seconds))
    }

    fn write(&self, new: &[(String, Range, Point)], now_seconds: u64) -> Result<(), StoreError> {
        let writing = self.database.begin_write()?;
        {
            let mut points = writing.open_table(POINTS)?;
            let mut done = None;
            for (volume, range, point) in new {
                let value = serde_json::to_vec(point).map_err(|error| StoreError::Failed(error.to_string()))?;
                let of_range = (volume.as_str(), *range as u8);
                points.insert((of_range.0, of_range.1, point.time_seconds), value.as_slice())?;
                if done.replace(of_range) != Some(of_range) {
                    let old = (of_range.0, of_range.1, 0)..(of_range.0, of_range.1, range.begins(now_seconds));
                    points.retain_in(old, |_, _| false)?;
                }
            }
        }
        Ok(writing.commit()?)
    }
}

/// redb panics at some damage before it can be asked for its checksums.
fn without_panic<T>(work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    // What was changed is not used after a panic: the store is given up.
    let done = catch_unwind(AssertUnwindSafe(work));
    done.unwrap_or_else(|_| Err(StoreError::Damaged("its pages contradict each other".to_owned())))
}

/// Puts a damaged file aside, in the place of one that was put aside before; where it is then.
pub fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = path.with_extension("redb.damaged");
    std::fs::rename(path, &aside)?;
    Ok(aside)
}
