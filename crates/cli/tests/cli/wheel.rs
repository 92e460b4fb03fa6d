//! The Python package, built as a wheel and installed into its own virtual environment. Needs the `.venv` that
//! `run-tests` makes, and the packages that `make test-wheel` installs there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::common::{parts, project};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_flashwise");

/// Returns the standard output of a command, or its error.
fn output(command: &mut Command) -> Result<String, String> {
    let (out, err, code) = parts(command.output().map_err(|error| format!("{command:?}: {error}"))?);
    if code == 0 { Ok(out) } else { Err(format!("{command:?}\n{out}{err}")) }
}

/// Builds an environment with only the wheel; returns its Python.
fn build() -> Result<PathBuf, String> {
    let (project, folder) = (project(), Path::new(env!("CARGO_TARGET_TMPDIR")).join("wheel"));
    let tools = project.join(".venv/bin");
    let target = Path::new(PROGRAM).ancestors().nth(2).unwrap();
    let _ = std::fs::remove_dir_all(&folder);
    let wheels = folder.join("wheels");
    output(
        Command::new(tools.join("maturin"))
            .args(["build", "--profile", "dev", "--locked", "--manifest-path"])
            .arg(project.join("crates/python/Cargo.toml"))
            .arg("--interpreter")
            .arg(tools.join("python"))
            .arg("--out")
            .arg(&wheels)
            .arg("--target-dir")
            .arg(target)
            .env_remove("RUSTFLAGS"),
    )?;
    let wheel = std::fs::read_dir(&wheels).unwrap().next().unwrap().unwrap().path();
    let name = wheel.file_name().unwrap().to_str().unwrap();
    assert!(name.contains("-cp310-abi3-"), "{name} is not for all Pythons from 3.10 on");
    let venv = folder.join("venv");
    output(Command::new(tools.join("python")).args(["-m", "venv", "--without-pip"]).arg(&venv))?;
    let python = venv.join("bin/python");
    let install = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"];
    output(Command::new(tools.join("pip")).arg("--python").arg(&python).args(install).arg(&wheel))?;
    Ok(python)
}

/// Returns the Python of that environment, with the packages of the tests. It is built only once, even if that fails.
fn python() -> &'static Path {
    static PYTHON: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let prepared = || {
        let python = build()?;
        let alone = output(Command::new(&python).args(["-c", "import flashwise; print(len(flashwise.policies()))"]))?;
        assert!(alone.trim().parse::<usize>().unwrap() > 15, "{alone}");
        let site = |python: &Path| {
            output(Command::new(python).args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]))
        };
        let (own, tests) = (site(&python)?, site(&project().join(".venv/bin/python"))?);
        std::fs::write(Path::new(own.trim()).join("tests.pth"), tests.trim()).unwrap();
        Ok(python)
    };
    PYTHON.get_or_init(prepared).as_ref().unwrap_or_else(|problem| panic!("{problem}"))
}

/// Runs a script of assertions in its own folder.
fn run(script: &str, arguments: &[&Path]) {
    let folder = TempDir::new().unwrap();
    let script = project().join("tests/wheel").join(script);
    let ran = output(Command::new(python()).arg(script).args(arguments).current_dir(folder.path()));
    ran.unwrap_or_else(|problem| panic!("{problem}"));
}

#[test]
fn rows_are_those_of_the_command_line() {
    run("same_rows.py", &[Path::new(PROGRAM), &project().join("traces")]);
}

#[test]
fn tables_go_to_data_frames_and_traces_come_from_them() {
    run("frames.py", &[&project().join("traces")]);
}

#[test]
fn policies_in_python_count_as_those_in_rust() {
    run("policies.py", &[&project().join("traces")]);
}

#[test]
fn work_ends_where_it_is_interrupted() {
    run("interrupt.py", &[]);
}

#[test]
fn sweeps_leave_the_same_files_wherever_they_run() {
    run("sweep.py", &[Path::new(PROGRAM)]);
}

/// The examples of the documents run as they are written, one after another.
#[test]
fn the_documents_run() {
    let program = Path::new(PROGRAM).parent().unwrap();
    for document in ["README.md", "docs/python.md", "docs/sweep.md", "docs/guides/compare-policies.md"] {
        run("document.py", &[&project().join(document), &project().join("traces"), program]);
    }
}

#[test]
fn the_notebooks_run() {
    run("notebook.py", &[&project().join("examples/notebooks"), &project().join("traces")]);
}

/// Every public name has types and docs, and the stubs have no other names.
#[test]
fn stubs_match_the_module() {
    run("stubs.py", &[&project().join("crates/python/python/flashwise/_flashwise.pyi")]);
}

#[test]
fn keywords_and_policies_have_types() {
    run("typed.py", &[]);
}

#[test]
fn the_examples_in_the_docs_of_the_package_run() {
    run("doctests.py", &[]);
}
