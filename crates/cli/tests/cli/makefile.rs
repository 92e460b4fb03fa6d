//! The Makefile lists its targets, and installs the same files as packages.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::common::{parts, project};

/// Runs make in the project with a failing cargo, so nothing is compiled; returns its output.
fn make(arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let cargo = folder.path().join("cargo");
    std::fs::write(&cargo, "#!/bin/sh\necho cargo was called >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&cargo, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("make");
    command.args(arguments).current_dir(project()).env("PATH", path).env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    let (out, err, code) = parts(command.output().unwrap());
    assert_eq!((code, err.as_str()), (0, ""), "make {arguments:?}: {out}");
    out
}

#[test]
fn without_a_target_make_names_every_target_and_compiles_nothing() {
    let help = make(&[]);
    assert_eq!(help, make(&["help"]));
    let makefile = std::fs::read_to_string(project().join("Makefile")).unwrap();
    let is_target =
        |name: &&str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    let targets: Vec<&str> =
        makefile.lines().filter_map(|line| Some(line.split_once(':')?.0)).filter(is_target).collect();
    assert!(targets.len() > 25, "{targets:?}");
    for target in targets {
        let line = help.lines().find_map(|line| line.strip_prefix(&format!("  make {target} ")));
        assert!(line.is_some_and(|text| text.trim().len() > 5), "{target} in {help}");
    }
}

#[test]
fn install_stays_below_its_prefix_and_uninstall_keeps_only_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let program = concat!("PROGRAM=", env!("CARGO_BIN_EXE_flashwise"));
    let destination = format!("DESTDIR={}", root.display());
    let make = |target| make(&[target, program, &destination, "PREFIX=/opt/flashwise"]);
    make("install");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let unit = read("opt/flashwise/lib/systemd/system/flashwise.service");
    assert!(unit.contains("\nExecStart=/opt/flashwise/bin/flashwise serve /etc/flashwise/flashwise.toml\n"), "{unit}");
    for file in [
        "bin/flashwise",
        "lib/sysusers.d/flashwise.conf",
        "share/man/man1/flashwise.1.gz",
        "share/man/man5/flashwise.toml.5.gz",
        "share/man/man8/flashwise-serve.8.gz",
        "share/bash-completion/completions/flashwise",
        "share/fish/vendor_completions.d/flashwise.fish",
        "share/zsh/site-functions/_flashwise",
        "share/doc/flashwise/README.md",
    ] {
        assert!(root.join("opt/flashwise").join(file).exists(), "{file}");
    }
    assert!(read("etc/flashwise/flashwise.toml").contains("/opt/flashwise/share/doc/flashwise/flashwise.toml"));
    std::fs::write(root.join("etc/flashwise/flashwise.toml"), "# my own\n").unwrap();
    make("install");
    make("uninstall");
    assert_eq!(read("etc/flashwise/flashwise.toml"), "# my own\n");
    let left = Command::new("find").arg(root.join("opt")).args(["-type", "f"]).output().unwrap();
    assert_eq!(parts(left), (String::new(), String::new(), 0));
}
