//! Cache sizes as users write them: `10%` of the trace's unique blocks, `512MiB`, a number of blocks, lists and ranges.

use std::fmt;
use std::str::FromStr;

use flashwise_core::quantity::{self, ByteSize};

use crate::range;

/// The largest cache, in blocks: block ids and nodes are 32-bit numbers.
pub const CAPACITY_BLOCKS_MAX: u64 = i32::MAX as u64;

/// Largest number of sizes in a range.
const RANGE_MAX: usize = 10_000;

/// The reason why a size is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum SizeError {
    #[error(
        "size '{found}': expected a share such as 10%, a size in bytes such as 512MiB or a number of blocks such as \
         10000"
    )]
    NotASize { found: String },
    #[error("size '{found}': a cache holds at least one block")]
    Zero { found: String },
    #[error("size '{found}': expected at most 100% of the trace's unique blocks")]
    MoreThanAll { found: String },
    #[error(
        "size '{found}' is {blocks} blocks of {block_size_bytes} bytes, expected at most {CAPACITY_BLOCKS_MAX} blocks"
    )]
    TooLarge { found: String, blocks: u64, block_size_bytes: u64 },
    #[error("size '{found}' is smaller than one block of {block_size_bytes} bytes")]
    BelowOneBlock { found: String, block_size_bytes: u64 },
    #[error(
        "size range '{found}': expected FIRST..LAST:STEP such as 1%..10%:1%, or FIRST..LAST:xFACTOR such as \
         64MiB..1GiB:x2, FIRST up to LAST, a step above 0, at most {RANGE_MAX} sizes"
    )]
    NotARange { found: String },
    #[error("block size '{found}': expected a power of two from 512 to 1MiB, such as 4KiB")]
    BlockSize { found: String },
}

/// One cache size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Size {
    text: String,
    amount: Amount,
}

/// An exact amount: shares are in billionths of a percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amount {
    NanoPercent(u64),
    Bytes(u64),
    Blocks(u64),
}

const NANO: u64 = 1_000_000_000;

impl Amount {
    fn number(self) -> u64 {
        match self {
            Amount::NanoPercent(number) | Amount::Bytes(number) | Amount::Blocks(number) => number,
        }
    }

    fn with(self, number: u64) -> Amount {
        match self {
            Amount::NanoPercent(_) => Amount::NanoPercent(number),
            Amount::Bytes(_) => Amount::Bytes(number),
            Amount::Blocks(_) => Amount::Blocks(number),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Amount::NanoPercent(nano) => write!(f, "{}%", range::decimal(nano.into())),
            Amount::Bytes(bytes) => write!(f, "{}", ByteSize::new(bytes)),
            Amount::Blocks(blocks) => write!(f, "{blocks}"),
        }
    }
}

/// Parses a decimal number into billionths, if it is less than 1.8e10.
fn nano(text: &str) -> Option<u64> {
    u64::try_from(quantity::nano(text)?).ok()
}

/// Parses a block size: a power of two from 512 B to 1 MiB.
pub fn parse_block_size(text: &str) -> Result<u64, SizeError> {
    match text.parse().map(ByteSize::bytes) {
        Ok(bytes) if bytes.is_power_of_two() && (512..=1 << 20).contains(&bytes) => Ok(bytes),
        _ => Err(SizeError::BlockSize { found: text.to_owned() }),
    }
}

impl Size {
    /// Returns one spelling for equal sizes: `0.5GiB` is `512MiB`.
    pub fn canonical(&self) -> String {
        self.amount.to_string()
    }
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Size, SizeError> {
        let not_a_size = || SizeError::NotASize { found: text.to_owned() };
        let amount = if let Some(percent) = text.strip_suffix('%') {
            Amount::NanoPercent(nano(percent).ok_or_else(not_a_size)?)
        } else if text.bytes().all(|byte| byte.is_ascii_digit()) {
            Amount::Blocks(text.parse().map_err(|_| not_a_size())?)
        } else {
            Amount::Bytes(text.parse::<ByteSize>().map_err(|_| not_a_size())?.bytes())
        };
        if amount.number() == 0 {
            return Err(SizeError::Zero { found: text.to_owned() });
        }
        if matches!(amount, Amount::NanoPercent(nano) if nano > 100 * NANO) {
            return Err(SizeError::MoreThanAll { found: text.to_owned() });
        }
        Ok(Size { text: text.to_owned(), amount })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Size {
    /// Returns the size in blocks for a trace of `unique_blocks`. Shares are rounded down, but to at least 1 block.
    pub fn capacity_blocks(&self, unique_blocks: usize, block_size_bytes: u64) -> Result<usize, SizeError> {
        let found = self.text.clone();
        let blocks = match self.amount {
            Amount::NanoPercent(nano) => {
                let blocks = unique_blocks as u128 * u128::from(nano) / u128::from(100 * NANO);
                (blocks as u64).max(1)
            }
            Amount::Bytes(bytes) if bytes < block_size_bytes => {
                return Err(SizeError::BelowOneBlock { found, block_size_bytes });
            }
            Amount::Bytes(bytes) => bytes / block_size_bytes,
            Amount::Blocks(blocks) => blocks,
        };
        if blocks > CAPACITY_BLOCKS_MAX {
            return Err(SizeError::TooLarge { found, blocks, block_size_bytes });
        }
        Ok(blocks as usize)
    }

    /// Parses a list of sizes and ranges: `1%,5%,10%`, `1%..10%:1%`, `64MiB..1GiB:x2`.
    pub fn parse_list(text: &str) -> Result<Vec<Size>, SizeError> {
        let mut sizes = Vec::new();
        for part in text.split(',') {
            match part.split_once("..") {
                Some((first, rest)) => sizes.extend(range(part, first, rest)?),
                None => sizes.push(part.parse()?),
            }
        }
        Ok(sizes)
    }
}

fn range(text: &str, first: &str, rest: &str) -> Result<Vec<Size>, SizeError> {
    let not_a_range = || SizeError::NotARange { found: text.to_owned() };
    let (last, _) = rest.split_once(':').ok_or_else(not_a_range)?;
    let (first, _) = (first.parse::<Size>()?.amount, last.parse::<Size>()?);
    let same_kind = |other: &Amount| std::mem::discriminant(&first) == std::mem::discriminant(other);
    let read = |text: &str| Some(text.parse::<Size>().ok()?.amount).filter(same_kind).map(|size| size.number().into());
    let numbers = range::numbers(text, RANGE_MAX, read).ok_or_else(not_a_range)?;
    let size = |number| {
        let amount = first.with(number as u64);
        Size { text: amount.to_string(), amount }
    };
    Ok(numbers.into_iter().map(size).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(text: &str, unique_blocks: usize) -> usize {
        text.parse::<Size>().unwrap().capacity_blocks(unique_blocks, 4096).unwrap()
    }

    #[test]
    fn shares_are_exact_rounded_down_and_at_least_one_block() {
        assert_eq!(blocks("10%", 186_889), 18_688);
        assert_eq!(blocks("0.29%", 10_000), 29);
        assert_eq!(blocks("0.1%", 10), 1);
        assert_eq!(blocks("100%", 77), 77);
    }

    #[test]
    fn bytes_take_binary_units_and_plain_numbers_are_blocks() {
        assert_eq!(blocks("512MiB", 1), 131_072);
        assert_eq!(blocks("1.5GiB", 1), 393_216);
        assert_eq!(blocks("8k", 1), 2);
        assert_eq!(blocks("1000", 1), 1000);
    }

    #[test]
    fn lists_and_ranges_name_each_size() {
        let list = |text| Size::parse_list(text).unwrap().iter().map(Size::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(list("1%,5%"), "1% 5%");
        assert_eq!(list("1%..2%:0.5%"), "1% 1.5% 2%");
        assert_eq!(list("64MiB..512MiB:x2"), "64MiB 128MiB 256MiB 512MiB");
        assert_eq!(list("10..25:10,100"), "10 20 100");
    }

    #[test]
    fn invalid_sizes_are_refused() {
        for wrong in [
            "", "0", "0%", "0MiB", "-1", "101%", "10 %%", "5..1:1", "1..5", "1..5:0", "1%..5:1", "1..5:x1", "ten",
            "1.%", "5XB",
        ] {
            assert!(Size::parse_list(wrong).is_err(), "{wrong}");
        }
        assert!("100B".parse::<Size>().unwrap().capacity_blocks(10, 4096).is_err());
        assert!("99999999999".parse::<Size>().unwrap().capacity_blocks(10, 4096).is_err());
    }

    #[test]
    fn block_sizes_are_powers_of_two_from_512_to_1_mib() {
        assert_eq!(parse_block_size("4KiB"), Ok(4096));
        assert_eq!(parse_block_size("512"), Ok(512));
        assert_eq!(parse_block_size("1MiB"), Ok(1 << 20));
        for wrong in ["0", "256", "3000", "2MiB", "x"] {
            assert!(parse_block_size(wrong).is_err(), "{wrong}");
        }
    }
}
