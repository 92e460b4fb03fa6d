//! A client of an NBD server, from the greeting on, sends any bytes, or requests after a valid handshake.
//!
//! Each request gets a reply in order, with the bytes that were written. An invalid request ends the connection.
#![no_main]

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};

use flashwise_fuzz::memory_export::{EXPORT_BYTES, MemoryExport};
use flashwise_server::front::nbd::protocol::{
    BASE_ALLOCATION, NBD_OPTS_MAGIC, NBD_REP_MAGIC, NBD_REQUEST_MAGIC, NBD_SIMPLE_REPLY_MAGIC,
    NBD_STRUCTURED_REPLY_MAGIC, command, option, reply_flag, reply_type,
};
use flashwise_server::front::nbd::transmission::DRAIN_BYTES_MAX;
use flashwise_server::front::{Address, Options, Server, nbd};
use flashwise_storage::export::Exports;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

/// Bytes of all requests of one client.
const SENT_BYTES_MAX: usize = 1 << 20;
/// Writable; read-only; in sectors.
const NAMES: [&str; 3] = ["disk", "read-only", "sectors"];

struct Serving {
    _server: Server,
    path: std::path::PathBuf,
    exports: Vec<Arc<MemoryExport>>,
}

fn serving() -> &'static Serving {
    static SERVING: OnceLock<Serving> = OnceLock::new();
    SERVING.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("flashwise-fuzz-{}.nbd", std::process::id()));
        let table = Exports::default();
        let exports = [(false, 1), (true, 1), (false, 512)]
            .map(|(read_only, bytes)| Arc::new(MemoryExport::new(read_only, bytes)));
        for (name, export) in NAMES.iter().zip(&exports) {
            assert!(table.add(name, export.clone()));
        }
        let server = Server::start(&[nbd::PROTOCOL.at(Address::Unix(path.clone()))], table, Options::default())
            .expect("a socket is free");
        Serving { _server: server, path, exports: exports.to_vec() }
    })
}

/// Returns the server's output for all bytes of a client, which may close the connection afterwards. If the server
/// closes the connection, the client may be unable to send the rest.
fn talk(said: &[u8], closes: bool) -> Vec<u8> {
    let mut socket = UnixStream::connect(&serving().path).expect("the server listens");
    let mut writing = socket.try_clone().expect("a socket has handles");
    let mut heard = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = writing.write_all(said);
            if closes {
                let _ = writing.shutdown(Shutdown::Write);
            }
        });
        // A reset after the output counts as an end.
        let _ = socket.read_to_end(&mut heard);
    });
    heard
}

fn put_option(said: &mut Vec<u8>, number: u32, data: &[u8]) {
    said.extend(NBD_OPTS_MAGIC.to_be_bytes());
    said.extend(number.to_be_bytes());
    said.extend((data.len() as u32).to_be_bytes());
    said.extend(data);
}

/// Returns a valid handshake of a client.
fn handshake(name: &str, structured: bool) -> Vec<u8> {
    let mut said = 3_u32.to_be_bytes().to_vec();
    let counted = |text: &str| [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat();
    if structured {
        put_option(&mut said, option::NBD_OPT_STRUCTURED_REPLY, &[]);
        let contexts = [counted(name), 1_u32.to_be_bytes().to_vec(), counted(BASE_ALLOCATION)].concat();
        put_option(&mut said, option::NBD_OPT_SET_META_CONTEXT, &contexts);
    }
    // It requests one fact: the block sizes.
    put_option(&mut said, option::NBD_OPT_GO, &[counted(name), vec![0, 1, 0, 3]].concat());
    said
}

struct Asked {
    kind: u16,
    cookie: u64,
    offset: u64,
    length: u32,
    fill: u8,
    /// True if the whole request was sent.
    whole: bool,
}

/// Appends the program's next request to `said` and returns it.
fn request(program: &mut Unstructured, said: &mut Vec<u8>) -> Result<Option<Asked>> {
    let [kind, flags, cookie, fill, place, span] = program.arbitrary::<[u8; 6]>()?;
    if kind == 255 {
        said.extend(program.bytes(program.len().min(100))?);
        return Ok(None);
    }
    let kind = u16::from(kind % 10);
    let flags = if flags < 224 { u16::from(flags % 4) } else { 1 << (flags % 16) };
    let offset = match place {
        255 => program.arbitrary()?,
        254 => EXPORT_BYTES - u64::from(program.arbitrary::<u8>()?),
        _ => u64::from(place) * 512,
    };
    let length = match span {
        255 => program.arbitrary()?,
        254 => u32::from(program.arbitrary::<u8>()?),
        253 => 64 << 10,
        252 => 0,
        _ => u32::from(span) * 512,
    };
    let mut asked = put_request(said, flags, kind, cookie.into(), offset, length);
    asked.fill = fill;
    let data = if kind == command::NBD_CMD_WRITE { length as usize } else { 0 };
    let sent = data.min(SENT_BYTES_MAX.saturating_sub(said.len()));
    said.resize(said.len() + sent, fill);
    asked.whole = sent == data;
    Ok(Some(asked))
}

/// Appends a request without its data to `said`.
fn put_request(said: &mut Vec<u8>, flags: u16, kind: u16, cookie: u64, offset: u64, length: u32) -> Asked {
    said.extend(NBD_REQUEST_MAGIC.to_be_bytes());
    said.extend(flags.to_be_bytes());
    said.extend(kind.to_be_bytes());
    said.extend(cookie.to_be_bytes());
    said.extend(offset.to_be_bytes());
    said.extend(length.to_be_bytes());
    Asked { kind, cookie, offset, length, fill: 0, whole: true }
}

struct Heard<'a>(&'a [u8]);

impl<'a> Heard<'a> {
    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at_checked(count).expect("a reply is whole");
        self.0 = rest;
        bytes
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.bytes(2).try_into().expect("two bytes"))
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.bytes(4).try_into().expect("four bytes"))
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.bytes(8).try_into().expect("eight bytes"))
    }

    /// Reads the greeting and the replies to options, up to the end of the last option.
    fn handshake(&mut self) {
        assert_eq!(self.bytes(18), b"NBDMAGICIHAVEOPT\0\x03");
        loop {
            assert_eq!(self.u64(), NBD_REP_MAGIC);
            let (option, reply, length) = (self.u32(), self.u32(), self.u32());
            assert!(reply < 1 << 31, "option {option} is answered with {reply:x}");
            self.bytes(length as usize);
            if (option, reply) == (option::NBD_OPT_GO, 1) {
                return;
            }
        }
    }

    /// Returns the error of the reply to `asked`, and the bytes read.
    fn reply(&mut self, asked: &Asked, structured: bool) -> (u32, &'a [u8]) {
        if !structured {
            assert_eq!(self.u32(), NBD_SIMPLE_REPLY_MAGIC);
            let (error, cookie) = (self.u32(), self.u64());
            assert_eq!(cookie, asked.cookie, "requests of an export that answers at once are answered in order");
            let reads = asked.kind == command::NBD_CMD_READ && error == 0;
            return (error, self.bytes(if reads { asked.length as usize } else { 0 }));
        }
        assert_eq!(self.u32(), NBD_STRUCTURED_REPLY_MAGIC);
        assert_eq!(self.u16(), reply_flag::NBD_REPLY_FLAG_DONE);
        let (kind, cookie, length) = (self.u16(), self.u64(), self.u32() as usize);
        assert_eq!(cookie, asked.cookie, "requests of an export that answers at once are answered in order");
        let mut payload = Heard(self.bytes(length));
        match kind {
            reply_type::NBD_REPLY_TYPE_NONE => {
                assert!(length == 0 && asked.kind != command::NBD_CMD_READ);
                (0, &[])
            }
            reply_type::NBD_REPLY_TYPE_OFFSET_DATA => {
                assert_eq!((payload.u64(), payload.0.len()), (asked.offset, asked.length as usize));
                (0, payload.0)
            }
            reply_type::NBD_REPLY_TYPE_BLOCK_STATUS => {
                assert_eq!((asked.kind, payload.u32()), (command::NBD_CMD_BLOCK_STATUS, 1));
                assert!(!payload.0.is_empty() && payload.0.len() % 8 == 0);
                (0, &[])
            }
            reply_type::NBD_REPLY_TYPE_ERROR => {
                let (error, words) = (payload.u32(), payload.u16());
                assert_eq!(payload.0.len(), usize::from(words));
                assert!(error != 0);
                (error, &[])
            }
            other => panic!("a chunk of type {other}"),
        }
    }
}

fn converse(program: &mut Unstructured, name: usize, structured: bool) {
    let export = &serving().exports[name];
    // Clears the writes of earlier inputs, so that each input can be reproduced on its own.
    export.bytes().fill(0);
    let mut model = vec![0; EXPORT_BYTES as usize];
    let mut said = handshake(NAMES[name], structured);
    let mut all_asked = Vec::new();
    let mut closes = false;
    while !program.is_empty() && said.len() < SENT_BYTES_MAX && !closes {
        match request(program, &mut said) {
            Ok(Some(asked)) => all_asked.push(asked),
            // The result of any bytes is unknown.
            _ => closes = true,
        }
    }
    closes |= all_asked.iter().any(|asked| !asked.whole);
    if !closes {
        // A client that disconnects gets its replies first; requests of a client that vanished are dropped.
        all_asked.push(put_request(&mut said, 0, command::NBD_CMD_DISC, 0, 0, 0));
    }
    let answer = talk(&said, closes);
    let mut heard = Heard(&answer);
    heard.handshake();
    for asked in &all_asked {
        if closes && heard.0.is_empty() {
            return;
        }
        let is_write = asked.kind == command::NBD_CMD_WRITE;
        if asked.kind == command::NBD_CMD_DISC || !asked.whole || (is_write && asked.length > DRAIN_BYTES_MAX) {
            return assert!(heard.0.is_empty());
        }
        let (error, data) = heard.reply(asked, structured);
        if error != 0 {
            continue;
        }
        let is_flush = asked.kind == command::NBD_CMD_FLUSH;
        let range =
            if is_flush { 0..0 } else { asked.offset as usize..(asked.offset + u64::from(asked.length)) as usize };
        assert!(range.end as u64 <= EXPORT_BYTES, "what is past the end is refused");
        let changes =
            [command::NBD_CMD_WRITE, command::NBD_CMD_WRITE_ZEROES, command::NBD_CMD_TRIM].contains(&asked.kind);
        assert!(!changes || NAMES[name] != "read-only");
        match asked.kind {
            command::NBD_CMD_READ => assert!(data == &model[range], "what was written is read"),
            command::NBD_CMD_WRITE => model[range].fill(asked.fill),
            command::NBD_CMD_WRITE_ZEROES => model[range].fill(0),
            _ => {}
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    match bytes.split_first() {
        Some((&first, rest)) if first < 192 => {
            converse(&mut Unstructured::new(rest), usize::from(first) % NAMES.len(), first & 64 != 0);
        }
        Some((_, rest)) => assert!(talk(rest, true).starts_with(b"NBDMAGIC")),
        None => {}
    }
});
