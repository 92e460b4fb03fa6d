//! Keys and values as text. Source: RFC 7143, section 6.1.

use base64::prelude::{BASE64_STANDARD, Engine};

/// Limit for the bytes of one text, over all its requests.
pub const TEXT_BYTES_MAX: usize = 8 << 10;
const KEY_BYTES_MAX: usize = 63;

/// The text is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Parses a text: a sequence of `KEY=VALUE`, each with a NUL.
pub fn parse(text: &[u8]) -> Result<Vec<(&str, &str)>, Malformed> {
    let mut pairs = Vec::new();
    for pair in text.split(|byte| *byte == 0).filter(|pair| !pair.is_empty()) {
        let pair = std::str::from_utf8(pair).map_err(|_| Malformed)?;
        let (key, value) = pair.split_once('=').ok_or(Malformed)?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-+@_#".contains(&byte);
        if key.is_empty() || key.len() > KEY_BYTES_MAX || !key.bytes().all(plain) {
            return Err(Malformed);
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

/// Appends a key and its value.
pub fn put(text: &mut Vec<u8>, key: &str, value: &str) {
    text.extend_from_slice(key.as_bytes());
    text.push(b'=');
    text.extend_from_slice(value.as_bytes());
    text.push(0);
}

/// Parses a number: decimal, or hexadecimal after 0x.
pub fn number(value: &str) -> Option<u32> {
    match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => u32::from_str_radix(digits, 16).ok(),
        None if value.bytes().all(|byte| byte.is_ascii_digit()) => value.parse().ok(),
        _ => None,
    }
}

/// Parses binary data: hexadecimal after 0x, or base64 after 0b; at most `bytes_max` bytes.
pub fn binary(value: &str, bytes_max: usize) -> Option<Vec<u8>> {
    let (kind, text) = value.split_at_checked(2)?;
    match kind {
        "0x" | "0X" => hexadecimal(text, bytes_max),
        "0b" | "0B" => base64(text, bytes_max),
        _ => None,
    }
}

fn hexadecimal(text: &str, bytes_max: usize) -> Option<Vec<u8>> {
    if text.is_empty() || text.len() > 2 * bytes_max {
        return None;
    }
    let digits: Option<Vec<u8>> = text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
    let mut digits = digits?;
    if digits.len() % 2 == 1 {
        digits.insert(0, 0);
    }
    Some(digits.as_chunks::<2>().0.iter().map(|[high, low]| high << 4 | low).collect())
}

fn base64(text: &str, bytes_max: usize) -> Option<Vec<u8>> {
    if text.is_empty() || text.len() > bytes_max.div_ceil(3) * 4 {
        return None;
    }
    BASE64_STANDARD.decode(text).ok().filter(|bytes| bytes.len() <= bytes_max)
}

/// Formats binary data in hexadecimal after 0x.
pub fn hex(bytes: &[u8]) -> String {
    format!("0x{}", crate::hex(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_taken_apart_and_put_together() {
        let mut text = Vec::new();
        put(&mut text, "InitiatorName", "iqn.2026-11.org.example:a=b");
        put(&mut text, "MaxBurstLength", "");
        assert_eq!(text, b"InitiatorName=iqn.2026-11.org.example:a=b\0MaxBurstLength=\0");
        let pairs = [("InitiatorName", "iqn.2026-11.org.example:a=b"), ("MaxBurstLength", "")];
        assert_eq!(parse(&text).unwrap(), pairs);
        // The last pair may end without a NUL; padding is ignored.
        assert_eq!(parse(b"a=b\0\0\0").unwrap(), [("a", "b")]);
        for wrong in [&b"a"[..], b"=b\0", b"a b=c\0", b"\xff=1\0", &[b'k'; 64]] {
            assert_eq!(parse(wrong), Err(Malformed), "{wrong:?}");
        }
    }

    #[test]
    fn numbers_and_binary_data_have_two_forms() {
        assert_eq!(
            (number("262144"), number("0x40000"), number("+1"), number("")),
            (Some(262_144), Some(1 << 18), None, None)
        );
        assert_eq!(binary("0xABC", 4), Some(vec![0x0a, 0xbc]));
        assert_eq!(binary(&hex(&[0, 255, 16]), 3), Some(vec![0, 255, 16]));
        // RFC 4648, section 10.
        assert_eq!(binary("0bZm9vYmE=", 8), Some(b"fooba".to_vec()));
        assert_eq!(binary("0bZm9vYg==", 8), Some(b"foob".to_vec()));
        for wrong in ["", "0", "0x", "0xg", "0b", "0b!", "12", "0x010203"] {
            assert_eq!(binary(wrong, 2), None, "{wrong}");
        }
    }
}
