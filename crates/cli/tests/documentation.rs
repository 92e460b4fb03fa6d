//! Every command in the documentation runs as written, and prints what the documentation shows.

#![allow(clippy::unwrap_used)] // A test ends where something goes wrong.

mod common;

use std::process::Command;

use common::{parts, project};
use tempfile::TempDir;

/// A fenced block: what follows its opening fence, and its lines.
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

/// Blocks marked `sh ci` are the README's two commands, which the project's CI runs; blocks marked `sh` are run here, in order and
/// in one folder; a `text` block after one shows its output.
#[test]
fn every_command_in_the_documentation_runs_as_written() {
    let mut run = 0;
    let documents = [
        "README.md",
        "docs/admission.md",
        "docs/design.md",
        "docs/flashcache.md",
        "docs/lifetime.md",
        "docs/serve.md",
        "docs/wear.md",
        "benches/README.md",
        "traces/README.md",
    ];
    for name in documents {
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
    }
    assert!(run >= 6, "only {run} blocks of commands were found");
}
