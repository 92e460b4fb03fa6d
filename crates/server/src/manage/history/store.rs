//! History on disk, to keep it over restarts: a redb database in the state directory.
//!
//! A row for each point has the volume's name, the range's number and the time as its key, and JSON as its value.
//! Points older than their range are deleted. So the size of the file is bounded by the volumes that existed in the
//! last 30 days. A row for each event has its number as the key; surplus events are deleted.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError, TableDefinition};

use super::events::{EVENTS_MAX, Event};
use super::{Point, Range};

const POINTS: TableDefinition<'_, (&str, u8, u64), &[u8]> = TableDefinition::new("points");
const EVENTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("events");

/// An error of the history file.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has it open.
    #[error("another process keeps its history there")]
    InUse,
    /// Its contents are invalid.
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

/// True if the file is invalid, although the device works.
fn is_of_contents(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

/// Receives the contents of the file.
pub trait Reader {
    /// A point of a volume.
    fn point(&mut self, volume: &str, range: Range, point: Point);
    /// An event; they come in order.
    fn event(&mut self, event: Event);
}

/// The file.
pub struct Store {
    database: Database,
}

fn damaged(error: serde_json::Error) -> StoreError {
    StoreError::Damaged(error.to_string())
}

fn json(value: &impl serde::Serialize) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(value).map_err(|error| StoreError::Failed(error.to_string()))
}

impl Store {
    /// Opens or creates the file, and reads everything that is not too old at `now`.
    pub fn open(path: &Path, now_seconds: u64, reader: &mut impl Reader) -> Result<Store, StoreError> {
        without_panic(|| Store::open_whole(path, now_seconds, reader))
    }

    fn open_whole(path: &Path, now_seconds: u64, reader: &mut impl Reader) -> Result<Store, StoreError> {
        let mut database = match Database::create(path) {
            Ok(database) => database,
            // The file is not a database; redb reports that as a failed read.
            Err(DatabaseError::Storage(StorageError::Io(error))) if is_of_contents(&error) => {
                return Err(StoreError::Damaged(error.to_string()));
            }
            Err(error) => return Err(error.into()),
        };
        database.check_integrity()?;
        let store = Store { database };
        store.read(now_seconds, reader)?;
        Ok(store)
    }

    fn read(&self, now_seconds: u64, reader: &mut impl Reader) -> Result<(), StoreError> {
        let writing = self.database.begin_write()?;
        {
            // A file of before there were any has no table of them.
            writing.open_table(EVENTS)?;
            let mut points = writing.open_table(POINTS)?;
            points.retain(|(_, range, time), _| {
                Range::ALL.get(usize::from(range)).is_some_and(|range| time >= range.begins(now_seconds))
            })?;
        }
        writing.commit()?;
        let reading = self.database.begin_read()?;
        for row in reading.open_table(POINTS)?.iter()? {
            let (key, value) = row?;
            let (volume, range, _) = key.value();
            let point = serde_json::from_slice(value.value()).map_err(damaged)?;
            reader.point(volume, Range::ALL[usize::from(range)], point);
        }
        for row in reading.open_table(EVENTS)?.iter()? {
            reader.event(serde_json::from_slice(row?.1.value()).map_err(damaged)?);
        }
        Ok(())
    }

    /// Adds points and events, durably, and deletes the points of the same volumes that are too old at `now`, and
    /// events that are too many.
    pub fn keep(
        &self,
        new: &[(String, Range, Point)],
        new_events: &[Event],
        now_seconds: u64,
    ) -> Result<(), StoreError> {
        without_panic(|| self.write(new, new_events, now_seconds))
    }

    fn write(&self, new: &[(String, Range, Point)], new_events: &[Event], now_seconds: u64) -> Result<(), StoreError> {
        let writing = self.database.begin_write()?;
        if let Some(last) = new_events.last() {
            let mut events = writing.open_table(EVENTS)?;
            for event in new_events {
                events.insert(event.number, json(event)?.as_slice())?;
            }
            events.retain_in(..=last.number.saturating_sub(EVENTS_MAX as u64), |_, _| false)?;
        }
        {
            let mut points = writing.open_table(POINTS)?;
            let mut done = None;
            for (volume, range, point) in new {
                let value = json(point)?;
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
    // After a panic, the store is closed and its unfinished changes are discarded.
    let done = catch_unwind(AssertUnwindSafe(work));
    done.unwrap_or_else(|_| Err(StoreError::Damaged("its pages contradict each other".to_owned())))
}

/// Renames a damaged file, replacing an earlier one; returns the new path.
pub fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = path.with_extension("redb.damaged");
    std::fs::rename(path, &aside)?;
    Ok(aside)
}
