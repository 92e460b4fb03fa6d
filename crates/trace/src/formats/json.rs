//! Numbers of JSON in units that are not known yet.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

/// A number, which may be text of digits and may have decimals, as its text.
#[derive(Clone, Debug)]
pub struct Number<'a>(pub Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Number<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Number<'a>, D::Error> {
        struct Digits;
        impl<'de> Visitor<'de> for Digits {
            type Value = Number<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Number<'de>, E> {
                Ok(Number(number.to_string().into()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Number<'de>, E> {
                Ok(Number(number.to_string().into()))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Number<'de>, E> {
                Ok(Number(number.to_string().into()))
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Number<'de>, E> {
                Ok(Number(text.into()))
            }
        }
        deserializer.deserialize_any(Digits)
    }
}
