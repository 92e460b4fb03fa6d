//! Parts of URIs that all protocols write alike. Source: RFC 3986.

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use super::address::Address;

/// Reads the host and the port, which is `default` where none is given.
pub fn parse_authority(authority: &str, default: u16) -> Result<Address, String> {
    if authority.contains('@') {
        return Err("user names are not supported".into());
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("a bracket is not closed")?;
            (host, port.strip_prefix(':').or(port.is_empty().then_some("")))
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, Some("")),
        },
    };
    let wrong_port = || format!("the port in {authority:?} is not a number from 0 to 65535");
    let port = match port {
        Some("") => default,
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => port.parse().map_err(|_| wrong_port())?,
        _ => return Err(wrong_port()),
    };
    Ok(Address::Tcp { host: decode(host)?, port })
}

/// Reads what was encoded with per cent signs.
pub fn decode(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| format!("{text:?} is not UTF-8"))?;
    if decoded.contains('\0') {
        return Err(format!("{text:?} contains a NUL"));
    }
    Ok(decoded.into_owned())
}

/// What is encoded in hosts, where colons and brackets are written as they are.
const ENCODED_IN_HOST: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'/').add(b'?').add(b'#').add(b'@');

/// Writes a host.
pub fn encode_host(host: &str) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    utf8_percent_encode(&host, ENCODED_IN_HOST).to_string()
}
