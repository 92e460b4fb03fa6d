//! Exports that a client may open. An export assigned to certificates is invisible to all other clients, under any
//! name.

use std::sync::Arc;

use flashwise_storage::export::{Claimable, Export, Exports};

use crate::front::assignments::{Assignments, Right, right_over_nbd};

/// Exports that a client may open.
pub struct Access {
    exports: Exports,
    assignments: Arc<Assignments>,
    tls_names: Vec<String>,
}

/// An export that a client may open.
pub struct FoundExport {
    /// The name that found it; its own if the client gave none.
    pub name: String,
    /// The export.
    pub export: Arc<Claimable>,
    /// The client's permission.
    pub right: Right,
}

/// True if a client with this permission cannot write an export.
pub fn is_read_only(export: &Claimable, right: Right) -> bool {
    export.read_only() || right == Right::Read
}

/// All of the exports, for any client.
impl From<Exports> for Access {
    fn from(exports: Exports) -> Access {
        Access::new(exports, Arc::default())
    }
}

impl Access {
    /// Returns the exports for a client without a certificate.
    pub fn new(exports: Exports, assignments: Arc<Assignments>) -> Access {
        Access { exports, assignments, tls_names: Vec::new() }
    }

    /// Sets the names in the client's certificate.
    pub fn show(&mut self, tls_names: Vec<String>) {
        self.tls_names = tls_names;
    }

    /// Returns the client's current permission for an export.
    pub fn right(&self, export: &Arc<Claimable>) -> Option<Right> {
        // An export that was removed has no name, so its assignments are unknown.
        let name = self.exports.name_of(export)?;
        right_over_nbd(&self.tls_names, self.assignments.of(&name).as_deref())
    }

    /// Returns the export of this name, if the client may open it. The empty name selects the only export, if there is
    /// just one.
    pub fn find(&self, name: &str) -> Option<FoundExport> {
        let (name, export) = self.exports.find(name)?;
        let right = self.right(&export)?;
        Some(FoundExport { name, export, right })
    }

    /// Returns all exports that the client may open, under all names, in their order.
    pub fn all(&self) -> Vec<FoundExport> {
        self.exports.names().iter().filter_map(|name| self.find(name)).collect()
    }
}
