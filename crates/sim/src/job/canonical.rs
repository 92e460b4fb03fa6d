//! One text for all jobs of the same meaning, independent of spelling: the identity of a row.

use flashwise_core::options::{Kind, Options, Parameter};
use flashwise_core::quantity::Share;

use super::{Admission, Choice, Job};

impl Job {
    /// Returns the job's words in one spelling. Sizes are numbers with one unit, and policies and rules have only non-default options, in
    /// the order of their tables.
    pub fn canonical(&self) -> String {
        let word = |(name, text): (&'static str, String)| {
            let canonical = match name {
                "policy" => self.policy.as_ref().map(of_choice),
                "size" => self.size.as_ref().map(|size| size.canonical()),
                "admission" => self.admission.as_ref().map(of_admission),
                _ => None,
            };
            format!("{name}={}", canonical.unwrap_or(text))
        };
        self.words().map(word).collect::<Vec<_>>().join(" ")
    }
}

fn of_choice(choice: &Choice) -> String {
    let text = choice.to_string();
    match choice {
        Choice::Policy(policy) => of_options(&text, policy.info().parameters),
        Choice::Algorithm(algorithm) => of_options(&text, algorithm.info().parameters),
    }
}

fn of_admission(admission: &Admission) -> String {
    let text = admission.to_string();
    admission.rule().map_or(text.clone(), |rule| of_options(&text, rule.spec().info().parameters))
}

/// Returns `text`, a name with options from `parameters`, in one spelling.
fn of_options(text: &str, parameters: &'static [Parameter]) -> String {
    let (name, options) = text.split_once(':').unwrap_or((text, ""));
    // A rule's share of the trace's time is not one of its options.
    let Ok(options) = Options::parse(name, parameters, options) else { return text.to_owned() };
    let defaults = Options::default_of(parameters);
    let said = |parameter: &Parameter| {
        let [value, default] = [&options, &defaults].map(|options| value(options, parameter));
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
        Kind::Number(..) => options.number(name).to_string(),
        Kind::Count(..) => options.count(name).to_string(),
        Kind::Size(..) | Kind::PowerOfTwo(..) => options.size_bytes(name).to_string(),
        Kind::Share(_) => text.parse().map_or_else(|_| text.to_owned(), |share: Share| share.of_one().to_string()),
        Kind::Duration(..) => options.duration_us(name).to_string(),
        Kind::Choice(_) | Kind::Text | Kind::List => text.to_owned(),
    }
}
