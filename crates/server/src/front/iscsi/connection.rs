//! One iSCSI client, from login to its end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flashwise_core::filter::Client;
use flashwise_storage::export::{Export, Exports};

use super::login::{Agreed, Login, Purpose, Step, status};
use super::names;
use super::portals;
use super::session::{Session, Use};
use super::target::{Seat, Target};
use crate::front::address::Address;
use crate::front::assignments::Right;
use crate::front::budget::Account;
use crate::front::connection::{Connection, Control};
use crate::front::counters::Counters;
use crate::front::exchange::Exchange;
use crate::front::link::{INPUT_BYTES_MIN, Link};
use crate::front::output::Output;
use crate::scsi::nexus::InitiatorPort;

/// Upper limit for the time of a login, regardless of the options.
const LOGIN_TIME_MAX: Duration = Duration::from_secs(15);

/// Serves one client until it disconnects.
pub fn serve(target: &Target, connection: Connection<'_>) {
    let Connection { control, client, exports, options, addresses, budget, counters } = connection;
    let deadline = Instant::now().checked_add(options.handshake_time_max.min(LOGIN_TIME_MAX));
    let mut exchange = Exchange::new(control, Login::MESSAGE_BYTES_MAX, deadline);
    let begun = login(target, &mut exchange, control, exports, &client, deadline);
    let Exchange { mut transport, mut input, .. } = exchange;
    match begun {
        Ok(Some((agreed, used, _seat))) => {
            input.resize(INPUT_BYTES_MIN);
            let account = Account::new(budget, control.completions());
            let portals = portals::told(came_to(control), &listening(addresses));
            let link = Link::new(control, transport, input, account, counters, options.stall_time_max);
            Session::new(control, link, &agreed, used, exports, &portals, options, counters).run();
        }
        Ok(None) => transport.close(),
        Err(_) => {
            Counters::add(&counters.handshakes_failed, 1);
            transport.close();
        }
    }
}

type Begun<'a> = (Agreed, Option<Use>, Seat<'a>);

/// Logs the client in. Returns an error if it is rejected or sends nonsense, `None` if it disconnects.
fn login<'a>(
    target: &'a Target,
    exchange: &mut Exchange<'_>,
    control: &Arc<Control>,
    exports: &Exports,
    client: &Client,
    deadline: Option<Instant>,
) -> io::Result<Option<Begun<'a>>> {
    let exists = |name: &str| names::check_export(name).is_ok() && exports.find(name).is_some();
    let random = |bytes: &mut [u8]| {
        rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty())
            .is_ok_and(|count| count == bytes.len())
    };
    let mut login = Login::new(target.access(), &exists, &random);
    let mut output = Output::default();
    loop {
        let mut step = Step::Continue;
        let mut taken = 0;
        output.put(|output| (taken, step) = login.advance(exchange.input.available(), output));
        exchange.input.consume(taken);
        exchange.send_all(&mut output)?;
        match step {
            Step::Continue if taken > 0 => {}
            Step::Continue => {
                if exchange.receive()? == 0 {
                    return Ok(None);
                }
            }
            Step::Begin(agreed) => {
                let begun = target.enter(&agreed, control, deadline).and_then(|seat| {
                    let used = open(target, &agreed, exports, client)?;
                    Ok((seat, used))
                });
                let number = begun.as_ref().map(|(seat, _)| seat.number()).map_err(|status| *status);
                output.put(|output| login.finish(number, output));
                exchange.send_all(&mut output)?;
                let (seat, used) = begun.map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
                return Ok(Some((*agreed, used, seat)));
            }
            Step::End => return Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
        }
    }
}

/// Opens the logical unit of a session, if it has one.
fn open(target: &Target, agreed: &Agreed, exports: &Exports, client: &Client) -> Result<Option<Use>, u16> {
    let Purpose::Normal(name) = &agreed.purpose else { return Ok(None) };
    let (name, export) = exports.find(name).ok_or(status::NOT_FOUND)?;
    let (initiator, own) = (&agreed.initiator, exports.name_of(&export).unwrap_or_else(|| name.clone()));
    let right = target.access().right(initiator, &own).ok_or(status::AUTHORIZATION_FAILURE)?;
    let unit = target.unit(exports, &name, &export).map_err(|error| {
        tracing::error!(event = "unit-not-opened", export = name, %error, "a logical unit cannot be opened");
        status::OUT_OF_RESOURCES
    })?;
    let port = InitiatorPort { transport_id: names::transport_id(&agreed.initiator, agreed.isid) };
    let nexus = unit.enter(port, right == Right::Read);
    let known = Client { export: name, protocol: "iscsi", initiator: Some(initiator.clone()), ..client.clone() };
    let guest = export.enter(known);
    let used = Use::new(unit, nexus, guest);
    // A change of the permission ends the existing sessions; this one exists from now on.
    match target.access().right(initiator, &own) == Some(right) {
        true => Ok(Some(used)),
        false => Err(status::AUTHORIZATION_FAILURE),
    }
}

/// Returns the address that the client connected to.
fn came_to(control: &Control) -> Option<SocketAddr> {
    let address = rustix::net::getsockname(control.socket()).ok()?;
    SocketAddr::try_from(address).ok()
}

/// Returns the TCP addresses. A listening server has no host names there.
fn listening(addresses: &[Address]) -> Vec<SocketAddr> {
    let of_tcp = |address: &Address| match address {
        Address::Tcp { host, port } => Some(SocketAddr::new(host.parse().ok()?, *port)),
        Address::Unix(_) => None,
    };
    addresses.iter().filter_map(of_tcp).collect()
}
