//! Structure of tests: one binary for the integration tests of a crate, no modules named by a path, and no pauses.

use std::collections::{BTreeMap, BTreeSet};

use super::source::Source;
use super::{assert_mended, files, project, sources};

/// Returns the crate folder and the path inside `tests` of the file at `path`.
fn in_tests(path: &str) -> Option<(&str, &str)> {
    path.split_once("/tests/").filter(|(folder, _)| !folder.contains("/src"))
}

/// Returns the name of an integration test that cargo detects in a crate's `tests`: a file, or a folder with a
/// `main.rs`.
fn found_by_cargo(inside: &str) -> Option<&str> {
    match inside.split_once('/') {
        None => inside.strip_suffix(".rs"),
        Some((folder, "main.rs")) => Some(folder),
        Some(_) => None,
    }
}

/// Returns the names in the `[[test]]` tables of a manifest.
fn declared(manifest: &str) -> BTreeSet<String> {
    let tables = manifest.split("\n[").filter_map(|table| table.strip_prefix("[test]]"));
    let name = |table: &str| {
        let value = table.lines().find_map(|line| line.strip_prefix("name = "))?;
        Some(value.trim_matches('"').to_owned())
    };
    tables.filter_map(name).collect()
}

/// Each binary is linked with all its dependencies, which takes longer than most tests.
#[test]
fn a_crate_has_one_binary_of_integration_tests() {
    const TO_BE_MENDED: &[&str] = &[];
    let files = files();
    let mut binaries: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for path in &files {
        if let Some((folder, inside)) = in_tests(path) {
            binaries.entry(folder).or_default().extend(found_by_cargo(inside).map(str::to_owned));
        }
        if let Some(folder) = path.strip_suffix("/Cargo.toml") {
            let manifest = std::fs::read_to_string(project().join(path)).unwrap();
            binaries.entry(folder).or_default().extend(declared(&manifest));
        }
    }
    assert!(binaries["crates/core"].contains("core"), "{binaries:?}");
    let many = binaries.iter().filter(|(_, names)| names.len() > 1).map(|(folder, _)| (*folder).to_owned());
    assert_mended("crates with more than one binary of integration tests", &many.collect(), TO_BE_MENDED);
}

/// A filter that names no test runs none, and succeeds.
#[test]
fn every_filter_of_the_makefile_names_a_test() {
    let read = |path: &str| std::fs::read_to_string(project().join(path)).unwrap();
    let tests: Vec<String> = files().iter().filter(|path| path.ends_with(".rs")).map(|path| read(path)).collect();
    let makefile = read("Makefile");
    let arguments = makefile.lines().filter_map(|line| Some(line.split_once("cargo test ")?.1.split_once(" -- ")?.1));
    let filters: Vec<&str> = arguments.flat_map(str::split_whitespace).filter(|word| word.contains("::")).collect();
    assert!(filters.len() > 8, "{filters:?}");
    for filter in filters {
        let (module, name) = filter.rsplit_once("::").unwrap();
        let module = module.rsplit("::").next().unwrap();
        let names = [format!("#[test]\nfn {name}"), format!("mod {module};")];
        let is_named = |text: &String| tests.iter().any(|source| source.contains(text));
        assert!(names.iter().skip(usize::from(name.is_empty())).all(is_named), "no test is called {filter}");
    }
}

/// Cargo ignores a file in `tests` without a `mod` line, and the tests in it.
#[test]
fn every_file_of_tests_is_a_module_of_a_binary() {
    /// The program that runs in the guest of the test with power cuts.
    const PROGRAMS: [&str; 1] = ["crates/cli/tests/cli/power_cuts/guest.rs"];
    let sources = sources();
    let declared: BTreeSet<_> = sources.iter().flat_map(Source::declared_files).map(|path| plain(&path)).collect();
    let is_module = |source: &&Source| {
        in_tests(&source.path).is_some_and(|(_, inside)| found_by_cargo(inside).is_none())
            && !PROGRAMS.contains(&source.path.as_str())
    };
    let modules: Vec<_> = sources.iter().filter(is_module).collect();
    assert!(modules.len() > 100, "{} modules", modules.len());
    let undeclared: Vec<_> =
        modules.iter().map(|source| &source.path).filter(|path| !declared.contains(*path)).collect();
    assert!(undeclared.is_empty(), "no `mod` line declares {undeclared:#?}");
}

/// Returns `path` without its steps upwards.
fn plain(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

/// A file named by a path is compiled once for each crate that names it, and editors see it in only one of them.
#[test]
fn no_module_is_named_by_a_path() {
    /// Each file with the number of its modules named by a path.
    const TO_BE_MENDED: &[&str] = &[];
    assert_mended("modules named by a path", &counted(sources().iter(), Source::named_files), TO_BE_MENDED);
}

/// A pause is too long on a fast machine and too short on a slow one: a test waits for a condition.
#[test]
fn no_test_sleeps() {
    /// Each file with the number of its pauses: the guest's workload pauses, so that the power also fails long after a
    /// flush.
    const PAUSES: &[&str] = &["crates/cli/tests/cli/power_cuts/guest.rs: 1"];
    let tests = sources().iter().filter(|source| in_tests(&source.path).is_some());
    assert_mended("pauses in tests", &counted(tests, Source::sleeps), PAUSES);
}

/// Returns the files with a positive `count`, with that number.
fn counted<'a>(sources: impl Iterator<Item = &'a Source>, count: impl Fn(&Source) -> usize) -> BTreeSet<String> {
    let counts = sources.map(|source| (&source.path, count(source)));
    counts.filter(|(_, count)| *count > 0).map(|(path, count)| format!("{path}: {count}")).collect()
}

#[test]
fn binaries_paths_and_pauses_are_found() {
    let manifest = "[package]\nname = \"x\"\n\n[[test]]\nname = \"a\"\nharness = false\n\n[[example]]\nname = \
        \"b\"\n\n[[test]]\nname = \"c\"\n";
    assert_eq!(declared(manifest).into_iter().collect::<Vec<_>>(), ["a", "c"]);
    let found = ["a.rs", "b/main.rs", "b/mod.rs", "files/a.csv"].map(found_by_cargo);
    assert_eq!(found, [Some("a"), Some("b"), None, None]);
    assert_eq!(in_tests("crates/x/tests/b/main.rs"), Some(("crates/x", "b/main.rs")));
    assert_eq!((in_tests("tests/zoned/run"), in_tests("crates/x/src/y/tests/z.rs")), (None, None));
    assert_eq!(plain("crates/x/tests/../../y/tests/z.rs"), "crates/y/tests/z.rs");
    let text = "#[path = \"z.rs\"]\nmod z;\nfn f() { sleep(A); thread::sleep(B); g(\"sleep(C)\"); } // sleep(D)";
    let source = Source::new("crates/x/tests/x.rs".to_owned(), text);
    assert_eq!((source.named_files(), source.sleeps()), (1, 2));
}
