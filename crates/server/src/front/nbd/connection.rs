//! One client of NBD, from greeting to goodbye.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use flashwise_core::filter::Client;

use super::handshake::{Encryption, Handshake, OPTION_BYTES_MAX, Session, Step};
use super::protocol::greeting;
use super::session::{INPUT_BYTES_MIN, Transmission};
use crate::front::budget::Account;
use crate::front::connection::{Connection, Control};
use crate::front::counters::Counters;
use crate::front::input::Input;
use crate::front::options::Options;
use crate::front::output::Output;
use crate::front::tls::Tls;
use crate::front::transport::{Patience, Transport};
use flashwise_engine::export::Exports;

/// Size of the buffer while options are haggled over.
const HANDSHAKE_INPUT_BYTES: usize = OPTION_BYTES_MAX + 64;

/// Serves one client until it goes.
pub fn serve(connection: Connection<'_>) {
    let Connection { control, client, exports, options, budget, counters } = connection;
    let mut transport = Transport::new(Arc::clone(control.socket()));
    let mut input = Input::new(HANDSHAKE_INPUT_BYTES);
    match haggle(control, &mut transport, &mut input, exports, options) {
        Ok(Some(session)) => {
            input.resize(INPUT_BYTES_MIN);
            let account = Account::new(budget, control.completions());
            let client = Client { export: session.name.clone(), tls_names: transport.tls_names(), ..client };
            let guest = session.export.enter(client);
            Transmission::new(control, transport, session, guest, options, account, counters, input).run();
        }
        Ok(None) => transport.close(),
        Err(_) => {
            Counters::add(&counters.handshakes_failed, 1);
            transport.close();
        }
    }
}

/// Agrees with the client on an export; `None` if it wants none, or none that there is.
fn haggle(
    control: &Control,
    transport: &mut Transport,
    input: &mut Input,
    exports: &Exports,
    options: &Options,
) -> io::Result<Option<Session>> {
    let deadline = Instant::now().checked_add(options.handshake_time_max);
    let mut handshake = Handshake::new(exports.clone(), encryption(&options.tls));
    let mut output = Output::default();
    output.put(|output| output.extend_from_slice(&greeting()));
    loop {
        let mut step = Step::Continue;
        let mut taken = 0;
        output.put(|output| (taken, step) = handshake.advance(input.available(), output));
        input.consume(taken);
        send_all(control, transport, &mut output, deadline)?;
        match step {
            Step::Continue if taken > 0 => {}
            Step::Continue => {
                if receive(control, transport, input, deadline)? == 0 {
                    return Ok(None);
                }
            }
            Step::StartTls => {
                // Bytes that came along were not protected; who sends any is not the client.
                if !input.available().is_empty() {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "bytes between STARTTLS and TLS"));
                }
                start_tls(transport, &options.tls)?;
                handshake.encrypted();
            }
            Step::Transmit(session) => return Ok(Some(session)),
            Step::End => return Ok(None),
        }
    }
}

/// What the handshake says of TLS.
fn encryption(tls: &Tls) -> Encryption {
    match tls {
        Tls::Off => Encryption::Off,
        Tls::Allowed(_) => Encryption::Allowed,
        Tls::Required(_) => Encryption::Required,
    }
}

fn start_tls(transport: &mut Transport, tls: &Tls) -> io::Result<()> {
    let config = tls.config().expect("TLS is started only where it is on");
    transport.start_tls(Arc::clone(config))
}

fn check_stop(control: &Control) -> io::Result<()> {
    if control.is_stopping() || control.is_abandoned() {
        return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the server is stopping"));
    }
    Ok(())
}

fn send_all(
    control: &Control,
    transport: &mut Transport,
    output: &mut Output,
    deadline: Option<Instant>,
) -> io::Result<()> {
    loop {
        transport.send(output)?;
        if output.is_empty() {
            return Ok(());
        }
        check_stop(control)?;
        transport.wait(false, true, control.completions().bell(), deadline)?;
    }
}

fn receive(
    control: &Control,
    transport: &mut Transport,
    input: &mut Input,
    deadline: Option<Instant>,
) -> io::Result<usize> {
    loop {
        check_stop(control)?;
        match input.receive(transport, Patience::Now) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            received => return received,
        }
        let writes = transport.has_more(&Output::default());
        transport.wait(true, writes, control.completions().bell(), deadline)?;
        if writes {
            transport.send(&mut Output::default())?;
        }
    }
}
