//! One NBD client, from greeting to disconnection.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use flashwise_core::filter::Client;

use super::access::Access;
use super::handshake::{Encryption, Handshake, OPTION_BYTES_MAX, Session, Step};
use super::protocol::greeting;
use super::session::Transmission;
use crate::front::budget::Account;
use crate::front::connection::Connection;
use crate::front::counters::Counters;
use crate::front::exchange::Exchange;
use crate::front::link::{INPUT_BYTES_MIN, Link};
use crate::front::options::Options;
use crate::front::output::Output;
use crate::front::tls::Tls;
use flashwise_storage::export::{Export, Exports};

/// Size of the buffer during option haggling.
const HANDSHAKE_INPUT_BYTES: usize = OPTION_BYTES_MAX + 64;

/// Serves one client until it disconnects.
pub fn serve(connection: Connection<'_>) {
    let Connection { control, client, exports, options, budget, counters, .. } = connection;
    let deadline = Instant::now().checked_add(options.handshake_time_max);
    let mut exchange = Exchange::new(control, HANDSHAKE_INPUT_BYTES, deadline);
    let haggled = haggle(&mut exchange, exports, options);
    let Exchange { mut transport, mut input, .. } = exchange;
    match haggled {
        Ok(Some((session, access))) => {
            input.resize(INPUT_BYTES_MIN);
            let account = Account::new(budget, control.completions());
            let client =
                Client { export: session.name.clone(), protocol: "nbd", tls_names: transport.tls_names(), ..client };
            let guest = session.export.enter(client);
            // A change of the permission ends the existing connections; this one exists from now on.
            if access.right(&session.export) != Some(session.right) {
                Counters::add(&counters.handshakes_failed, 1);
                return transport.close();
            }
            let link = Link::new(control, transport, input, account, counters, options.stall_time_max);
            Transmission::new(control, link, session, guest, options, counters).run();
        }
        Ok(None) => transport.close(),
        Err(_) => {
            Counters::add(&counters.handshakes_failed, 1);
            transport.close();
        }
    }
}

/// Negotiates an export that the client may open. Returns `None` if it requests none, or none that exists.
fn haggle(exchange: &mut Exchange<'_>, exports: &Exports, options: &Options) -> io::Result<Option<(Session, Access)>> {
    let access = Access::new(exports.clone(), Arc::clone(&options.iscsi.assignments));
    let mut handshake = Handshake::new(access, encryption(&options.tls));
    let mut output = Output::default();
    output.put(|output| output.extend_from_slice(&greeting()));
    loop {
        let mut step = Step::Continue;
        let mut taken = 0;
        output.put(|output| (taken, step) = handshake.advance(exchange.input.available(), output));
        exchange.input.consume(taken);
        exchange.send_all(&mut output)?;
        match step {
            Step::Continue if taken > 0 => {}
            Step::Continue => {
                if exchange.receive()? == 0 {
                    return Ok(None);
                }
                // The certificate comes before everything under TLS.
                handshake.show(exchange.transport.tls_names());
            }
            Step::StartTls => {
                // Bytes before TLS were not protected, so they may be forged.
                if !exchange.input.available().is_empty() {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "bytes between STARTTLS and TLS"));
                }
                let config = options.tls.config().expect("TLS is started only where it is on");
                exchange.start_tls(config)?;
                handshake.encrypted();
            }
            Step::Transmit(session) => return Ok(Some((session, handshake.into_access()))),
            Step::End => return Ok(None),
        }
    }
}

/// Returns the handshake's use of TLS.
fn encryption(tls: &Tls) -> Encryption {
    match tls {
        Tls::Off => Encryption::Off,
        Tls::Allowed(_) => Encryption::Allowed,
        Tls::Required(_) => Encryption::Required,
    }
}
