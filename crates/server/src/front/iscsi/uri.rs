//! iSCSI URIs, in the syntax of libiscsi and QEMU: `iscsi://HOST:PORT/TARGET/LUN`.

use crate::front::address::Address;
use crate::front::protocol::UriError;
use crate::front::uri_parts::{encode_host, parse_authority};

use super::names;

/// Default port of iSCSI.
pub const PORT: u16 = 3260;
/// The schemes of iSCSI URIs.
pub const SCHEMES: [&str; 1] = ["iscsi"];
/// Syntax of iSCSI URIs.
pub const FORMS: &str = "iscsi://HOST:PORT/iqn.2026-11.org.flashwise:EXPORT/0";

/// Parses a URI into the server's address and the export, which may be empty.
pub fn parse(uri: &str) -> Result<(Address, String), UriError> {
    try_parse(uri).map_err(|reason| UriError { uri: uri.to_owned(), reason })
}

fn try_parse(uri: &str) -> Result<(Address, String), String> {
    let rest = uri.strip_prefix("iscsi://").ok_or_else(|| format!("expected {FORMS}"))?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let address = parse_authority(authority, PORT)?;
    if path.is_empty() {
        return Ok((address, String::new()));
    }
    let (target, unit) = path.split_once('/').unwrap_or((path, "0"));
    if unit != "0" {
        return Err(format!("found logical unit {unit:?}, expected 0: each volume has a target of its own"));
    }
    let export = names::export(target).ok_or_else(|| format!("found target {target:?}, expected {FORMS}"))?;
    Ok((address, export.to_owned()))
}

/// Formats the URI of an export; without one, of the server.
pub fn write(address: &Address, export: &str) -> String {
    let authority = match address {
        Address::Tcp { host, port } => format!("{}:{port}", encode_host(host)),
        // A Unix socket is not supported; the reader sees the path.
        Address::Unix(path) => path.display().to_string(),
    };
    if export.is_empty() {
        return format!("iscsi://{authority}/");
    }
    format!("iscsi://{authority}/{}/0", names::target(export))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_parsed_and_printed_back() {
        let tcp = |host: &str, port| Address::Tcp { host: host.into(), port };
        for (text, address, export) in [
            ("iscsi://127.0.0.1:3261/iqn.2026-11.org.flashwise:data/0", tcp("127.0.0.1", 3261), "data"),
            ("iscsi://[::1]:3260/", tcp("::1", 3260), ""),
        ] {
            assert_eq!(parse(text), Ok((address.clone(), export.to_owned())));
            assert_eq!(write(&address, export), text);
        }
        assert_eq!(parse("iscsi://localhost"), Ok((tcp("localhost", PORT), String::new())));
        for (text, reason) in [
            ("iscsi://host/iqn.2026-11.org.flashwise:data/1", "logical unit \"1\""),
            ("iscsi://host/iqn.2026-11.org.other:data/0", "found target"),
            ("iscsi://me@host/", "user names"),
            ("iscsi://host:x/", "the port in"),
        ] {
            assert!(parse(text).unwrap_err().reason.contains(reason), "{text}");
        }
    }
}
