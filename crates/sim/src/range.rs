//! Ranges of numbers as users write them: `FIRST..LAST:STEP` or `FIRST..LAST:xFACTOR`.

use flashwise_core::quantity::{NANO, nano};

/// Returns the numbers of the range `text`, each parsed by `read`. `None` if it is no range, ends below its first
/// number, does not grow, or has more than `most` numbers.
pub fn numbers(text: &str, most: usize, read: impl Fn(&str) -> Option<u128>) -> Option<Vec<u128>> {
    let (first, rest) = text.split_once("..")?;
    let (last, step) = rest.split_once(':')?;
    let (first, last) = (read(first)?, read(last)?);
    let (factor, add) = match step.strip_prefix('x') {
        Some(factor) => (nano(factor).filter(|&factor| factor > NANO)?, 0),
        None => (NANO, read(step).filter(|&step| step > 0)?),
    };
    if first > last || first == 0 && add == 0 {
        return None;
    }
    let (mut numbers, mut number) = (Vec::new(), first);
    while number <= last {
        if numbers.len() == most {
            return None;
        }
        numbers.push(number);
        // Even a factor near 1 must grow the number.
        number = (number.checked_mul(factor)? / NANO + add).max(number + 1);
    }
    Some(numbers)
}

/// Formats a number of billionths as a decimal, the inverse of [`nano`].
pub fn decimal(nano: u128) -> String {
    let text = format!("{}.{:09}", nano / NANO, nano % NANO);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_go_on_by_steps_or_factors_and_end() {
        let read = |text: &str| text.parse().ok();
        assert_eq!(numbers("1..7:2", 9, read), Some(vec![1, 3, 5, 7]));
        assert_eq!(numbers("0..4:3", 9, read), Some(vec![0, 3]));
        assert_eq!(numbers("1..9:x2.5", 9, read), Some(vec![1, 2, 5]));
        assert_eq!(numbers("1..3:x1.001", 9, read), Some(vec![1, 2, 3]), "a factor near 1 leads on");
        assert_eq!(numbers("5..5:x2", 1, read), Some(vec![5]));
        for wrong in ["1..3", "1:3", "3..1:1", "1..3:0", "1..3:x1", "0..3:x2", "1..3:xa", "a..3:1", "1..a:1", "1..10:1"]
        {
            assert_eq!(numbers(wrong, 9, read), None, "{wrong}");
        }
        assert_eq!(numbers(&format!("1..{}:x999999999999", u128::MAX), 9, read), None, "too large to go on");
    }

    #[test]
    fn decimals_are_as_short_as_they_can_be() {
        for text in ["0", "10", "0.1", "12.000000001", "100"] {
            assert_eq!(decimal(nano(text).unwrap()), text);
        }
    }
}
