//! Circles of files that use each other.

use std::collections::{BTreeMap, BTreeSet};

use super::source::Source;

/// Returns the circles among the files of one crate: the modules of each, in alphabetical order.
pub fn circles(sources: &[&Source]) -> Vec<String> {
    let modules: BTreeSet<&[String]> = sources.iter().filter_map(|source| source.module.as_deref()).collect();
    let mut uses: BTreeMap<&[String], BTreeSet<&[String]>> = BTreeMap::new();
    for source in sources {
        let Some(module) = source.module.as_deref().filter(|module| !is_of_tests(module)) else { continue };
        let used = source.paths.iter().filter_map(|path| used(module, path, &modules));
        // A module may use its submodules, and these may use it.
        let apart = |other: &&[String]| !other.starts_with(module) && !module.starts_with(other);
        uses.entry(module).or_default().extend(used.filter(apart));
    }
    let reached: BTreeMap<_, _> = uses.keys().map(|module| (*module, reached(module, &uses))).collect();
    let mut found = BTreeSet::new();
    for (module, others) in &reached {
        if others.contains(module) {
            let circle = others.iter().filter(|other| reached.get(*other).is_some_and(|back| back.contains(module)));
            found.insert(circle.map(|module| module.join("::")).collect::<Vec<_>>().join(" "));
        }
    }
    found.into_iter().collect()
}

fn is_of_tests(module: &[String]) -> bool {
    module.iter().any(|part| part == "tests")
}

/// Returns the module of the crate that defines `path` as seen from `module`: the innermost one on the path.
fn used<'a>(module: &[String], path: &[String], modules: &BTreeSet<&'a [String]>) -> Option<&'a [String]> {
    let mut full = match path[0].as_str() {
        "crate" => Vec::new(),
        "self" => module.to_vec(),
        "super" => module[..module.len() - 1].to_vec(),
        first => {
            // A path without a root starts at a child, or at another crate.
            let child = [module, &[first.to_owned()]].concat();
            return modules.get(&child[..]).copied();
        }
    };
    for part in &path[1..] {
        match part.as_str() {
            "super" => drop(full.pop()),
            part => full.push(part.to_owned()),
        }
    }
    (0..=full.len()).rev().find_map(|end| modules.get(&full[..end]).copied())
}

/// Returns everything that `module` uses, directly and indirectly.
fn reached<'a>(module: &'a [String], uses: &BTreeMap<&'a [String], BTreeSet<&'a [String]>>) -> BTreeSet<&'a [String]> {
    let mut found = BTreeSet::new();
    let mut open = vec![module];
    while let Some(next) = open.pop() {
        for other in uses.get(next).into_iter().flatten() {
            if found.insert(*other) {
                open.push(*other);
            }
        }
    }
    found
}

#[test]
fn a_circle_over_three_files_is_found_and_parents_are_none() {
    let file = |path: &str, text: &str| Source::new(format!("crates/x/src/{path}.rs"), text);
    let sources = [
        file("lib", "mod a; mod b; mod c; mod d;"),
        file("a", "use crate::b::B;"),
        file("b", "use super::c::{C, D};"),
        file("c/mod", "mod inner;\nfn f() { crate::a::f() }"),
        file("c/inner", "use super::C;\nuse crate::d::D;"),
        file("d", "use crate::a::A;"),
    ];
    assert_eq!(circles(&sources.iter().collect::<Vec<_>>()), ["a b c"]);
    assert_eq!(circles(&sources[..3].iter().collect::<Vec<_>>()), Vec::<String>::new());
}
