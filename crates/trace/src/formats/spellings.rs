//! Numbers in other spellings than decimal digits, and words for reads and writes, as data frames, spreadsheets and
//! other tools write them into a CSV.

use std::borrow::Cow;

use flashwise_core::access::Op;
use flashwise_core::quantity::nano;

use super::Malformed;

/// The unit of a column of whole numbers.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    /// The size of the unit in bytes.
    pub bytes: u64,
    /// The bytes in the K of `4K` and `4KB`, if the user gave them.
    pub kilo_bytes: Option<u64>,
}

/// Parses a whole number of bytes: hexadecimal after 0x, with zeros after a point, with an exponent, or a size with its
/// own unit.
#[cold]
pub fn bytes(field: &[u8], unit: Unit, expected: &str) -> Result<u64, Malformed> {
    let wrong = || Malformed::new(field, expected);
    let text = std::str::from_utf8(field.trim_ascii()).map_err(|_| wrong())?;
    let units = |number: u64| scaled(number, unit.bytes, expected);
    if let Some(digits) = text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        let is_hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        return units(u64::from_str_radix(digits, 16).ok().filter(|_| is_hexadecimal).ok_or_else(wrong)?);
    }
    let number_end = text.find(|byte: char| !byte.is_ascii_digit() && byte != '.').unwrap_or(text.len());
    let (number, word) = text.split_at(number_end);
    let Some(times) = multiple(word.trim_ascii(), unit.kilo_bytes) else {
        let plain = without_exponent(text.as_bytes());
        let number = std::str::from_utf8(&plain).ok().and_then(|text| whole(text, 1));
        return units(number.ok_or_else(wrong)?);
    };
    let times = times.ok_or_else(|| {
        let decides = "; kilo=1024 or kilo=1000 in --format, which decides how long a K is";
        Malformed::new(field, format!("{expected}{decides}"))
    })?;
    match whole(number, times) {
        Some(_) if unit.bytes != 1 && !word.is_empty() => {
            let decides = format!(
                ", a number of units of {} bytes; offset-unit=1 and length-unit=1 in --format read sizes in bytes",
                unit.bytes
            );
            Err(Malformed::new(field, format!("{expected}{decides}")))
        }
        Some(number) => units(number),
        None => Err(wrong()),
    }
}

/// Returns `number` units of `unit_bytes`, in bytes.
#[inline]
pub fn scaled(number: u64, unit_bytes: u64, expected: &str) -> Result<u64, Malformed> {
    let bytes = number.checked_mul(unit_bytes);
    bytes.ok_or_else(|| {
        Malformed::new(number.to_string().as_bytes(), format!("{expected}, in units of {unit_bytes} bytes, below 2^64"))
    })
}

/// Returns the bytes in a unit of size, `None` if `word` is not one. The inner value is `None` if the length of a K is
/// not set.
fn multiple(word: &str, kilo_bytes: Option<u64>) -> Option<Option<u64>> {
    if matches!(word, "" | "B") {
        return Some(Some(1));
    }
    let (letter, rest) = word.split_at_checked(1)?;
    let power = 1 + "KMGT".find(&letter.to_ascii_uppercase())? as u32;
    match rest {
        "i" | "iB" => Some(Some(1024_u64.pow(power))),
        "" | "B" | "b" => Some(kilo_bytes.map(|kilo_bytes| kilo_bytes.pow(power))),
        _ => None,
    }
}

/// Returns `times` the decimal number `text`, if that is whole. Digits are required on both sides of a point.
fn whole(text: &str, times: u64) -> Option<u64> {
    const NANO: u128 = 1_000_000_000;
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let (before, behind) = text.split_once('.').unwrap_or((text, "0"));
    if !is_number(before) || !is_number(behind) {
        return None;
    }
    let text = if behind.bytes().all(|byte| byte == b'0') { before } else { text };
    let product = nano(text)?.checked_mul(u128::from(times))?;
    (product % NANO == 0).then(|| u64::try_from(product / NANO).ok())?
}

/// True if `field` is a number with an exponent.
pub fn has_exponent(field: &[u8]) -> bool {
    matches!(without_exponent(field), Cow::Owned(_))
}

/// Expands the exponent of a number, if it has one: 1.5e3 is 1500, and 15e-1 is 1.5.
pub fn without_exponent(field: &[u8]) -> Cow<'_, [u8]> {
    expanded(field.trim_ascii()).map_or(Cow::Borrowed(field), Cow::Owned)
}

fn expanded(text: &[u8]) -> Option<Vec<u8>> {
    const EXPONENT_MAX: i32 = 40;
    let (mantissa, exponent) = text.split_at(text.iter().position(|byte| matches!(byte, b'e' | b'E'))?);
    let exponent: i32 = std::str::from_utf8(&exponent[1..]).ok()?.parse().ok()?;
    let point = mantissa.iter().position(|byte| *byte == b'.').unwrap_or(mantissa.len());
    let (whole, fraction) = (&mantissa[..point], mantissa.get(point + 1..).unwrap_or_default());
    let digits = [whole, fraction].concat();
    if whole.is_empty() || !digits.iter().all(u8::is_ascii_digit) || exponent.abs() > EXPONENT_MAX {
        return None;
    }
    // Zeros on both sides, so that the point is always within the digits.
    let zeros = exponent.unsigned_abs() as usize + 1;
    let padded = [vec![b'0'; zeros], digits, vec![b'0'; zeros]].concat();
    let point = (zeros + whole.len()).checked_add_signed(exponent as isize)?;
    let trailing = padded[point..].iter().rev().take_while(|byte| **byte == b'0').count();
    let leading = padded[..point - 1].iter().take_while(|byte| **byte == b'0').count();
    let (whole, fraction) = (&padded[leading..point], &padded[point..padded.len() - trailing]);
    Some(if fraction.is_empty() { whole.to_vec() } else { [whole, b".", fraction].concat() })
}

/// Parses `word` as a read, a write, or an operation without data.
#[inline]
pub fn known_op(word: &[u8]) -> Result<Option<Op>, Malformed> {
    const READ: [&[u8]; 3] = [b"r", b"read", b"rd"];
    const WRITE: [&[u8]; 3] = [b"w", b"write", b"wr"];
    const NEITHER: [&[u8]; 12] =
        [b"d", b"discard", b"t", b"trim", b"unmap", b"f", b"flush", b"n", b"none", b"fsync", b"fdatasync", b"sync"];
    let is = |words: &[&[u8]]| words.iter().any(|known| known.eq_ignore_ascii_case(word));
    match word {
        // The most common words.
        b"R" | b"r" | b"read" | b"Read" | b"READ" => Ok(Some(Op::Read)),
        b"W" | b"w" | b"write" | b"Write" | b"WRITE" => Ok(Some(Op::Write)),
        _ if is(&READ) => Ok(Some(Op::Read)),
        _ if is(&WRITE) => Ok(Some(Op::Write)),
        _ if is(&NEITHER) => Ok(None),
        _ => Err(Malformed::new(word, "R or W (other words can be given with read= and write=)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, bytes_of_one: u64, kilo_bytes: Option<u64>) -> Result<u64, String> {
        bytes(text.as_bytes(), Unit { bytes: bytes_of_one, kilo_bytes }, "a number").map_err(|error| error.to_string())
    }

    #[test]
    fn whole_numbers_have_other_spellings_too() {
        let spelled = [
            ("16", 16),
            ("0x10", 16),
            (" 0XfF ", 255),
            ("16.0", 16),
            ("160.000000000000", 160),
            ("0.0", 0),
            ("0x0", 0),
            ("1.5e9", 1_500_000_000),
            ("1E3", 1000),
            ("1.5387456e+09", 1_538_745_600),
            ("40960e-1", 4096),
        ];
        for (text, number) in spelled {
            assert_eq!(read(text, 512, None), Ok(512 * number), "{text}");
        }
        for wrong in [
            "",
            "0x",
            "0x1g",
            "0x+1",
            "x10",
            "10.",
            ".0",
            "1.5",
            "1.0.0",
            "1.55e1",
            "e3",
            "1e",
            "1e99",
            "4096e-3",
            "1e3.0",
            "-0x1",
            "-1e3",
            "0x10000000000000000",
            "1e20",
        ] {
            assert_eq!(read(wrong, 512, None).ok(), None, "{wrong}");
        }
    }

    #[test]
    fn sizes_can_have_units_if_the_length_of_a_kilo_is_set() {
        for (text, number) in [("4KiB", 4096), ("1.5MiB", 1_572_864), ("512 B", 512), ("2Ki", 2048)] {
            assert_eq!(read(text, 1, None), Ok(number), "{text}");
        }
        for text in ["4K", "4k", "4KB"] {
            assert_eq!((read(text, 1, Some(1024)), read(text, 1, Some(1000))), (Ok(4096), Ok(4000)), "{text}");
        }
        assert_eq!(read("1.5M", 1, Some(1000)), Ok(1_500_000));
        let undecided =
            "found \"4K\", expected a number; kilo=1024 or kilo=1000 in --format, which decides how long a K is";
        assert_eq!(read("4K", 1, None), Err(undecided.to_owned()));
        let sectors = "found \"4KiB\", expected a number, a number of units of 512 bytes; offset-unit=1 and \
            length-unit=1 in --format \
                       read sizes in bytes";
        assert_eq!(read("4KiB", 512, None), Err(sectors.to_owned()));
        for wrong in ["K", "4X", "4KiBs", "1.0001K", "4 K B"] {
            assert_eq!(read(wrong, 1, Some(1024)), Err(format!("found {wrong:?}, expected a number")), "{wrong}");
        }
    }

    #[test]
    fn exponents_move_the_point() {
        let plain = |text: &str| String::from_utf8(without_exponent(text.as_bytes()).into_owned()).unwrap();
        let cases = [
            ("1.5e3", "1500"),
            ("1.5e0", "1.5"),
            ("15e-1", "1.5"),
            ("15e-3", "0.015"),
            ("1538323200.5e0", "1538323200.5"),
            ("0e5", "0"),
            ("1.50e+1", "15"),
            ("7", "7"),
            ("lesen", "lesen"),
            ("0x1e3", "0x1e3"),
        ];
        for (text, expected) in cases {
            assert_eq!(plain(text), expected, "{text}");
        }
        assert!(has_exponent(b"1e3") && !has_exponent(b"1000") && !has_exponent(b"lesen"));
    }
}
