//! What a client may open: an export that is for some certificates alone is not there for anybody else, whatever it is called.

use std::sync::Arc;

use flashwise_engine::export::{Claimable, Export, Exports};

use crate::front::assignments::{Assignments, Right, right_over_nbd};

/// What a client may open.
pub struct Access {
    exports: Exports,
    assignments: Arc<Assignments>,
    tls_names: Vec<String>,
}

/// An export that a client may open.
pub struct Found {
    /// The name that it was found by; its own where the client gave none.
    pub name: String,
    /// The export.
    pub export: Arc<Claimable>,
    /// What the client may do with it.
    pub right: Right,
}

/// Whether a client with this right cannot write an export.
pub fn is_read_only(export: &Claimable, right: Right) -> bool {
    export.read_only() || right == Right::Read
}

/// All of the exports, for anybody.
impl From<Exports> for Access {
    fn from(exports: Exports) -> Access {
        Access::new(exports, Arc::default())
    }
}

impl Access {
    /// What a client may open that has shown no certificate.
    pub fn new(exports: Exports, assignments: Arc<Assignments>) -> Access {
        Access { exports, assignments, tls_names: Vec::new() }
    }

    /// Notes the names in the certificate that the client has shown.
    pub fn show(&mut self, tls_names: Vec<String>) {
        self.tls_names = tls_names;
    }

    /// What the client may do with an export now, if it may open it.
    pub fn right(&self, export: &Arc<Claimable>) -> Option<Right> {
        // One that was taken away meanwhile has no name, and may be anybody's.
        let name = self.exports.name_of(export)?;
        right_over_nbd(&self.tls_names, self.assignments.of(&name).as_deref())
    }

    /// The export of this name, if the client may open it. The empty name means the only export, if there is just one.
    pub fn find(&self, name: &str) -> Option<Found> {
        let (name, export) = self.exports.find(name)?;
        let right = self.right(&export)?;
        Some(Found { name, export, right })
    }

    /// All that the client may open, by all names, in their order.
    pub fn all(&self) -> Vec<Found> {
        self.exports.names().iter().filter_map(|name| self.find(name)).collect()
    }
}
