//! What all sessions of a server share: the logical units, and which sessions there are.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use flashwise_engine::export::{Claimable, Exports};
use parking_lot::{Condvar, Mutex};

use super::login::{Agreed, Purpose, status};
use super::names;
use crate::front::connection::Control;
use crate::front::options::Iscsi;
use crate::scsi::unit::Unit;

/// What tells sessions apart: the initiator, its part of the session's identifier, and the export.
type Name = (String, [u8; 6], String);

#[derive(Default)]
struct Sessions {
    by_name: HashMap<Name, (u16, Arc<Control>)>,
    last: u16,
}

/// The targets of a server.
pub struct Target {
    access: Iscsi,
    /// By the address of the export.
    units: Mutex<HashMap<usize, Arc<Unit>>>,
    sessions: Mutex<Sessions>,
    left: Condvar,
}

impl Target {
    /// Targets of a server that has served nobody yet.
    pub fn new(access: Iscsi) -> Target {
        Target { access, units: Mutex::default(), sessions: Mutex::default(), left: Condvar::new() }
    }

    /// Who may log in.
    pub fn access(&self) -> &Iscsi {
        &self.access
    }

    /// The logical unit of an export: the same under all names of it.
    pub fn unit(&self, exports: &Exports, name: &str, export: &Arc<Claimable>) -> io::Result<Arc<Unit>> {
        let mut units = self.units.lock();
        let address = Arc::as_ptr(export) as usize;
        if let Some(unit) = units.get(&address) {
            return Ok(Arc::clone(unit));
        }
        // Those of exports that are gone, and that no session has, are no more.
        units.retain(|_, unit| Arc::strong_count(unit) > 1 || exports.name_of(unit.export()).is_some());
        let name = exports.name_of(export).unwrap_or_else(|| name.to_owned());
        let folder = self.access.state_directory.as_ref();
        let file = folder.map(|folder| folder.join(names::reservations_file(&name)));
        let unit = Arc::new(Unit::open(&name, Arc::clone(export), file)?);
        units.insert(address, Arc::clone(&unit));
        Ok(unit)
    }

    /// Begins a session. An older one of the same name ends before that; if it does not in time, there is no new one.
    pub fn enter(&self, agreed: &Agreed, control: &Arc<Control>, deadline: Option<Instant>) -> Result<Seat<'_>, u16> {
        let export = match &agreed.purpose {
            Purpose::Normal(export) => export.clone(),
            Purpose::Discovery => String::new(),
        };
        let name = (agreed.initiator.clone(), agreed.isid, export);
        let mut sessions = self.sessions.lock();
        while let Some((_, older)) = sessions.by_name.get(&name) {
            older.abandon();
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(status::OUT_OF_RESOURCES);
            }
            match left {
                None => self.left.wait(&mut sessions),
                Some(left) => drop(self.left.wait_for(&mut sessions, left)),
            }
        }
        // Numbers are not 0, and those of sessions that last are not given again.
        let is_taken = |number: u16| number == 0 || sessions.by_name.values().any(|(taken, _)| *taken == number);
        let mut number = sessions.last.wrapping_add(1);
        for _ in 0..=u16::MAX {
            if !is_taken(number) {
                break;
            }
            number = number.wrapping_add(1);
        }
        if is_taken(number) {
            return Err(status::OUT_OF_RESOURCES);
        }
        sessions.last = number;
        sessions.by_name.insert(name.clone(), (number, Arc::clone(control)));
        drop(sessions);
        Ok(Seat { target: self, name, number })
    }
}

/// A session that has begun; it has ended when this goes.
pub struct Seat<'a> {
    target: &'a Target,
    name: Name,
    number: u16,
}

impl Seat<'_> {
    /// The number by which the target names the session.
    pub fn number(&self) -> u16 {
        self.number
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.target.sessions.lock().by_name.remove(&self.name);
        self.target.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use flashwise_engine::export::{Done, Error, Export, Extent, Request};

    use super::*;

    struct Nothing;

    impl Export for Nothing {
        fn size(&self) -> u64 {
            4096
        }

        fn submit(&self, _: Request, done: Done) {
            done(Err(Error::ShuttingDown));
        }

        fn extents(&self, _: u64, _: u64, _: usize) -> Result<Vec<Extent>, Error> {
            Err(Error::ShuttingDown)
        }
    }

    /// An export that is taken away, and its unit, go once no session has it and another unit is made.
    #[test]
    fn units_of_exports_that_are_gone_are_not_kept() {
        let (exports, target) = (Exports::default(), Target::new(Iscsi::default()));
        let unit = |name: &str| {
            assert!(exports.add(name, Arc::new(Nothing)));
            let (_, export) = exports.find(name).unwrap();
            (target.unit(&exports, name, &export).unwrap(), Arc::downgrade(&export))
        };
        let (in_use, gone) = (unit("in use"), unit("gone"));
        exports.remove("in use");
        exports.remove("gone");
        drop(gone.0);
        assert!(gone.1.upgrade().is_some());
        let (other, _) = unit("other");
        assert!(gone.1.upgrade().is_none() && in_use.1.upgrade().is_some());
        assert_eq!((in_use.0.name(), other.name(), target.units.lock().len()), ("in use", "other", 2));
    }
}
