//! Admission rules as users write them for many runs: lists and ranges of an option's values, and timeframes as a share
//! of a trace.
//!
//! `probability:p=0.1..0.9:0.2` is five rules, `adaptive:target=200us,400us,1ms,kind=size` three: an item without `=`
//! is another value of the option before it. `timeframe=1%` is a hundredth of the trace's duration.

use flashwise_core::admission::{RULES, Spec};
use flashwise_core::options::{Kind, OptionError};
use flashwise_core::quantity::{ByteSize, Duration, NANO, nano};

use flashwise_trace::Trace;

use crate::range;

/// Largest number of rules in a text.
const RULES_MAX: usize = 1000;
/// Syntax of a range.
const RANGE: &str =
    "FIRST..LAST:STEP or FIRST..LAST:xFACTOR with FIRST at most LAST, such as 0.1..0.9:0.1 or 4KiB..1MiB:x2";
/// The option that may be a share of the trace's time.
const TIMEFRAME: &str = "timeframe=";
/// Limits of the option `timeframe`.
const TIMEFRAME_US: (u64, u64) = (1000, 30 * 86_400_000_000);

/// A rule for any trace.
#[derive(Clone, Debug)]
pub struct TraceRule {
    spec: Spec,
    /// The timeframe as a share of the trace's time, if given so.
    timeframe: Option<f64>,
}

impl TraceRule {
    /// Parses the rules of `text`.
    pub fn parse_list(text: &str) -> Result<Vec<TraceRule>, OptionError> {
        expand(text)?.iter().map(|text| TraceRule::parse(text)).collect()
    }

    fn parse(text: &str) -> Result<TraceRule, OptionError> {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        let share_of = |option: &str| Some(option.strip_prefix(TIMEFRAME)?.strip_suffix('%')?.to_owned());
        let Some(percent) = options.split(',').find_map(share_of) else {
            return Ok(TraceRule { spec: Spec::parse(text)?, timeframe: None });
        };
        let share = percent.parse::<f64>().ok().filter(|percent| *percent > 0.0 && *percent <= 100.0);
        let Some(share) = share else {
            let expected = "a duration, or a share of the trace's time of at most 100%";
            return Err(OptionError::bad_value(name, "timeframe", format!("{percent}%"), expected));
        };
        // A share is not a value of the option.
        let options = options.split(',').map(|option| if share_of(option).is_some() { "timeframe=1s" } else { option });
        let spec = Spec::parse(&format!("{name}:{}", options.collect::<Vec<_>>().join(",")))?;
        Ok(TraceRule { spec: spec.called(text), timeframe: Some(share / 100.0) })
    }

    /// The rule for `trace`, still named as the user wrote it.
    pub fn of(&self, trace: &Trace) -> Spec {
        let Some(length_us) = self.length_us(trace) else { return self.spec.clone() };
        self.lasting(length_us).called(&self.spec.to_string())
    }

    /// The rule for `trace` with its timeframe as a time, for a cache that runs without a trace.
    pub fn timed(&self, trace: &Trace) -> Spec {
        let Some(length_us) = self.length_us(trace) else { return self.spec.clone() };
        // Round to whole seconds, if there are any.
        self.lasting(if length_us < 1e6 { length_us } else { (length_us / 1e6).round() * 1e6 })
    }

    /// Length of a timeframe, if it is given as a share.
    fn length_us(&self, trace: &Trace) -> Option<f64> {
        Some(self.timeframe? * trace.times().duration_us() as f64)
    }

    /// Returns the rule with a timeframe of this length instead of a share.
    fn lasting(&self, length_us: f64) -> Spec {
        let length = Duration::from_us((length_us as u64).clamp(TIMEFRAME_US.0, TIMEFRAME_US.1));
        let spec = self.spec.with("timeframe", &length.to_string());
        spec.expect("a rule that was read stays one with another timeframe")
    }

    /// Returns true if the timeframe is a share of the trace's time, which is not one of the rule's options.
    pub fn is_relative(&self) -> bool {
        self.timeframe.is_some()
    }

    /// The rule, with any timeframe.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }
}

/// Returns every combination of the values that `text` lists.
fn expand(text: &str) -> Result<Vec<String>, OptionError> {
    let Some((name, options)) = text.split_once(':') else { return Ok(vec![text.to_owned()]) };
    let parameters = RULES.iter().find(|info| info.name == name).map_or(&[][..], |info| info.parameters);
    let kind = |key: &str| parameters.iter().find(|parameter| parameter.name == key).map(|parameter| parameter.kind);
    let mut rules = vec![String::new()];
    let mut parts = options.split(',').peekable();
    while let Some(part) = parts.next() {
        let mut values = Vec::new();
        let key = part.split_once('=').map(|(key, value)| {
            values.push(value);
            key
        });
        while key.is_some() && parts.peek().is_some_and(|next| !next.is_empty() && !next.contains('=')) {
            values.extend(parts.next());
        }
        let mut written = Vec::new();
        for value in values {
            let values = match key.and_then(kind).filter(|_| value.contains("..")) {
                Some(kind) => values_of(kind, value)
                    .ok_or_else(|| OptionError::bad_value(name, key.unwrap_or_default(), value, RANGE))?,
                None => vec![value.to_owned()],
            };
            written.extend(values.iter().map(|value| format!("{}={value}", key.unwrap_or_default())));
        }
        if key.is_none() {
            written.push(part.to_owned());
        }
        let join =
            |rule: &String, option: &String| if rule.is_empty() { option.clone() } else { format!("{rule},{option}") };
        rules = rules.iter().flat_map(|rule| written.iter().map(move |option| join(rule, option))).collect();
        if rules.len() > RULES_MAX {
            let (found, expected) = (format!("{} values", rules.len()), format!("at most {RULES_MAX} rules"));
            return Err(OptionError::bad_value(name, key.unwrap_or_default(), found, expected));
        }
    }
    Ok(rules.into_iter().map(|options| format!("{name}:{options}")).collect())
}

/// Returns the values of a range such as `0.1..0.9:0.1` for an option of this kind.
fn values_of(kind: Kind, range: &str) -> Option<Vec<String>> {
    let percent = range.split("..").next()?.ends_with('%');
    // In billionths of 1 (or 1 %), of a byte, or of a microsecond.
    let read = |text: &str| -> Option<u128> {
        match kind {
            Kind::Size(..) => Some(u128::from(text.parse::<ByteSize>().ok()?.bytes()) * NANO),
            Kind::Duration(..) => Some(u128::from(text.parse::<Duration>().ok()?.us()) * NANO),
            Kind::Number(..) | Kind::Count(..) if text.ends_with('%') == percent => {
                nano(text.strip_suffix('%').unwrap_or(text))
            }
            _ => None,
        }
    };
    let write = |value: u128| -> Option<String> {
        let whole = u64::try_from(value / NANO).ok();
        match kind {
            Kind::Size(..) => Some(ByteSize::new(whole?).to_string()),
            Kind::Duration(..) => Some(Duration::from_us(whole.filter(|&us| i64::try_from(us).is_ok())?).to_string()),
            _ => Some(format!("{}{}", range::decimal(value), if percent { "%" } else { "" })),
        }
    };
    let mut values = range::numbers(range, RULES_MAX, read)?.into_iter().map(write).collect::<Option<Vec<_>>>()?;
    values.dedup();
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> String {
        let rules = TraceRule::parse_list(text).unwrap();
        rules.iter().map(|rule| rule.spec().to_string()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn lists_and_ranges_are_a_rule_for_each_value() {
        assert_eq!(list("auto"), "auto");
        assert_eq!(list("probability:p=0.1..0.3:0.1"), "probability:p=0.1 probability:p=0.2 probability:p=0.3");
        assert_eq!(list("probability:p=5%..15%:5%"), "probability:p=5% probability:p=10% probability:p=15%");
        assert_eq!(list("size:max=4KiB..64KiB:x4"), "size:max=4KiB size:max=16KiB size:max=64KiB");
        assert_eq!(list("hotness:min=2..4:1,9"), "hotness:min=2 hotness:min=3 hotness:min=4 hotness:min=9");
        assert_eq!(
            list("adaptive:target=200us,1ms,kind=size,hotness"),
            "adaptive:target=200us,kind=size adaptive:target=200us,kind=hotness adaptive:target=1ms,kind=size \
             adaptive:target=1ms,kind=hotness"
        );
        assert_eq!(
            list("adaptive:target=200us..600us:200us"),
            "adaptive:target=200us adaptive:target=400us adaptive:target=600us"
        );
        assert_eq!(list("adaptive:timeframe=0.5%,2s"), "adaptive:timeframe=0.5% adaptive:timeframe=2s");
    }

    #[test]
    fn invalid_rules_are_refused_as_in_core() {
        for (wrong, expected) in [
            ("probability:p=0.1..0.9", "p: found '0.1..0.9', expected FIRST..LAST:STEP"),
            ("probability:p=0.9..0.1:0.1", "expected FIRST..LAST:STEP"),
            ("probability:p=0..1:x2", "expected FIRST..LAST:STEP"),
            ("probability:p=0..1:0.0001", "expected FIRST..LAST:STEP"),
            ("probability:p=10%..0.9:0.1", "expected FIRST..LAST:STEP"),
            ("probability:p=0.5,2", "p: found '2', expected a number from 0 to 1"),
            ("probability:0.5", "found '0.5' where an option was expected"),
            ("size:max=4KiB..64:x2", "expected FIRST..LAST:STEP"),
            ("larger:p=1..2:1", "unknown admission rule 'larger'"),
            ("adaptive:timeframe=0%", "timeframe: found '0%', expected a duration, or a share"),
            ("adaptive:timeframe=101%", "expected a duration, or a share"),
            ("adaptive:timeframe=1%,timeframe=2%", "option 'timeframe'"),
            ("size:timeframe=1%", "size has no option 'timeframe'"),
            ("adaptive:shadows=2..32:1,sampling=1%..40%:1%", "expected at most 1000 rules"),
        ] {
            let error = TraceRule::parse_list(wrong).unwrap_err().to_string();
            assert!(error.contains(expected), "{wrong}: {error}");
        }
    }
}
