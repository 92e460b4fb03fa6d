//! Values of settings: as given by users, and parsed.

use std::fmt;

use crate::admission;
use crate::cache::config::{CopyForward, Mode, WriteBackOrder};
use crate::filter::{Clients, Rule};
use crate::options::{Given, Kind, OptionError, word};
use crate::policy::{Spec, online};
use crate::quantity::{ByteSize, Duration, Share};
use crate::wlfc::Refresh;

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

pub(super) fn share(given: &Given, kind: Kind) -> Result<Value, String> {
    given.number(kind).map(Value::Share)
}

/// A share above 0% and below 100%.
pub(super) fn part(given: &Given, kind: Kind) -> Result<Value, String> {
    match share(given, kind) {
        Ok(Value::Share(share)) if share > 0.0 && share < 1.0 => Ok(Value::Share(share)),
        _ => given.refuse("a share above 0% and below 100%, such as 50%"),
    }
}

/// A value that `read` parses, or the word for one that follows from another setting.
pub(super) fn unless(
    word: &'static str,
    given: &Given,
    kind: Kind,
    read: fn(&Given, Kind) -> Result<Value, String>,
) -> Result<Value, String> {
    if given.as_text() == Some(word) { Ok(Value::Follows(word)) } else { read(given, kind) }
}

pub(super) fn refresh(given: &Given, _: Kind) -> Result<Value, String> {
    word(given.text()?, &Refresh::NAMES).map(Value::Refresh)
}

pub(super) fn count(given: &Given, kind: Kind) -> Result<Value, String> {
    let Kind::Count(least, most) = kind else { unreachable!("the row of a count has its bounds") };
    given.count(least, most).map(Value::Count)
}

/// Parses a size; sizes are multiples of a block.
pub(super) fn size(given: &Given, kind: Kind) -> Result<Value, String> {
    given.blocks(kind).map(Value::Bytes)
}

pub(super) fn duration(given: &Given, kind: Kind) -> Result<Value, String> {
    given.duration_us(kind).map(Value::Us)
}

pub(super) fn mode(given: &Given, _: Kind) -> Result<Value, String> {
    given.text()?.parse().map(Value::Mode)
}

pub(super) fn order(given: &Given, _: Kind) -> Result<Value, String> {
    given.text()?.parse().map(Value::Order)
}

pub(super) fn copy_forward(given: &Given, _: Kind) -> Result<Value, String> {
    given.text()?.parse().map(Value::CopyForward)
}

/// A policy that can run without knowing the future.
pub(super) fn online_policy(given: &Given, _: Kind) -> Result<Value, String> {
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
pub(super) fn rule(given: &Given, _: Kind) -> Result<Value, String> {
    match given.text()? {
        "none" => Ok(Value::Rule(None)),
        rule => rule.parse().map(|rule| Value::Rule(Some(rule))).map_err(|error: OptionError| error.to_string()),
    }
}

pub(super) fn clients(given: &Given, _: Kind) -> Result<Value, String> {
    given.text()?.parse().map(Value::Clients)
}

/// Several texts, or one with commas between the rules.
pub(super) fn rules(given: &Given, _: Kind) -> Result<Value, String> {
    let rules = match given {
        Given::Text(text) => return Rule::parse_list(text).map(Value::Rules),
        Given::List(rules) => rules.iter().map(Given::as_text).collect::<Option<Vec<_>>>(),
        _ => None,
    };
    let Some(rules) = rules else { return given.refuse("rules such as [\"uid:1000\"], or \"none\"") };
    rules.into_iter().map(str::parse::<Rule>).collect::<Result<_, _>>().map(Value::Rules)
}
