//! Values of words that only jobs have.

use std::fmt;
use std::str::FromStr;

use flashwise_core::options::{Given, Kind, OptionError, word};
use flashwise_core::policy;
use flashwise_core::quantity::Share;

pub use crate::layout_name::{LayoutName, LayoutRow};

use crate::array::TraceRule;

/// Admission rule, or none.
#[derive(Clone, Debug)]
pub enum Admission {
    /// No rule: the policy decides.
    None,
    /// Accesses that the rule admits.
    Rule(TraceRule),
}

impl Admission {
    /// The rule, if any.
    pub fn rule(&self) -> Option<&TraceRule> {
        match self {
            Admission::None => None,
            Admission::Rule(rule) => Some(rule),
        }
    }

    /// Parses `text`, which may be a list of rules: `none`, or as [`TraceRule::parse_list`] defines.
    pub fn parse_list(text: &str) -> Result<Vec<Admission>, OptionError> {
        if text == "none" {
            return Ok(vec![Admission::None]);
        }
        let rules = TraceRule::parse_list(text).map_err(|error| match error {
            OptionError::UnknownName { name, .. } if policy::Spec::parse(&name).is_ok() => {
                OptionError::OtherOption { name, is: "a policy", given: "admission", option: "policy" }
            }
            error => error,
        })?;
        Ok(rules.into_iter().map(Admission::Rule).collect())
    }
}

impl FromStr for Admission {
    type Err = String;

    fn from_str(text: &str) -> Result<Admission, String> {
        let mut all = Admission::parse_list(text).map_err(|error| error.to_string())?;
        match (all.pop(), all.len()) {
            (Some(one), 0) => Ok(one),
            (_, more) => Err(format!("found {} rules, expected one: '{text}' is a list", more + 1)),
        }
    }
}

impl fmt::Display for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Admission::None => f.write_str("none"),
            Admission::Rule(rule) => rule.spec().fmt(f),
        }
    }
}

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnOff(pub bool);

impl OnOff {
    const WORDS: [(&str, bool); 2] = [("on", true), ("off", false)];
}

impl FromStr for OnOff {
    type Err = String;

    fn from_str(text: &str) -> Result<OnOff, String> {
        word(text, &OnOff::WORDS).map(OnOff)
    }
}

impl fmt::Display for OnOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { "on" } else { "off" })
    }
}

flashwise_core::words! {
    /// Unit of a sample.
    pub enum SampleBy {
        /// Single blocks.
        Blocks "blocks",
        /// Groups of 64 KiB, so requests stay whole.
        Groups "groups",
    }
}

/// Parses a sample's share of the blocks.
pub fn sample_share(text: &str) -> Result<Share, String> {
    let share = text.parse().ok().filter(|share: &Share| share.of_one() > 0.0);
    share.ok_or_else(|| format!("found '{text}', expected a share above 0% and up to 100%, such as 1% or 0.01"))
}

/// A parsed value with its text.
#[derive(Clone, Debug, PartialEq)]
pub struct Written<T> {
    /// The text.
    pub text: String,
    /// The value.
    pub value: T,
}

impl<T> Written<T> {
    /// Parses `text` with `read`.
    pub fn read<E>(text: &str, read: impl Fn(&str) -> Result<T, E>) -> Result<Written<T>, E> {
        Ok(Written { text: text.to_owned(), value: read(text)? })
    }
}

impl<T> fmt::Display for Written<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Formats a share so that parsing restores every bit.
pub(super) fn share(of_one: f64) -> String {
    exact_percent(of_one).unwrap_or_else(|| of_one.to_string())
}

/// Formats a share as a percentage, for words where a plain number means something else.
pub(super) fn percent(of_one: f64) -> String {
    exact_percent(of_one).unwrap_or_else(|| format!("{}%", of_one * 100.0))
}

fn exact_percent(of_one: f64) -> Option<String> {
    let written = [Share::new(of_one).unwrap_or_default().to_string(), format!("{}%", of_one * 100.0)];
    written.into_iter().find(|text| text.parse().is_ok_and(|read: Share| read.of_one().to_bits() == of_one.to_bits()))
}

/// Parses a whole number.
pub(super) fn whole<T: TryFrom<u64>>(text: &str, least: u64, most: u64) -> Result<T, String> {
    let given = Given::from(text);
    T::try_from(given.count(least, most)?).or_else(|_| given.refuse(Kind::Count(least, most)))
}
