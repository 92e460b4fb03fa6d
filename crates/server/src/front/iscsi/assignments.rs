//! Which initiators may open an export: what the configuration says, and in its place what was said while a server ran, which is kept over
//! restarts.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{PoisonError, RwLock};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::names;
use crate::kept;

/// What the file holds.
const WHAT: &str = "assignments of exports to initiators";

/// An export that an initiator may open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The export's name, not one of its aliases.
    pub export: String,
    /// The initiator's name.
    pub initiator: String,
    /// Whether it may read only.
    pub read_only: bool,
}

impl FromStr for Assignment {
    type Err = String;

    /// `EXPORT INITIATOR`, and `read-only` behind them.
    fn from_str(text: &str) -> Result<Assignment, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let assigned = |export: &str, initiator: &str, read_only| {
            Ok(Assignment { export: export.to_owned(), initiator: initiator.to_owned(), read_only })
        };
        match words[..] {
            [export, initiator] => assigned(export, initiator, false),
            [export, initiator, "read-only"] => assigned(export, initiator, true),
            _ => Err(format!(
                "found '{text}', expected an export, an initiator and perhaps read-only, such as 'mail \
                 iqn.1993-08.org.debian:01:abc read-only'"
            )),
        }
    }
}

/// An initiator that an export is assigned to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Assigned {
    /// Its name.
    pub initiator: String,
    /// Whether it may read only.
    #[serde(default)]
    pub read_only: bool,
}

/// Exports that are for the initiators alone that they are assigned to.
#[derive(Debug, Default)]
pub struct Assignments {
    configured: Vec<Assignment>,
    /// By the export's name, in place of what is configured for it.
    given: RwLock<BTreeMap<String, Vec<Assigned>>>,
    file: Option<PathBuf>,
}

impl From<Vec<Assignment>> for Assignments {
    fn from(configured: Vec<Assignment>) -> Assignments {
        Assignments { configured, ..Assignments::default() }
    }
}

impl Assignments {
    /// What the configuration says, and what a file has in its place.
    pub fn open(configured: Vec<Assignment>, file: PathBuf) -> io::Result<Assignments> {
        let given = kept::read(&file, WHAT)?.unwrap_or_default();
        Ok(Assignments { configured, given: RwLock::new(given), file: Some(file) })
    }

    /// Whom an export is for; nobody in particular where it is assigned to none.
    pub fn of(&self, export: &str) -> Option<Vec<Assigned>> {
        if let Some(given) = self.given.read().unwrap_or_else(PoisonError::into_inner).get(export) {
            return Some(given.clone());
        }
        self.configured(export)
    }

    /// Whom it is for as the configuration has it.
    pub fn configured(&self, export: &str) -> Option<Vec<Assigned>> {
        let own = self.configured.iter().filter(|assignment| assignment.export == export);
        let own: Vec<_> = own
            .map(|Assignment { initiator, read_only, .. }| Assigned {
                initiator: initiator.clone(),
                read_only: *read_only,
            })
            .collect();
        (!own.is_empty()).then_some(own)
    }

    /// Whether what holds for an export was said while a server ran.
    pub fn is_given(&self, export: &str) -> bool {
        self.given.read().unwrap_or_else(PoisonError::into_inner).contains_key(export)
    }

    /// Assigns an export from now on, durably; without `assigned`, as the configuration has it.
    pub fn set(&self, export: &str, assigned: Option<Vec<Assigned>>) -> io::Result<()> {
        let mut given = self.given.write().unwrap_or_else(PoisonError::into_inner);
        let mut new = given.clone();
        let before = match assigned {
            Some(assigned) => new.insert(export.to_owned(), assigned),
            None => new.remove(export),
        };
        if before.is_none() && new.len() == given.len() {
            return Ok(());
        }
        let Some(file) = &self.file else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "there is no state directory to keep this in"));
        };
        kept::check_unchanged(file, WHAT, &*given)?;
        let failed = |error: &io::Error| format!("{} cannot be written: {error}", file.display());
        kept::write(file, &new).map_err(|error| io::Error::new(error.kind(), failed(&error)))?;
        *given = new;
        Ok(())
    }

    /// Forgets an export that was deleted, so that another of its name is nobody's: whom it was assigned to, and who has reserved it.
    pub fn forget(&self, export: &str) -> io::Result<()> {
        self.set(export, None)?;
        let Some(folder) = self.file.as_ref().and_then(|file| file.parent()) else { return Ok(()) };
        let reservations = folder.join(names::reservations_file(export));
        match std::fs::remove_file(&reservations) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(io::Error::new(error.kind(), format!("{}: {error}", reservations.display())))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assigned(initiator: &str, read_only: bool) -> Assigned {
        Assigned { initiator: initiator.to_owned(), read_only }
    }

    #[test]
    fn what_is_said_later_stands_in_place_of_the_configuration_and_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state/assignments.json");
        let configured = || vec!["mail iqn.a:1".parse().unwrap(), "mail iqn.b:2 read-only".parse().unwrap()];
        let of_configuration = Some(vec![assigned("iqn.a:1", false), assigned("iqn.b:2", true)]);
        let assignments = Assignments::open(configured(), file.clone()).unwrap();
        assert_eq!((assignments.of("mail"), assignments.of("web")), (of_configuration.clone(), None));
        assignments.set("mail", Some(vec![assigned("iqn.c:3", false)])).unwrap();
        assignments.set("web", Some(Vec::new())).unwrap();
        let assignments = Assignments::open(configured(), file.clone()).unwrap();
        assert_eq!(assignments.of("mail"), Some(vec![assigned("iqn.c:3", false)]));
        assert_eq!(assignments.of("web"), Some(Vec::new()), "for nobody is not for all");
        assert!(assignments.is_given("mail") && !assignments.is_given("data"));
        assignments.set("mail", None).unwrap();
        assert_eq!(assignments.of("mail"), of_configuration);
        assert!(!Assignments::open(Vec::new(), file.clone()).unwrap().is_given("mail"));
        std::fs::write(&file, "[1]").unwrap();
        let error = Assignments::open(Vec::new(), file).unwrap_err().to_string();
        assert!(error.contains("expected assignments of exports to initiators as JSON"), "{error}");
    }

    #[test]
    fn what_another_server_wrote_is_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("assignments.json");
        let [one, other] = [(); 2].map(|()| Assignments::open(Vec::new(), file.clone()).unwrap());
        one.set("mail", Some(vec![assigned("iqn.a:1", false)])).unwrap();
        let written = std::fs::read(&file).unwrap();
        let error = other.set("web", Some(vec![assigned("iqn.b:2", false)])).unwrap_err().to_string();
        assert!(error.contains("assignments.json cannot be written: something else has changed it"), "{error}");
        assert_eq!((other.of("web"), std::fs::read(&file).unwrap()), (None, written));
        one.set("web", Some(Vec::new())).unwrap();
    }

    #[test]
    fn what_is_deleted_leaves_nothing_to_another_of_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let assignments = Assignments::open(Vec::new(), folder.path().join("assignments.json")).unwrap();
        assignments.set("mail", Some(vec![assigned("iqn.a:1", false)])).unwrap();
        let [mail, web] = ["mail", "web"].map(|name| folder.path().join(names::reservations_file(name)));
        [&mail, &web].into_iter().for_each(|file| std::fs::write(file, "{}").unwrap());
        assignments.forget("mail").unwrap();
        assert_eq!((assignments.of("mail"), mail.exists(), web.exists()), (None, false, true));
        assignments.forget("mail").unwrap();
    }

    #[test]
    fn what_cannot_be_kept_is_refused_and_changes_nothing() {
        let assignments = Assignments::from(Vec::new());
        assert!(assignments.set("mail", Some(Vec::new())).is_err());
        assert_eq!(assignments.of("mail"), None);
        assert!(assignments.set("mail", None).is_ok(), "nothing was to be changed");
        let folder = tempfile::tempdir().unwrap();
        let assignments = Assignments::open(Vec::new(), folder.path().join("other/assignments.json")).unwrap();
        std::fs::write(folder.path().join("other"), "no folder").unwrap();
        assert!(assignments.set("mail", Some(Vec::new())).is_err());
        assert_eq!(assignments.of("mail"), None);
    }
}
