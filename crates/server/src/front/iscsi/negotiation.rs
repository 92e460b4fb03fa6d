//! Negotiation of a session's parameters. Source: RFC 7143, section 13.

use super::pdu::Digests;
use super::text::{number, put};

/// Longest data segment that this server accepts.
pub const SEGMENT_BYTES_MAX: u32 = 256 << 10;
/// Most data that this server requests in one burst.
const BURST_BYTES_MAX: u32 = 1 << 20;
/// Most unsolicited data.
const FIRST_BURST_BYTES_MAX: u32 = 256 << 10;
/// Shortest negotiable burst or segment.
const BYTES_MIN: u32 = 512;
const BYTES_MAX: u32 = (1 << 24) - 1;

/// The negotiated parameters; the defaults are those of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Use of digests.
    pub digests: Digests,
    /// Longest data segment that the initiator accepts.
    pub segment_bytes_max: u32,
    /// Most data in one sequence.
    pub burst_bytes_max: u32,
    /// Most unsolicited data.
    pub first_burst_bytes_max: u32,
    /// True if all data except immediate data must be requested.
    pub initial_r2t: bool,
    /// True if a command may have immediate data.
    pub immediate_data: bool,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            digests: Digests::default(),
            segment_bytes_max: 8192,
            burst_bytes_max: 262_144,
            first_burst_bytes_max: 65_536,
            initial_r2t: true,
            immediate_data: true,
        }
    }
}

/// The result of negotiating a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Negotiated {
    /// The reply was appended.
    Answered,
    /// The key is none of these.
    Unknown,
    /// The value is invalid.
    Wrong,
}

impl Parameters {
    /// Negotiates one key of the initiator, and appends the reply.
    pub fn negotiate(&mut self, key: &str, value: &str, output: &mut Vec<u8>) -> Negotiated {
        let answered = match key {
            "HeaderDigest" => digest(value).map(|on| {
                self.digests.header = on;
                digest_name(on).to_owned()
            }),
            "DataDigest" => digest(value).map(|on| {
                self.digests.data = on;
                digest_name(on).to_owned()
            }),
            // Each side declares its own limit.
            "MaxRecvDataSegmentLength" => {
                return match number(value).filter(|bytes| (BYTES_MIN..=BYTES_MAX).contains(bytes)) {
                    Some(bytes) => {
                        self.segment_bytes_max = bytes;
                        Negotiated::Answered
                    }
                    None => Negotiated::Wrong,
                };
            }
            "MaxBurstLength" => smaller(value, BYTES_MIN..=BYTES_MAX, BURST_BYTES_MAX).map(|bytes| {
                self.burst_bytes_max = bytes;
                bytes.to_string()
            }),
            "FirstBurstLength" => smaller(value, BYTES_MIN..=BYTES_MAX, FIRST_BURST_BYTES_MAX).map(|bytes| {
                self.first_burst_bytes_max = bytes;
                bytes.to_string()
            }),
            "InitialR2T" => boolean(value).map(|on| {
                self.initial_r2t = on;
                yes(on)
            }),
            "ImmediateData" => boolean(value).map(|on| {
                self.immediate_data = on;
                yes(on)
            }),
            "DataPDUInOrder" | "DataSequenceInOrder" => boolean(value).map(|_| yes(true)),
            "MaxConnections" | "MaxOutstandingR2T" => smaller(value, 1..=65_535, 1).map(|count| count.to_string()),
            "ErrorRecoveryLevel" => smaller(value, 0..=2, 0).map(|level| level.to_string()),
            "DefaultTime2Wait" => number(value).filter(|time| *time <= 3600).map(|time| time.max(2).to_string()),
            // Tasks do not outlive their session.
            "DefaultTime2Retain" => smaller(value, 0..=3600, 0).map(|time| time.to_string()),
            // Markers are obsolete.
            "OFMarker" | "IFMarker" => boolean(value).map(|_| yes(false)),
            _ => return Negotiated::Unknown,
        };
        let Some(answer) = answered else { return Negotiated::Wrong };
        put(output, key, &answer);
        Negotiated::Answered
    }

    /// Makes the parameters consistent with each other.
    pub fn settle(&mut self) {
        self.first_burst_bytes_max = self.first_burst_bytes_max.min(self.burst_bytes_max);
    }
}

fn smaller(value: &str, range: std::ops::RangeInclusive<u32>, own: u32) -> Option<u32> {
    number(value).filter(|value| range.contains(value)).map(|value| value.min(own))
}

fn boolean(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

fn yes(on: bool) -> String {
    if on { "Yes".to_owned() } else { "No".to_owned() }
}

/// Chooses the first supported digest of a list.
fn digest(list: &str) -> Option<bool> {
    list.split(',').find_map(|name| match name {
        "CRC32C" => Some(true),
        "None" => Some(false),
        _ => None,
    })
}

fn digest_name(on: bool) -> &'static str {
    if on { "CRC32C" } else { "None" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(parameters: &mut Parameters, key: &str, value: &str) -> Result<String, Negotiated> {
        let mut output = Vec::new();
        match parameters.negotiate(key, value, &mut output) {
            Negotiated::Answered => Ok(String::from_utf8(output).unwrap()),
            other => Err(other),
        }
    }

    #[test]
    fn keys_are_answered_as_the_specification_combines_them() {
        let mut parameters = Parameters::default();
        for (key, value, expected) in [
            ("HeaderDigest", "CRC32C,None", "HeaderDigest=CRC32C\0"),
            ("DataDigest", "None,CRC32C", "DataDigest=None\0"),
            ("MaxRecvDataSegmentLength", "65536", ""),
            ("MaxBurstLength", "16776192", "MaxBurstLength=1048576\0"),
            ("FirstBurstLength", "4096", "FirstBurstLength=4096\0"),
            ("InitialR2T", "No", "InitialR2T=No\0"),
            ("ImmediateData", "No", "ImmediateData=No\0"),
            ("DataPDUInOrder", "No", "DataPDUInOrder=Yes\0"),
            ("MaxConnections", "8", "MaxConnections=1\0"),
            ("MaxOutstandingR2T", "16", "MaxOutstandingR2T=1\0"),
            ("ErrorRecoveryLevel", "2", "ErrorRecoveryLevel=0\0"),
            ("DefaultTime2Wait", "0", "DefaultTime2Wait=2\0"),
            ("DefaultTime2Retain", "20", "DefaultTime2Retain=0\0"),
        ] {
            assert_eq!(answer(&mut parameters, key, value).as_deref(), Ok(expected), "{key}={value}");
        }
        parameters.settle();
        let expected = Parameters {
            digests: Digests { header: true, data: false },
            segment_bytes_max: 65_536,
            burst_bytes_max: 1 << 20,
            first_burst_bytes_max: 4096,
            initial_r2t: false,
            immediate_data: false,
        };
        assert_eq!(parameters, expected);
    }

    #[test]
    fn invalid_values_differ_from_unknown_keys() {
        let mut parameters = Parameters::default();
        for (key, value) in [
            ("HeaderDigest", "MD5"),
            ("MaxRecvDataSegmentLength", "511"),
            ("MaxBurstLength", "16777216"),
            ("InitialR2T", "yes"),
            ("ErrorRecoveryLevel", "3"),
            ("MaxConnections", "0"),
        ] {
            assert_eq!(answer(&mut parameters, key, value), Err(Negotiated::Wrong), "{key}={value}");
        }
        assert_eq!(answer(&mut parameters, "X-org.example", "1"), Err(Negotiated::Unknown));
        assert_eq!(parameters, Parameters::default());
    }
}
