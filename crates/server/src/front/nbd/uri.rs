//! NBD URIs: the server's address and the export. Source: NetworkBlockDevice/nbd, doc/uri.md.

use std::fmt;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::protocol::STRING_BYTES_MAX;
use crate::front::address::Address;
use crate::front::protocol::UriError;
use crate::front::uri_parts::{decode, encode_host, parse_authority};

/// Default port of NBD.
pub const PORT: u16 = 10809;

/// The schemes of NBD URIs.
pub const SCHEMES: [&str; 4] = ["nbd", "nbds", "nbd+unix", "nbds+unix"];
/// Syntax of NBD URIs.
pub const FORMS: &str = "nbd://HOST:PORT/EXPORT or nbd+unix:///EXPORT?socket=PATH, with nbds for TLS";

/// The address of an export.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Uri {
    /// True if the connection is encrypted.
    pub encrypted: bool,
    /// The server's address.
    pub address: Address,
    /// Name of the export; empty for the default one.
    pub export: String,
}

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(uri: &str) -> Result<Self, UriError> {
        parse(uri).map_err(|reason| UriError { uri: uri.to_owned(), reason })
    }
}

fn parse(uri: &str) -> Result<Uri, String> {
    let (scheme, rest) = uri.split_once("://").ok_or_else(|| format!("expected {FORMS}"))?;
    let (encrypted, unix) = match scheme {
        "nbd" => (false, false),
        "nbds" => (true, false),
        "nbd+unix" => (false, true),
        "nbds+unix" => (true, true),
        other => return Err(format!("unknown scheme {other:?}; expected {FORMS}")),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
    let export = decode(export)?;
    if export.len() > STRING_BYTES_MAX {
        return Err(format!("the name of the export has {} bytes; {STRING_BYTES_MAX} are allowed", export.len()));
    }
    let mut socket = None;
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter.split_once('=') {
            Some(("socket", path)) if unix => socket = Some(decode(path)?),
            _ => return Err(format!("unknown parameter {parameter:?}")),
        }
    }
    let address = if unix {
        if !authority.is_empty() {
            return Err(format!(
                "found host {authority:?}; a Unix socket has none: write {scheme}:///EXPORT?socket=PATH"
            ));
        }
        let path = socket.filter(|path| !path.is_empty()).ok_or("the parameter socket=PATH is missing")?;
        Address::Unix(path.into())
    } else {
        parse_authority(authority, PORT)?
    };
    Ok(Uri { encrypted, address, export })
}

/// Characters to encode in names and paths.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
impl fmt::Display for Uri {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.encrypted { "nbds" } else { "nbd" };
        let export = utf8_percent_encode(&self.export, ENCODED);
        match &self.address {
            Address::Unix(path) => {
                let path = path.to_string_lossy();
                write!(formatter, "{scheme}+unix:///{export}?socket={}", utf8_percent_encode(&path, ENCODED))
            }
            Address::Tcp { host, port } => {
                write!(formatter, "{scheme}://{}", encode_host(host))?;
                if *port != PORT {
                    write!(formatter, ":{port}")?;
                }
                write!(formatter, "/{export}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(encrypted: bool, host: &str, port: u16, export: &str) -> Uri {
        Uri { encrypted, address: Address::Tcp { host: host.into(), port }, export: export.into() }
    }

    fn unix(encrypted: bool, path: &str, export: &str) -> Uri {
        Uri { encrypted, address: Address::Unix(path.into()), export: export.into() }
    }

    #[test]
    fn uris_are_parsed_and_printed_back() {
        for (text, expected) in [
            ("nbd://example.com:7000/disk", tcp(false, "example.com", 7000, "disk")),
            ("nbd://example.com/", tcp(false, "example.com", PORT, "")),
            ("nbds://[::1]:10810/a/b", tcp(true, "::1", 10810, "a/b")),
            ("nbds://[fe80::1]/%C3%A4%20b", tcp(true, "fe80::1", PORT, "ä b")),
            ("nbd+unix:///?socket=/run/nbd.sock", unix(false, "/run/nbd.sock", "")),
            ("nbds+unix:///disk?socket=/tmp/a%20b%26c", unix(true, "/tmp/a b&c", "disk")),
        ] {
            let uri: Uri = text.parse().unwrap();
            assert_eq!(uri, expected);
            assert_eq!(uri.to_string(), text);
        }
        assert_eq!("nbd://localhost".parse(), Ok(tcp(false, "localhost", PORT, "")));
        assert_eq!("nbd://:0".parse(), Ok(tcp(false, "", 0, "")));
        assert_eq!("nbd+unix:///x?socket=rel".parse(), Ok(unix(false, "rel", "x")));
    }

    #[test]
    fn uris_that_make_no_sense_say_why() {
        for (text, reason) in [
            ("disk", "expected nbd://"),
            ("http://host/", "unknown scheme \"http\""),
            ("nbd://host:port/", "the port in \"host:port\""),
            ("nbd://host:65536/", "the port in \"host:65536\""),
            ("nbd://host:+1/", "the port in \"host:+1\""),
            ("nbd://[::1/", "a bracket is not closed"),
            ("nbd://[::1]x/", "the port in"),
            ("nbd://me@host/", "user names"),
            ("nbd+unix:///disk", "socket=PATH is missing"),
            ("nbd+unix:///disk?socket=", "socket=PATH is missing"),
            ("nbd+unix://host/disk?socket=/a", "a Unix socket has none"),
            ("nbd://host/?socket=/a", "unknown parameter \"socket=/a\""),
            ("nbd://host/%FF", "not UTF-8"),
            ("nbd://host/%00", "a NUL"),
        ] {
            let error = text.parse::<Uri>().unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains(text), "{text}: {error}");
        }
        let long = format!("nbd://host/{}", "a".repeat(4097));
        assert!(long.parse::<Uri>().unwrap_err().to_string().contains("has 4097 bytes; 4096 are allowed"));
    }
}
