//! Clients of a server, for the management API: the list, disconnection, and assignments of exports.

use std::sync::Arc;
use std::time::Duration;

use flashwise_storage::export::Exports;
use flashwise_storage::status::ClientStatus;
use flashwise_storage::volume::Volume;

use crate::front::iscsi::names;
use crate::front::{Assigned, Connections, Iscsi, Right, check_client, right_over_nbd};
use crate::manage::ManageError;
use crate::manage::clients::{Clients, ExportAccess, IscsiStatus, OpenClient, access};
use crate::manage::plan::Plan;
use crate::state::served::Served;

/// Time limit for answering a disconnected client's requests.
const PATIENCE: Duration = Duration::from_secs(3);

/// The clients of a server.
pub struct ServedClients {
    served: Arc<Served>,
    exports: Exports,
    connections: Connections,
    iscsi: Iscsi,
    listening: Vec<String>,
}

/// Returns the name of a client for people.
fn shown(client: &ClientStatus) -> String {
    let program = client.program.as_ref().zip(client.pid).map(|(program, pid)| format!("{program} ({pid})"));
    let known = client.initiator.clone().or(program).or_else(|| client.address.clone());
    let known = known.unwrap_or_else(|| "a client of this machine".to_owned());
    match &client.tls_names[..] {
        [] => known,
        names => format!("{known} with the certificate of {}", names.join(", ")),
    }
}

impl ServedClients {
    /// Creates the clients of volumes and pools that opened `exports` over `connections`. Initiators connect at
    /// `listening`.
    pub fn new(
        served: Arc<Served>,
        exports: Exports,
        connections: Connections,
        iscsi: Iscsi,
        listening: Vec<String>,
    ) -> ServedClients {
        ServedClients { served, exports, connections, iscsi, listening }
    }

    fn find(&self, number: u64) -> Result<OpenClient, ManageError> {
        let found = self.clients().into_iter().find(|open| open.client.number == Some(number));
        found.ok_or_else(|| ManageError::NotFound(format!("no client {number}: it has gone, or never was here")))
    }

    /// Returns the own name of the export with this name, which may be an alias.
    fn own_name(&self, name: &str) -> String {
        let export = self.exports.find(name);
        export.and_then(|(_, export)| self.exports.name_of(&export)).unwrap_or_else(|| name.to_owned())
    }

    /// Returns the clients that have an export open.
    fn clients_of(&self, export: &str) -> Vec<ClientStatus> {
        let clients = self.clients().into_iter().map(|open| open.client);
        clients.filter(|client| self.own_name(&client.export) == export).collect()
    }

    /// Returns the permission of a client for an export with these assignments.
    fn right(&self, client: &ClientStatus, assigned: Option<&[Assigned]>) -> Option<Right> {
        match &client.initiator {
            Some(initiator) => self.iscsi.right_of(initiator, assigned),
            None => right_over_nbd(&client.tls_names, assigned),
        }
    }

    fn check(&self, export: &str, assigned: Option<&[Assigned]>) -> Result<(), ManageError> {
        let (has_iscsi, has_certificates) = (!self.listening.is_empty(), self.connections.ask_for_certificates());
        let no_iscsi = "iSCSI is not served: listen has no iscsi:// address";
        let no_certificates = "no client of NBD can show a certificate: [tls] is off, or has no client-authorities";
        let takes_back = assigned.is_none() && self.iscsi.assignments.is_given(export);
        if !has_iscsi && !has_certificates && !takes_back {
            return Err(ManageError::Conflict(format!("{no_iscsi}; and {no_certificates}")));
        }
        // Assignments of a removed export can be revoked.
        if !takes_back && (self.exports.find(export).is_none() || self.own_name(export) != export) {
            let there = self.own_names().join(", ");
            return Err(ManageError::NotFound(format!("no export '{export}', expected one of: {there}")));
        }
        let assigned = assigned.unwrap_or_default();
        for (at, own) in assigned.iter().enumerate() {
            let name = &own.initiator;
            check_client(name).map_err(ManageError::Invalid)?;
            if assigned[..at].iter().any(|other| other.is_same(own)) {
                return Err(ManageError::Invalid(format!("found '{name}' twice, expected it once")));
            }
            match own.certificate() {
                Some(_) if !has_certificates => {
                    return Err(ManageError::Conflict(format!("found '{name}', but {no_certificates}")));
                }
                None if !has_iscsi => return Err(ManageError::Conflict(format!("found '{name}', but {no_iscsi}"))),
                _ => {}
            }
        }
        Ok(())
    }

    fn own_names(&self) -> Vec<String> {
        self.exports.names().into_iter().filter(|name| self.own_name(name) == *name).collect()
    }

    /// Returns remarks on assignments.
    fn remarks(&self, assigned: &[Assigned]) -> Vec<String> {
        let mut remarks = Vec::new();
        let initiators = || assigned.iter().filter(|own| own.certificate().is_none());
        for own in initiators() {
            let name = &own.initiator;
            if self.iscsi.initiators.as_ref().is_some_and(|names| !names.contains(name)) {
                remarks.push(format!(
                    "{name} cannot log in: initiators of [iscsi] in the configuration does not name it."
                ));
            }
            if !own.read_only && self.iscsi.read_only_initiators.contains(name) {
                remarks.push(format!("{name} stays read-only: it is in read-only-initiators."));
            }
        }
        if initiators().next().is_some() {
            remarks.push(match &self.iscsi.chap {
                Some(chap) => format!("Initiators authenticate by CHAP as {}.", chap.name),
                None => "Initiators do not authenticate: any client that can connect can use such a name.".to_owned(),
            });
        }
        remarks
    }
}

impl Clients for ServedClients {
    fn clients(&self) -> Vec<OpenClient> {
        let of = |volume: &Arc<Volume>| {
            let name = volume.config().name.clone();
            volume.guests().status().into_iter().map(move |client| OpenClient { volume: name.clone(), client })
        };
        self.served.volumes().iter().flat_map(of).collect()
    }

    fn plan_disconnect(&self, number: u64) -> Result<Plan, ManageError> {
        let client = self.find(number)?.client;
        let (name, export) = (shown(&client), &client.export);
        let again = match client.protocol.as_str() {
            "iscsi" => {
                format!("Initiators log in again automatically; to exclude this one, assign {export} to others.")
            }
            _ => "It can connect again.".to_owned(),
        };
        let ends = format!("The connection of {name} to {export} closes after the answers to its requests.");
        Ok(Plan { does: vec![ends, again], ..Plan::default() })
    }

    fn disconnect(&self, number: u64) -> Result<String, ManageError> {
        let client = self.find(number)?.client;
        let gone = || ManageError::NotFound(format!("client {number} has already disconnected"));
        self.connections
            .end(&[number], PATIENCE)
            .then(|| format!("{} was disconnected from {}", shown(&client), client.export))
            .ok_or_else(gone)
    }

    fn iscsi(&self) -> IscsiStatus {
        let access = |name: String| ExportAccess {
            target: names::target(&name),
            assigned: self.iscsi.assignments.of(&name),
            changed: self.iscsi.assignments.is_given(&name),
            name,
        };
        IscsiStatus {
            listening: self.listening.clone(),
            initiators: self.iscsi.initiators.clone(),
            read_only_initiators: self.iscsi.read_only_initiators.clone(),
            chap_name: self.iscsi.chap.as_ref().map(|chap| chap.name.clone()),
            mutual_chap_name: self.iscsi.mutual_chap.as_ref().map(|chap| chap.name.clone()),
            nbd_certificates: self.connections.ask_for_certificates(),
            exports: self.own_names().into_iter().map(access).collect(),
        }
    }

    fn plan_assign(&self, export: &str, assigned: Option<&[Assigned]>) -> Result<Plan, ManageError> {
        self.check(export, assigned)?;
        let configured = self.iscsi.assignments.configured(export);
        let after = assigned.or(configured.as_deref());
        let mut does = vec![format!("{}.", access(export, after))];
        let before = self.iscsi.assignments.of(export);
        for client in self.clients_of(export) {
            let (name, now) = (shown(&client), self.right(&client, after));
            match now {
                _ if now == self.right(&client, before.as_deref()) => {}
                None => does.push(format!("{name} has it open, and is disconnected.")),
                Some(_) => does.push(format!("{name} has it open; its session ends, and it can log in again.")),
            }
        }
        does.extend(self.remarks(after.unwrap_or_default()));
        does.push(match assigned {
            Some(_) => "This replaces the configuration, also after restarts.".to_owned(),
            None => "This is the assignment of the configuration.".to_owned(),
        });
        Ok(Plan { does, ..Plan::default() })
    }

    fn assign(&self, export: &str, assigned: Option<Vec<Assigned>>) -> Result<String, ManageError> {
        self.check(export, assigned.as_deref())?;
        let before = self.iscsi.assignments.of(export);
        let kept = self.iscsi.assignments.set(export, assigned);
        kept.map_err(|error| ManageError::Failed(format!("this cannot be kept: {error}")))?;
        let after = self.iscsi.assignments.of(export);
        // Searched after the change, so that no client that connected meanwhile keeps an older permission.
        let is_changed =
            |client: &ClientStatus| self.right(client, before.as_deref()) != self.right(client, after.as_deref());
        let changed: Vec<u64> = self
            .clients_of(export)
            .iter()
            .filter(|client| is_changed(client))
            .filter_map(|client| client.number)
            .collect();
        self.connections.end(&changed, PATIENCE);
        Ok(access(export, after.as_deref()))
    }
}
