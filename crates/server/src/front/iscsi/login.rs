//! The login phase: bytes in, bytes out, until a session starts or the connection ends; no sockets. Source: RFC 7143,
//! section 6.

use super::chap::Challenge;
use super::discovery::PORTAL_GROUP;
use super::names;
use super::negotiation::{Negotiated, Parameters, SEGMENT_BYTES_MAX};
use super::pdu::{self, CONTINUES, Digests, FINAL, Header, request, response};
use super::text::{self, TEXT_BYTES_MAX, put};
use crate::front::options::Iscsi;

/// Maximum number of requests of one login.
const REQUESTS_MAX: u32 = 64;

/// Reasons of a failed login: status class and detail. Source: RFC 7143, section 11.13.5.
pub mod status {
    #![allow(missing_docs)]
    pub const INITIATOR_ERROR: u16 = 0x0200;
    pub const AUTHENTICATION_FAILURE: u16 = 0x0201;
    pub const AUTHORIZATION_FAILURE: u16 = 0x0202;
    pub const NOT_FOUND: u16 = 0x0203;
    pub const UNSUPPORTED_VERSION: u16 = 0x0205;
    pub const MISSING_PARAMETER: u16 = 0x0207;
    pub const SESSION_DOES_NOT_EXIST: u16 = 0x020a;
    pub const INVALID_DURING_LOGIN: u16 = 0x020b;
    pub const OUT_OF_RESOURCES: u16 = 0x0302;
}

/// The purpose of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Discovery of targets.
    Discovery,
    /// Use of this export's target.
    Normal(String),
}

/// The result of a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The initiator's name.
    pub initiator: String,
    /// The initiator's part of the session's identifier.
    pub isid: [u8; 6],
    /// The purpose of the session.
    pub purpose: Purpose,
    /// The negotiated parameters.
    pub parameters: Parameters,
    /// The number of its next command.
    pub command_number: u32,
    /// The number of the next status.
    pub status_number: u32,
}

/// The next step after a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Wait for the next message.
    Continue,
    /// Start the session. Its last reply follows with [`Login::finish`].
    Begin(Box<Agreed>),
    /// End the connection once the output is sent.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Security,
    Operational,
    Full,
}

impl Stage {
    fn of_bits(bits: u8) -> Option<Stage> {
        match bits & 3 {
            0 => Some(Stage::Security),
            1 => Some(Stage::Operational),
            3 => Some(Stage::Full),
            _ => None,
        }
    }

    fn bits(self) -> u8 {
        match self {
            Stage::Security => 0,
            Stage::Operational => 1,
            Stage::Full => 3,
        }
    }
}

/// State of the initiator's authentication.
#[derive(Debug)]
enum Proof {
    NotAsked,
    Asked,
    Challenged(Challenge),
    Given,
}

/// The login of one connection.
pub struct Login<'a> {
    access: &'a Iscsi,
    /// True if there is an export of this name.
    exists: &'a dyn Fn(&str) -> bool,
    /// Fills with secure random bytes; false on failure.
    random: &'a dyn Fn(&mut [u8]) -> bool,
    stage: Option<Stage>,
    proof: Proof,
    /// Text that is still incomplete.
    text: Vec<u8>,
    /// The initiator's name, once known.
    initiator: Option<String>,
    purpose: Option<Purpose>,
    isid: [u8; 6],
    parameters: Parameters,
    /// True if the longest segment was declared to the initiator.
    declared: bool,
    requests: u32,
    status_number: u32,
    /// The last reply, which is sent when the session has started.
    last: Option<(Header, Vec<u8>)>,
}

impl<'a> Login<'a> {
    /// Starts a login.
    pub fn new(
        access: &'a Iscsi,
        exists: &'a dyn Fn(&str) -> bool,
        random: &'a dyn Fn(&mut [u8]) -> bool,
    ) -> Login<'a> {
        Login {
            access,
            exists,
            random,
            stage: None,
            proof: Proof::NotAsked,
            text: Vec::new(),
            initiator: None,
            purpose: None,
            isid: [0; 6],
            parameters: Parameters::default(),
            declared: false,
            requests: 0,
            status_number: 0,
            last: None,
        }
    }

    /// Processes at most one message from the start of `input` and appends its reply to `output`. Returns the number of
    /// bytes processed: 0 if the message is incomplete. A message is at most its headers and [`TEXT_BYTES_MAX`] long.
    pub fn advance(&mut self, input: &[u8], output: &mut Vec<u8>) -> (usize, Step) {
        let Ok(Some((header, header_bytes))) = pdu::take_header(input, Digests::default()) else {
            return (0, Step::Continue);
        };
        if header.opcode() != request::LOGIN || header.data_bytes() > TEXT_BYTES_MAX {
            // Anything else is not iSCSI.
            return (input.len(), Step::End);
        }
        let length = header.data_bytes();
        let whole = header_bytes + length + pdu::padding(length);
        let Some(message) = input.get(..whole) else { return (0, Step::Continue) };
        let data = &message[header_bytes..header_bytes + length];
        let step = self.request(&header, data, output).unwrap_or_else(|status| {
            self.refuse(&header, status, output);
            Step::End
        });
        (whole, step)
    }

    /// Bytes of the longest message.
    pub const MESSAGE_BYTES_MAX: usize = pdu::HEADER_BYTES + 255 * 4 + TEXT_BYTES_MAX + 4;

    fn refuse(&self, header: &Header, status: u16, output: &mut Vec<u8>) {
        let mut answer = self.answer(header, 0);
        answer.0[36..38].copy_from_slice(&status.to_be_bytes());
        pdu::put(output, answer, &[], Digests::default());
    }

    /// Returns the header of a reply.
    fn answer(&self, header: &Header, flags: u8) -> Header {
        let mut answer = Header::new(response::LOGIN, flags).with_tag(header.tag());
        answer.0[8..16].copy_from_slice(&header.0[8..16]);
        answer.set_word(24, self.status_number);
        answer.set_word(28, header.word(24));
        answer.set_word(32, header.word(24));
        answer
    }

    fn request(&mut self, header: &Header, data: &[u8], output: &mut Vec<u8>) -> Result<Step, u16> {
        self.requests += 1;
        if self.requests > REQUESTS_MAX {
            return Err(status::INITIATOR_ERROR);
        }
        let (current, next) = (Stage::of_bits(header.flags() >> 2), Stage::of_bits(header.flags()));
        let (ends, continues) = (header.has(FINAL), header.has(CONTINUES));
        let current = current.filter(|stage| *stage != Stage::Full).ok_or(status::INITIATOR_ERROR)?;
        if self.stage.is_some_and(|stage| stage != current) || (ends && continues) {
            return Err(status::INITIATOR_ERROR);
        }
        if self.stage.is_none() {
            // Version 0 is the only one.
            if header.0[3] > 0 {
                return Err(status::UNSUPPORTED_VERSION);
            }
            if header.0[14..16] != [0, 0] {
                // A session has one connection.
                return Err(status::SESSION_DOES_NOT_EXIST);
            }
            self.isid.copy_from_slice(&header.0[8..14]);
            self.status_number = header.word(28);
            self.stage = Some(current);
        } else if header.0[8..14] != self.isid {
            return Err(status::INVALID_DURING_LOGIN);
        }
        if self.text.len() + data.len() > TEXT_BYTES_MAX {
            return Err(status::INITIATOR_ERROR);
        }
        self.text.extend_from_slice(data);
        if continues {
            let answer = self.answer(header, current.bits() << 2);
            self.status_number = self.status_number.wrapping_add(1);
            pdu::put(output, answer, &[], Digests::default());
            return Ok(Step::Continue);
        }
        let text = std::mem::take(&mut self.text);
        let pairs = text::parse(&text).map_err(|_| status::INITIATOR_ERROR)?;
        let mut reply = Vec::new();
        self.introduce(&pairs, &mut reply)?;
        match current {
            Stage::Security => self.secure(&pairs, &mut reply)?,
            _ => {
                self.check_proof()?;
                self.negotiate(&pairs, &mut reply)?;
            }
        }
        let mut flags = current.bits() << 2;
        let proven = self.check_proof().is_ok();
        let next = next.filter(|next| ends && next.bits() > current.bits() && (current != Stage::Security || proven));
        if ends && next.is_none() && current != Stage::Security {
            return Err(status::INITIATOR_ERROR);
        }
        if let Some(next) = next {
            flags |= FINAL | next.bits();
            self.stage = Some(next);
        }
        let mut answer = self.answer(header, flags);
        self.status_number = self.status_number.wrapping_add(1);
        if self.stage != Some(Stage::Full) {
            pdu::put(output, answer, &reply, Digests::default());
            return Ok(Step::Continue);
        }
        self.check_proof()?;
        self.parameters.settle();
        // The last reply leaves room for the session's number.
        answer.0[14..16].copy_from_slice(&[0, 0]);
        self.last = Some((answer, reply));
        Ok(Step::Begin(Box::new(Agreed {
            initiator: self.initiator.clone().ok_or(status::MISSING_PARAMETER)?,
            isid: self.isid,
            purpose: self.purpose.clone().ok_or(status::MISSING_PARAMETER)?,
            parameters: self.parameters,
            command_number: header.word(24),
            status_number: self.status_number,
        })))
    }

    /// Writes the last reply: the number of the session, or the reason of its failure.
    pub fn finish(&mut self, session: Result<u16, u16>, output: &mut Vec<u8>) {
        let Some((mut header, reply)) = self.last.take() else { return };
        match session {
            Ok(number) => {
                header.0[14..16].copy_from_slice(&number.to_be_bytes());
                pdu::put(output, header, &reply, Digests::default());
            }
            Err(status) => {
                header.0[1] = 0;
                header.0[36..38].copy_from_slice(&status.to_be_bytes());
                pdu::put(output, header, &[], Digests::default());
            }
        }
    }

    /// Processes the initiator's identity and purpose from the first request.
    fn introduce(&mut self, pairs: &[(&str, &str)], reply: &mut Vec<u8>) -> Result<(), u16> {
        if self.initiator.is_some() {
            return Ok(());
        }
        let value = |key: &str| pairs.iter().find(|(own, _)| *own == key).map(|(_, value)| *value);
        let name = value("InitiatorName").ok_or(status::MISSING_PARAMETER)?;
        if !names::is_initiator(name) {
            return Err(status::INITIATOR_ERROR);
        }
        let purpose = match value("SessionType") {
            Some("Discovery") => Purpose::Discovery,
            None | Some("Normal") => {
                let target = value("TargetName").ok_or(status::MISSING_PARAMETER)?;
                let export = names::export(target).filter(|export| (self.exists)(export));
                Purpose::Normal(export.ok_or(status::NOT_FOUND)?.to_owned())
            }
            Some(_) => return Err(status::INITIATOR_ERROR),
        };
        if self.access.initiators.as_ref().is_some_and(|names| !names.iter().any(|own| own == name)) {
            return Err(status::AUTHORIZATION_FAILURE);
        }
        self.initiator = Some(name.to_owned());
        if purpose != Purpose::Discovery {
            put(reply, "TargetPortalGroupTag", PORTAL_GROUP);
        }
        self.purpose = Some(purpose);
        Ok(())
    }

    fn check_proof(&self) -> Result<(), u16> {
        match (&self.access.chap, &self.proof) {
            (None, _) | (Some(_), Proof::Given) => Ok(()),
            _ => Err(status::AUTHENTICATION_FAILURE),
        }
    }

    /// Processes keys of the security stage.
    fn secure(&mut self, pairs: &[(&str, &str)], reply: &mut Vec<u8>) -> Result<(), u16> {
        let refused = |_| status::AUTHENTICATION_FAILURE;
        for (key, value) in pairs {
            match *key {
                "AuthMethod" => {
                    let own = if self.access.chap.is_some() { "CHAP" } else { "None" };
                    if !value.split(',').any(|method| method == own) {
                        return Err(status::AUTHENTICATION_FAILURE);
                    }
                    put(reply, "AuthMethod", own);
                    self.proof = Proof::Asked;
                }
                "InitiatorName" | "InitiatorAlias" | "SessionType" | "TargetName" => {}
                key if key.starts_with("CHAP_") => {}
                // Some initiators send all their keys in one request.
                key => self.negotiate_one(key, value, reply)?,
            }
        }
        let Some(own) = &self.access.chap else { return Ok(()) };
        match &self.proof {
            Proof::Asked if pairs.iter().any(|(key, _)| *key == "CHAP_A") => {
                self.proof = Proof::Challenged(Challenge::start(pairs, self.random, reply).map_err(refused)?);
            }
            Proof::Challenged(challenge) => {
                challenge.check(pairs, own, self.access.mutual_chap.as_ref(), reply).map_err(refused)?;
                self.proof = Proof::Given;
            }
            _ => {}
        }
        Ok(())
    }

    /// Processes keys of the operational stage.
    fn negotiate(&mut self, pairs: &[(&str, &str)], reply: &mut Vec<u8>) -> Result<(), u16> {
        for (key, value) in pairs {
            match *key {
                "InitiatorName" | "InitiatorAlias" | "SessionType" | "TargetName" => {}
                key => self.negotiate_one(key, value, reply)?,
            }
        }
        if !std::mem::replace(&mut self.declared, true) {
            put(reply, "MaxRecvDataSegmentLength", &SEGMENT_BYTES_MAX.to_string());
        }
        Ok(())
    }

    fn negotiate_one(&mut self, key: &str, value: &str, reply: &mut Vec<u8>) -> Result<(), u16> {
        match self.parameters.negotiate(key, value, reply) {
            Negotiated::Answered => Ok(()),
            Negotiated::Unknown => {
                put(reply, key, "NotUnderstood");
                Ok(())
            }
            Negotiated::Wrong => Err(status::INITIATOR_ERROR),
        }
    }
}
