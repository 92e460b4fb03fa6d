//! References of weighted flash usage effectiveness: M+, or H if every block is an erase unit.

use super::{Case, Run};
use crate::endurance::{Algorithm, Endurance, Method, Placement};

/// Returns the algorithm to compare with.
fn reference_of(algorithm: &Algorithm) -> &'static str {
    match algorithm.method() {
        Method::Offline(offline) if offline.placement == Placement::UnitCaching => "h",
        _ => "m+",
    }
}

fn is_reference(case: &Case, of: &Case) -> bool {
    let name = case.algorithm.to_string();
    name == reference_of(&of.algorithm) && (case.trace, case.capacity_blocks) == (of.trace, of.capacity_blocks)
}

/// Appends the missing reference cases.
pub fn with_references(mut cases: Vec<Case>) -> Vec<Case> {
    for at in 0..cases.len() {
        let case = cases[at].clone();
        if !cases.iter().any(|other| is_reference(other, &case)) {
            let algorithm = Algorithm::parse(reference_of(&case.algorithm)).expect("a reference is an algorithm");
            cases.push(Case { algorithm, admission: None, ..case });
        }
    }
    cases
}

/// Returns the reference of `run`, if it is among `runs`.
pub fn reference<'a>(runs: &'a [Run], run: &Run) -> Option<&'a Endurance> {
    let reference = runs.iter().find(|other| is_reference(&other.case, &run.case))?;
    reference.flash.as_ref().map(|flash| &flash.counts)
}
