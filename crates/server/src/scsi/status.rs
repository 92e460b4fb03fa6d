//! Status, sense data, and replies of commands. Source: SAM-5, section 5.3; SPC-4, section 4.5.

use flashwise_storage::export::Error;

/// The status of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Status {
    Good = 0x00,
    CheckCondition = 0x02,
    ConditionMet = 0x04,
    Busy = 0x08,
    ReservationConflict = 0x18,
    TaskSetFull = 0x28,
}

/// Sense keys.
pub mod key {
    #![allow(missing_docs)]
    pub const NO_SENSE: u8 = 0x0;
    pub const NOT_READY: u8 = 0x2;
    pub const MEDIUM_ERROR: u8 = 0x3;
    pub const HARDWARE_ERROR: u8 = 0x4;
    pub const ILLEGAL_REQUEST: u8 = 0x5;
    pub const UNIT_ATTENTION: u8 = 0x6;
    pub const DATA_PROTECT: u8 = 0x7;
    pub const COPY_ABORTED: u8 = 0xa;
    pub const ABORTED_COMMAND: u8 = 0xb;
    pub const MISCOMPARE: u8 = 0xe;
}

/// Additional sense codes and qualifiers, with the code in the high byte.
pub mod code {
    #![allow(missing_docs)]
    pub const NONE: u16 = 0x0000;
    pub const NOT_READY_MANUAL_INTERVENTION_REQUIRED: u16 = 0x0403;
    pub const WRITE_ERROR: u16 = 0x0c00;
    pub const COPY_TARGET_DEVICE_NOT_REACHABLE: u16 = 0x0d02;
    pub const INVALID_FIELD_IN_INFORMATION_UNIT: u16 = 0x0e03;
    pub const UNRECOVERED_READ_ERROR: u16 = 0x1100;
    pub const PARAMETER_LIST_LENGTH_ERROR: u16 = 0x1a00;
    pub const MISCOMPARE_DURING_VERIFY: u16 = 0x1d00;
    pub const INVALID_COMMAND_OPERATION_CODE: u16 = 0x2000;
    pub const LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE: u16 = 0x2100;
    pub const INVALID_FIELD_IN_CDB: u16 = 0x2400;
    pub const LOGICAL_UNIT_NOT_SUPPORTED: u16 = 0x2500;
    pub const INVALID_FIELD_IN_PARAMETER_LIST: u16 = 0x2600;
    pub const INVALID_RELEASE_OF_PERSISTENT_RESERVATION: u16 = 0x2604;
    pub const TOO_MANY_TARGET_DESCRIPTORS: u16 = 0x2606;
    pub const UNSUPPORTED_TARGET_DESCRIPTOR_TYPE: u16 = 0x2607;
    pub const TOO_MANY_SEGMENT_DESCRIPTORS: u16 = 0x2608;
    pub const UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE: u16 = 0x2609;
    pub const INLINE_DATA_LENGTH_EXCEEDED: u16 = 0x260b;
    pub const WRITE_PROTECTED: u16 = 0x2700;
    pub const SPACE_ALLOCATION_FAILED: u16 = 0x2707;
    pub const POWER_ON_RESET_OR_BUS_DEVICE_RESET: u16 = 0x2900;
    pub const BUS_DEVICE_RESET: u16 = 0x2903;
    pub const MODE_PARAMETERS_CHANGED: u16 = 0x2a01;
    pub const RESERVATIONS_PREEMPTED: u16 = 0x2a03;
    pub const RESERVATIONS_RELEASED: u16 = 0x2a04;
    pub const REGISTRATIONS_PREEMPTED: u16 = 0x2a05;
    pub const CAPACITY_DATA_HAS_CHANGED: u16 = 0x2a09;
    pub const COMMANDS_CLEARED_BY_ANOTHER_INITIATOR: u16 = 0x2f00;
    pub const SAVING_PARAMETERS_NOT_SUPPORTED: u16 = 0x3900;
    pub const DATA_PHASE_ERROR: u16 = 0x4b00;
    pub const INTERNAL_TARGET_FAILURE: u16 = 0x4400;
    pub const INSUFFICIENT_REGISTRATION_RESOURCES: u16 = 0x5504;
}

/// The reason why a command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// One of [`key`].
    pub key: u8,
    /// One of [`code`].
    pub code: u16,
    /// The information field: the first byte that differs, or the block that failed.
    pub information: Option<u32>,
    /// The invalid byte of the command.
    pub byte: Option<u16>,
}

/// Bytes of sense data in the fixed format.
const FIXED_BYTES: usize = 18;

/// The field pointer is valid, and points into the command descriptor block.
const IN_COMMAND: u8 = 0xc0;

impl Sense {
    /// Creates one from a key and a code.
    pub const fn new(key: u8, code: u16) -> Sense {
        Sense { key, code, information: None, byte: None }
    }

    /// Creates an illegal request.
    pub const fn illegal(code: u16) -> Sense {
        Sense::new(key::ILLEGAL_REQUEST, code)
    }

    /// A field of the command descriptor block is invalid.
    pub const INVALID_FIELD: Sense = Sense::illegal(code::INVALID_FIELD_IN_CDB);

    /// A field of the parameters is invalid.
    pub const INVALID_PARAMETER: Sense = Sense::illegal(code::INVALID_FIELD_IN_PARAMETER_LIST);

    /// A byte of the command descriptor block is invalid.
    pub const fn wrong_byte(byte: u16) -> Sense {
        Sense { byte: Some(byte), ..Sense::INVALID_FIELD }
    }

    /// Encodes the sense data.
    pub fn encode(&self, in_descriptors: bool) -> Vec<u8> {
        let [code, qualifier] = self.code.to_be_bytes();
        if in_descriptors {
            let mut data = vec![0x72, self.key, code, qualifier, 0, 0, 0, 0];
            if let Some(information) = self.information {
                data[7] += 12;
                data.extend([0, 10, 0x80, 0, 0, 0, 0, 0]);
                data.extend(information.to_be_bytes());
            }
            if let Some(byte) = self.byte {
                data[7] += 8;
                data.extend([2, 6, 0, 0, IN_COMMAND]);
                data.extend(byte.to_be_bytes());
                data.push(0);
            }
            return data;
        }
        let mut data = vec![0; FIXED_BYTES];
        data[0] = 0x70;
        data[2] = self.key;
        data[7] = (FIXED_BYTES - 8) as u8;
        (data[12], data[13]) = (code, qualifier);
        if let Some(information) = self.information {
            data[0] |= 0x80;
            data[3..7].copy_from_slice(&information.to_be_bytes());
        }
        if let Some(byte) = self.byte {
            data[15] = IN_COMMAND;
            data[16..18].copy_from_slice(&byte.to_be_bytes());
        }
        data
    }
}

/// The reply of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: Status,
    /// Its sense data, if the status is [`Status::CheckCondition`].
    pub sense: Option<Sense>,
    /// The data for the initiator.
    pub data: Vec<u8>,
}

impl Answer {
    /// Creates one with only a status.
    pub const fn status(status: Status) -> Answer {
        Answer { status, sense: None, data: Vec::new() }
    }

    /// Success.
    pub const GOOD: Answer = Answer::status(Status::Good);

    /// Creates a successful one with data.
    pub const fn data(data: Vec<u8>) -> Answer {
        Answer { status: Status::Good, sense: None, data }
    }
}

impl From<Sense> for Answer {
    fn from(sense: Sense) -> Answer {
        Answer { status: Status::CheckCondition, sense: Some(sense), data: Vec::new() }
    }
}

/// Returns the reply for an export's error; `writes` is true if the request changed something.
pub fn sense_of(error: Error, writes: bool) -> Answer {
    let sense = match error {
        Error::NotPermitted => Sense::new(key::DATA_PROTECT, code::WRITE_PROTECTED),
        Error::Io if writes => Sense::new(key::MEDIUM_ERROR, code::WRITE_ERROR),
        Error::Io => Sense::new(key::MEDIUM_ERROR, code::UNRECOVERED_READ_ERROR),
        Error::OutOfMemory => return Answer::status(Status::TaskSetFull),
        Error::ShuttingDown => return Answer::status(Status::Busy),
        Error::Invalid => Sense::INVALID_FIELD,
        Error::NoSpace => Sense::new(key::DATA_PROTECT, code::SPACE_ALLOCATION_FAILED),
        Error::NotSupported => Sense::new(key::HARDWARE_ERROR, code::INTERNAL_TARGET_FAILURE),
    };
    sense.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sense_data_has_both_formats() {
        let sense = Sense::new(key::MISCOMPARE, code::MISCOMPARE_DURING_VERIFY);
        let sense = Sense { information: Some(0x102), ..sense };
        // SPC-4, tables 48 and 53: valid bit, key, information, additional length 10, code and qualifier.
        let fixed = [0xf0, 0, 0xe, 0, 0, 1, 2, 10, 0, 0, 0, 0, 0x1d, 0, 0, 0, 0, 0];
        assert_eq!(sense.encode(false), fixed);
        // SPC-4, tables 28 and 30: an information descriptor of type 0 and 10 more bytes, with its valid bit.
        let descriptors = [0x72, 0xe, 0x1d, 0, 0, 0, 0, 12, 0, 10, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2];
        assert_eq!(sense.encode(true), descriptors);
        assert_eq!(Sense::INVALID_FIELD.encode(true), [0x72, 5, 0x24, 0, 0, 0, 0, 0]);
        // SPC-4, tables 33 and 34: the field pointer, valid and of the command.
        assert_eq!(Sense::wrong_byte(2).encode(true)[7..], [8, 2, 6, 0, 0, 0xc0, 0, 2, 0]);
        assert_eq!(Sense::wrong_byte(2).encode(false)[15..], [0xc0, 0, 2]);
    }
}
