//! Clients that hold connections of the API, and others that make requests meanwhile.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use flashwise_server::limits::Limit;
use flashwise_server::manage::{Address, Api};
use serde_json::{Value, json};

use super::client::ask;
use super::{local, start};

/// Longer than any reply takes; a client that is blocked fails then.
const PATIENCE: Duration = Duration::from_secs(8);

const TOKEN: &str = "open-sesame-01234";

/// Opens a connection with a timeout.
fn connect(api: &Api) -> TcpStream {
    let Address::Tcp(host, port) = api.address() else { panic!("TCP") };
    let stream = TcpStream::connect((host.as_str(), *port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Makes a request over an open connection. Returns the status, or an error if there is no reply.
fn asks(stream: &mut TcpStream, path: &str, headers: &str) -> std::io::Result<u16> {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").as_bytes())?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap();
    // A stream of events has no length, and is not read.
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    stream.read_exact(&mut vec![0; length.map_or(0, |length| length.parse().unwrap())])?;
    Ok(head[9..12].parse().unwrap())
}

fn bearer() -> String {
    format!("Authorization: Bearer {TOKEN}\r\n")
}

/// Makes a request over a connection of its own and returns the status.
fn status_of(api: &Api, path: &str, headers: &str) -> u16 {
    asks(&mut connect(api), path, headers).unwrap_or_else(|error| panic!("{path} is not answered: {error}"))
}

/// Checks that health checks, metrics and status get replies.
fn check_answers(api: &Api) {
    for _ in 0..3 {
        assert_eq!((status_of(api, "/healthz", ""), status_of(api, "/readyz", "")), (200, 200));
        assert_eq!(status_of(api, "/metrics", &bearer()), 200);
        assert_eq!(status_of(api, "/v1/status", &bearer()), 200);
    }
}

/// Some send nothing, some half a request; some do not read their reply, and some send a body that never ends.
#[test]
fn clients_without_a_credential_do_not_block_others() {
    let (api, fake) = start("127.0.0.1:0", Some(TOKEN)).unwrap();
    let mut known = connect(&api);
    assert_eq!(asks(&mut known, "/v1/status", &bearer()).unwrap(), 200);
    let sent = [
        "",
        "GET /healthz HTTP/1.1\r\nHost: loc",
        "GET /page/app.mjs HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "POST /v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{",
    ];
    for bytes in sent {
        let held: Vec<TcpStream> = (0..100)
            .map(|_| {
                let mut stream = connect(&api);
                stream.write_all(bytes.as_bytes()).unwrap();
                stream
            })
            .collect();
        check_answers(&api);
        drop(held);
    }
    assert!(asks(&mut known, "/healthz", &bearer()).is_ok(), "a connection with a credential stays");
    assert!(fake.limits.times(Limit::ApiUnknown) > 0);
}

#[test]
fn unread_event_streams_do_not_block_others() {
    let (api, fake) = start("127.0.0.1:0", Some(TOKEN)).unwrap();
    let asked = (0..64).map(|_| {
        let mut stream = connect(&api);
        let status = asks(&mut stream, "/v1/events", &bearer()).unwrap();
        (stream, status)
    });
    let (mut streams, statuses): (Vec<TcpStream>, Vec<u16>) = asked.unzip();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 32);
    assert_eq!(statuses.iter().filter(|status| **status == 503).count(), 32);
    assert_eq!(fake.limits.times(Limit::ApiStreams), 32);
    check_answers(&api);
    // More than the limit: the unused ones are closed, and no stream.
    let _idle: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = connect(&api);
            assert_eq!(asks(&mut stream, "/v1/status", &bearer()).unwrap(), 200);
            stream
        })
        .collect();
    check_answers(&api);
    assert!(fake.limits.times(Limit::ApiKnown) > 0);
    let first = statuses.iter().position(|status| *status == 200).unwrap();
    let mut text = String::new();
    while text.matches("event: status").count() < 3 {
        let mut bytes = [0; 4096];
        let count = streams[first].read(&mut bytes).unwrap();
        assert!(count > 0, "the stream goes on");
        text += &String::from_utf8_lossy(&bytes[..count]);
    }
}

/// As many flushes as there are threads wait for a device.
#[test]
fn calls_that_wait_for_devices_do_not_block_health_checks() {
    let (api, fake) = start("127.0.0.1:0", Some(TOKEN)).unwrap();
    fake.hold_flush();
    let flush = format!("POST /v1/flush HTTP/1.1\r\nHost: localhost\r\n{}Content-Length: 0\r\n\r\n", bearer());
    let mut waiting: Vec<TcpStream> = (0..20).map(|_| connect(&api)).collect();
    waiting.iter_mut().for_each(|stream| stream.write_all(flush.as_bytes()).unwrap());
    fake.wait_for("flush all");
    for _ in 0..5 {
        assert_eq!((status_of(&api, "/healthz", ""), status_of(&api, "/readyz", "")), (200, 200));
    }
    fake.release_flush();
    for stream in &mut waiting {
        let mut line = [0; 12];
        stream.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"HTTP/1.1 204");
    }
}

#[test]
fn the_limits_are_in_status_and_metrics() {
    let (api, fake) = local();
    (0..7).for_each(|_| fake.limits.reached(Limit::Files));
    let text = ask(&api, "GET", "/metrics", "").body;
    assert!(text.contains("flashwise_limit_reached_total{limit=\"files\"} 7\n"), "{text}");
    let status: Value = serde_json::from_str(&ask(&api, "GET", "/v1/status", "").body).unwrap();
    assert_eq!((&status["limits_reached"]["files"], &status["limits_reached"]["connections"]), (&json!(7), &json!(0)));
}
