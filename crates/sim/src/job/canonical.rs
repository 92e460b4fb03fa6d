//! One text for all jobs of the same meaning, independent of spelling: the identity of a row.

use flashwise_core::options::{Kind, Options, Parameter};
use flashwise_core::quantity::Share;

use super::{Admission, Job};
use crate::endurance::Algorithm;

impl Job {
    /// Returns the job's words in one spelling. Sizes are numbers with one unit, and policies and rules have only
    /// non-default options, in the order of their tables.
    pub fn canonical(&self) -> String {
        let word = |(name, text): (&'static str, String)| {
            let canonical = match name {
                "policy" => self.policy.as_ref().map(of_algorithm),
                "size" => self.size.as_ref().map(|size| size.canonical()),
                "admission" => self.admission.as_ref().map(of_admission),
                _ => None,
            };
            format!("{name}={}", canonical.unwrap_or(text))
        };
        self.words().map(word).collect::<Vec<_>>().join(" ")
    }
}

fn of_algorithm(algorithm: &Algorithm) -> String {
    of_options(algorithm.info().name, algorithm.info().parameters, algorithm.options())
}

fn of_admission(admission: &Admission) -> String {
    match admission.rule() {
        Some(rule) if !rule.is_relative() => {
            of_options(rule.spec().info().name, rule.spec().info().parameters, rule.spec().options())
        }
        _ => admission.to_string(),
    }
}

/// Returns a name with options from `parameters`, in one spelling.
fn of_options(name: &str, parameters: &'static [Parameter], options: &Options) -> String {
    let defaults = Options::default_of(parameters);
    let said = |parameter: &Parameter| {
        let [value, default] = [options, &defaults].map(|options| value(options, parameter));
        (value != default).then(|| format!("{}={value}", parameter.name))
    };
    let said: Vec<String> = parameters.iter().filter_map(said).collect();
    if said.is_empty() { name.to_owned() } else { format!("{name}:{}", said.join(",")) }
}

/// Returns the value of an option in one spelling.
fn value(options: &Options, Parameter { name, kind, .. }: &Parameter) -> String {
    let text = options.text(name);
    if text.is_empty() {
        return String::new();
    }
    match kind {
        Kind::Number(..) | Kind::Positive(_) => options.number(name).to_string(),
        Kind::Count(..) => options.count(name).to_string(),
        Kind::Size(..) | Kind::PowerOfTwo(..) => options.size_bytes(name).to_string(),
        Kind::Share(_) => text.parse().map_or_else(|_| text.to_owned(), |share: Share| share.of_one().to_string()),
        Kind::Duration(..) => options.duration_us(name).to_string(),
        Kind::Choice(_) | Kind::Text | Kind::List => text.to_owned(),
    }
}
