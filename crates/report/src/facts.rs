//! The five figures at the top of an answer: the purchase, its hits, its price, its life, and the certainty.

use serde::Serialize;

use crate::answer::certainty::Certainty;
use crate::answer::purchase::Purchase;

/// A figure at the top of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// Its name, such as `Buy`.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// A few words about the value.
    pub note: String,
}

/// Returns the five figures of a purchase that `holds` a cache, with its hits and its life, each a value and a note.
pub fn facts(
    bought: &Purchase,
    holds: &str,
    hits: (&str, &str),
    lasts: (&str, &str),
    certainty: &Certainty,
) -> Vec<Fact> {
    let trace = certainty.reasons.first().map_or_else(String::new, |(_, reason)| {
        reason.split_once(':').map_or(reason.as_str(), |(first, _)| first).to_owned()
    });
    let fact = |name, value: String, note: &str| Fact { name, value, note: note.to_owned() };
    vec![
        fact("Buy", bought.name.clone(), holds),
        fact("Hits", hits.0.to_owned(), hits.1),
        fact("Costs", bought.price(), "at assumed prices"),
        fact("Lasts", lasts.0.to_owned(), lasts.1),
        fact("Certainty", certainty.verdict.to_owned(), &trace),
    ]
}
