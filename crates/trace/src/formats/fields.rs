//! Fields of text records: splitting lines, and parsing numbers and times.

use flashwise_core::filter::Client;

use super::Malformed;
use super::dates::{DateOrder, date_us};
use super::spellings::{self, Unit, scaled, without_exponent};

/// The fields of a line, split by one separator.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    line: &'a [u8],
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> Fields<'a> {
    /// Splits `line` at `separator`.
    #[inline]
    pub fn new(line: &'a [u8], separator: u8) -> Self {
        Fields { line, rest: Some(line), separator }
    }

    /// Returns the next field; `expected` describes it for errors.
    #[inline]
    pub fn next(&mut self, expected: &str) -> Result<&'a [u8], Malformed> {
        let Some(rest) = self.rest else {
            return Err(missing(self.line, expected));
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

    /// Returns the next field, a whole number in decimal digits.
    #[inline]
    pub fn decimal(&mut self, expected: &str) -> Result<u64, Malformed> {
        match self.leading_decimal() {
            Some(number) => Ok(number),
            None => decimal(self.next(expected)?, expected),
        }
    }

    /// Returns the next field if it consists of decimal digits; otherwise it is not consumed.
    #[inline]
    fn leading_decimal(&mut self) -> Option<u64> {
        let rest = self.rest.unwrap_or_default();
        let (number, digits) = leading_digits(rest);
        match rest.get(digits) {
            _ if !is_number(digits) => return None,
            None => self.rest = None,
            Some(&separator) if separator == self.separator => self.rest = Some(&rest[digits + 1..]),
            Some(_) => return None,
        }
        Some(number)
    }

    /// Returns the next field, a whole number of units of `unit_bytes`, in bytes.
    #[inline]
    pub fn bytes(&mut self, unit_bytes: u64, expected: &str) -> Result<u64, Malformed> {
        scaled(self.decimal(expected)?, unit_bytes, expected)
    }

    /// Returns the next field, a time in microseconds.
    #[inline]
    pub fn time_us(&mut self, unit: TimeUnit, expected: &str) -> Result<i64, Malformed> {
        if matches!(unit, TimeUnit::Date(_)) {
            return time_us(self.next(expected)?, unit, expected);
        }
        let rest = self.rest.unwrap_or_default();
        let (whole, digits) = leading_digits(rest);
        let (multiplier, divisor) = unit.ratio();
        // The common case: only digits, and no overflow.
        if is_number(digits) && whole <= i64::MAX as u64 / multiplier {
            let time_us = (whole * multiplier / divisor) as i64;
            match rest.get(digits) {
                None => {
                    self.rest = None;
                    return Ok(time_us);
                }
                Some(&separator) if separator == self.separator => {
                    self.rest = Some(&rest[digits + 1..]);
                    return Ok(time_us);
                }
                Some(_) => {}
            }
        }
        time_us(self.next(expected)?, unit, expected)
    }

    /// Rejects a line that has more than `fields` fields.
    #[inline]
    pub fn end(&self, fields: usize) -> Result<(), Malformed> {
        match self.rest {
            None => Ok(()),
            Some(_) => Err(surplus(self.line, fields)),
        }
    }

    /// Rejects a line with more than `more` remaining fields, unless the surplus is empty; a line has `width` fields.
    #[inline]
    pub fn end_after(&self, more: usize, width: usize) -> Result<(), Malformed> {
        let Some(rest) = self.rest else { return Ok(()) };
        if memchr::memchr_iter(self.separator, rest).count() < more {
            return Ok(());
        }
        let mut beyond = rest.split(|&byte| byte == self.separator).skip(more);
        if beyond.all(|field| field.trim_ascii().is_empty()) { Ok(()) } else { Err(surplus(self.line, width)) }
    }
}

#[cold]
fn surplus(line: &[u8], width: usize) -> Malformed {
    Malformed::new(line, format!("a line of {width} fields"))
}

/// The words of a line, split by runs of spaces and tabs.
#[derive(Clone, Debug)]
pub struct Words<'a> {
    line: &'a [u8],
    rest: &'a [u8],
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

impl<'a> Words<'a> {
    /// Splits `line` into words.
    #[inline]
    pub fn new(line: &'a [u8]) -> Self {
        Words { line, rest: line }
    }

    /// Returns the next word, if there is one.
    #[inline]
    pub fn word(&mut self) -> Option<&'a [u8]> {
        let start = self.rest.iter().position(|&byte| !is_blank(byte))?;
        let rest = &self.rest[start..];
        let end = rest.iter().position(|&byte| is_blank(byte)).unwrap_or(rest.len());
        self.rest = &rest[end..];
        Some(&rest[..end])
    }

    /// Returns all remaining words.
    pub fn all(mut self) -> impl Iterator<Item = &'a [u8]> {
        std::iter::from_fn(move || self.word())
    }

    /// Returns the next word; `expected` describes it for errors.
    #[inline]
    pub fn next(&mut self, expected: &str) -> Result<&'a [u8], Malformed> {
        self.word().ok_or_else(|| missing(self.line, expected))
    }

    /// Returns the next word, a whole number in decimal digits.
    #[inline]
    pub fn decimal(&mut self, expected: &str) -> Result<u64, Malformed> {
        decimal(self.next(expected)?, expected)
    }

    /// Returns the next word, a whole number of units of `unit_bytes`, in bytes.
    #[inline]
    pub fn bytes(&mut self, unit_bytes: u64, expected: &str) -> Result<u64, Malformed> {
        scaled(self.decimal(expected)?, unit_bytes, expected)
    }

    /// Returns the next word, a time in microseconds.
    #[inline]
    pub fn time_us(&mut self, unit: TimeUnit, expected: &str) -> Result<i64, Malformed> {
        time_us(self.next(expected)?, unit, expected)
    }

    /// Returns the word after `before` others, if it is a whole number in decimal digits.
    pub fn nth_decimal(mut self, before: usize) -> Option<u64> {
        for _ in 0..before {
            self.word()?;
        }
        decimal(self.word()?, "").ok()
    }

    /// Rejects a line that has more than `words` words; all of these have been taken.
    #[inline]
    pub fn end(&mut self, words: usize) -> Result<(), Malformed> {
        match self.word() {
            None => Ok(()),
            Some(_) => Err(surplus(self.line, words)),
        }
    }
}

/// Returns a process with its pid, a word, and the name of its program. A pid that is not a number is unknown.
pub fn process(pid: Option<&[u8]>, program: &[u8]) -> Client {
    let pid = pid.and_then(|pid| decimal(pid, "").ok()).and_then(|pid| u32::try_from(pid).ok());
    Client { pid, program: Some(String::from_utf8_lossy(program).into_owned()), ..Client::default() }
}

#[cold]
fn missing(line: &[u8], expected: &str) -> Malformed {
    Malformed::new(line, format!("a line with one more field: {expected}"))
}

/// Parses the leading digits of `text`; returns the number and the count of digits. Correct for up to 19 digits, since
/// 9999999999999999999 < 2^64. Processes eight digits at once.
#[inline]
fn leading_digits(text: &[u8]) -> (u64, usize) {
    const POWERS: [u64; 9] = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
    let mut number: u64 = 0;
    let (eights, rest) = text.as_chunks::<8>();
    for (at, eight) in eights.iter().enumerate() {
        let (value, digits) = eight_digits(*eight);
        number = number.wrapping_mul(POWERS[digits]).wrapping_add(value);
        if digits < 8 {
            return (number, 8 * at + digits);
        }
    }
    for (at, &byte) in rest.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return (number, 8 * eights.len() + at);
        }
        number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
    }
    (number, text.len())
}

/// Parses the leading digits of eight bytes.
#[inline]
fn eight_digits(bytes: [u8; 8]) -> (u64, usize) {
    // One byte per digit, the first is the lowest. 0x30 ^ digit is the digit's value, and above 9 for any other byte.
    let values = u64::from_le_bytes(bytes) ^ 0x3030_3030_3030_3030;
    // The upper bit of a byte is set if its value is above 9. A carry only reaches bytes after such a byte.
    let others = (values.wrapping_add(0x7676_7676_7676_7676) | values) & 0x8080_8080_8080_8080;
    let digits = (others.trailing_zeros() / 8) as usize;
    // Leading zeros replace the bytes after the digits.
    let values = values.checked_shl(64 - 8 * digits as u32).unwrap_or(0);
    // Example 12345678: pairs 12 34 56 78, then 12 * 1000000 + 56 * 100 and 34 * 10000 + 78.
    let pairs = values.wrapping_mul(10).wrapping_add(values >> 8);
    const EVERY_OTHER: u64 = 0x0000_00FF_0000_00FF;
    let first_and_third = (pairs & EVERY_OTHER).wrapping_mul(100 + (1_000_000 << 32));
    let second_and_fourth = (pairs >> 16 & EVERY_OTHER).wrapping_mul(1 + (10_000 << 32));
    (first_and_third.wrapping_add(second_and_fourth) >> 32, digits)
}

/// True if [`leading_digits`] is correct for this number of digits.
#[inline]
fn is_number(digits: usize) -> bool {
    (1..=19).contains(&digits)
}

/// Parses `field` as decimal digits; blanks around it are allowed.
#[inline]
pub fn decimal(field: &[u8], expected: &str) -> Result<u64, Malformed> {
    let (number, digits) = leading_digits(field);
    if digits == field.len() && is_number(digits) {
        return Ok(number);
    }
    decimal_slowly(field, expected)
}

#[cold]
fn decimal_slowly(field: &[u8], expected: &str) -> Result<u64, Malformed> {
    let digits = field.trim_ascii();
    let is_decimal = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(digits).ok().filter(|_| is_decimal).and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| Malformed::new(field, expected))
}

/// The unit of times in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    Seconds,
    Milliseconds,
    Microseconds,
    Nanoseconds,
    /// 100 ns.
    Filetime,
    /// Dates instead of a unit.
    Date(DateOrder),
}

impl TimeUnit {
    /// Returns the name of the unit in the options of `csv`.
    pub fn word(self) -> &'static str {
        match self {
            TimeUnit::Seconds => "s",
            TimeUnit::Milliseconds => "ms",
            TimeUnit::Microseconds => "us",
            TimeUnit::Nanoseconds => "ns",
            TimeUnit::Filetime => "filetime",
            TimeUnit::Date(DateOrder::Year) => "date",
            TimeUnit::Date(DateOrder::Day) => "date-dmy",
            TimeUnit::Date(DateOrder::Month) => "date-mdy",
        }
    }

    /// Returns the unit of numbers named `word` in options.
    pub fn of_word(word: &str) -> Option<TimeUnit> {
        use TimeUnit::{Filetime, Microseconds, Milliseconds, Nanoseconds, Seconds};
        [Seconds, Milliseconds, Microseconds, Nanoseconds, Filetime].into_iter().find(|unit| unit.word() == word)
    }

    /// Returns the microseconds in a unit, and the units in a microsecond; one of the two is 1.
    #[inline]
    fn ratio(self) -> (u64, u64) {
        match self {
            TimeUnit::Seconds => (1_000_000, 1),
            TimeUnit::Milliseconds => (1000, 1),
            TimeUnit::Microseconds | TimeUnit::Date(_) => (1, 1),
            TimeUnit::Nanoseconds => (1, 1000),
            TimeUnit::Filetime => (1, 10),
        }
    }
}

/// Parses a decimal time with or without a fraction, in whole microseconds; the rest is truncated.
#[inline]
pub fn time_us(field: &[u8], unit: TimeUnit, expected: &str) -> Result<i64, Malformed> {
    const NANO_DIGITS: usize = 9;
    let wrong = || Malformed::new(field, expected);
    if let TimeUnit::Date(order) = unit {
        return date_us(field, order).ok_or_else(wrong);
    }
    let text = without_exponent(field);
    let text = text.trim_ascii();
    let (whole, fraction) = match text.iter().position(|&byte| byte == b'.') {
        Some(point) => (&text[..point], &text[point + 1..]),
        None => (text, &text[..0]),
    };
    let whole = decimal(whole, expected).map_err(|_| wrong())?;
    let (nano, digits) = leading_digits(&fraction[..fraction.len().min(NANO_DIGITS)]);
    if digits < fraction.len() && !fraction.iter().all(u8::is_ascii_digit) {
        return Err(wrong());
    }
    let nano = nano * 10_u64.pow((NANO_DIGITS - digits) as u32);
    let (multiplier, divisor) = unit.ratio();
    // Example: 12.034567891 s = 12 * 1000000 + 34567891 * 1000000 / 10^9 = 12034567 us.
    let fraction_us = nano * multiplier / 1_000_000_000 / divisor;
    let us = whole.checked_mul(multiplier).map(|units| units / divisor + fraction_us);
    us.and_then(|us| i64::try_from(us).ok()).ok_or_else(wrong)
}

/// Parses `field`, a whole number of `unit`, in bytes.
#[inline]
fn spelled(field: &[u8], unit: Unit, expected: &str) -> Result<u64, Malformed> {
    match leading_digits(field) {
        (number, digits) if digits == field.len() && is_number(digits) => scaled(number, unit.bytes, expected),
        _ => spellings::bytes(field, unit, expected),
    }
}

/// Returns one field after another, however a line is split.
pub trait Columns<'a> {
    /// Returns the next field; `expected` describes it for errors.
    fn next(&mut self, expected: &str) -> Result<&'a [u8], Malformed>;

    /// Returns the next field, a whole number of `unit`, in bytes, in any of the spellings of a CSV.
    #[inline]
    fn bytes(&mut self, unit: Unit, expected: &str) -> Result<u64, Malformed> {
        spelled(self.next(expected)?, unit, expected)
    }

    /// Returns the next field, a time in microseconds.
    #[inline]
    fn time_us(&mut self, unit: TimeUnit, expected: &str) -> Result<i64, Malformed> {
        time_us(self.next(expected)?, unit, expected)
    }

    /// Rejects a line with more than `more` remaining fields, unless the surplus is empty; a line has `width` fields.
    fn end_after(&self, more: usize, width: usize) -> Result<(), Malformed>;
}

impl<'a> Columns<'a> for Fields<'a> {
    #[inline]
    fn next(&mut self, expected: &str) -> Result<&'a [u8], Malformed> {
        Fields::next(self, expected)
    }

    #[inline]
    fn bytes(&mut self, unit: Unit, expected: &str) -> Result<u64, Malformed> {
        match self.leading_decimal() {
            Some(number) => scaled(number, unit.bytes, expected),
            None => spelled(Fields::next(self, expected)?, unit, expected),
        }
    }

    #[inline]
    fn time_us(&mut self, unit: TimeUnit, expected: &str) -> Result<i64, Malformed> {
        Fields::time_us(self, unit, expected)
    }

    #[inline]
    fn end_after(&self, more: usize, width: usize) -> Result<(), Malformed> {
        Fields::end_after(self, more, width)
    }
}

impl<'a> Columns<'a> for Words<'a> {
    #[inline]
    fn next(&mut self, expected: &str) -> Result<&'a [u8], Malformed> {
        Words::next(self, expected)
    }

    #[inline]
    fn end_after(&self, more: usize, width: usize) -> Result<(), Malformed> {
        if self.clone().all().nth(more).is_none() { Ok(()) } else { Err(surplus(self.line, width)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_digits_with_blanks_around_them() {
        assert_eq!(decimal(b"0", "a number"), Ok(0));
        assert_eq!(decimal(b" 42\t", "a number"), Ok(42));
        assert_eq!(decimal(b"18446744073709551615", "a number"), Ok(u64::MAX));
        assert_eq!(decimal(b"000000000000000000000000000000007", "a number"), Ok(7));
        for wrong in ["", " ", "-1", "+1", "1.0", "0x10", "18446744073709551616", "1 2"] {
            let malformed = Malformed { found: format!("{wrong:?}"), expected: "a number".to_owned() };
            assert_eq!(decimal(wrong.as_bytes(), "a number"), Err(malformed));
        }
    }

    #[test]
    fn eight_digits_at_a_time_are_the_same_as_one() {
        let slowly = |text: &[u8]| {
            let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
            (std::str::from_utf8(&text[..digits]).unwrap().parse().unwrap_or(0), digits)
        };
        for byte in 0..=255_u8 {
            for len in 0..25 {
                for at in 0..=len.min(19) {
                    let mut text: Vec<u8> = (0..len).map(|at| b'0' + (at * 7 + len + 1) as u8 % 10).collect();
                    if let Some(place) = text.get_mut(at) {
                        *place = byte;
                    }
                    if slowly(&text).1 <= 19 {
                        assert_eq!(leading_digits(&text), slowly(&text), "{text:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn fields_end_where_the_line_does() {
        let mut fields = Fields::new(b"1, 2,,x", b',');
        assert_eq!(fields.decimal("a number"), Ok(1));
        assert_eq!(fields.decimal("a number"), Ok(2));
        assert_eq!(fields.next("text"), Ok(&b""[..]));
        assert!(fields.clone().end(3).is_err());
        assert!(fields.clone().decimal("a number").is_err());
        assert_eq!(fields.next("text"), Ok(&b"x"[..]));
        assert_eq!(fields.end(4), Ok(()));
        let error = fields.decimal("a number").unwrap_err();
        assert_eq!(error.found, "\"1, 2,,x\"");
        assert_eq!(error.expected, "a line with one more field: a number");
    }

    #[test]
    fn words_are_parted_by_any_run_of_blanks() {
        let mut words = Words::new(b"  8,16 \t\t 5 ");
        assert_eq!(words.next("a device"), Ok(&b"8,16"[..]));
        assert_eq!(words.decimal("a number"), Ok(5));
        assert_eq!(words.end(2), Ok(()));
        assert!(words.next("more").is_err());
    }

    #[test]
    fn columns_take_whole_numbers_in_other_spellings_too() {
        let unit = Unit { bytes: 512, kilo_bytes: None };
        for (text, number) in [("16", Some(16)), ("0x10", Some(16)), ("1.6e1", Some(16)), ("1.5", None), ("", None)] {
            let bytes = Columns::bytes(&mut Fields::new(text.as_bytes(), b','), unit, "a number").ok();
            let same = Columns::bytes(&mut Words::new(text.as_bytes()), unit, "a number").ok();
            assert_eq!((bytes, same), (number.map(|number| 512 * number), number.map(|number| 512 * number)), "{text}");
        }
    }

    #[test]
    fn a_date_is_one_field_with_any_separators() {
        let date = TimeUnit::Date(DateOrder::Year);
        let mut fields = Fields::new(b"1970-01-01 00:00:01,7", b',');
        assert_eq!((fields.time_us(date, "a time"), fields.decimal("a number")), (Ok(1_000_000), Ok(7)));
    }

    #[test]
    fn times_are_cut_to_whole_microseconds() {
        let us = |text: &str, unit| time_us(text.as_bytes(), unit, "a time").map_err(|error| error.found);
        assert_eq!(us("12.034567891", TimeUnit::Seconds), Ok(12_034_567));
        assert_eq!(us("1538323200", TimeUnit::Seconds), Ok(1_538_323_200_000_000));
        assert_eq!(us("7961.833", TimeUnit::Milliseconds), Ok(7_961_833));
        assert_eq!(us("26.2", TimeUnit::Milliseconds), Ok(26_200));
        assert_eq!(us("999", TimeUnit::Nanoseconds), Ok(0));
        assert_eq!(us("1999.5", TimeUnit::Nanoseconds), Ok(1));
        assert_eq!(us("128166372003061629", TimeUnit::Filetime), Ok(12_816_637_200_306_162));
        assert_eq!(us("0.0000004999999999999", TimeUnit::Seconds), Ok(0));
        assert_eq!(us("1.5383232005e9", TimeUnit::Seconds), Ok(1_538_323_200_500_000));
        assert_eq!(us("5e-05", TimeUnit::Seconds), Ok(50));
        let mut fields = Fields::new(b"128166372003061629,7.5,8", b',');
        let mut next = |unit| fields.time_us(unit, "a time").unwrap();
        let times = [next(TimeUnit::Filetime), next(TimeUnit::Milliseconds), next(TimeUnit::Seconds)];
        assert_eq!(times, [12_816_637_200_306_162, 7500, 8_000_000]);
        for wrong in ["", ".5", "-1", "1.-5", "1e", "1e99", "9223372036855", "99999999999999999999"] {
            assert_eq!(us(wrong, TimeUnit::Seconds), Err(format!("{wrong:?}")), "{wrong}");
        }
    }
}
