//! Fields of text records: cutting them and reading numbers.

use super::Malformed;

/// The fields of a line.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    line: &'a [u8],
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> Fields<'a> {
    /// The fields of `line`, which `separator` parts.
    #[inline]
    pub fn new(line: &'a [u8], separator: u8) -> Self {
        Fields { line, rest: Some(line), separator }
    }

    /// The next field, which should be `expected`.
    #[inline]
    pub fn next(&mut self, expected: &str) -> Result<&'a [u8], Malformed> {
        let Some(rest) = self.rest else {
            return Err(Malformed::new(self.line, format!("a line with one more field: {expected}")));
        };
        match rest.iter().position(|&byte| byte == self.separator) {
            Some(end) => {
                self.rest = Some(&rest[end + 1..]);
                Ok(&rest[..end])
            }
            None => {
                self.rest = None;
                Ok(rest)
            }
        }
    }

    /// The next two fields with the separator between them.
    #[inline]
    pub fn next_two(&mut self, expected: &str) -> Result<&'a [u8], Malformed> {
        let start = self.rest.unwrap_or_default();
        let first = self.next(expected)?;
        let second = self.next(expected)?;
        Ok(&start[..first.len() + 1 + second.len()])
    }
}

/// The number that `field` spells in decimal digits, blanks around it allowed.
#[inline]
pub fn decimal(field: &[u8], expected: &str) -> Result<u64, Malformed> {
    let digits = field.trim_ascii();
    let mut number: u64 = 0;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        let next = number.checked_mul(10).and_then(|tens| tens.checked_add(u64::from(digit)));
        match next {
            Some(next) if digit < 10 => number = next,
            _ => return Err(Malformed::new(field, expected)),
        }
    }
    if digits.is_empty() {
        return Err(Malformed::new(field, expected));
    }
    Ok(number)
}
