//! Every command in the documentation runs as written and prints the shown output. Everything that it names exists.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use crate::common::{parts, project, succeed};
use tempfile::TempDir;

/// A fenced block: the text after its opening fence, and its lines.
struct Block {
    language: String,
    text: String,
}

fn blocks(markdown: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in markdown.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => open = Some(Block { language: language.to_owned(), text: String::new() }),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    blocks
}

/// Runs `script` where `flashwise` is the program that is tested; returns its standard output.
fn shell(folder: &TempDir, script: &str) -> String {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_flashwise"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut bash = Command::new("bash");
    let output =
        bash.args(["-euo", "pipefail", "-c", script]).current_dir(folder.path()).env("PATH", path).output().unwrap();
    let (out, err, code) = parts(output);
    assert_eq!((code, err.as_str()), (0, ""), "{script}");
    out
}

/// The documents, named from the project's folder.
pub fn documents() -> Vec<String> {
    let mut documents: Vec<String> =
        ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "benches/README.md", "traces/README.md"]
            .map(String::from)
            .into();
    for folder in ["docs", "docs/guides", "docs/results"] {
        for entry in std::fs::read_dir(project().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") {
                documents.push(format!("{folder}/{name}"));
            }
        }
    }
    documents
}

/// Runs the commands of a document in their own folder and compares their output; returns the number of blocks.
fn run_document(name: &str) -> usize {
    let mut run = 0;
    let folder = TempDir::new().unwrap();
    for shared in ["docs", "traces"] {
        std::os::unix::fs::symlink(project().join(shared), folder.path().join(shared)).unwrap();
    }
    let markdown = std::fs::read_to_string(project().join(name)).unwrap();
    let mut printed = None;
    for block in blocks(&markdown) {
        match block.language.as_str() {
            "sh" => {
                printed = Some(shell(&folder, &block.text));
                run += 1;
            }
            "text" => {
                if let Some(printed) = printed.take() {
                    assert_eq!(block.text, printed, "{name}");
                }
            }
            _ => {}
        }
    }
    run
}

/// Blocks marked `sh ci` are the README's two commands, which CI runs. Blocks marked `sh` run here. Those of one
/// document run in order in one folder; two documents run concurrently. A `text` block after one shows its output.
#[test]
fn every_command_in_the_documentation_runs_as_written() {
    let documents = Mutex::new(documents().into_iter());
    let next = || documents.lock().unwrap().next();
    let run_all = || std::iter::from_fn(next).map(|name| run_document(&name)).sum::<usize>();
    let run: usize = thread::scope(|scope| {
        let other = scope.spawn(run_all);
        run_all() + other.join().unwrap()
    });
    assert!(run >= 6, "only {run} blocks of commands were found");
}

/// Returns the code spans in the prose of a document.
fn code_spans(markdown: &str) -> Vec<&str> {
    let mut spans = Vec::new();
    let mut fenced = false;
    for line in markdown.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            spans.extend(line.split('`').skip(1).step_by(2));
        }
    }
    spans
}

/// The targets of a document's links to files, without their anchors.
pub fn linked_files(markdown: &str) -> impl Iterator<Item = &str> {
    let targets = markdown.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let files = targets.map(|target| target.split('#').next().unwrap());
    files.filter(|file| !file.is_empty() && !file.contains("://"))
}

/// True if a code span is a path of this project: a source file, or a path in one of its folders. `NAME` stands for any
/// name.
fn is_path(span: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./".contains(letter);
    let folders = ["crates", "docs", "benches", "fuzz", "packaging", "tests", "traces"];
    // Fuzzing makes these two.
    let is_made_later = ["fuzz/corpus", "fuzz/artifacts"].contains(&span);
    span.chars().all(is_plain)
        && !span.contains("NAME")
        && !is_made_later
        && span.split_once('/').is_some_and(|(first, _)| folders.contains(&first) || span.ends_with(".rs"))
}

#[test]
fn every_path_that_the_documentation_names_exists() {
    let mut paths = 0;
    let mut missing = Vec::new();
    for name in documents() {
        let markdown = std::fs::read_to_string(project().join(&name)).unwrap();
        let folder = project().join(&name).parent().unwrap().to_owned();
        let named = code_spans(&markdown).into_iter().filter(|span| is_path(span)).map(|span| (span, project()));
        let linked = linked_files(&markdown).map(|file| (file, folder.clone()));
        for (path, from) in named.chain(linked) {
            paths += 1;
            if !from.join(path).exists() {
                missing.push(format!("{name}: {path}"));
            }
        }
    }
    assert!(missing.is_empty(), "expected files and folders, found none at: {missing:#?}");
    assert!(paths >= 100, "only {paths} paths were found");
}

/// The folder of a package of the workspace.
fn package(name: &str) -> PathBuf {
    project().join("crates").join(name.strip_prefix("flashwise-").unwrap_or("cli"))
}

fn has_test(package: &Path, test: &str) -> bool {
    let tests = package.join("tests");
    tests.join(format!("{test}.rs")).exists() || tests.join(test).join("main.rs").exists()
}

/// True if the tests of the binary `test` have the module that a filter such as `jobs::` begins with.
fn has_module(package: &Path, test: &str, filter: &str) -> bool {
    let module = filter.split("::").next().unwrap();
    let tests = package.join("tests").join(test);
    tests.join(format!("{module}.rs")).exists() || tests.join(module).join("mod.rs").exists()
}

/// Returns the first file or test in a command for developers that does not exist.
fn absent(command: &str) -> Option<String> {
    let words: Vec<&str> = command.split_whitespace().take_while(|word| *word != "--").collect();
    let after = |flag: &str| words.iter().position(|word| *word == flag).and_then(|at| words.get(at + 1)).copied();
    let absent = |what: &str, name: &str| Some(format!("{what} {name} in '{command}'"));
    match words.iter().find(|word| !word.contains('=')) {
        Some(&"make") => {
            let makefile = std::fs::read_to_string(project().join("Makefile")).unwrap();
            let target = *words.last().unwrap();
            let is_there = makefile.lines().any(|line| line.starts_with(&format!("{target}:")));
            if is_there { None } else { absent("make target", target) }
        }
        Some(&"cargo") if words.contains(&"test") => {
            let name = after("-p")?;
            let package = package(name);
            if !package.join("Cargo.toml").exists() {
                return absent("package", name);
            }
            let test = after("--test")?;
            if !has_test(&package, test) {
                return absent("test", test);
            }
            let filter = after(test).filter(|word| !word.starts_with('-') && !has_module(&package, test, word));
            filter.and_then(|filter| absent("module", filter))
        }
        Some(&"cargo") if words.contains(&"bench") => {
            let bench = after("--bench").filter(|bench| !project().join(format!("benches/{bench}.rs")).exists());
            bench.and_then(|bench| absent("benchmark", bench))
        }
        _ => None,
    }
}

/// Commands that take too long for this test name existing targets, packages and tests.
#[test]
fn commands_for_developers_name_existing_files_and_tests() {
    let mut commands = 0;
    for name in documents() {
        let markdown = std::fs::read_to_string(project().join(&name)).unwrap();
        let fenced = blocks(&markdown).into_iter().filter(|block| block.language == "console").map(|block| block.text);
        let fenced: Vec<String> = fenced.flat_map(|text| text.lines().map(String::from).collect::<Vec<_>>()).collect();
        for command in fenced.iter().map(String::as_str).chain(code_spans(&markdown)) {
            commands += usize::from(command.starts_with("cargo ") || command.contains("make "));
            assert_eq!(absent(command), None, "{name}");
        }
    }
    assert!(commands >= 15, "only {commands} commands were found");
    for command in [
        "make nothing",
        "cargo test -p flashwise-nothing",
        "cargo test -p flashwise --test nothing",
        "cargo test -p flashwise --test cli nothing::",
    ] {
        assert!(absent(command).is_some(), "{command}");
    }
    assert!(absent("cargo bench --bench nothing").is_some());
}

/// The words between double quotes that begin with `/`: paths in an example.
fn quoted_paths(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2).filter(|word| word.starts_with('/'))
}

/// Devices and tokens are files here; everything else is as in the example.
#[test]
fn every_example_configuration_is_accepted() {
    let mut accepted = 0;
    for entry in std::fs::read_dir(project().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let folder = TempDir::new().unwrap();
        let example = std::fs::read_to_string(&path).unwrap();
        for path in quoted_paths(&example) {
            let stand_in = folder.path().join(&path[1..]);
            std::fs::create_dir_all(stand_in.parent().unwrap()).unwrap();
            flashwise_testing::write_private(&stand_in, &path.replace('/', "-"));
            if path.starts_with("/dev/") {
                std::fs::File::options().write(true).open(&stand_in).unwrap().set_len(1 << 30).unwrap();
            }
        }
        let own = example.replace("\"/", &format!("\"{}/", folder.path().display()));
        std::fs::write(folder.path().join("example.toml"), own).unwrap();
        let accepts = succeed(folder.path(), &["serve", "--check-config", "example.toml"]);
        let served = example.matches("\n[[volume]]").count() + example.matches("\n[[pool]]").count();
        let lines = accepts.lines().filter(|line| line.starts_with("volume ") || line.starts_with("pool ")).count();
        assert!(served > 0 && lines == served, "{}: {accepts}", path.display());
        accepted += 1;
    }
    assert!(accepted >= 4, "only {accepted} configurations were found in examples");
}
