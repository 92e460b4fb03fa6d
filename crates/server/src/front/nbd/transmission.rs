//! Requests of a client, and their handling according to the protocol; no sockets. Source: NetworkBlockDevice/nbd,
//! doc/proto.md, "Transmission phase".

use super::protocol::{
    Descriptor, Fields, NBD_REQUEST_MAGIC, REQUEST_BYTES, command, command_flag, error, put_data_chunk,
    put_error_chunk, put_none_chunk, put_simple_reply, state, transmission_flag,
};
use flashwise_storage::export::{Error, Extent, Operation};

/// Longest read or write, in bytes.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// Longest data of a rejected write that is skipped; a longer one ends the connection.
pub const DRAIN_BYTES_MAX: u32 = 64 << 20;
/// Maximum number of extents in one reply.
pub const EXTENTS_MAX: usize = 1024;

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Bits of [`command_flag`].
    pub flags: u16,
    /// One of [`command`], or unknown.
    pub kind: u16,
    /// Identifies the request in its reply.
    pub cookie: u64,
    /// Offset of its first byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u32,
}

impl Command {
    /// Decodes a header; `None` if it does not start with the magic number.
    pub fn decode(header: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let mut fields = Fields::new(header);
        if fields.u32()? != NBD_REQUEST_MAGIC {
            return None;
        }
        let (flags, kind) = (fields.u16()?, fields.u16()?);
        Some(Self { flags, kind, cookie: fields.u64()?, offset: fields.u64()?, length: fields.u32()? })
    }

    /// Returns the number of bytes that follow the header.
    pub fn data_bytes(&self) -> u32 {
        if self.kind == command::NBD_CMD_WRITE { self.length } else { 0 }
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// The conditions for requests.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Current size of the export in bytes.
    pub size: u64,
    /// True if the client cannot write it.
    pub read_only: bool,
    /// Smallest request in bytes.
    pub block_bytes_min: u32,
    /// Largest read or write in bytes.
    pub payload_bytes_max: u32,
    /// True if replies are structured.
    pub structured: bool,
    /// True if the context `base:allocation` was selected.
    pub allocation: bool,
}

/// The handling of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Pass it to the export.
    Perform(Operation),
    /// Reply with at most this many extents.
    Extents(usize),
    /// End the session when all requests are answered.
    Disconnect,
    /// Skip its data and reply with an error.
    Refuse(u32, &'static str),
    /// End the connection.
    End,
}

/// Decides on the handling of a request.
pub fn judge(command: &Command, terms: &Terms) -> Verdict {
    if command.kind == command::NBD_CMD_DISC {
        return Verdict::Disconnect;
    }
    if command.data_bytes() > DRAIN_BYTES_MAX {
        return Verdict::End;
    }
    check_flags(command, terms)
        .and_then(|operation| check_range(command, terms).map(|()| operation))
        .unwrap_or_else(|(error, reason)| Verdict::Refuse(error, reason))
}

type Refusal = (u32, &'static str);

fn check_flags(command: &Command, terms: &Terms) -> Result<Verdict, Refusal> {
    use command_flag::*;
    let (verdict, flags) = match command.kind {
        command::NBD_CMD_READ if terms.structured => (Verdict::Perform(Operation::Read), NBD_CMD_FLAG_DF),
        command::NBD_CMD_READ => (Verdict::Perform(Operation::Read), 0),
        command::NBD_CMD_WRITE => (Verdict::Perform(Operation::Write), 0),
        command::NBD_CMD_FLUSH => (Verdict::Perform(Operation::Flush), 0),
        command::NBD_CMD_TRIM => (Verdict::Perform(Operation::Trim), 0),
        command::NBD_CMD_CACHE => (Verdict::Perform(Operation::Cache), 0),
        command::NBD_CMD_WRITE_ZEROES => {
            let may_punch_holes = !command.has(NBD_CMD_FLAG_NO_HOLE);
            let only_if_fast = command.has(NBD_CMD_FLAG_FAST_ZERO);
            let operation = Operation::WriteZeroes { may_punch_holes, only_if_fast };
            (Verdict::Perform(operation), NBD_CMD_FLAG_NO_HOLE | NBD_CMD_FLAG_FAST_ZERO)
        }
        command::NBD_CMD_BLOCK_STATUS if terms.allocation => {
            let extents_max = if command.has(NBD_CMD_FLAG_REQ_ONE) { 1 } else { EXTENTS_MAX };
            (Verdict::Extents(extents_max), NBD_CMD_FLAG_REQ_ONE)
        }
        command::NBD_CMD_BLOCK_STATUS => return Err((error::NBD_EINVAL, "no metadata context was chosen")),
        _ => return Err((error::NBD_EINVAL, "unknown command")),
    };
    // Some clients set FUA on any command; it has no meaning for commands that do not write.
    if command.flags & !(flags | NBD_CMD_FLAG_FUA) != 0 {
        return Err((error::NBD_EINVAL, "a flag that this command does not have"));
    }
    Ok(verdict)
}

fn check_range(command: &Command, terms: &Terms) -> Result<(), Refusal> {
    use command::*;
    if command.kind == NBD_CMD_FLUSH {
        return if command.offset == 0 && command.length == 0 {
            Ok(())
        } else {
            Err((error::NBD_EINVAL, "offset and length of a flush must be 0"))
        };
    }
    let changes = matches!(command.kind, NBD_CMD_WRITE | NBD_CMD_TRIM | NBD_CMD_WRITE_ZEROES);
    if changes && terms.read_only {
        return Err((error::NBD_EPERM, "the export is read-only"));
    }
    if command.length == 0 {
        return Err((error::NBD_EINVAL, "the length is 0"));
    }
    if matches!(command.kind, NBD_CMD_READ | NBD_CMD_WRITE) && command.length > terms.payload_bytes_max {
        let unfragmented = command.has(command_flag::NBD_CMD_FLAG_DF);
        let error = if unfragmented { error::NBD_EOVERFLOW } else { error::NBD_EINVAL };
        return Err((error, "longer than the largest request"));
    }
    if command.offset.checked_add(command.length.into()).is_none_or(|end| end > terms.size) {
        let writes = matches!(command.kind, NBD_CMD_WRITE | NBD_CMD_WRITE_ZEROES);
        let error = if writes { error::NBD_ENOSPC } else { error::NBD_EINVAL };
        return Err((error, "past the end of the export"));
    }
    let mask = u64::from(terms.block_bytes_min) - 1;
    if (command.offset | u64::from(command.length)) & mask != 0 {
        return Err((error::NBD_EINVAL, "not a multiple of the smallest block"));
    }
    Ok(())
}

/// Returns the protocol's number of an error.
pub fn error_number(error: Error) -> u32 {
    match error {
        Error::NotPermitted => error::NBD_EPERM,
        Error::Io => error::NBD_EIO,
        Error::OutOfMemory => error::NBD_ENOMEM,
        Error::Invalid => error::NBD_EINVAL,
        Error::NoSpace => error::NBD_ENOSPC,
        Error::NotSupported => error::NBD_ENOTSUP,
        Error::ShuttingDown => error::NBD_ESHUTDOWN,
    }
}

/// Appends the reply of a failed command.
pub fn put_error(output: &mut Vec<u8>, structured: bool, cookie: u64, error: u32, message: &str) {
    if structured {
        put_error_chunk(output, cookie, error, message);
    } else {
        put_simple_reply(output, error, cookie);
    }
}

/// Appends the reply of a successful command without data.
pub fn put_done(output: &mut Vec<u8>, structured: bool, cookie: u64) {
    if structured {
        put_none_chunk(output, cookie);
    } else {
        put_simple_reply(output, 0, cookie);
    }
}

/// Appends the reply of a read, without its `length` bytes of data.
pub fn put_read(output: &mut Vec<u8>, structured: bool, cookie: u64, offset: u64, length: u32) {
    if structured {
        put_data_chunk(output, cookie, offset, length);
    } else {
        put_simple_reply(output, 0, cookie);
    }
}

/// Returns the extents for a client, with equal neighbours merged. `None` if they violate the contract of
/// [`Export::extents`](flashwise_storage::export::Export::extents).
pub fn descriptors(extents: &[Extent], length: u32, extents_max: usize) -> Option<Vec<Descriptor>> {
    let mut descriptors: Vec<Descriptor> = Vec::with_capacity(extents.len());
    let mut left = length;
    for extent in extents {
        let length = u32::try_from(extent.length).ok().filter(|&length| length > 0)?;
        left = left.checked_sub(length)?;
        let mut status = 0;
        if extent.hole {
            status |= state::NBD_STATE_HOLE;
        }
        if extent.zero {
            status |= state::NBD_STATE_ZERO;
        }
        match descriptors.last_mut() {
            Some(last) if last.status == status => last.length += length,
            _ => descriptors.push(Descriptor { length, status }),
        }
    }
    (1..=extents_max).contains(&descriptors.len()).then_some(descriptors)
}

/// Returns the transmission flags of an export, which is `read_only` for the client or not.
pub fn transmission_flags(read_only: bool, structured: bool) -> u16 {
    use transmission_flag::*;
    let mut flags = NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH | NBD_FLAG_CAN_MULTI_CONN | NBD_FLAG_SEND_CACHE;
    if read_only {
        flags |= NBD_FLAG_READ_ONLY;
    } else {
        flags |= NBD_FLAG_SEND_FUA | NBD_FLAG_SEND_TRIM | NBD_FLAG_SEND_WRITE_ZEROES | NBD_FLAG_SEND_FAST_ZERO;
    }
    if structured {
        flags |= NBD_FLAG_SEND_DF;
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms {
        size: 1 << 30,
        read_only: false,
        block_bytes_min: 1,
        payload_bytes_max: PAYLOAD_BYTES_MAX,
        structured: true,
        allocation: true,
    };

    fn judged(kind: u16, flags: u16, offset: u64, length: u32) -> Verdict {
        judge(&Command { flags, kind, cookie: 1, offset, length }, &TERMS)
    }

    fn refusal(verdict: Verdict) -> u32 {
        match verdict {
            Verdict::Refuse(error, _) => error,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn a_header_is_taken_apart_as_specified() {
        let header = b"\x25\x60\x95\x13\x00\x05\x00\x06\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\x01\0\0\0\x02\0\0\x10\0";
        let expected =
            Command { flags: 5, kind: 6, cookie: 0x0102_0304_0506_0708, offset: 0x1_0000_0002, length: 4096 };
        assert_eq!(Command::decode(header), Some(expected));
        let mut wrong = *header;
        wrong[3] ^= 1;
        assert_eq!(Command::decode(&wrong), None);
    }

    #[test]
    fn every_command_becomes_its_operation() {
        let expected = [
            (command::NBD_CMD_READ, Verdict::Perform(Operation::Read)),
            (command::NBD_CMD_WRITE, Verdict::Perform(Operation::Write)),
            (command::NBD_CMD_DISC, Verdict::Disconnect),
            (command::NBD_CMD_TRIM, Verdict::Perform(Operation::Trim)),
            (command::NBD_CMD_CACHE, Verdict::Perform(Operation::Cache)),
            (command::NBD_CMD_BLOCK_STATUS, Verdict::Extents(EXTENTS_MAX)),
        ];
        for (kind, verdict) in expected {
            assert_eq!(judged(kind, 0, 512, 1024), verdict, "command {kind}");
        }
        assert_eq!(judged(command::NBD_CMD_FLUSH, 0, 0, 0), Verdict::Perform(Operation::Flush));
        for (flags, may_punch_holes, only_if_fast) in
            [(0, true, false), (2, false, false), (16, true, true), (19, false, true)]
        {
            let operation = Operation::WriteZeroes { may_punch_holes, only_if_fast };
            assert_eq!(judged(command::NBD_CMD_WRITE_ZEROES, flags, 0, 1), Verdict::Perform(operation));
        }
        assert_eq!(judged(command::NBD_CMD_BLOCK_STATUS, 8, 0, 1), Verdict::Extents(1));
    }

    #[test]
    fn requests_past_the_end_are_refused_with_the_error_of_their_kind() {
        for (kind, expected) in [
            (command::NBD_CMD_READ, error::NBD_EINVAL),
            (command::NBD_CMD_WRITE, error::NBD_ENOSPC),
            (command::NBD_CMD_TRIM, error::NBD_EINVAL),
            (command::NBD_CMD_CACHE, error::NBD_EINVAL),
            (command::NBD_CMD_WRITE_ZEROES, error::NBD_ENOSPC),
            (command::NBD_CMD_BLOCK_STATUS, error::NBD_EINVAL),
        ] {
            assert_eq!(refusal(judged(kind, 0, (1 << 30) - 1, 2)), expected, "command {kind}");
            assert_eq!(refusal(judged(kind, 0, u64::MAX, 2)), expected, "command {kind}, overflowing");
            assert!(!matches!(judged(kind, 0, (1 << 30) - 1, 1), Verdict::Refuse(..)), "command {kind}, last byte");
        }
    }

    #[test]
    fn only_the_flags_of_a_command_are_accepted() {
        let allowed = [(0, 0b101), (1, 1), (3, 1), (4, 1), (5, 1), (6, 0b10011), (7, 0b1001)];
        for (kind, mask) in allowed {
            for bit in 0..16 {
                let length = u32::from(kind != command::NBD_CMD_FLUSH);
                let refused = matches!(judged(kind, 1 << bit, 0, length), Verdict::Refuse(error::NBD_EINVAL, _));
                assert_eq!(refused, mask & (1 << bit) == 0, "command {kind}, bit {bit}");
            }
        }
    }

    #[test]
    fn lengths_of_nothing_and_of_too_much_are_refused() {
        assert_eq!(refusal(judged(command::NBD_CMD_READ, 0, 0, 0)), error::NBD_EINVAL);
        assert_eq!(refusal(judged(command::NBD_CMD_WRITE, 0, 0, 0)), error::NBD_EINVAL);
        assert_eq!(refusal(judged(command::NBD_CMD_FLUSH, 0, 0, 1)), error::NBD_EINVAL);
        assert_eq!(refusal(judged(command::NBD_CMD_READ, 0, 0, PAYLOAD_BYTES_MAX + 1)), error::NBD_EINVAL);
        let unfragmented = judged(command::NBD_CMD_READ, command_flag::NBD_CMD_FLAG_DF, 0, PAYLOAD_BYTES_MAX + 1);
        assert_eq!(refusal(unfragmented), error::NBD_EOVERFLOW);
        assert_eq!(refusal(judged(command::NBD_CMD_WRITE, 0, 0, DRAIN_BYTES_MAX)), error::NBD_EINVAL);
        assert_eq!(judged(command::NBD_CMD_WRITE, 0, 0, DRAIN_BYTES_MAX + 1), Verdict::End);
        assert_eq!(judged(command::NBD_CMD_TRIM, 0, 0, 1 << 30), Verdict::Perform(Operation::Trim));
    }

    #[test]
    fn features_that_were_not_negotiated_are_refused() {
        let plain = Terms { structured: false, allocation: false, read_only: true, block_bytes_min: 512, ..TERMS };
        let judged = |kind, flags, offset, length| judge(&Command { flags, kind, cookie: 1, offset, length }, &plain);
        assert_eq!(refusal(judged(command::NBD_CMD_READ, command_flag::NBD_CMD_FLAG_DF, 0, 512)), error::NBD_EINVAL);
        assert_eq!(refusal(judged(command::NBD_CMD_BLOCK_STATUS, 0, 0, 512)), error::NBD_EINVAL);
        assert_eq!(refusal(judged(command::NBD_CMD_READ, 0, 1, 512)), error::NBD_EINVAL);
        assert_eq!(refusal(judged(command::NBD_CMD_READ, 0, 512, 1)), error::NBD_EINVAL);
        for kind in [command::NBD_CMD_WRITE, command::NBD_CMD_TRIM, command::NBD_CMD_WRITE_ZEROES] {
            assert_eq!(refusal(judged(kind, 0, 0, 512)), error::NBD_EPERM);
        }
        assert_eq!(refusal(judged(8, 0, 0, 512)), error::NBD_EINVAL);
    }

    #[test]
    fn extents_that_are_alike_are_joined_and_broken_contracts_are_noticed() {
        let extent = |length, hole, zero| Extent { length, hole, zero };
        let extents = [extent(10, false, false), extent(5, false, false), extent(1, true, true)];
        let joined = vec![Descriptor { length: 15, status: 0 }, Descriptor { length: 1, status: 3 }];
        assert_eq!(descriptors(&extents, 16, 2), Some(joined));
        assert_eq!(descriptors(&extents, 15, 2), None);
        assert_eq!(descriptors(&extents, 16, 1), None);
        assert_eq!(descriptors(&[], 16, 1), None);
        assert_eq!(descriptors(&[extent(0, false, false)], 16, 1), None);
        assert_eq!(descriptors(&[extent(1 << 40, false, false)], 16, 1), None);
    }
}
