//! Values of words that only jobs have.

use std::fmt;
use std::str::FromStr;

use flashwise_core::options::{Kind, OptionError, word};
use flashwise_core::quantity::Share;

use crate::array::TraceRule;
use crate::wlfc::System;

/// Layout of cached blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutName {
    /// No flash.
    None,
    /// Each block in a slot of its own.
    InPlace,
    /// The log of a server's cache.
    Log,
    /// Erase units that are written and reset whole.
    Containers,
    /// Buckets.
    Buckets(System),
}

/// A row of the table of layouts.
#[derive(Clone, Copy, Debug)]
pub struct LayoutRow {
    /// Name.
    pub name: &'static str,
    /// Further names.
    pub aliases: &'static [&'static str],
    /// Meaning, for help.
    pub meaning: &'static str,
    layout: LayoutName,
}

impl LayoutName {
    /// All layouts, in listing order.
    pub const ROWS: [LayoutRow; 7] = [
        row("none", &[], "No flash: decisions of policies only", LayoutName::None),
        row("in-place", &["slots"], "Each block in a slot of its own on a modelled SSD", LayoutName::InPlace),
        row("log", &[], "The log of the whole cache that flashwise serve runs", LayoutName::Log),
        row("containers", &[], "Erase units that are written and reset whole", LayoutName::Containers),
        row(System::Wlfc.name(), &[], "Buckets on host-managed flash", LayoutName::Buckets(System::Wlfc)),
        row(
            System::WlfcC.name(),
            &["wlfc-c"],
            "Buckets on host-managed flash, behind RAM",
            LayoutName::Buckets(System::WlfcC),
        ),
        row(System::BLike.name(), &[], "Buckets on a conventional SSD", LayoutName::Buckets(System::BLike)),
    ];
}

const fn row(
    name: &'static str,
    aliases: &'static [&'static str],
    meaning: &'static str,
    layout: LayoutName,
) -> LayoutRow {
    LayoutRow { name, aliases, meaning, layout }
}

impl FromStr for LayoutName {
    type Err = String;

    fn from_str(text: &str) -> Result<LayoutName, String> {
        match LayoutName::ROWS.iter().find(|row| row.aliases.contains(&text)) {
            Some(row) => Ok(row.layout),
            None => word(text, &LayoutName::ROWS.map(|row| (row.name, row.layout))),
        }
    }
}

impl fmt::Display for LayoutName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = LayoutName::ROWS.iter().find(|row| row.layout == *self).expect("each layout has a row");
        f.write_str(row.name)
    }
}

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
        Ok(TraceRule::parse_list(text)?.into_iter().map(Admission::Rule).collect())
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

/// Unit of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleBy {
    /// Single blocks.
    Blocks,
    /// Groups of 64 KiB, so requests stay whole.
    Groups,
}

impl SampleBy {
    const WORDS: [(&str, SampleBy); 2] = [("blocks", SampleBy::Blocks), ("groups", SampleBy::Groups)];
}

impl FromStr for SampleBy {
    type Err = String;

    fn from_str(text: &str) -> Result<SampleBy, String> {
        word(text, &SampleBy::WORDS)
    }
}

impl fmt::Display for SampleBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SampleBy::Blocks => "blocks",
            SampleBy::Groups => "groups",
        })
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
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| format!("found '{text}', expected {}", Kind::Count(least, most)))
}

/// Parses a number above 0.
pub(super) fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| format!("found '{text}', expected a number above 0"))
}
