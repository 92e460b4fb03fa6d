//! Checks the structure of the project. Files do not use each other in circles, and are not too long. Every file is
//! declared where editors and rustfmt look. No list of policies duplicates their table, no error repeats its cause, and
//! every path in the documentation exists. Prose is plain English. Tests are linked once for each crate, and the
//! README's first command does not compile more crates than the limit.
//!
//! Known exceptions are listed in `TO_BE_MENDED` of each test. These lists only shrink: a test also fails if an entry
//! is no longer needed.

mod circles;
mod errors;
mod events;
mod prose;
mod source;
mod test_binaries;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use flashwise_core::policy;
use source::Source;

/// Returns the folder of the whole project.
fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns all files in the project's folders, by their path in the project, except hidden files and those that git
/// ignores.
fn files() -> Vec<String> {
    fn walk(folder: &Path, inside: &str, found: &mut Vec<String>) {
        let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(Result::unwrap).collect();
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name().into_string().unwrap();
            let path = if inside.is_empty() { name.clone() } else { format!("{inside}/{name}") };
            let ignored = ["target", "corpus", "artifacts"].contains(&name.as_str()) || name.starts_with('.');
            if entry.file_type().unwrap().is_dir() {
                if !ignored {
                    walk(&entry.path(), &path, found);
                }
            } else {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&project(), "", &mut found);
    assert!(found.len() > 300, "{} files are too few to be the project", found.len());
    found
}

/// Returns the Rust files of the project, read once for all tests.
fn sources() -> &'static [Source] {
    static SOURCES: OnceLock<Vec<Source>> = OnceLock::new();
    let of = |path: &String| Source::new(path.clone(), &std::fs::read_to_string(project().join(path)).unwrap());
    SOURCES.get_or_init(|| files().iter().filter(|path| path.ends_with(".rs")).map(of).collect())
}

/// Fails unless the exceptions `found` are those in `to_be_mended`.
fn assert_mended(what: &str, found: &BTreeSet<String>, to_be_mended: &[&str]) {
    let known: BTreeSet<String> = to_be_mended.iter().map(|entry| (*entry).to_owned()).collect();
    let new: Vec<_> = found.difference(&known).collect();
    assert!(new.is_empty(), "{what}: {new:#?}");
    let mended: Vec<_> = known.difference(found).collect();
    assert!(mended.is_empty(), "mended, to be taken off the list: {mended:#?}");
}

/// Files may use each other in one direction only. A module and its submodules may use each other.
#[test]
fn files_do_not_use_each_other_in_circles() {
    /// A circle is its files in alphabetical order, each by its path inside the crate's `src`.
    const TO_BE_MENDED: &[&str] = &[];
    let sources = sources();
    let crates: BTreeSet<_> = sources.iter().filter_map(Source::crate_folder).collect();
    assert!(crates.len() >= 5, "{crates:?}");
    let of = |folder: &&str| {
        let inside: Vec<_> = sources.iter().filter(|source| source.crate_folder() == Some(folder)).collect();
        circles::circles(&inside)
    };
    assert_mended("files in a circle", &crates.iter().flat_map(of).collect(), TO_BE_MENDED);
}

/// Unit tests at a file's end do not count.
#[test]
fn no_file_has_more_than_600_lines() {
    const LINES_MAX: usize = 600;
    const TO_BE_MENDED: &[&str] = &[];
    let sources = sources();
    let long = sources.iter().filter(|source| source.lines > LINES_MAX).map(|source| source.path.clone());
    assert_mended("files of more than 600 lines", &long.collect(), TO_BE_MENDED);
}

/// A name that many types share says little about each. Stubs of absent features have the names of their types.
#[test]
fn no_name_has_more_than_three_types() {
    const TYPES_MAX: usize = 3;
    /// Names above this limit. The numbers may only fall.
    const TO_BE_MENDED: [(&str, usize); 22] = [
        ("About", 4),
        ("Answer", 4),
        ("Budget", 5),
        ("Entry", 5),
        ("Header", 4),
        ("Info", 4),
        ("Kept", 4),
        ("Kind", 5),
        ("Limits", 4),
        ("Log", 4),
        ("Operation", 4),
        ("Origin", 4),
        ("Places", 5),
        ("Regions", 4),
        ("Request", 4),
        ("Run", 4),
        ("Settings", 4),
        ("State", 4),
        ("Step", 5),
        ("Table", 4),
        ("Use", 4),
        ("Workload", 4),
    ];
    let mut counts = BTreeMap::new();
    let is_stub_or_test = |source: &&Source| source.path.ends_with("/missing.rs") || source.path.contains("/tests");
    let sources = sources().iter().filter(|source| source.crate_folder().is_some() && !is_stub_or_test(source));
    sources.flat_map(Source::defined).for_each(|name| *counts.entry(name).or_insert(0) += 1);
    counts.retain(|_, count| *count > TYPES_MAX);
    assert_eq!(counts, BTreeMap::from(TO_BE_MENDED), "names of more than three types");
}

/// A type whose methods are in many files has no parts that own their fields.
#[test]
fn no_type_has_inherent_impls_in_more_than_three_files() {
    const FILES_MAX: usize = 3;
    /// Types above this limit, each with its crate, and its folder if the crate has several of the name, aliases
    /// included. The numbers may only fall.
    const TO_BE_MENDED: [(&str, usize); 1] = [("crates/core LogCache", 6)];
    let (mut files, mut definitions) = (BTreeMap::new(), BTreeMap::new());
    for source in sources() {
        let Some(folder) = source.crate_folder() else { continue };
        let of_type = |name| (folder, name);
        source
            .implemented()
            .into_iter()
            .for_each(|name| files.entry(of_type(name)).or_insert_with(Vec::new).push(source));
        let names = source.defined().into_iter().chain(source.aliases());
        names.for_each(|name| *definitions.entry(of_type(name)).or_insert(0) += 1);
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for ((folder, name), files) in files {
        let is_unique = definitions.get(&(folder, name)) == Some(&1);
        for source in files {
            let part = source.module.iter().flatten().next().filter(|_| !is_unique);
            let named = [folder, part.map_or("", String::as_str), name];
            let named: Vec<&str> = named.into_iter().filter(|word| !word.is_empty()).collect();
            *counts.entry(named.join(" ")).or_default() += 1;
        }
    }
    counts.retain(|_, count| *count > FILES_MAX);
    let known = TO_BE_MENDED.map(|(name, count)| (name.to_owned(), count));
    assert_eq!(counts, BTreeMap::from(known), "types with inherent impls in too many files");
}

/// Macros declare no modules: rustfmt and editors would not see their files.
/// Lines of code above 120 columns: macros, attributes and raw strings that rustfmt does not break. This may only fall.
const LONG_LINES: usize = 95;

#[test]
fn no_comment_is_above_120_columns() {
    let (mut comments, mut code) = (Vec::new(), 0);
    for path in files().into_iter().filter(|path| path.ends_with(".rs")) {
        let text = std::fs::read_to_string(project().join(&path)).unwrap();
        for (line, number) in text.lines().zip(1..).filter(|(line, _)| line.chars().count() > 120) {
            // Docstrings of the Python package have long lines of parameters.
            if line.trim_start().starts_with("//") && !path.starts_with("crates/python/") {
                comments.push(format!("{path}:{number}"));
            } else {
                code += 1;
            }
        }
    }
    assert!(comments.is_empty(), "{comments:?}");
    assert!(code <= LONG_LINES, "{code} lines above 120 columns, at most {LONG_LINES}");
}

#[test]
fn every_file_is_a_module_that_is_declared_plainly() {
    let sources = sources();
    let declared: BTreeSet<_> = sources.iter().flat_map(Source::declared_files).collect();
    let is_module = |source: &&Source| source.path.contains("/src/") && source.module != Some(Vec::new());
    let modules: Vec<_> = sources.iter().filter(is_module).collect();
    assert!(modules.len() > 150, "{} modules", modules.len());
    let undeclared = modules.into_iter().filter(|source| !declared.contains(&source.path));
    let undeclared: Vec<_> = undeclared.map(|source| &source.path).filter(|path| !path.contains("/src/bin/")).collect();
    assert!(undeclared.is_empty(), "no `mod` line declares {undeclared:#?}");
}

/// A list of all policies must be generated from the table, so that it contains new policies.
#[test]
fn no_list_has_the_names_of_all_policies() {
    /// Another test checks that each policy has its model.
    const MODELS: &str = "crates/core/tests/core/models/mod.rs";
    const TO_BE_MENDED: &[&str] = &[];
    let all: BTreeSet<_> = policy::online().map(|info| info.name).collect();
    let lists_all = |source: &Source| source.lists().iter().any(|names| all.iter().all(|name| names.contains(*name)));
    let sources = sources();
    let lists =
        sources.iter().filter(|source| source.path != MODELS && lists_all(source)).map(|source| source.path.clone());
    assert_mended("lists of policies beside policy::POLICIES", &lists.collect(), TO_BE_MENDED);
}

/// An error is displayed with its causes, so a text that contains its cause would repeat it.
#[test]
fn no_error_repeats_its_cause() {
    const TO_BE_MENDED: &[&str] = &[];
    let of = |path: &String| {
        let text = std::fs::read_to_string(project().join(path)).unwrap();
        let twice = errors::said_twice(&text).into_iter();
        twice.map(|said| format!("{path}: {said}")).collect::<Vec<_>>()
    };
    let files = files().into_iter().filter(|path| path.contains("/src/") && path.ends_with(".rs"));
    assert_mended("errors that say their cause twice", &files.flat_map(|path| of(&path)).collect(), TO_BE_MENDED);
}

/// Logs as JSON are read by programs: each message of the server has an event, and docs/log.md lists its level and
/// fields.
#[test]
fn every_message_of_the_server_has_a_documented_event() {
    const TO_BE_MENDED: &[&str] = &[];
    let mut events = BTreeMap::new();
    let mut without = BTreeSet::new();
    let is_of_server = |path: &str| {
        ["engine", "server", "storage"].iter().any(|name| path.starts_with(&format!("crates/{name}/src/")))
    };
    for path in files().iter().filter(|path| is_of_server(path) || *path == "crates/cli/src/live/serve.rs") {
        let text = std::fs::read_to_string(project().join(path)).unwrap();
        without.extend(events::collect(&text, &mut events).into_iter().map(|call| format!("{path}: {call}")));
    }
    assert_mended("messages without an event", &without, TO_BE_MENDED);
    assert!(events.len() > 50, "{} events are too few to be all", events.len());
    let documented = events::documented(&std::fs::read_to_string(project().join("docs/log.md")).unwrap());
    for (event, found) in &events {
        assert_eq!(documented.get(event), Some(found), "docs/log.md: {event}");
    }
    let names: BTreeSet<_> = documented.keys().collect();
    assert_eq!(names, events.keys().collect(), "docs/log.md has events that no message has");
}

/// Returns the names in backquotes and the links of a document that look like paths of the project.
fn paths(markdown: &str) -> BTreeSet<String> {
    let mut fenced = false;
    let mut text = String::new();
    for line in markdown.lines() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if !fenced && !fence {
            text.push_str(line);
            text.push(' ');
        }
    }
    let quoted = text.split('`').skip(1).step_by(2);
    let linked = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#', ' ']).next());
    let is_path = |path: &&str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        let is_file = [".rs", ".md", ".toml", ".svg", ".service"].iter().any(|end| path.ends_with(end));
        let folders = ["crates/", "docs/", "benches/", "fuzz/", "packaging/", "tests/", "traces/"];
        let is_folder = folders.iter().any(|folder| path.starts_with(folder)) || path.contains("/src/");
        (is_file || is_folder) && path.bytes().all(plain)
    };
    quoted.chain(linked).filter(is_path).map(str::to_owned).collect()
}

/// A path may omit its first folders: `sim/src/trace.rs` and `trace.rs` are found below `crates`. `NAME.rs` stands for
/// any file there.
#[test]
fn every_path_in_the_documentation_exists() {
    /// Files that commands in the documentation create, or that git ignores.
    const MADE: &[&str] = &[
        "docs/durability.md: fuzz/artifacts",
        "docs/durability.md: fuzz/corpus",
        "docs/install.md: /etc/flashwise/flashwise.toml",
        "docs/lifetime.md: lifetime.toml",
    ];
    const TO_BE_MENDED: &[&str] = &[];
    let files = files();
    let mut places: BTreeSet<String> = BTreeSet::new();
    for file in &files {
        // Each file and each of its folders, by every suffix of its path.
        let parts: Vec<_> = file.split('/').collect();
        for end in 1..=parts.len() {
            places.extend((0..end).map(|start| parts[start..end].join("/")));
        }
    }
    let exists = |path: &str| {
        let path = path.trim_start_matches("../").trim_end_matches('/').trim_end_matches("/NAME.rs");
        places.contains(path)
    };
    let documents =
        files.iter().filter(|path| *path == "README.md" || path.starts_with("docs/") && path.ends_with(".md"));
    let mut missing = BTreeSet::new();
    let mut count = 0;
    for document in documents {
        let named = paths(&std::fs::read_to_string(project().join(document)).unwrap());
        count += named.len();
        missing.extend(named.iter().filter(|path| !exists(path)).map(|path| format!("{document}: {path}")));
    }
    assert!(count > 80, "{count} paths are too few to be all");
    missing.retain(|path| !MADE.contains(&path.as_str()));
    assert_mended("paths that do not exist", &missing, TO_BE_MENDED);
}

#[test]
fn paths_are_found_in_backquotes_and_links() {
    let markdown =
        "See `core/src/step.rs`, `Step` and [docs](docs/design.md#steps).\n```sh\ncat `docs/none.md`\n```\n`a/b c.rs`";
    assert_eq!(paths(markdown).into_iter().collect::<Vec<_>>(), ["core/src/step.rs", "docs/design.md"]);
}

/// The README's first command is the first contact of users with the project.
#[test]
fn the_first_command_of_the_readme_compiles_few_crates() {
    const CRATES_MAX: usize = 131;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = std::process::Command::new(cargo)
        .args("tree -p flashwise --no-default-features -e normal,build --prefix none --locked --offline".split(' '))
        // The result is the same on every machine.
        .args(["--target", "x86_64-unknown-linux-gnu"])
        .current_dir(project())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&tree.stderr);
    assert!(tree.status.success(), "run `cargo fetch --locked` if a dependency is missing: {errors}");
    let tree = String::from_utf8(tree.stdout).unwrap();
    let crates: BTreeSet<_> = tree.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    assert!(crates.iter().any(|name| name.starts_with("flashwise-core ")), "{crates:?}");
    assert!(crates.len() <= CRATES_MAX, "{} crates, at most {CRATES_MAX} are allowed: {crates:#?}", crates.len());
}

/// Every published crate includes the licences, and takes its addresses from the one place where they are filled in.
#[test]
fn every_published_crate_has_licences_and_addresses() {
    let files = files();
    let manifests = files.iter().filter(|path| path.starts_with("crates/") && path.ends_with("/Cargo.toml"));
    let published: Vec<_> = manifests
        .map(|path| (path, std::fs::read_to_string(project().join(path)).unwrap()))
        .filter(|(_, manifest)| manifest.contains("repository.workspace = true"))
        .collect();
    assert!(published.len() >= 10, "{published:?}");
    for (path, manifest) in published {
        assert!(manifest.contains("documentation.workspace = true"), "{path}");
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            assert!(files.contains(&path.replace("Cargo.toml", licence)), "{path}: {licence} is missing beside it");
        }
    }
}
