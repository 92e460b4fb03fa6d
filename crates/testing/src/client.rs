//! An NBD client that sends exactly what a test wants, over a raw socket.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use flashwise_server::front::Address;
use flashwise_server::front::nbd::protocol::{
    NBD_OPTS_MAGIC, NBD_REP_MAGIC, NBD_REQUEST_MAGIC, NBD_SIMPLE_REPLY_MAGIC, NBD_STRUCTURED_REPLY_MAGIC, option,
    option_reply, reply_flag, reply_type,
};

use crate::waiting::PATIENCE;

/// Its connection.
pub enum Socket {
    /// On the same machine.
    Unix(UnixStream),
    /// Over a network.
    Tcp(TcpStream),
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.read(buffer),
            Self::Tcp(socket) => socket.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.write(buffer),
            Self::Tcp(socket) => socket.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection, with or without an open export.
pub struct Client {
    /// The connection.
    pub socket: Socket,
    /// True if structured replies were negotiated.
    pub structured: bool,
    /// Size of the export in bytes.
    pub size: u64,
    /// The export's transmission flags.
    pub transmission_flags: u16,
}

/// A reply to a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    /// The request's cookie.
    pub cookie: u64,
    /// The error; 0 for success.
    pub error: u32,
    /// The bytes read.
    pub data: Vec<u8>,
}

impl Client {
    /// Sends as much as the server accepts without waiting, over a Unix socket.
    pub fn give_at_once(&mut self, bytes: &[u8]) {
        let Socket::Unix(socket) = &mut self.socket else { panic!("the server listens at a Unix socket") };
        socket.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while let Ok(count) = socket.write(&bytes[sent..]) {
            sent += count;
            if sent == bytes.len() {
                break;
            }
        }
        socket.set_nonblocking(false).unwrap();
    }

    /// Connects, and reads the greeting.
    pub fn connect(address: &Address) -> io::Result<Self> {
        let socket = match address {
            Address::Unix(path) => {
                let socket = UnixStream::connect(path)?;
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.set_write_timeout(Some(PATIENCE))?;
                Socket::Unix(socket)
            }
            Address::Tcp { host, port } => {
                let socket = TcpStream::connect((host.as_str(), *port))?;
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.set_write_timeout(Some(PATIENCE))?;
                Socket::Tcp(socket)
            }
        };
        let mut client = Self { socket, structured: false, size: 0, transmission_flags: 0 };
        let greeting = client.take(18)?;
        assert_eq!(greeting, b"NBDMAGICIHAVEOPT\x00\x03");
        Ok(client)
    }

    /// Connects and opens an export.
    pub fn open(address: &Address, export: &str, structured: bool) -> io::Result<Self> {
        let mut client = Self::connect(address)?;
        client.give(&[0, 0, 0, 3])?;
        if structured {
            let replies = client.option(option::NBD_OPT_STRUCTURED_REPLY, b"")?;
            assert_eq!(replies, [(option_reply::NBD_REP_ACK, vec![])]);
            client.structured = true;
        }
        client.go(export)?;
        Ok(client)
    }

    /// Connects and opens an export as the oldest clients do, which know no options with replies.
    pub fn open_unanswered(address: &Address, export: &str) -> io::Result<Self> {
        let mut client = Self::connect(address)?;
        client.give(&[0, 0, 0, 3])?;
        client.give(&option_bytes(option::NBD_OPT_EXPORT_NAME, export.as_bytes()))?;
        client.size = u64::from_be_bytes(client.take(8)?.try_into().unwrap());
        client.transmission_flags = u16::from_be_bytes(client.take(2)?.try_into().unwrap());
        Ok(client)
    }

    /// Opens an export.
    pub fn go(&mut self, export: &str) -> io::Result<()> {
        let replies = self.option(option::NBD_OPT_GO, &named(export, b"\0\0"))?;
        let (last, infos) = replies.split_last().expect("there is a last reply");
        if last.0 != option_reply::NBD_REP_ACK {
            return Err(io::Error::other(format!("refused: {:#x}", last.0)));
        }
        let info = infos.iter().find(|(_, data)| data.starts_with(&[0, 0])).expect("the export is described");
        self.size = u64::from_be_bytes(info.1[2..10].try_into().unwrap());
        self.transmission_flags = u16::from_be_bytes(info.1[10..12].try_into().unwrap());
        Ok(())
    }

    /// Sends bytes.
    pub fn give(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// Reads this many bytes.
    pub fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.socket.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn take_u32(&mut self) -> io::Result<u32> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into().unwrap()))
    }

    /// True if the server closes the connection without sending more.
    pub fn is_closed(&mut self) -> bool {
        match self.socket.read(&mut [0; 1]) {
            Ok(count) => count == 0,
            Err(error) => matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe),
        }
    }

    /// Sends an option and returns its replies: types and data, the last of them final.
    pub fn option(&mut self, option: u32, data: &[u8]) -> io::Result<Vec<(u32, Vec<u8>)>> {
        self.give(&option_bytes(option, data))?;
        let mut replies = Vec::new();
        loop {
            let header = self.take(20)?;
            assert_eq!(header[..8], NBD_REP_MAGIC.to_be_bytes());
            assert_eq!(header[8..12], option.to_be_bytes());
            let reply = u32::from_be_bytes(header[12..16].try_into().unwrap());
            let length = u32::from_be_bytes(header[16..].try_into().unwrap());
            replies.push((reply, self.take(length as usize)?));
            if reply == option_reply::NBD_REP_ACK || reply >= 1 << 31 {
                return Ok(replies);
            }
        }
    }

    /// Sends a request without its data.
    pub fn request(&mut self, kind: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> io::Result<()> {
        self.give(&request_bytes(kind, flags, cookie, offset, length))
    }

    /// Returns one reply. `read_bytes` is the length of its data if it is successful and simple.
    pub fn reply(&mut self, read_bytes: usize) -> io::Result<Reply> {
        let magic = self.take_u32()?;
        if magic == NBD_SIMPLE_REPLY_MAGIC {
            assert!(!self.structured, "a simple reply though structured ones were agreed on");
            let error = self.take_u32()?;
            let cookie = u64::from_be_bytes(self.take(8)?.try_into().unwrap());
            let data = if error == 0 { self.take(read_bytes)? } else { Vec::new() };
            return Ok(Reply { cookie, error, data });
        }
        assert_eq!(magic, NBD_STRUCTURED_REPLY_MAGIC);
        assert!(self.structured, "a structured reply that was not agreed on");
        let header = self.take(16)?;
        assert_eq!(header[..2], reply_flag::NBD_REPLY_FLAG_DONE.to_be_bytes());
        let kind = u16::from_be_bytes(header[2..4].try_into().unwrap());
        let cookie = u64::from_be_bytes(header[4..12].try_into().unwrap());
        let length = u32::from_be_bytes(header[12..].try_into().unwrap());
        let mut data = self.take(length as usize)?;
        let mut error = 0;
        match kind {
            reply_type::NBD_REPLY_TYPE_NONE => assert!(data.is_empty()),
            reply_type::NBD_REPLY_TYPE_OFFSET_DATA => drop(data.drain(..8)),
            reply_type::NBD_REPLY_TYPE_BLOCK_STATUS => {}
            reply_type::NBD_REPLY_TYPE_ERROR => {
                error = u32::from_be_bytes(data[..4].try_into().unwrap());
                data.clear();
            }
            other => panic!("unknown chunk {other}"),
        }
        Ok(Reply { cookie, error, data })
    }

    /// Reads bytes.
    pub fn read(&mut self, offset: u64, length: u32) -> io::Result<Vec<u8>> {
        self.request(0, 0, 77, offset, length)?;
        let reply = self.reply(length as usize)?;
        assert_eq!((reply.cookie, reply.error), (77, 0));
        Ok(reply.data)
    }

    /// Writes and returns the error.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<u32> {
        self.request(1, 0, 78, offset, data.len() as u32)?;
        self.give(data)?;
        let reply = self.reply(0)?;
        assert_eq!(reply.cookie, 78);
        Ok(reply.error)
    }
}

/// Returns the length of a string, the string, and `rest`.
pub fn named(name: &str, rest: &[u8]) -> Vec<u8> {
    [&(name.len() as u32).to_be_bytes(), name.as_bytes(), rest].concat()
}

/// Returns an option and its data.
pub fn option_bytes(option: u32, data: &[u8]) -> Vec<u8> {
    [&NBD_OPTS_MAGIC.to_be_bytes()[..], &option.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
}

/// Returns a request without its data.
pub fn request_bytes(kind: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> [u8; 28] {
    let mut bytes = [0; 28];
    bytes[..4].copy_from_slice(&NBD_REQUEST_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..24].copy_from_slice(&offset.to_be_bytes());
    bytes[24..].copy_from_slice(&length.to_be_bytes());
    bytes
}
