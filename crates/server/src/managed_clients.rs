//! What the management API manages: the clients of a server, and who may open what over iSCSI.

use std::sync::Arc;
use std::time::Duration;

use flashwise_engine::export::Exports;
use flashwise_engine::status::ClientStatus;
use flashwise_engine::volume::Volume;

use crate::front::iscsi::names;
use crate::front::{Assigned, Connections, Iscsi, Right};
use crate::manage::ManageError;
use crate::manage::clients::{Clients, ExportAccess, IscsiStatus, OpenClient, told};
use crate::manage::plan::Plan;
use crate::served::Served;

/// How long what a client has sent may take to be answered when it is disconnected.
const PATIENCE: Duration = Duration::from_secs(3);

/// The clients of a server.
pub struct ServedClients {
    served: Arc<Served>,
    exports: Exports,
    connections: Connections,
    iscsi: Iscsi,
    listening: Vec<String>,
}

/// What people know a client by.
fn shown(client: &ClientStatus) -> String {
    let program = client.program.as_ref().zip(client.pid).map(|(program, pid)| format!("{program} ({pid})"));
    let known = client.initiator.clone().or(program).or_else(|| client.address.clone());
    known.unwrap_or_else(|| "a client of this machine".to_owned())
}

impl ServedClients {
    /// Clients of volumes and pools that opened `exports` over `connections`. Initiators connect at `listening`.
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

    /// The name of an export that has this one, which may be an alias.
    fn own_name(&self, name: &str) -> String {
        let export = self.exports.find(name);
        export.and_then(|(_, export)| self.exports.name_of(&export)).unwrap_or_else(|| name.to_owned())
    }

    /// The initiators that have an export open, and what they may do with it now.
    fn initiators_of(&self, export: &str) -> Vec<(ClientStatus, Option<Right>)> {
        let right = |client: ClientStatus| {
            let right = self.iscsi.right(client.initiator.as_deref()?, export);
            Some((client, right))
        };
        let clients = self.clients().into_iter().map(|open| open.client);
        clients.filter(|client| self.own_name(&client.export) == export).filter_map(right).collect()
    }

    fn check(&self, export: &str, assigned: Option<&[Assigned]>) -> Result<(), ManageError> {
        if self.listening.is_empty() {
            return Err(ManageError::Conflict("iSCSI is not served: listen has no iscsi:// address".to_owned()));
        }
        if self.exports.find(export).is_none() || self.own_name(export) != export {
            let there = self.own_names().join(", ");
            return Err(ManageError::NotFound(format!("no export '{export}', expected one of: {there}")));
        }
        let assigned = assigned.unwrap_or_default();
        if let Some(wrong) = assigned.iter().find(|own| !names::is_initiator(&own.initiator)) {
            let found = &wrong.initiator;
            let what =
                format!("found '{found}', expected the name of an initiator, such as iqn.1993-08.org.debian:01:abc");
            return Err(ManageError::Invalid(what));
        }
        for (at, own) in assigned.iter().enumerate() {
            if assigned[..at].iter().any(|other| other.initiator == own.initiator) {
                return Err(ManageError::Invalid(format!("found '{}' twice, expected it once", own.initiator)));
            }
        }
        Ok(())
    }

    fn own_names(&self) -> Vec<String> {
        self.exports.names().into_iter().filter(|name| self.own_name(name) == *name).collect()
    }

    /// What is to be known besides.
    fn remarks(&self, export: &str, assigned: &[Assigned]) -> Vec<String> {
        let mut remarks = Vec::new();
        for own in assigned {
            let name = &own.initiator;
            if self.iscsi.initiators.as_ref().is_some_and(|names| !names.contains(name)) {
                remarks.push(format!(
                    "{name} cannot log in: initiators of [iscsi] in the configuration does not name it."
                ));
            }
            if !own.read_only && self.iscsi.read_only_initiators.contains(name) {
                remarks.push(format!("{name} may only read all the same: read-only-initiators names it."));
            }
        }
        remarks.push(match &self.iscsi.chap {
            Some(chap) => format!("Initiators prove who they are by CHAP, as {}.", chap.name),
            None => "Nobody has to prove who it is: whoever can connect can say such a name.".to_owned(),
        });
        remarks.push(format!("NBD clients open {export} as before."));
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
                format!("Initiators log in again by themselves; to keep this one out, assign {export} to others.")
            }
            _ => "Nothing keeps it from coming again.".to_owned(),
        };
        let ends = format!("The connection of {name} to {export} ends, once what it has sent is answered.");
        Ok(Plan { does: vec![ends, again], ..Plan::default() })
    }

    fn disconnect(&self, number: u64) -> Result<String, ManageError> {
        let client = self.find(number)?.client;
        let gone = || ManageError::NotFound(format!("client {number} has gone already"));
        self.connections
            .end(number, PATIENCE)
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
            exports: self.own_names().into_iter().map(access).collect(),
        }
    }

    fn plan_assign(&self, export: &str, assigned: Option<&[Assigned]>) -> Result<Plan, ManageError> {
        self.check(export, assigned)?;
        let configured = self.iscsi.assignments.configured(export);
        let after = assigned.or(configured.as_deref());
        let mut does = vec![format!("{}.", told(export, after))];
        for (client, before) in self.initiators_of(export) {
            let Some(name) = &client.initiator else { continue };
            let now = self.iscsi.right_of(name, after);
            match (before == now, now) {
                (true, _) => {}
                (false, None) => does.push(format!("{name} has it open, and is disconnected.")),
                (false, Some(_)) => {
                    does.push(format!("{name} has it open; its session ends, and it may log in again."))
                }
            }
        }
        does.extend(self.remarks(export, after.unwrap_or_default()));
        does.push(match assigned {
            Some(_) => "This stays so over restarts, in place of what the configuration says.".to_owned(),
            None => "This is what the configuration says.".to_owned(),
        });
        Ok(Plan { does, ..Plan::default() })
    }

    fn assign(&self, export: &str, assigned: Option<Vec<Assigned>>) -> Result<String, ManageError> {
        self.check(export, assigned.as_deref())?;
        let before = self.initiators_of(export);
        let kept = self.iscsi.assignments.set(export, assigned);
        kept.map_err(|error| ManageError::Failed(format!("this cannot be kept: {error}")))?;
        let after = self.iscsi.assignments.of(export);
        for (client, right) in before {
            let now = client.initiator.as_deref().and_then(|name| self.iscsi.right(name, export));
            if let Some(number) = client.number.filter(|_| now != right) {
                self.connections.end(number, PATIENCE);
            }
        }
        Ok(told(export, after.as_deref()))
    }
}
