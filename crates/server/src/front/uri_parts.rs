//! Common parts of the protocols' URIs. Source: RFC 3986.

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use super::address::Address;

/// Splits `HOST`, `HOST:PORT`, `[V6]` or `[V6]:PORT` into the host and the rest, which starts with the colon. Returns
/// `None` if a bracket is not closed.
pub fn split_host(authority: &str) -> Option<(&str, &str)> {
    match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']'),
        None => authority.split_at_checked(authority.find(':').unwrap_or(authority.len())),
    }
}

/// Parses the host and the port, which is `default` if missing.
pub fn parse_authority(authority: &str, default: u16) -> Result<Address, String> {
    if authority.contains('@') {
        return Err("user names are not supported".into());
    }
    let (host, rest) = split_host(authority).ok_or("a bracket is not closed")?;
    let port = match rest {
        "" | ":" => Some(default),
        rest => rest.strip_prefix(':').filter(|port| !port.starts_with('+')).and_then(|port| port.parse().ok()),
    };
    let port = port.ok_or_else(|| format!("the port in {authority:?} is not a number from 0 to 65535"))?;
    Ok(Address::Tcp { host: decode(host)?, port })
}

/// Decodes percent-encoded text.
pub fn decode(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| format!("{text:?} is not UTF-8"))?;
    if decoded.contains('\0') {
        return Err(format!("{text:?} contains a NUL"));
    }
    Ok(decoded.into_owned())
}

/// Characters to encode in hosts; colons and brackets stay.
const ENCODED_IN_HOST: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'/').add(b'?').add(b'#').add(b'@');

/// Formats a host.
pub fn encode_host(host: &str) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    utf8_percent_encode(&host, ENCODED_IN_HOST).to_string()
}
