//! Option haggling: bytes in, bytes out, until a client has opened an export or the connection ends; no sockets.
//!
//! Source: NetworkBlockDevice/nbd, doc/proto.md, "Fixed newstyle negotiation" and "Handshake phase".

use std::sync::Arc;

use super::access::{Access, FoundExport, is_read_only};
use super::protocol::{
    BASE_ALLOCATION, BASE_ALLOCATION_ID, Fields, NBD_OPTS_MAGIC, STRING_BYTES_MAX, client_flag, info, length_field,
    option, option_reply, put_option_reply,
};
use super::transmission::{PAYLOAD_BYTES_MAX, transmission_flags};
use crate::front::assignments::Right;
use flashwise_storage::export::{Claimable, Export};

/// Longest data of an option that is processed, in bytes: a name and many queries.
pub const OPTION_BYTES_MAX: usize = 16 << 10;
/// Longest data of an option that is skipped; a longer one ends the connection.
pub const SKIPPED_BYTES_MAX: u32 = 1 << 20;
/// Maximum number of options on one connection.
pub const OPTIONS_MAX: u32 = 256;
/// Maximum number of queries for metadata contexts in one option.
pub const QUERIES_MAX: u32 = 64;

const OPTION_HEADER_BYTES: usize = 16;

/// Use of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// Never.
    Off,
    /// If the client requests it.
    Allowed,
    /// Always: before it, only the option that starts TLS is accepted.
    Required,
}

/// The result of the handshake.
pub struct Session {
    /// The opened export.
    pub export: Arc<Claimable>,
    /// The name of the export.
    pub name: String,
    /// The permission that the client was informed of.
    pub right: Right,
    /// True if replies are structured.
    pub structured: bool,
    /// True if the client may query extents, in the context `base:allocation`.
    pub allocation: bool,
}

/// The next step after a message.
pub enum Step {
    /// Wait for the next message.
    Continue,
    /// Start TLS once the output is sent. Discard earlier input; a client sends none.
    StartTls,
    /// Serve requests once the output is sent.
    Transmit(Session),
    /// End the connection once the output is sent.
    End,
}

enum Phase {
    ClientFlags,
    Options,
    Skipping { left: u32, option: u32, reply: u32, reason: &'static str },
}

/// Option haggling with one client.
pub struct Handshake {
    access: Access,
    encryption: Encryption,
    encrypted: bool,
    state: Phase,
    fixed: bool,
    no_zeroes: bool,
    structured: bool,
    /// The export for which `base:allocation` was selected.
    allocation_of: Option<String>,
    options: u32,
}

/// The error for an option.
type Refusal = (u32, &'static str);

const MALFORMED: Refusal = (option_reply::NBD_REP_ERR_INVALID, "the data of the option is malformed");
const NO_SUCH_EXPORT: Refusal = (option_reply::NBD_REP_ERR_UNKNOWN, "no such export");

impl Handshake {
    /// Starts option haggling after [`greeting`](super::protocol::greeting) was sent.
    pub fn new(access: Access, encryption: Encryption) -> Self {
        Self {
            access,
            encryption,
            encrypted: false,
            state: Phase::ClientFlags,
            fixed: false,
            no_zeroes: false,
            structured: false,
            allocation_of: None,
            options: 0,
        }
    }

    /// Records the start of TLS. Earlier agreements are discarded, because anyone could have made them.
    pub fn encrypted(&mut self) {
        self.encrypted = true;
        self.structured = false;
        self.allocation_of = None;
    }

    /// Sets the names in the client's certificate, before any option under TLS is answered.
    pub fn show(&mut self, tls_names: Vec<String>) {
        self.access.show(tls_names);
    }

    /// Returns the exports that the client may open.
    pub fn into_access(self) -> Access {
        self.access
    }

    /// Processes at most one message from the start of `input` and appends its reply to `output`. Returns the number of
    /// bytes processed: 0 if the message is incomplete. A message is at most a header and [`OPTION_BYTES_MAX`] long.
    pub fn advance(&mut self, input: &[u8], output: &mut Vec<u8>) -> (usize, Step) {
        match self.state {
            Phase::ClientFlags => {
                let Some(flags) = Fields::new(input).u32() else { return (0, Step::Continue) };
                (4, self.client_flags(flags))
            }
            Phase::Options => self.option(input, output),
            Phase::Skipping { left, option, reply, reason } => {
                let skipped = u32::try_from(input.len()).unwrap_or(u32::MAX).min(left);
                if skipped == left {
                    put_option_reply(output, option, reply, &[reason.as_bytes()]);
                    self.state = Phase::Options;
                } else {
                    self.state = Phase::Skipping { left: left - skipped, option, reply, reason };
                }
                (skipped as usize, Step::Continue)
            }
        }
    }

    fn client_flags(&mut self, flags: u32) -> Step {
        use client_flag::*;
        if flags & !(NBD_FLAG_C_FIXED_NEWSTYLE | NBD_FLAG_C_NO_ZEROES) != 0 {
            return Step::End;
        }
        self.fixed = flags & NBD_FLAG_C_FIXED_NEWSTYLE != 0;
        self.no_zeroes = flags & NBD_FLAG_C_NO_ZEROES != 0;
        self.state = Phase::Options;
        Step::Continue
    }

    fn option(&mut self, input: &[u8], output: &mut Vec<u8>) -> (usize, Step) {
        let mut fields = Fields::new(input);
        let (Some(magic), Some(option), Some(length)) = (fields.u64(), fields.u32(), fields.u32()) else {
            return (0, Step::Continue);
        };
        // Without the flag for fixed newstyle, the client knows only this option.
        let known = self.fixed || option == option::NBD_OPT_EXPORT_NAME;
        if magic != NBD_OPTS_MAGIC || !known || self.options == OPTIONS_MAX {
            return (input.len(), Step::End);
        }
        if let Err((reply, reason)) = self.admit(option, length) {
            if option == option::NBD_OPT_EXPORT_NAME || length > SKIPPED_BYTES_MAX {
                return (input.len(), Step::End);
            }
            self.options += 1;
            self.state = Phase::Skipping { left: length, option, reply, reason };
            let (skipped, step) = self.advance(&input[OPTION_HEADER_BYTES..], output);
            return (OPTION_HEADER_BYTES + skipped, step);
        }
        let Some(data) = fields.bytes(length as usize) else { return (0, Step::Continue) };
        self.options += 1;
        let step = self.answer(option, data, output).unwrap_or_else(|(reply, reason)| {
            put_option_reply(output, option, reply, &[reason.as_bytes()]);
            Step::Continue
        });
        (OPTION_HEADER_BYTES + data.len(), step)
    }

    /// Checks an option before its data is processed.
    fn admit(&self, option: u32, length: u32) -> Result<(), Refusal> {
        use option::*;
        let tls_is_due = self.encryption == Encryption::Required && !self.encrypted;
        match option {
            NBD_OPT_ABORT => {}
            NBD_OPT_STARTTLS if self.encrypted => {
                return Err((option_reply::NBD_REP_ERR_INVALID, "TLS was started before"));
            }
            NBD_OPT_STARTTLS if self.encryption == Encryption::Off => {
                return Err((option_reply::NBD_REP_ERR_POLICY, "this server has TLS turned off"));
            }
            NBD_OPT_STARTTLS => {}
            _ if tls_is_due => {
                return Err((option_reply::NBD_REP_ERR_TLS_REQD, "this server demands TLS"));
            }
            NBD_OPT_EXPORT_NAME | NBD_OPT_LIST | NBD_OPT_INFO | NBD_OPT_GO | NBD_OPT_STRUCTURED_REPLY => {}
            NBD_OPT_LIST_META_CONTEXT | NBD_OPT_SET_META_CONTEXT => {}
            _ => return Err((option_reply::NBD_REP_ERR_UNSUP, "this server does not know the option")),
        }
        if length as usize > OPTION_BYTES_MAX {
            return Err((option_reply::NBD_REP_ERR_TOO_BIG, "the data of the option is too long"));
        }
        Ok(())
    }

    fn answer(&mut self, option: u32, data: &[u8], output: &mut Vec<u8>) -> Result<Step, Refusal> {
        use option::*;
        match option {
            NBD_OPT_EXPORT_NAME => return Ok(self.open_unanswered(data, output)),
            NBD_OPT_ABORT => {
                put_option_reply(output, option, option_reply::NBD_REP_ACK, &[]);
                return Ok(Step::End);
            }
            NBD_OPT_INFO | NBD_OPT_GO => return self.describe(option, data, output),
            NBD_OPT_LIST_META_CONTEXT | NBD_OPT_SET_META_CONTEXT => self.contexts(option, data, output)?,
            NBD_OPT_LIST | NBD_OPT_STARTTLS | NBD_OPT_STRUCTURED_REPLY if !data.is_empty() => return Err(MALFORMED),
            NBD_OPT_LIST => self.list(output),
            NBD_OPT_STARTTLS => {
                put_option_reply(output, option, option_reply::NBD_REP_ACK, &[]);
                return Ok(Step::StartTls);
            }
            NBD_OPT_STRUCTURED_REPLY => self.structured = true,
            _ => unreachable!("unknown options are not admitted"),
        }
        put_option_reply(output, option, option_reply::NBD_REP_ACK, &[]);
        Ok(Step::Continue)
    }

    fn open_unanswered(&self, name: &[u8], output: &mut Vec<u8>) -> Step {
        let Ok(name) = text(name) else { return Step::End };
        let Some(found) = self.access.find(name) else { return Step::End };
        output.extend_from_slice(&found.export.size().to_be_bytes());
        output.extend_from_slice(&self.flags(&found).to_be_bytes());
        if !self.no_zeroes {
            output.extend_from_slice(&[0; 124]);
        }
        Step::Transmit(self.session(name, found))
    }

    /// Returns the session for an export; `asked` is the name that the client used.
    fn session(&self, asked: &str, FoundExport { name, export, right }: FoundExport) -> Session {
        let allocation = self.allocation_of.as_deref() == Some(asked);
        Session { export, name, right, structured: self.structured, allocation }
    }

    fn flags(&self, found: &FoundExport) -> u16 {
        transmission_flags(is_read_only(&found.export, found.right), self.structured)
    }

    fn list(&self, output: &mut Vec<u8>) {
        for FoundExport { name, export, .. } in self.access.all() {
            let description = line(export.description());
            let parts = [&length_field(name.len()), name.as_bytes(), description.as_bytes()];
            put_option_reply(output, option::NBD_OPT_LIST, option_reply::NBD_REP_SERVER, &parts);
        }
    }

    fn describe(&self, option: u32, data: &[u8], output: &mut Vec<u8>) -> Result<Step, Refusal> {
        let mut fields = Fields::new(data);
        let name = text(string(&mut fields)?)?;
        let count = fields.u16().ok_or(MALFORMED)?;
        let asked = (0..count).map(|_| fields.u16()).collect::<Option<Vec<_>>>().ok_or(MALFORMED)?;
        if !fields.is_empty() {
            return Err(MALFORMED);
        }
        let found = self.access.find(name).ok_or(NO_SUCH_EXPORT)?;
        let export = &found.export;
        let (block_bytes_min, preferred, block_bytes_max) = export.block_sizes();
        let sizes_asked = asked.contains(&info::NBD_INFO_BLOCK_SIZE);
        // A client that does not query the sizes may send requests as small as 512 bytes.
        if block_bytes_min > 512 && !sizes_asked {
            return Err((
                option_reply::NBD_REP_ERR_BLOCK_SIZE_REQD,
                "ask for the block sizes of this export, and keep to them",
            ));
        }
        let mut put = |kind: u16, parts: &[&[u8]]| {
            let kind = kind.to_be_bytes();
            let parts: Vec<&[u8]> = std::iter::once(&kind[..]).chain(parts.iter().copied()).collect();
            put_option_reply(output, option, option_reply::NBD_REP_INFO, &parts);
        };
        let flags = self.flags(&found).to_be_bytes();
        put(info::NBD_INFO_EXPORT, &[&export.size().to_be_bytes(), &flags]);
        if asked.contains(&info::NBD_INFO_NAME) {
            put(info::NBD_INFO_NAME, &[found.name.as_bytes()]);
        }
        let description = line(export.description());
        if asked.contains(&info::NBD_INFO_DESCRIPTION) && !description.is_empty() {
            put(info::NBD_INFO_DESCRIPTION, &[description.as_bytes()]);
        }
        if sizes_asked || block_bytes_min > 1 {
            let sizes = [block_bytes_min, preferred, block_bytes_max.min(PAYLOAD_BYTES_MAX)].map(u32::to_be_bytes);
            put(info::NBD_INFO_BLOCK_SIZE, &[sizes.as_flattened()]);
        }
        put_option_reply(output, option, option_reply::NBD_REP_ACK, &[]);
        if option == option::NBD_OPT_INFO {
            return Ok(Step::Continue);
        }
        Ok(Step::Transmit(self.session(name, found)))
    }

    fn contexts(&mut self, option: u32, data: &[u8], output: &mut Vec<u8>) -> Result<(), Refusal> {
        let choosing = option == option::NBD_OPT_SET_META_CONTEXT;
        if choosing {
            self.allocation_of = None;
        }
        if !self.structured {
            return Err((option_reply::NBD_REP_ERR_INVALID, "ask for structured replies first"));
        }
        let mut fields = Fields::new(data);
        let name = text(string(&mut fields)?)?;
        let count = fields.u32().ok_or(MALFORMED)?;
        if count > QUERIES_MAX {
            return Err((option_reply::NBD_REP_ERR_TOO_BIG, "too many queries"));
        }
        // Without queries, a list contains all contexts, and a selection none.
        let mut allocation = count == 0 && !choosing;
        for _ in 0..count {
            let query = text(string(&mut fields)?)?;
            allocation |= query == BASE_ALLOCATION || (query == "base:" && !choosing);
        }
        if !fields.is_empty() {
            return Err(MALFORMED);
        }
        self.access.find(name).ok_or(NO_SUCH_EXPORT)?;
        if allocation {
            let id = if choosing { BASE_ALLOCATION_ID } else { 0 };
            let parts = [&id.to_be_bytes()[..], BASE_ALLOCATION.as_bytes()];
            put_option_reply(output, option, option_reply::NBD_REP_META_CONTEXT, &parts);
            self.allocation_of = choosing.then(|| name.to_owned()).or_else(|| self.allocation_of.take());
        }
        Ok(())
    }
}

/// Reads a string preceded by its length.
fn string<'a>(fields: &mut Fields<'a>) -> Result<&'a [u8], Refusal> {
    let length = fields.u32().ok_or(MALFORMED)?;
    fields.bytes(length as usize).ok_or(MALFORMED)
}

fn text(bytes: &[u8]) -> Result<&str, Refusal> {
    if bytes.len() > STRING_BYTES_MAX {
        return Err((option_reply::NBD_REP_ERR_TOO_BIG, "a string is longer than 4096 bytes"));
    }
    let invalid = (option_reply::NBD_REP_ERR_INVALID, "a string is not UTF-8 without NUL");
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0')).ok_or(invalid)
}

/// Converts a description to one that the protocol can send.
fn line(mut description: String) -> String {
    description.retain(|character| character != '\0');
    let end = description.floor_char_boundary(STRING_BYTES_MAX);
    description.truncate(end);
    description
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::assignments::Assignments;
    use flashwise_storage::export::{Done, Error, Exports, Extent, Request};
    use option_reply::*;

    struct Fake {
        block_bytes_min: u32,
    }

    impl Export for Fake {
        fn size(&self) -> u64 {
            0x1_0000
        }
        fn description(&self) -> String {
            "a fake".into()
        }
        fn block_sizes(&self) -> (u32, u32, u32) {
            (self.block_bytes_min, 4096, 1 << 30)
        }
        fn submit(&self, _: Request, done: Done) {
            done(Err(Error::Io));
        }
        fn extents(&self, _: u64, _: u64, _: usize) -> Result<Vec<Extent>, Error> {
            Err(Error::Io)
        }
    }

    fn handshake(encryption: Encryption, exports: &[(&str, u32)]) -> Handshake {
        let table = Exports::default();
        for &(name, block_bytes_min) in exports {
            assert!(table.add(name, Arc::new(Fake { block_bytes_min })));
        }
        started(table.into(), encryption)
    }

    /// Returns the state after the client's flags.
    fn started(access: Access, encryption: Encryption) -> Handshake {
        let mut handshake = Handshake::new(access, encryption);
        assert!(matches!(handshake.advance(&[0, 0, 0, 3], &mut Vec::new()), (4, Step::Continue)));
        handshake
    }

    fn message(option: u32, data: &[u8]) -> Vec<u8> {
        [b"IHAVEOPT", &option.to_be_bytes()[..], &length_field(data.len()), data].concat()
    }

    /// Returns the replies to an option, type and data, and the next step.
    fn ask(handshake: &mut Handshake, option: u32, data: &[u8]) -> (Vec<(u32, Vec<u8>)>, Step) {
        let input = message(option, data);
        let mut output = Vec::new();
        let (mut taken, mut step) = handshake.advance(&input, &mut output);
        while taken < input.len() && matches!(step, Step::Continue) {
            let (more, next) = handshake.advance(&input[taken..], &mut output);
            assert!(more > 0, "a whole message is taken");
            (taken, step) = (taken + more, next);
        }
        let mut fields = Fields::new(&output);
        let mut replies = Vec::new();
        while let Some(magic) = fields.u64() {
            assert_eq!((magic, fields.u32()), (super::super::protocol::NBD_REP_MAGIC, Some(option)));
            let reply = fields.u32().unwrap();
            replies.push((reply, string(&mut fields).unwrap().to_vec()));
        }
        (replies, step)
    }

    fn refused(handshake: &mut Handshake, option: u32, data: &[u8]) -> u32 {
        let (replies, step) = ask(handshake, option, data);
        assert!(matches!(step, Step::Continue));
        assert_eq!(replies.len(), 1);
        replies[0].0
    }

    fn named(name: &[u8], rest: &[u8]) -> Vec<u8> {
        [&length_field(name.len()), name, rest].concat()
    }

    #[test]
    fn go_replies_with_the_requested_facts_and_opens_the_export() {
        let mut handshake = handshake(Encryption::Off, &[("disk", 1)]);
        let (replies, step) = ask(&mut handshake, option::NBD_OPT_GO, &named(b"", b"\0\x04\0\x03\0\x01\0\x02\0\x63"));
        let expected: [(u32, &[u8]); 5] = [
            // 64 KiB; flags 0xd6d: bits 0, 2, 3, 5, 6, 8, 10, 11.
            (NBD_REP_INFO, b"\0\0\0\0\0\0\0\x01\0\0\x0d\x6d"),
            (NBD_REP_INFO, b"\0\x01disk"),
            (NBD_REP_INFO, b"\0\x02a fake"),
            // 1, 4 KiB and 32 MiB, although the export would accept more.
            (NBD_REP_INFO, b"\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0"),
            (NBD_REP_ACK, b""),
        ];
        assert_eq!(replies, expected.map(|(reply, data)| (reply, data.to_vec())));
        assert!(matches!(step, Step::Transmit(Session { structured: false, allocation: false, .. })));
    }

    #[test]
    fn export_name_is_answered_without_a_header_and_cannot_fail_softly() {
        let mut output = Vec::new();
        let mut first = handshake(Encryption::Off, &[("disk", 1)]);
        let (_, step) = first.advance(&message(option::NBD_OPT_EXPORT_NAME, b"disk"), &mut output);
        assert!(matches!(step, Step::Transmit(_)));
        assert_eq!(output, b"\0\0\0\0\0\x01\0\0\x0d\x6d");
        for name in [&b"other"[..], b"\xff", &[b'a'; 5000], &[b'a'; 20000]] {
            let (replies, step) =
                ask(&mut handshake(Encryption::Off, &[("disk", 1)]), option::NBD_OPT_EXPORT_NAME, name);
            assert!(replies.is_empty() && matches!(step, Step::End));
        }
    }

    #[test]
    fn zeroes_follow_export_name_unless_the_client_declines() {
        let table = Exports::default();
        table.add("disk", Arc::new(Fake { block_bytes_min: 1 }));
        let mut handshake = Handshake::new(table.into(), Encryption::Off);
        handshake.advance(&[0, 0, 0, 0], &mut Vec::new());
        let mut output = Vec::new();
        let (_, step) = handshake.advance(&message(option::NBD_OPT_EXPORT_NAME, b"disk"), &mut output);
        assert!(matches!(step, Step::Transmit(_)));
        assert_eq!((output.len(), output[10..].iter().all(|&byte| byte == 0)), (10 + 124, true));
    }

    #[test]
    fn a_client_without_fixed_newstyle_or_with_unknown_flags_is_cut_off() {
        let mut handshake = Handshake::new(Exports::default().into(), Encryption::Off);
        handshake.advance(&[0, 0, 0, 2], &mut Vec::new());
        assert!(matches!(handshake.advance(&message(option::NBD_OPT_LIST, b""), &mut Vec::new()), (_, Step::End)));
        let mut handshake = Handshake::new(Exports::default().into(), Encryption::Off);
        assert!(matches!(handshake.advance(&[0, 0, 0, 4], &mut Vec::new()), (_, Step::End)));
    }

    #[test]
    fn a_list_has_names_and_descriptions() {
        let mut handshake = handshake(Encryption::Off, &[("a", 1), ("bc", 1)]);
        let (replies, _) = ask(&mut handshake, option::NBD_OPT_LIST, b"");
        let expected =
            [(NBD_REP_SERVER, &b"\0\0\0\x01aa fake"[..]), (NBD_REP_SERVER, b"\0\0\0\x02bca fake"), (NBD_REP_ACK, b"")];
        assert_eq!(replies, expected.map(|(reply, data)| (reply, data.to_vec())));
        assert_eq!(refused(&mut handshake, option::NBD_OPT_LIST, b"x"), NBD_REP_ERR_INVALID);
    }

    #[test]
    fn every_wrong_option_has_its_own_error_and_haggling_goes_on() {
        let mut handshake = handshake(Encryption::Off, &[("disk", 1), ("big", 4096)]);
        for (option, data, expected) in [
            (99, vec![1; 300], NBD_REP_ERR_UNSUP),
            (99, vec![1; SKIPPED_BYTES_MAX as usize], NBD_REP_ERR_UNSUP),
            (option::NBD_OPT_GO, named(b"none", b"\0\0"), NBD_REP_ERR_UNKNOWN),
            (option::NBD_OPT_GO, named(b"", b"\0\0"), NBD_REP_ERR_UNKNOWN),
            (option::NBD_OPT_INFO, named(b"disk", b"\0\x01"), NBD_REP_ERR_INVALID),
            (option::NBD_OPT_INFO, named(b"disk", b"\0\0\0"), NBD_REP_ERR_INVALID),
            (option::NBD_OPT_INFO, named(b"di\0k", b"\0\0"), NBD_REP_ERR_INVALID),
            (option::NBD_OPT_INFO, named(b"\xc3\x28", b"\0\0"), NBD_REP_ERR_INVALID),
            (option::NBD_OPT_INFO, named(&[b'a'; 5000], b"\0\0"), NBD_REP_ERR_TOO_BIG),
            (option::NBD_OPT_INFO, named(b"big", b"\0\0"), NBD_REP_ERR_BLOCK_SIZE_REQD),
            (option::NBD_OPT_INFO, vec![], NBD_REP_ERR_INVALID),
            (option::NBD_OPT_INFO, vec![0xff; 8], NBD_REP_ERR_INVALID),
            (option::NBD_OPT_INFO, vec![0; OPTION_BYTES_MAX + 1], NBD_REP_ERR_TOO_BIG),
            (option::NBD_OPT_STARTTLS, vec![], NBD_REP_ERR_POLICY),
            (option::NBD_OPT_STRUCTURED_REPLY, vec![0], NBD_REP_ERR_INVALID),
            (option::NBD_OPT_SET_META_CONTEXT, named(b"disk", b"\0\0\0\0"), NBD_REP_ERR_INVALID),
        ] {
            assert_eq!(refused(&mut handshake, option, &data), expected, "option {option}, {} bytes", data.len());
        }
        assert!(matches!(ask(&mut handshake, option::NBD_OPT_ABORT, b"").1, Step::End));
    }

    #[test]
    fn too_many_or_too_long_options_end_the_connection() {
        let mut limited = handshake(Encryption::Off, &[]);
        for _ in 0..OPTIONS_MAX {
            assert_eq!(refused(&mut limited, 99, b""), NBD_REP_ERR_UNSUP);
        }
        assert!(matches!(ask(&mut limited, 99, b"").1, Step::End));
        let mut header = message(99, b"");
        header[12..].copy_from_slice(&(SKIPPED_BYTES_MAX + 1).to_be_bytes());
        let step = handshake(Encryption::Off, &[]).advance(&header, &mut Vec::new()).1;
        assert!(matches!(step, Step::End));
        let mut header = message(option::NBD_OPT_LIST, b"");
        header[0] ^= 1;
        assert!(matches!(handshake(Encryption::Off, &[]).advance(&header, &mut Vec::new()).1, Step::End));
    }

    #[test]
    fn contexts_are_listed_and_chosen_for_one_export() {
        let mut handshake = handshake(Encryption::Off, &[("disk", 1), ("other", 1)]);
        assert_eq!(ask(&mut handshake, option::NBD_OPT_STRUCTURED_REPLY, b"").0, [(NBD_REP_ACK, vec![])]);
        let id = |id: u8| (NBD_REP_META_CONTEXT, [&[0, 0, 0, id], BASE_ALLOCATION.as_bytes()].concat());
        let ack = (NBD_REP_ACK, vec![]);
        let query = |queries: &[&str]| {
            let list: Vec<u8> = queries.iter().flat_map(|query| named(query.as_bytes(), b"")).collect();
            named(b"disk", &[&length_field(queries.len()), &list[..]].concat())
        };
        let list = option::NBD_OPT_LIST_META_CONTEXT;
        let set = option::NBD_OPT_SET_META_CONTEXT;
        assert_eq!(ask(&mut handshake, list, &query(&[])).0, [id(0), ack.clone()]);
        assert_eq!(ask(&mut handshake, list, &query(&["base:"])).0, [id(0), ack.clone()]);
        assert_eq!(ask(&mut handshake, list, &query(&["x-other:"])).0, std::slice::from_ref(&ack));
        assert_eq!(ask(&mut handshake, set, &query(&[])).0, std::slice::from_ref(&ack));
        let both = ask(&mut handshake, set, &query(&["x-other:a", BASE_ALLOCATION])).0;
        assert_eq!(both, [id(1), ack]);
        assert_eq!(refused(&mut handshake, list, &query(&[""; QUERIES_MAX as usize + 1])), NBD_REP_ERR_TOO_BIG);
        assert_eq!(refused(&mut handshake, list, &named(b"none", b"\0\0\0\0")), NBD_REP_ERR_UNKNOWN);
        let (_, step) = ask(&mut handshake, option::NBD_OPT_GO, &named(b"disk", b"\0\0"));
        assert!(matches!(step, Step::Transmit(Session { structured: true, allocation: true, .. })));
        let (_, step) = ask(&mut handshake, option::NBD_OPT_GO, &named(b"other", b"\0\0"));
        assert!(matches!(step, Step::Transmit(Session { structured: true, allocation: false, .. })));
        assert_eq!(refused(&mut handshake, set, b""), NBD_REP_ERR_INVALID);
        let (_, step) = ask(&mut handshake, option::NBD_OPT_GO, &named(b"disk", b"\0\0"));
        assert!(matches!(step, Step::Transmit(Session { allocation: false, .. })), "a failed choice undoes the last");
    }

    #[test]
    fn required_tls_comes_before_other_requests() {
        let mut handshake = handshake(Encryption::Required, &[("disk", 1)]);
        for option in [3, 6, 7, 8, 9, 10, 99] {
            assert_eq!(refused(&mut handshake, option, b"anything"), NBD_REP_ERR_TLS_REQD);
        }
        assert_eq!(refused(&mut handshake, option::NBD_OPT_STARTTLS, b"x"), NBD_REP_ERR_INVALID);
        let (replies, step) = ask(&mut handshake, option::NBD_OPT_STARTTLS, b"");
        assert!(matches!(step, Step::StartTls));
        assert_eq!(replies, [(NBD_REP_ACK, vec![])]);
        handshake.encrypted();
        assert_eq!(refused(&mut handshake, option::NBD_OPT_STARTTLS, b""), NBD_REP_ERR_INVALID);
        assert_eq!(ask(&mut handshake, option::NBD_OPT_LIST, b"").0.len(), 2);
        let plain = &mut self::handshake(Encryption::Required, &[("disk", 1)]);
        assert!(matches!(ask(plain, option::NBD_OPT_EXPORT_NAME, b"disk").1, Step::End));
    }

    #[test]
    fn agreements_before_tls_are_discarded() {
        let mut handshake = handshake(Encryption::Allowed, &[("disk", 1)]);
        ask(&mut handshake, option::NBD_OPT_STRUCTURED_REPLY, b"");
        let query = named(b"disk", &[b"\0\0\0\x01", &named(BASE_ALLOCATION.as_bytes(), b"")[..]].concat());
        ask(&mut handshake, option::NBD_OPT_SET_META_CONTEXT, &query);
        ask(&mut handshake, option::NBD_OPT_STARTTLS, b"");
        handshake.encrypted();
        let (_, step) = ask(&mut handshake, option::NBD_OPT_GO, &named(b"disk", b"\0\0"));
        assert!(matches!(step, Step::Transmit(Session { structured: false, allocation: false, .. })));
    }

    #[test]
    fn an_export_for_some_certificates_is_not_there_for_others_by_any_name() {
        let entry = |text: &str| text.parse().unwrap();
        let assigned = ["mail tls:db", "mail tls:backup read-only", "mail iqn.a:1", "web iqn.a:1"].map(entry);
        let assignments = Arc::new(Assignments::from(assigned.to_vec()));
        let begun = |names: &[&str], tls_names: &[&str]| {
            let table = Exports::default();
            let mail: Arc<dyn Export> = Arc::new(Fake { block_bytes_min: 1 });
            assert!(table.add("mail", mail.clone()) && table.add_alias("post", mail));
            names.iter().for_each(|name| assert!(table.add(name, Arc::new(Fake { block_bytes_min: 1 }))));
            let mut handshake = started(Access::new(table, assignments.clone()), Encryption::Allowed);
            ask(&mut handshake, option::NBD_OPT_STARTTLS, b"");
            handshake.encrypted();
            handshake.show(tls_names.iter().map(|name| (*name).to_owned()).collect());
            assert_eq!(ask(&mut handshake, option::NBD_OPT_STRUCTURED_REPLY, b"").0, [(NBD_REP_ACK, vec![])]);
            handshake
        };
        let listed = |handshake: &mut Handshake| {
            let (replies, _) = ask(handshake, option::NBD_OPT_LIST, b"");
            let name = |(_, data): &(u32, Vec<u8>)| Some(string(&mut Fields::new(data)).ok()?.to_vec());
            replies.iter().filter_map(name).map(|name| String::from_utf8(name).unwrap()).collect::<Vec<_>>()
        };
        // Over NBD, an export assigned to initiators only is open to all. One assigned to no certificate cannot be
        // opened by its name either.
        for others in [&[][..], &["web"], &["iqn.a:1"], &["other", "d"]] {
            let mut handshake = begun(&["web"], others);
            assert_eq!(listed(&mut handshake), ["web"], "{others:?}");
            for name in [&b"mail"[..], b"post", b""] {
                for (asked, data) in [
                    (option::NBD_OPT_INFO, named(name, b"\0\0")),
                    (option::NBD_OPT_GO, named(name, b"\0\0")),
                    (option::NBD_OPT_LIST_META_CONTEXT, named(name, b"\0\0\0\0")),
                    (option::NBD_OPT_SET_META_CONTEXT, named(name, b"\0\0\0\0")),
                ] {
                    assert_eq!(refused(&mut handshake, asked, &data), NBD_REP_ERR_UNKNOWN, "{others:?}");
                    assert_eq!(refused(&mut begun(&[], others), asked, &data), NBD_REP_ERR_UNKNOWN, "{others:?}");
                }
                let (replies, step) = ask(&mut begun(&[], others), option::NBD_OPT_EXPORT_NAME, name);
                assert!(replies.is_empty() && matches!(step, Step::End), "{others:?}");
            }
        }
        // Flags 0xded: those of a writable export, and DF; 0x587: read-only, without any for writing.
        for (names, flags, right) in [
            (&["DB"][..], b"\x0d\xed", Right::Write),
            (&["backup"], b"\x05\x87", Right::Read),
            (&["backup", "db"], b"\x0d\xed", Right::Write),
        ] {
            assert_eq!(listed(&mut begun(&["web"], names)), ["mail", "post", "web"]);
            for name in [&b"mail"[..], b"post", b""] {
                let (replies, step) = ask(&mut begun(&[], names), option::NBD_OPT_GO, &named(name, b"\0\0"));
                assert_eq!(replies[0].1[10..], flags[..], "{names:?}");
                assert!(matches!(step, Step::Transmit(session) if session.right == right), "{names:?}");
                let mut output = Vec::new();
                let input = message(option::NBD_OPT_EXPORT_NAME, name);
                begun(&[], names).advance(&input, &mut output);
                assert_eq!(output[8..10], flags[..], "{names:?}");
            }
        }
    }

    #[test]
    fn a_message_in_pieces_is_answered_when_it_is_whole() {
        let mut handshake = handshake(Encryption::Off, &[("disk", 1)]);
        let input = message(option::NBD_OPT_GO, &named(b"disk", b"\0\0"));
        let mut output = Vec::new();
        for end in 0..input.len() {
            assert_eq!(handshake.advance(&input[..end], &mut output).0, 0);
            assert!(output.is_empty());
        }
        assert!(matches!(handshake.advance(&input, &mut output), (taken, Step::Transmit(_)) if taken == input.len()));
    }
}
