//! What weighted flash usage effectiveness compares with: M+, and H where every block is an erase unit.

use super::{Case, Run};
use crate::endurance::{Algorithm, Counts, Method, Placement};

/// The algorithm that an algorithm is compared with.
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

/// The cases, and behind them those that they are to be compared with and that are not there yet.
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

/// What `run` is compared with, if it is among `runs`.
pub fn reference<'a>(runs: &'a [Run], run: &Run) -> Option<&'a Counts> {
    let reference = runs.iter().find(|other| is_reference(&other.case, &run.case))?;
    reference.flash.as_ref().map(|flash| &flash.counts)
}
