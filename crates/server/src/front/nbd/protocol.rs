//! The numbers of the NBD protocol, under the names in its specification, and the layouts of the server's messages.
//!
//! Source: NetworkBlockDevice/nbd, doc/proto.md; all integers are in network byte order.

/// First eight bytes of a connection, `NBDMAGIC`.
pub const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second eight bytes of a newstyle connection, and the start of each option, `IHAVEOPT`.
pub const NBD_OPTS_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Start of each reply to an option.
pub const NBD_REP_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Start of each request.
pub const NBD_REQUEST_MAGIC: u32 = 0x2560_9513;
/// Start of each simple reply.
pub const NBD_SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Start of each chunk of a structured reply.
pub const NBD_STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Bits of the handshake flags.
pub mod handshake_flag {
    /// The server speaks fixed newstyle.
    pub const NBD_FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
    /// The server can omit the zeroes after the reply to `NBD_OPT_EXPORT_NAME`.
    pub const NBD_FLAG_NO_ZEROES: u16 = 1 << 1;
}

/// Bits of the client flags.
pub mod client_flag {
    /// The client speaks fixed newstyle.
    pub const NBD_FLAG_C_FIXED_NEWSTYLE: u32 = 1 << 0;
    /// The client wants no zeroes after the reply to `NBD_OPT_EXPORT_NAME`.
    pub const NBD_FLAG_C_NO_ZEROES: u32 = 1 << 1;
}

/// Bits of the transmission flags.
pub mod transmission_flag {
    /// Always set.
    pub const NBD_FLAG_HAS_FLAGS: u16 = 1 << 0;
    /// The export is read-only.
    pub const NBD_FLAG_READ_ONLY: u16 = 1 << 1;
    /// `NBD_CMD_FLUSH` is supported.
    pub const NBD_FLAG_SEND_FLUSH: u16 = 1 << 2;
    /// `NBD_CMD_FLAG_FUA` is supported.
    pub const NBD_FLAG_SEND_FUA: u16 = 1 << 3;
    /// `NBD_CMD_TRIM` is supported.
    pub const NBD_FLAG_SEND_TRIM: u16 = 1 << 5;
    /// `NBD_CMD_WRITE_ZEROES` is supported.
    pub const NBD_FLAG_SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// `NBD_CMD_FLAG_DF` is supported.
    pub const NBD_FLAG_SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers the completed writes of all of them.
    pub const NBD_FLAG_CAN_MULTI_CONN: u16 = 1 << 8;
    /// `NBD_CMD_CACHE` is supported.
    pub const NBD_FLAG_SEND_CACHE: u16 = 1 << 10;
    /// `NBD_CMD_FLAG_FAST_ZERO` is supported.
    pub const NBD_FLAG_SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Numbers of options.
pub mod option {
    /// Opens an export; the reply cannot be an error.
    pub const NBD_OPT_EXPORT_NAME: u32 = 1;
    /// Ends the session.
    pub const NBD_OPT_ABORT: u32 = 2;
    /// Lists the exports.
    pub const NBD_OPT_LIST: u32 = 3;
    /// Starts TLS.
    pub const NBD_OPT_STARTTLS: u32 = 5;
    /// Describes an export.
    pub const NBD_OPT_INFO: u32 = 6;
    /// Describes an export and opens it.
    pub const NBD_OPT_GO: u32 = 7;
    /// Enables structured replies.
    pub const NBD_OPT_STRUCTURED_REPLY: u32 = 8;
    /// Lists the metadata contexts of an export.
    pub const NBD_OPT_LIST_META_CONTEXT: u32 = 9;
    /// Selects metadata contexts of an export.
    pub const NBD_OPT_SET_META_CONTEXT: u32 = 10;
}

/// Types of replies to options.
pub mod option_reply {
    /// Done.
    pub const NBD_REP_ACK: u32 = 1;
    /// One export of a list.
    pub const NBD_REP_SERVER: u32 = 2;
    /// One fact about an export.
    pub const NBD_REP_INFO: u32 = 3;
    /// One metadata context.
    pub const NBD_REP_META_CONTEXT: u32 = 4;
    /// The option is unknown.
    pub const NBD_REP_ERR_UNSUP: u32 = (1 << 31) + 1;
    /// The server's configuration forbids the option.
    pub const NBD_REP_ERR_POLICY: u32 = (1 << 31) + 2;
    /// The option's data is invalid.
    pub const NBD_REP_ERR_INVALID: u32 = (1 << 31) + 3;
    /// TLS must be started first.
    pub const NBD_REP_ERR_TLS_REQD: u32 = (1 << 31) + 5;
    /// There is no such export.
    pub const NBD_REP_ERR_UNKNOWN: u32 = (1 << 31) + 6;
    /// The client must query the block sizes first.
    pub const NBD_REP_ERR_BLOCK_SIZE_REQD: u32 = (1 << 31) + 8;
    /// The option's data is too long.
    pub const NBD_REP_ERR_TOO_BIG: u32 = (1 << 31) + 9;
}

/// Types of `NBD_REP_INFO`.
pub mod info {
    /// Size and transmission flags.
    pub const NBD_INFO_EXPORT: u16 = 0;
    /// Canonical name.
    pub const NBD_INFO_NAME: u16 = 1;
    /// A line for people.
    pub const NBD_INFO_DESCRIPTION: u16 = 2;
    /// Smallest, preferred and largest request.
    pub const NBD_INFO_BLOCK_SIZE: u16 = 3;
}

/// Numbers of commands.
pub mod command {
    /// Reads.
    pub const NBD_CMD_READ: u16 = 0;
    /// Writes.
    pub const NBD_CMD_WRITE: u16 = 1;
    /// Ends the session.
    pub const NBD_CMD_DISC: u16 = 2;
    /// Makes completed writes durable.
    pub const NBD_CMD_FLUSH: u16 = 3;
    /// Discards bytes.
    pub const NBD_CMD_TRIM: u16 = 4;
    /// Reads bytes into the cache.
    pub const NBD_CMD_CACHE: u16 = 5;
    /// Makes bytes read as zeroes.
    pub const NBD_CMD_WRITE_ZEROES: u16 = 6;
    /// Queries the allocation of bytes.
    pub const NBD_CMD_BLOCK_STATUS: u16 = 7;
}

/// Bits of the flags of a command.
pub mod command_flag {
    /// The command's writes are durable before the reply.
    pub const NBD_CMD_FLAG_FUA: u16 = 1 << 0;
    /// Zeroed bytes stay allocated.
    pub const NBD_CMD_FLAG_NO_HOLE: u16 = 1 << 1;
    /// The reply has one chunk.
    pub const NBD_CMD_FLAG_DF: u16 = 1 << 2;
    /// One extent is enough.
    pub const NBD_CMD_FLAG_REQ_ONE: u16 = 1 << 3;
    /// Fails if zeroing is no faster than writing.
    pub const NBD_CMD_FLAG_FAST_ZERO: u16 = 1 << 4;
}

/// Bits of the flags of a chunk.
pub mod reply_flag {
    /// The last chunk of its reply.
    pub const NBD_REPLY_FLAG_DONE: u16 = 1 << 0;
}

/// Types of chunks.
pub mod reply_type {
    /// No content, only the end.
    pub const NBD_REPLY_TYPE_NONE: u16 = 0;
    /// Bytes read.
    pub const NBD_REPLY_TYPE_OFFSET_DATA: u16 = 1;
    /// Extents of one metadata context.
    pub const NBD_REPLY_TYPE_BLOCK_STATUS: u16 = 5;
    /// An error.
    pub const NBD_REPLY_TYPE_ERROR: u16 = (1 << 15) + 1;
}

/// Errors of commands.
pub mod error {
    /// Not permitted.
    pub const NBD_EPERM: u32 = 1;
    /// Input/output error.
    pub const NBD_EIO: u32 = 5;
    /// Out of memory.
    pub const NBD_ENOMEM: u32 = 12;
    /// Invalid argument.
    pub const NBD_EINVAL: u32 = 22;
    /// No space left.
    pub const NBD_ENOSPC: u32 = 28;
    /// Too large for one chunk.
    pub const NBD_EOVERFLOW: u32 = 75;
    /// Not supported.
    pub const NBD_ENOTSUP: u32 = 95;
    /// The server is shutting down.
    pub const NBD_ESHUTDOWN: u32 = 108;
}

/// Bits of the status of an extent in the context `base:allocation`.
pub mod state {
    /// No space is allocated.
    pub const NBD_STATE_HOLE: u32 = 1 << 0;
    /// Reads as zeroes.
    pub const NBD_STATE_ZERO: u32 = 1 << 1;
}

/// The only metadata context of this server.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// Its number, which each reply about extents repeats.
pub const BASE_ALLOCATION_ID: u32 = 1;
/// Longest string that the protocol allows, in bytes.
pub const STRING_BYTES_MAX: usize = 4096;
/// Length of a request without its data.
pub const REQUEST_BYTES: usize = 28;

/// The description of an extent for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Number of bytes.
    pub length: u32,
    /// Bits of [`state`].
    pub status: u32,
}

/// Returns the server's first message.
pub fn greeting() -> [u8; 18] {
    let mut bytes = [0; 18];
    bytes[..8].copy_from_slice(&NBD_MAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&NBD_OPTS_MAGIC.to_be_bytes());
    let flags = handshake_flag::NBD_FLAG_FIXED_NEWSTYLE | handshake_flag::NBD_FLAG_NO_ZEROES;
    bytes[16..].copy_from_slice(&flags.to_be_bytes());
    bytes
}

/// Appends a reply to an option.
pub fn put_option_reply(output: &mut Vec<u8>, option: u32, reply: u32, data: &[&[u8]]) {
    let length: usize = data.iter().map(|part| part.len()).sum();
    output.extend_from_slice(&NBD_REP_MAGIC.to_be_bytes());
    output.extend_from_slice(&option.to_be_bytes());
    output.extend_from_slice(&reply.to_be_bytes());
    output.extend_from_slice(&length_field(length));
    for part in data {
        output.extend_from_slice(part);
    }
}

/// Returns a length in the protocol's format.
pub fn length_field(length: usize) -> [u8; 4] {
    u32::try_from(length).expect("what the server sends is far shorter than 4 GiB").to_be_bytes()
}

/// Appends a simple reply, without its data.
pub fn put_simple_reply(output: &mut Vec<u8>, error: u32, cookie: u64) {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&NBD_SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    output.extend_from_slice(&bytes);
}

fn put_chunk(output: &mut Vec<u8>, kind: u16, cookie: u64, payload_bytes: u32) {
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&NBD_STRUCTURED_REPLY_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&reply_flag::NBD_REPLY_FLAG_DONE.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..].copy_from_slice(&payload_bytes.to_be_bytes());
    output.extend_from_slice(&bytes);
}

/// Appends the only chunk of a reply without data.
pub fn put_none_chunk(output: &mut Vec<u8>, cookie: u64) {
    put_chunk(output, reply_type::NBD_REPLY_TYPE_NONE, cookie, 0);
}

/// Appends the only chunk of a read's reply, without its `length` bytes of data.
pub fn put_data_chunk(output: &mut Vec<u8>, cookie: u64, offset: u64, length: u32) {
    let payload_bytes = length.checked_add(8).expect("reads are far shorter than 4 GiB");
    put_chunk(output, reply_type::NBD_REPLY_TYPE_OFFSET_DATA, cookie, payload_bytes);
    output.extend_from_slice(&offset.to_be_bytes());
}

/// Appends the only chunk of a failed command.
pub fn put_error_chunk(output: &mut Vec<u8>, cookie: u64, error: u32, message: &str) {
    let message_bytes = u16::try_from(message.len()).expect("messages are lines");
    put_chunk(output, reply_type::NBD_REPLY_TYPE_ERROR, cookie, 6 + u32::from(message_bytes));
    output.extend_from_slice(&error.to_be_bytes());
    output.extend_from_slice(&message_bytes.to_be_bytes());
    output.extend_from_slice(message.as_bytes());
}

/// Appends the only chunk of a reply about extents.
pub fn put_block_status_chunk(output: &mut Vec<u8>, cookie: u64, descriptors: &[Descriptor]) {
    let payload_bytes = u32::try_from(4 + 8 * descriptors.len()).expect("extents are counted in thousands");
    put_chunk(output, reply_type::NBD_REPLY_TYPE_BLOCK_STATUS, cookie, payload_bytes);
    output.extend_from_slice(&BASE_ALLOCATION_ID.to_be_bytes());
    for descriptor in descriptors {
        output.extend_from_slice(&descriptor.length.to_be_bytes());
        output.extend_from_slice(&descriptor.status.to_be_bytes());
    }
}

/// The remaining fields of a message.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Returns the fields of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns the next `length` bytes, if there are enough.
    pub fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(field)
    }

    fn array<const LENGTH: usize>(&mut self) -> Option<[u8; LENGTH]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    /// Returns the next 16 bits.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Returns the next 32 bits.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Returns the next 64 bits.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// True if nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greeting_is_the_two_magic_words_and_both_flags() {
        assert_eq!(&greeting(), b"NBDMAGICIHAVEOPT\x00\x03");
    }

    #[test]
    fn an_option_reply_repeats_the_option_and_counts_its_data() {
        let mut output = Vec::new();
        put_option_reply(&mut output, option::NBD_OPT_LIST, option_reply::NBD_REP_SERVER, &[b"\0\0\0\x02", b"ab"]);
        assert_eq!(
            output,
            b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x03\x00\x00\x00\x02\x00\x00\x00\x06\0\0\0\x02ab"
        );
        output.clear();
        put_option_reply(&mut output, 99, option_reply::NBD_REP_ERR_UNSUP, &[]);
        assert_eq!(output, b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x63\x80\x00\x00\x01\x00\x00\x00\x00");
    }

    #[test]
    fn a_simple_reply_is_magic_error_and_cookie() {
        let mut output = Vec::new();
        put_simple_reply(&mut output, error::NBD_ENOSPC, 0x0102_0304_0506_0708);
        assert_eq!(output, b"\x67\x44\x66\x98\x00\x00\x00\x1c\x01\x02\x03\x04\x05\x06\x07\x08");
    }

    #[test]
    fn chunks_have_the_layouts_of_the_specification() {
        let mut output = Vec::new();
        put_none_chunk(&mut output, 7);
        assert_eq!(output, b"\x66\x8e\x33\xef\x00\x01\x00\x00\0\0\0\0\0\0\0\x07\0\0\0\0");
        output.clear();
        put_data_chunk(&mut output, 7, 0x1000, 512);
        // 512 bytes of data and 8 of offset: 520 = 0x208.
        assert_eq!(output, b"\x66\x8e\x33\xef\x00\x01\x00\x01\0\0\0\0\0\0\0\x07\0\0\x02\x08\0\0\0\0\0\0\x10\0");
        output.clear();
        put_error_chunk(&mut output, 7, error::NBD_EOVERFLOW, "no");
        assert_eq!(output, b"\x66\x8e\x33\xef\x00\x01\x80\x01\0\0\0\0\0\0\0\x07\0\0\0\x08\0\0\0\x4b\0\x02no");
        output.clear();
        let descriptors = [Descriptor { length: 4096, status: 0 }, Descriptor { length: 512, status: 3 }];
        put_block_status_chunk(&mut output, 7, &descriptors);
        assert_eq!(
            output,
            b"\x66\x8e\x33\xef\x00\x01\x00\x05\0\0\0\0\0\0\0\x07\0\0\0\x14\0\0\0\x01\0\0\x10\0\0\0\0\0\0\0\x02\0\0\0\0\x03"
        );
    }

    #[test]
    fn fields_end_where_the_message_ends() {
        let mut fields = Fields::new(b"\x00\x01\x00\x00\x00\x02xyz");
        assert_eq!((fields.u16(), fields.u32()), (Some(1), Some(2)));
        assert_eq!((fields.u64(), fields.bytes(4)), (None, None));
        assert_eq!((fields.bytes(3), fields.is_empty()), (Some(&b"xyz"[..]), true));
    }
}
