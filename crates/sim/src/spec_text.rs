//! A policy or an admission rule as a user wrote it.

use std::fmt;
use std::ops::Deref;

/// A policy or an admission rule as a user wrote it: `name` or `name:key=value,key=value`. A part without `=` belongs
/// to the value before it.
///
/// ```
/// use flashwise_sim::results::SpecText;
///
/// let rule = SpecText::from("auto:policies=lru,larc,objective=hit-ratio");
/// assert_eq!((rule.name(), rule.value("policies")), ("auto", Some("lru,larc")));
/// assert_eq!(rule.without("policies"), SpecText::from("auto:objective=hit-ratio"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(transparent)]
pub struct SpecText(String);

impl SpecText {
    /// The name without options.
    pub fn name(&self) -> &str {
        self.0.split_once(':').map_or(&self.0, |(name, _)| name)
    }

    /// The options, `key=value` each.
    pub fn options(&self) -> impl Iterator<Item = &str> {
        let mut rest = self.0.split_once(':').map_or("", |(_, options)| options);
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let end = rest.match_indices(',').map(|(at, _)| at).find(|at| {
                let next = rest[at + 1..].split(',').next().unwrap_or_default();
                next.contains('=')
            });
            let option = &rest[..end.unwrap_or(rest.len())];
            rest = end.map_or("", |end| &rest[end + 1..]);
            Some(option)
        })
    }

    /// The value of an option, if it is given.
    pub fn value(&self, option: &str) -> Option<&str> {
        self.options().filter_map(|given| given.split_once('=')).find(|(key, _)| *key == option).map(|(_, value)| value)
    }

    /// Returns the text without an option.
    pub fn without(&self, option: &str) -> SpecText {
        let is_other = |given: &&str| given.split_once('=').is_none_or(|(key, _)| key != option);
        self.of_options(self.name(), self.options().filter(is_other))
    }

    /// Returns another name with the same options.
    pub fn renamed(&self, name: &str) -> SpecText {
        self.of_options(name, self.options())
    }

    fn of_options<'a>(&self, name: &str, options: impl Iterator<Item = &'a str>) -> SpecText {
        let options: Vec<&str> = options.collect();
        SpecText(if options.is_empty() { name.to_owned() } else { format!("{name}:{}", options.join(",")) })
    }
}

impl From<String> for SpecText {
    fn from(text: String) -> SpecText {
        SpecText(text)
    }
}

impl From<&str> for SpecText {
    fn from(text: &str) -> SpecText {
        SpecText(text.to_owned())
    }
}

impl Deref for SpecText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SpecText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialEq<&str> for SpecText {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl PartialEq<String> for SpecText {
    fn eq(&self, other: &String) -> bool {
        self.0 == *other
    }
}
