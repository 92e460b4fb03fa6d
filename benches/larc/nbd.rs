//! A connection to the server with many requests in flight.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use flashwise_server::front::Address;
use flashwise_server::front::nbd::protocol::NBD_SIMPLE_REPLY_MAGIC;
use flashwise_testing::client::{Client, Socket, request_bytes};

use super::guest::{Disk, PAGE_BYTES};

/// The sending side of a connection; results arrive on the channel.
pub struct Connection {
    socket: UnixStream,
    submitted: u64,
    data: Vec<u8>,
    /// The first error; nothing is submitted after it.
    problem: Option<io::Error>,
    replies: Option<JoinHandle<()>>,
}

/// The number of a request that succeeded, or the error that ended the connection.
pub type Ended = io::Result<u64>;

impl Connection {
    /// Opens the export of a server that listens on a Unix socket.
    pub fn open(socket: &Path, export: &str) -> io::Result<(Self, Receiver<Ended>)> {
        let client = Client::open(&Address::Unix(socket.to_owned()), export, false)?;
        let Socket::Unix(socket) = client.socket else { unreachable!("the address is a Unix socket") };
        // The next reply may come much later than the last.
        socket.set_read_timeout(None)?;
        let (sender, receiver) = channel();
        let input = socket.try_clone()?;
        let replies = Some(std::thread::spawn(move || take_replies(input, &sender)));
        Ok((Self { socket, submitted: 0, data: Vec::new(), problem: None, replies }, receiver))
    }

    /// Returns the error of submitting a request, if any.
    pub fn problem(&mut self) -> io::Result<()> {
        self.problem.take().map_or(Ok(()), Err)
    }

    fn send(&mut self, write: bool, number: u64, blocks: &Range<u32>) -> io::Result<()> {
        let (offset, bytes) = (u64::from(blocks.start) * PAGE_BYTES, blocks.len() * PAGE_BYTES as usize);
        self.socket.write_all(&request_bytes(u16::from(write), 0, number, offset, bytes as u32))?;
        if write {
            self.data.resize(bytes, 0x5a);
            self.socket.write_all(&self.data[..bytes])?;
        }
        Ok(())
    }
}

impl Disk for Connection {
    /// Submits a request. Its number encodes the data needed to read the reply: its kind and its number of blocks.
    fn submit(&mut self, write: bool, blocks: Range<u32>) -> u64 {
        self.submitted += 1;
        let number = self.submitted << 17 | (blocks.len() as u64) << 1 | u64::from(write);
        if self.problem.is_none() {
            self.problem = self.send(write, number, &blocks).err();
        }
        number
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The server may have closed it already.
        let _ = self.socket.shutdown(Shutdown::Both);
        if let Some(replies) = self.replies.take() {
            replies.join().expect("the thread of the replies does not panic");
        }
    }
}

fn take_replies(mut input: UnixStream, ended: &Sender<Ended>) {
    let mut input = io::BufReader::with_capacity(1 << 20, &mut input);
    let mut data = Vec::new();
    loop {
        let reply = take_reply(&mut input, &mut data);
        let is_last = reply.is_err();
        // The receiver is gone when the run is over.
        if ended.send(reply).is_err() || is_last {
            return;
        }
    }
}

fn take_reply(input: &mut impl Read, data: &mut Vec<u8>) -> io::Result<u64> {
    let mut header = [0; 16];
    input.read_exact(&mut header)?;
    let [magic, error] =
        [0, 4].map(|at| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]));
    let mut number = [0; 8];
    number.copy_from_slice(&header[8..]);
    let number = u64::from_be_bytes(number);
    if magic != NBD_SIMPLE_REPLY_MAGIC || error != 0 {
        return Err(io::Error::other(format!("a reply with magic {magic:#x} and error {error}")));
    }
    if number & 1 == 0 {
        data.resize((number >> 1 & 0xffff) as usize * PAGE_BYTES as usize, 0);
        input.read_exact(data)?;
    }
    Ok(number)
}
