//! Options of policies, formats and generators as users write them: `name:key=value,key=value`.
//!
//! ```
//! use flashwise_core::options::{Kind, Options, Parameter};
//!
//! static PARAMETERS: [Parameter; 2] = [
//!     Parameter::of("share", Kind::Number(0.0, 1.0), "25%").means("how much"),
//!     Parameter::of("every", Kind::Duration(1, 60_000_000), "1s").means("how often"),
//! ];
//! let options = Options::parse("sampler", &PARAMETERS, "every=20ms")?;
//! assert_eq!((options.number("share"), options.duration_us("every")), (0.25, 20_000));
//!
//! let error = |text| Options::parse("sampler", &PARAMETERS, text).unwrap_err().to_string();
//! assert_eq!(error("share=2"), "sampler: share: found '2', expected a number from 0 to 1");
//! assert_eq!(error("evry=1s"), "sampler has no option 'evry' (did you mean 'every'?); it has: share, every");
//! # Ok::<(), flashwise_core::options::OptionError>(())
//! ```

mod given;

use std::fmt;

use crate::quantity::{ByteSize, Duration, Share, ratio};

pub use given::Given;

/// The values that an option accepts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A real number within these bounds, inclusive. Percentages such as `25%` are shares of 1.
    Number(f64, f64),
    /// A number above 0, at most this one.
    Positive(f64),
    /// A whole number within these bounds, inclusive.
    Count(u64, u64),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A size in bytes within these bounds, inclusive, such as `64KiB`.
    Size(u64, u64),
    /// A size in bytes within these bounds, inclusive, that is a power of two.
    PowerOfTwo(u64, u64),
    /// A share from 0 to this one, such as `30%` or `0.3`.
    Share(f64),
    /// A duration in microseconds within these bounds, inclusive, such as `10min`.
    Duration(u64, u64),
    /// Any text.
    Text,
    /// Texts separated by commas.
    List,
}

/// Upper limit of numbers. Larger ones are mistakes, and far larger ones would overflow to infinity in sums.
const NUMBER_MAX: f64 = 1e15;

impl Kind {
    /// A number above 0.
    pub const POSITIVE: Kind = Kind::Positive(NUMBER_MAX);
    /// A number of at least 0.
    pub const NOT_NEGATIVE: Kind = Kind::Number(0.0, NUMBER_MAX);
    /// Any duration.
    pub const ANY_DURATION: Kind = Kind::Duration(0, i64::MAX as u64);
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Number(min, max) if *max >= NUMBER_MAX => write!(f, "a number of at least {min}"),
            Kind::Number(min, max) => write!(f, "a number from {min} to {max}"),
            Kind::Positive(max) if *max >= NUMBER_MAX => f.write_str("a number above 0"),
            Kind::Positive(max) => write!(f, "a number above 0, at most {max}"),
            Kind::Count(min, u64::MAX) => write!(f, "a whole number of at least {min}"),
            Kind::Count(min, max) => write!(f, "a whole number from {min} to {max}"),
            Kind::Choice(words) => f.write_str(&listed(words)),
            Kind::Size(min, u64::MAX) => write!(f, "a size in bytes of at least {}", ByteSize::new(*min)),
            Kind::Size(min, max) => {
                write!(f, "a size in bytes from {} to {}", ByteSize::new(*min), ByteSize::new(*max))
            }
            kind if *kind == Kind::ANY_DURATION => f.write_str("a duration such as 10ms or 15min"),
            Kind::Duration(min, max) => {
                write!(f, "a duration from {} to {}", Duration::from_us(*min), Duration::from_us(*max))
            }
            Kind::PowerOfTwo(min, max) => {
                write!(f, "a power of two from {} to {}", ByteSize::new(*min), ByteSize::new(*max))
            }
            Kind::Share(max) => {
                let max = Share::new(*max).unwrap_or(Share::WHOLE);
                write!(f, "a share from 0% to {max}, such as 30% or 0.3")
            }
            Kind::Text => write!(f, "text"),
            Kind::List => write!(f, "texts with commas between them"),
        }
    }
}

/// One option: a row in the documentation of its owner.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// The values that it accepts.
    pub kind: Kind,
    /// Its default; of `kind`, or empty for an option without a value.
    pub default: &'static str,
    /// Its effect, and the source of its default.
    pub meaning: &'static str,
}

impl Parameter {
    /// Returns a parameter; [`means`](Self::means) adds its meaning.
    pub const fn of(name: &'static str, kind: Kind, default: &'static str) -> Parameter {
        Parameter { name, kind, default, meaning: "" }
    }

    /// Returns the parameter with this meaning.
    pub const fn means(self, meaning: &'static str) -> Parameter {
        Parameter { meaning, ..self }
    }
}

/// An error in options.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)]
pub enum OptionError {
    #[error("unknown {what} '{name}'{}; expected one of: {}", suggestion(.near), .expected.join(", "))]
    UnknownName { what: &'static str, name: String, near: Option<&'static str>, expected: Vec<&'static str> },
    #[error("'{name}' is {is}, not a value of --{given}; use --{option} {name}")]
    OtherOption { name: String, is: &'static str, given: &'static str, option: &'static str },
    #[error("{owner} has no option '{name}'{}; {}", suggestion(.near), options_of(.expected))]
    UnknownOption { owner: String, name: String, near: Option<&'static str>, expected: Vec<&'static str> },
    #[error("{owner}: option '{name}' is given twice")]
    Repeated { owner: String, name: String },
    #[error("{owner}: found '{found}' where an option was expected, as in {owner}:key=value,key=value")]
    NotAnOption { owner: String, found: String },
    #[error("{owner}: {name}: {problem}")]
    BadValue { owner: String, name: String, problem: String },
}

impl OptionError {
    /// Returns the error of an invalid value of the option `name` of `owner`.
    pub fn bad_value(owner: &str, name: &str, found: impl Into<String>, expected: impl Into<String>) -> OptionError {
        let problem = format!("found '{}', expected {}", found.into(), expected.into());
        OptionError::BadValue { owner: owner.to_owned(), name: name.to_owned(), problem }
    }
}

/// Formats a question with the name that was probably meant, or nothing.
pub fn suggestion(near: &Option<&'static str>) -> String {
    near.map(|name| format!(" (did you mean '{name}'?)")).unwrap_or_default()
}

fn options_of(names: &[&str]) -> String {
    if names.is_empty() { "it has none".to_owned() } else { format!("it has: {}", names.join(", ")) }
}

/// Joins words: `a, b or c`.
pub fn listed(words: &[&str]) -> String {
    match words {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => words.concat(),
    }
}

/// Returns the meaning of one of `words`.
///
/// # Errors
/// A message that lists the words.
pub fn word<T: Copy>(found: &str, words: &[(&'static str, T)]) -> Result<T, String> {
    if let Some((_, meant)) = words.iter().find(|(word, _)| *word == found) {
        return Ok(*meant);
    }
    let words: Vec<&'static str> = words.iter().map(|(word, _)| *word).collect();
    Err(format!("found '{found}'{}, expected {}", did_you_mean(found, &words), listed(&words)))
}

/// Declares enums of values with names, which are those of all inputs and outputs. A variant is `Value "name",`.
#[macro_export]
macro_rules! words {
    ($(
        $(#[$about:meta])*
        $visibility:vis enum $name:ident { $($(#[$doc:meta])* $value:ident $text:literal,)* }
    )*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visibility enum $name {
            $($(#[$doc])* $value,)*
        }

        #[allow(dead_code)]
        impl $name {
            /// All values, in the order of their declaration.
            pub const ALL: [$name; [$($text),*].len()] = [$($name::$value),*];
            /// All names.
            pub const WORDS: [&'static str; [$($text),*].len()] = [$($text),*];
            /// All values by name.
            pub const NAMES: [(&'static str, $name); [$($text),*].len()] = [$(($text, $name::$value)),*];

            /// Returns the name.
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$value => $text,)*
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<$name, String> {
                $crate::options::word(text, &$name::NAMES)
            }
        }
    )*};
}

/// Finds the item of `table` that `text`, `name:key=value,key=value`, names. Returns it with the rest of the text, its
/// options. `name_of` gives the name of an item, which may be spelled as in [`is_called`]. Errors call the kind of item
/// `what`.
pub fn named<'a, T>(
    what: &'static str,
    text: &'a str,
    mut table: impl Iterator<Item = T> + Clone,
    name_of: impl Fn(&T) -> &'static str,
) -> Result<(T, &'a str), OptionError> {
    let (name, options) = text.split_once(':').unwrap_or((text, ""));
    let names = table.clone();
    table.find(|item| is_called(name, name_of(item))).map(|item| (item, options)).ok_or_else(|| {
        let expected: Vec<_> = names.map(|item| name_of(&item)).collect();
        let near = nearest(name, &expected);
        OptionError::UnknownName { what, name: name.to_owned(), near, expected }
    })
}

/// True if `found` is a valid spelling of `name`: in upper or lower case, with or without its hyphens.
pub fn is_called(found: &str, name: &str) -> bool {
    let letters = |text: &str| {
        text.chars().filter(|&letter| letter != '-').map(|letter| letter.to_ascii_lowercase()).collect::<String>()
    };
    letters(found) == letters(name)
}

/// Returns the name among `names` that `found` was probably meant to be.
pub fn nearest(found: &str, names: &[&'static str]) -> Option<&'static str> {
    let found = found.to_lowercase();
    let distance = |name: &&&'static str| strsim::damerau_levenshtein(&found, name);
    let near = names.iter().min_by_key(distance)?;
    (distance(&near) <= 1 + found.len() / 3).then_some(*near)
}

/// Formats a question with the name among `names` that was probably meant, or nothing.
pub fn did_you_mean(found: &str, names: &[&'static str]) -> String {
    suggestion(&nearest(found, names))
}

/// Values for the parameters of one owner, checked against their kinds.
#[derive(Clone, Debug, Default)]
pub struct Options {
    parameters: &'static [Parameter],
    given: Vec<(&'static str, String)>,
}

impl Options {
    /// Parses `key=value,key=value` for `owner`, whose options are `parameters`. An empty text gives the defaults.
    pub fn parse(owner: &str, parameters: &'static [Parameter], text: &str) -> Result<Options, OptionError> {
        let mut given: Vec<(&'static str, String)> = Vec::new();
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(OptionError::NotAnOption { owner: owner.to_owned(), found: pair.to_owned() });
            };
            let Some(parameter) = parameters.iter().find(|parameter| parameter.name == name) else {
                let expected: Vec<_> = parameters.iter().map(|parameter| parameter.name).collect();
                let near = nearest(name, &expected);
                let (owner, name) = (owner.to_owned(), name.to_owned());
                return Err(OptionError::UnknownOption { owner, name, near, expected });
            };
            if given.iter().any(|(earlier, _)| *earlier == name) {
                return Err(OptionError::Repeated { owner: owner.to_owned(), name: name.to_owned() });
            }
            if let Err(problem) = Given::from(value).check(parameter.kind) {
                return Err(OptionError::BadValue { owner: owner.to_owned(), name: name.to_owned(), problem });
            }
            given.push((parameter.name, value.to_owned()));
        }
        Ok(Options { parameters, given })
    }

    /// Returns the defaults of `parameters`.
    pub fn default_of(parameters: &'static [Parameter]) -> Options {
        Options { parameters, given: Vec::new() }
    }

    /// Returns these options of `owner` with another value of option `name`.
    ///
    /// # Errors
    /// There is no such option, or it does not accept the value.
    pub fn with(&self, owner: &str, name: &str, value: &str) -> Result<Options, OptionError> {
        let Options { parameters, given } = Options::parse(owner, self.parameters, &format!("{name}={value}"))?;
        let (mut all, is_same) = (self.given.clone(), |(earlier, _): &(&str, String)| *earlier == name);
        match all.iter().position(is_same) {
            Some(at) => all.splice(at..=at, given).for_each(drop),
            None => all.extend(given),
        }
        Ok(Options { parameters, given: all })
    }

    /// Returns the value of option `name`, given or default. Panics if there is no such parameter.
    pub fn text(&self, name: &str) -> &str {
        if let Some((_, value)) = self.given.iter().find(|(given, _)| *given == name) {
            return value;
        }
        let parameter = self.parameters.iter().find(|parameter| parameter.name == name);
        parameter.unwrap_or_else(|| panic!("no parameter '{name}' is declared")).default
    }

    /// Returns the value of a [`Kind::Number`] option.
    pub fn number(&self, name: &str) -> f64 {
        ratio(self.text(name)).unwrap_or_else(|| panic!("the default of '{name}' is a number"))
    }

    /// Returns the value of a [`Kind::Count`] option.
    pub fn count(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or_else(|_| panic!("the default of '{name}' is a whole number"))
    }

    /// Returns the value of a [`Kind::Size`] option, in bytes.
    pub fn size_bytes(&self, name: &str) -> u64 {
        self.text(name).parse().map(ByteSize::bytes).unwrap_or_else(|_| panic!("the default of '{name}' is a size"))
    }

    /// Returns the value of a [`Kind::Duration`] option, in microseconds.
    pub fn duration_us(&self, name: &str) -> u64 {
        self.text(name).parse().map(Duration::us).unwrap_or_else(|_| panic!("the default of '{name}' is a duration"))
    }

    /// True if option `name` has a value: given, or a default that is not empty.
    pub fn has(&self, name: &str) -> bool {
        !self.text(name).is_empty()
    }

    /// True if option `name` was given.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| *given == name)
    }
}

impl fmt::Display for Options {
    /// Formats the given options as they are parsed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.given.iter().map(|(name, value)| format!("{name}={value}")).collect();
        f.write_str(&pairs.join(","))
    }
}
