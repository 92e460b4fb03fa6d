//! An iSCSI initiator that sends what a test wants, valid or not. Written after RFC 7143, independently of the server.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use crate::waiting::PATIENCE;

/// A reply: its header and its data.
#[derive(Debug)]
pub struct Answer {
    /// The 48 bytes before its data.
    pub header: [u8; 48],
    /// Its data.
    pub data: Vec<u8>,
}

impl Answer {
    /// Returns its opcode.
    pub fn opcode(&self) -> u8 {
        self.header[0] & 0x3f
    }

    /// Returns four bytes of the header as a number.
    pub fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.header[at..at + 4].try_into().unwrap())
    }
}

/// The result of a command.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The status; 0 for success.
    pub status: u8,
    /// Key, code and qualifier of the sense data.
    pub sense: Option<(u8, u8, u8)>,
    /// The bytes read.
    pub data: Vec<u8>,
    /// Bytes beyond the expected ones (above 0), or the shortfall (below 0).
    pub residual: i64,
}

impl Outcome {
    /// True if the command succeeded.
    pub fn is_good(&self) -> bool {
        self.status == 0
    }
}

/// A connection, with or without a session.
pub struct Initiator {
    /// The connection.
    pub stream: TcpStream,
    /// Number of the next command.
    pub command_number: u32,
    /// Number of the next status.
    pub status_number: u32,
    tag: u32,
}

/// The initiator's name.
pub const NAME: &str = "iqn.2026-11.org.example:test";
/// The target that is the export `disk`.
pub const TARGET: &str = "iqn.2026-11.org.flashwise:disk";

/// Returns keys and values in their encoding.
pub fn text(pairs: &[(&str, &str)]) -> Vec<u8> {
    pairs.iter().flat_map(|(key, value)| format!("{key}={value}\0").into_bytes()).collect()
}

impl Initiator {
    /// Opens a connection without a session.
    pub fn connect(address: &str) -> Initiator {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Initiator { stream, command_number: 1, status_number: 0, tag: 0 }
    }

    /// Opens a session with the export `disk`, whose identifier ends with `isid`.
    pub fn log_in(address: &str, name: &str, isid: u8) -> Initiator {
        let mut initiator = Initiator::connect(address);
        let pairs = [("InitiatorName", name), ("SessionType", "Normal"), ("TargetName", TARGET), ("InitialR2T", "No")];
        let answer = initiator.login(isid, 0x87, &text(&pairs)).unwrap();
        assert_eq!((answer.opcode(), answer.header[1], answer.header[36]), (0x23, 0x87, 0), "{answer:?}");
        initiator
    }

    /// Sends one request of a login and returns the reply; `flags` is its second byte.
    pub fn login(&mut self, isid: u8, flags: u8, data: &[u8]) -> io::Result<Answer> {
        let mut header = [0; 48];
        (header[0], header[1]) = (0x43, flags);
        header[8..14].copy_from_slice(&[0x80, 0, 0, 0, 0, isid]);
        header[24..28].copy_from_slice(&self.command_number.to_be_bytes());
        self.send(header, data)?;
        self.receive()
    }

    /// Sends a header, with the length of its data, and the data.
    pub fn send(&mut self, mut header: [u8; 48], data: &[u8]) -> io::Result<()> {
        header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        let mut bytes = header.to_vec();
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        self.stream.write_all(&bytes)
    }

    /// Receives a reply.
    pub fn receive(&mut self) -> io::Result<Answer> {
        let mut header = [0; 48];
        self.stream.read_exact(&mut header)?;
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        let mut data = vec![0; length.next_multiple_of(4)];
        self.stream.read_exact(&mut data)?;
        data.truncate(length);
        let answer = Answer { header, data };
        self.status_number = answer.word(24).wrapping_add(1);
        Ok(answer)
    }

    /// True if the server has closed the connection.
    pub fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }

    /// Returns the header of a command, with the next number.
    pub fn command(&mut self, flags: u8, expected: u32, cdb: &[u8]) -> [u8; 48] {
        let mut header = [0; 48];
        self.tag += 1;
        (header[0], header[1]) = (0x01, flags);
        header[16..20].copy_from_slice(&self.tag.to_be_bytes());
        header[20..24].copy_from_slice(&expected.to_be_bytes());
        header[24..28].copy_from_slice(&self.command_number.to_be_bytes());
        header[28..32].copy_from_slice(&self.status_number.to_be_bytes());
        header[32..32 + cdb.len()].copy_from_slice(cdb);
        self.command_number = self.command_number.wrapping_add(1);
        header
    }

    /// Sends a data segment, solicited or not: `transfer` is its tag.
    pub fn data_out(&mut self, is_last: bool, transfer: u32, number: u32, offset: u32, data: &[u8]) {
        let mut header = [0; 48];
        (header[0], header[1]) = (0x05, if is_last { 0x80 } else { 0 });
        header[16..20].copy_from_slice(&self.tag.to_be_bytes());
        header[20..24].copy_from_slice(&transfer.to_be_bytes());
        header[36..40].copy_from_slice(&number.to_be_bytes());
        header[40..44].copy_from_slice(&offset.to_be_bytes());
        self.send(header, data).unwrap();
    }

    /// Performs a command that reads at most `expected` bytes, or transfers nothing.
    pub fn read(&mut self, expected: u32, cdb: &[u8]) -> Outcome {
        let header = self.command(if expected > 0 { 0xc0 } else { 0x80 }, expected, cdb);
        self.send(header, &[]).unwrap();
        self.outcome()
    }

    /// Performs a command with all its data.
    pub fn write(&mut self, cdb: &[u8], data: &[u8]) -> Outcome {
        let header = self.command(0xa0, data.len() as u32, cdb);
        self.send(header, data).unwrap();
        self.outcome()
    }

    /// Writes `data`, only on request of the target.
    pub fn write_solicited(&mut self, cdb: &[u8], data: &[u8]) -> Outcome {
        let header = self.command(0xa0, data.len() as u32, cdb);
        self.send(header, &[]).unwrap();
        let mut sent = 0;
        while sent < data.len() {
            let asked = self.receive().unwrap();
            assert_eq!(asked.opcode(), 0x31, "{asked:?}");
            let (from, length) = (asked.word(40) as usize, asked.word(44) as usize);
            for (number, at) in (from..from + length).step_by(128 << 10).enumerate() {
                let end = (at + (128 << 10)).min(from + length);
                self.data_out(end == from + length, asked.word(20), number as u32, at as u32, &data[at..end]);
            }
            sent += length;
        }
        self.outcome()
    }

    /// Returns the result of the last command.
    pub fn outcome(&mut self) -> Outcome {
        let mut data = Vec::new();
        loop {
            let answer = self.receive().unwrap();
            let sign = match answer.header[1] & 6 {
                4 => 1,
                2 => -1,
                _ => 0,
            };
            let residual = sign * i64::from(answer.word(44));
            match answer.opcode() {
                0x25 => {
                    assert_eq!(answer.word(40) as usize, data.len());
                    data.extend(answer.data);
                    if answer.header[1] & 1 != 0 {
                        return Outcome { status: answer.header[3], sense: None, data, residual };
                    }
                }
                0x21 => {
                    let sense = answer.data.get(2..).map(|sense| (sense[2] & 0xf, sense[12], sense[13]));
                    return Outcome { status: answer.header[3], sense, data, residual };
                }
                other => panic!("an answer of opcode {other:#x}"),
            }
        }
    }

    /// Clears the pending unit attentions.
    pub fn clear_attentions(&mut self) {
        while self.read(0, &[0; 6]).status == 2 {}
    }
}

/// Returns READ (10) or another command of its layout.
pub fn cdb_10(code: u8, block: u32, blocks: u16) -> [u8; 10] {
    let mut cdb = [0; 10];
    cdb[0] = code;
    cdb[2..6].copy_from_slice(&block.to_be_bytes());
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    cdb
}
