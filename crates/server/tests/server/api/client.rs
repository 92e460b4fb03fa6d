//! An HTTP client that sends its input byte for byte.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use flashwise_server::manage::{Address, Api};

/// A reply.
pub struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// Sends bytes and reads until the server closes the connection.
pub fn send(address: &Address, bytes: &[u8]) -> String {
    fn exchange(mut stream: impl Read + Write, bytes: &[u8]) -> String {
        // A server that has read enough may close the connection before everything is sent, and so reset its reply's
        // connection.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }
    match address {
        Address::Tcp(host, port) => exchange(TcpStream::connect((host.as_str(), *port)).unwrap(), bytes),
        Address::Unix(path) => exchange(UnixStream::connect(path).unwrap(), bytes),
    }
}

/// Sends the head of a request, with `Connection: close` added.
pub fn request(api: &Api, head: &str) -> Answer {
    parse(&send(api.address(), head.replacen("\r\n", "\r\nConnection: close\r\n", 1).as_bytes()))
}

/// Sends a request as clients do.
pub fn ask(api: &Api, method: &str, path: &str, body: &str) -> Answer {
    ask_at(api.address(), method, path, body)
}

/// Sends a request to an address as clients do.
pub fn ask_at(address: &Address, method: &str, path: &str, body: &str) -> Answer {
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    parse(&send(address, format!("{head}{body}").as_bytes()))
}

fn parse(answer: &str) -> Answer {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned())).unwrap();
    Answer { status, headers: lines.map(header).collect(), body: body.to_owned() }
}
