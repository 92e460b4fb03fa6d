//! Values of settings: as given by users, and parsed.

use std::fmt;

use crate::admission;
use crate::cache::config::{CopyForward, Mode, WriteBackOrder};
use crate::filter::{Clients, Rule};
use crate::format::BLOCK_BYTES;
use crate::options::{Kind, OptionError, word};
use crate::policy::{Spec, online};
use crate::quantity::{ByteSize, Duration, QuantityError, Share};
use crate::wlfc::Refresh;

/// A value as given by a user: in a flag, in TOML or in JSON.
#[derive(Clone, Debug, PartialEq)]
pub enum Given<'a> {
    /// Text; it may stand for a number, or for texts separated by commas.
    Text(&'a str),
    /// A number, as it is written.
    Number(&'a str),
    /// Several texts.
    Texts(Vec<&'a str>),
    /// A value that no setting accepts, formatted.
    Other(String),
}

impl fmt::Display for Given<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Given::Text(text) => write!(f, "'{text}'"),
            Given::Number(text) => f.write_str(text),
            Given::Texts(_) => f.write_str("an array"),
            Given::Other(shown) => f.write_str(shown),
        }
    }
}

impl<'a> Given<'a> {
    fn refuse<T>(&self, expected: impl fmt::Display) -> Result<T, String> {
        Err(format!("found {self}, expected {expected}"))
    }

    fn text(&self) -> Result<&'a str, String> {
        match self {
            Given::Text(text) if !text.is_empty() => Ok(text),
            _ => self.refuse("text that is not empty"),
        }
    }

    /// Returns text or a number, which quantities accept.
    fn quantity(&self, expected: Kind) -> Result<&'a str, String> {
        match self {
            Given::Text(text) | Given::Number(text) => Ok(text),
            _ => self.refuse(expected),
        }
    }
}

/// The value of a setting.
#[derive(Clone, Debug)]
pub enum Value {
    /// From 0 to 1.
    Share(f64),
    /// A whole number.
    Count(u64),
    /// A size in bytes.
    Bytes(u64),
    /// A duration in microseconds.
    Us(u64),
    /// The write mode.
    Mode(Mode),
    /// The order in which dirty data is written back.
    Order(WriteBackOrder),
    /// The blocks that are copied forward.
    CopyForward(CopyForward),
    /// An online policy.
    Policy(Spec),
    /// An admission rule, or none.
    Rule(Option<admission::Spec>),
    /// The default for clients that no rule names.
    Clients(Clients),
    /// Rules that name clients.
    Rules(Vec<Rule>),
    /// The time when WLFC refreshes read copies.
    Refresh(Refresh),
    /// A word for the value that follows from another setting.
    Follows(&'static str),
}

/// Defines conversions of a value to the type that the row of the table has parsed.
macro_rules! takes {
    ($($name:ident, $variant:ident, $type:ty;)*) => {
        impl Value {
            $(pub(super) fn $name(self) -> $type {
                match self {
                    Value::$variant(value) => value,
                    other => panic!("found {other:?}, expected what the setting's row reads"),
                }
            })*
        }
    };
}

takes! {
    share, Share, f64;
    count, Count, u64;
    bytes, Bytes, u64;
    us, Us, u64;
    mode, Mode, Mode;
    order, Order, WriteBackOrder;
    copy_forward, CopyForward, CopyForward;
    policy, Policy, Spec;
    rule, Rule, Option<admission::Spec>;
    clients, Clients, Clients;
    rules, Rules, Vec<Rule>;
    refresh, Refresh, Refresh;
}

impl Value {
    /// Returns the value unless it follows from another setting.
    pub(super) fn given(self) -> Option<Value> {
        (!matches!(self, Value::Follows(_))).then_some(self)
    }
}

impl fmt::Display for Value {
    /// Formats the value so that it can be parsed again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Share(share) => Share::new(*share).unwrap_or(Share::WHOLE).fmt(f),
            Value::Count(count) => count.fmt(f),
            Value::Bytes(bytes) => ByteSize::new(*bytes).fmt(f),
            Value::Us(us) => Duration::from_us(*us).fmt(f),
            Value::Mode(mode) => f.write_str(mode.name()),
            Value::Order(order) => f.write_str(order.name()),
            Value::CopyForward(which) => which.fmt(f),
            Value::Policy(policy) => policy.fmt(f),
            Value::Rule(None) => f.write_str("none"),
            Value::Rule(Some(rule)) => rule.fmt(f),
            Value::Clients(clients) => f.write_str(clients.name()),
            Value::Rules(rules) => f.write_str(&crate::filter::listed(rules)),
            Value::Refresh(refresh) => f.write_str(refresh.name()),
            Value::Follows(word) => f.write_str(word),
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        self.to_string() == other.to_string()
    }
}

fn words(error: QuantityError) -> String {
    error.to_string()
}

pub(super) fn share(given: &Given<'_>, kind: Kind) -> Result<Value, String> {
    let share = given.quantity(kind)?.parse().map(Share::of_one);
    match (share, kind) {
        (Ok(share), Kind::Share(most)) if share <= most => Ok(Value::Share(share)),
        _ => given.refuse(kind),
    }
}

/// A share above 0% and below 100%.
pub(super) fn part(given: &Given<'_>, kind: Kind) -> Result<Value, String> {
    match share(given, kind) {
        Ok(Value::Share(share)) if share > 0.0 && share < 1.0 => Ok(Value::Share(share)),
        _ => given.refuse("a share above 0% and below 100%, such as 50%"),
    }
}

/// A value that `read` parses, or the word for one that follows from another setting.
pub(super) fn unless(
    word: &'static str,
    given: &Given<'_>,
    kind: Kind,
    read: fn(&Given<'_>, Kind) -> Result<Value, String>,
) -> Result<Value, String> {
    if *given == Given::Text(word) { Ok(Value::Follows(word)) } else { read(given, kind) }
}

pub(super) fn refresh(given: &Given<'_>, _: Kind) -> Result<Value, String> {
    word(given.text()?, &Refresh::NAMES).map(Value::Refresh)
}

pub(super) fn count(given: &Given<'_>, kind: Kind) -> Result<Value, String> {
    match (given.quantity(kind)?.parse(), kind) {
        (Ok(count), Kind::Count(least, most)) if (least..=most).contains(&count) => Ok(Value::Count(count)),
        _ => given.refuse(kind),
    }
}

/// Returns the expectation for a size of this many bytes that is not a multiple of a block.
pub fn multiple_of_block(bytes: u64) -> String {
    let block = BLOCK_BYTES as u64;
    // Short and precise enough: in the largest unit with a value of at least a hundred.
    let unit = [1 << 40, 1 << 30, 1 << 20].into_iter().find(|unit| bytes / unit >= 100).unwrap_or(block);
    format!("a multiple of 4KiB, such as {}", ByteSize::new((bytes / unit * unit).max(block)))
}

/// Parses a size; sizes are multiples of a block.
pub(super) fn size(given: &Given<'_>, kind: Kind) -> Result<Value, String> {
    let bytes = given.quantity(kind)?.parse().map(ByteSize::bytes).map_err(words)?;
    let fits = match kind {
        Kind::Size(least, most) => (least..=most).contains(&bytes),
        Kind::PowerOfTwo(least, most) => (least..=most).contains(&bytes) && bytes.is_power_of_two(),
        _ => false,
    };
    match fits {
        true if bytes.is_multiple_of(BLOCK_BYTES as u64) => Ok(Value::Bytes(bytes)),
        true => given.refuse(multiple_of_block(bytes)),
        false => given.refuse(kind),
    }
}

pub(super) fn duration(given: &Given<'_>, kind: Kind) -> Result<Value, String> {
    Ok(Value::Us(given.quantity(kind)?.parse().map(Duration::us).map_err(words)?))
}

pub(super) fn mode(given: &Given<'_>, _: Kind) -> Result<Value, String> {
    given.text()?.parse().map(Value::Mode)
}

pub(super) fn order(given: &Given<'_>, _: Kind) -> Result<Value, String> {
    given.text()?.parse().map(Value::Order)
}

pub(super) fn copy_forward(given: &Given<'_>, _: Kind) -> Result<Value, String> {
    given.text()?.parse().map(Value::CopyForward)
}

/// A policy that can run without knowing the future.
pub(super) fn online_policy(given: &Given<'_>, _: Kind) -> Result<Value, String> {
    let policy = Spec::parse(given.text()?).map_err(|mut error| {
        if let OptionError::UnknownName { near, expected, .. } = &mut error {
            let is_online = |name: &&'static str| online().any(|info| info.name == *name);
            expected.retain(is_online);
            *near = near.filter(is_online);
        }
        error.to_string()
    })?;
    match policy.info().offline {
        true => Err(format!(
            "found {given}, which needs to know the future and can only be simulated; expected another of the policies \
             that \
             `flashwise policies` lists"
        )),
        false => Ok(Value::Policy(policy)),
    }
}

/// An admission rule, or `none`.
pub(super) fn rule(given: &Given<'_>, _: Kind) -> Result<Value, String> {
    match given.text()? {
        "none" => Ok(Value::Rule(None)),
        rule => rule.parse().map(|rule| Value::Rule(Some(rule))).map_err(|error: OptionError| error.to_string()),
    }
}

pub(super) fn clients(given: &Given<'_>, _: Kind) -> Result<Value, String> {
    given.text()?.parse().map(Value::Clients)
}

/// Several texts, or one with commas between the rules.
pub(super) fn rules(given: &Given<'_>, _: Kind) -> Result<Value, String> {
    let rules = match given {
        Given::Texts(rules) => rules.iter().map(|rule| rule.parse()).collect(),
        Given::Text(text) => Rule::parse_list(text),
        _ => given.refuse("rules such as [\"uid:1000\"], or \"none\""),
    };
    rules.map(Value::Rules)
}
