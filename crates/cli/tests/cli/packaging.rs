//! Checks of the packages that need no release build; `make dist` and `make test-dist` check the rest.

use std::path::Path;
use std::process::Command;

use crate::common::{parts, project, run, succeed};
use crate::documentation::linked_files;

/// Runs a packaging script at a fixed time; returns its output.
fn script(name: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(project().join("packaging").join(name));
    command.args(arguments).env("SOURCE_DATE_EPOCH", "1700000000");
    let (out, err, code) = parts(command.output().unwrap());
    assert_eq!(code, 0, "{name} {arguments:?}: {err}");
    out
}

fn tool(name: &str, arguments: &[&str]) -> String {
    let (out, err, code) = parts(Command::new(name).args(arguments).output().unwrap());
    assert_eq!(code, 0, "{name} {arguments:?}: {err}");
    out
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Asserts that a directory has the project's licences, and the notices of all crates in this program: their paths are
/// in its messages.
fn assert_has_notices(documents: &Path) {
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        let [own, packed] =
            [project(), documents.to_owned()].map(|folder| std::fs::read_to_string(folder.join(licence)).unwrap());
        assert_eq!(own, packed, "{licence}");
    }
    let notices = std::fs::read_to_string(documents.join("THIRD-PARTY-NOTICES")).unwrap();
    let paths = tool("grep", &["-aohE", "registry/src/[^/]+/[A-Za-z0-9._+-]+", env!("CARGO_BIN_EXE_flashwise")]);
    let mut crates: Vec<&str> = paths.lines().map(|path| path.rsplit('/').next().unwrap()).collect();
    crates.sort_unstable();
    crates.dedup();
    assert!(crates.len() > 30, "{crates:?}");
    let listed: Vec<String> =
        notices.lines().filter_map(|line| Some(line.split_once(": ")?.0.replace(' ', "-"))).collect();
    let missing: Vec<_> = crates.into_iter().filter(|name| !listed.iter().any(|listed| listed == name)).collect();
    assert!(missing.is_empty(), "no notice of {missing:?}");
    for other in ["zstd/LICENSE", "xz/COPYING", "preact (JavaScript)", "Rust standard library", "musl: MIT"] {
        assert!(notices.contains(other), "{other}");
    }
    assert!(notices.matches("Permission is hereby granted").count() > 50 && notices.contains("Apache License"));
}

/// A small program replaces the packed one, so compression takes no time. Manual pages and completions are real.
#[test]
fn tarball_and_deb_are_complete_and_reproducible() {
    let (program, here) = ("/bin/true", env!("CARGO_BIN_EXE_flashwise"));
    let made = [1, 2].map(|_| {
        let folder = tempfile::tempdir().unwrap();
        script("package", &[program, "x86_64", here, text(folder.path())]);
        folder
    });
    let folder = made[0].path();
    let version = env!("CARGO_PKG_VERSION");
    let (tarball, deb) =
        (format!("flashwise-{version}-x86_64-unknown-linux-musl.tar.gz"), format!("flashwise_{version}_amd64.deb"));
    for name in [&tarball, &deb] {
        let [first, second] = [&made[0], &made[1]].map(|folder| std::fs::read(folder.path().join(name)).unwrap());
        assert!(first == second, "{name} is another each time");
    }
    let listing = tool("tar", &["-tzf", text(&folder.join(&tarball))]);
    let inside = tarball.trim_end_matches(".tar.gz");
    for file in [
        "flashwise",
        "man/flashwise-serve.8.gz",
        "man/flashwise.toml.5.gz",
        "completions/bash",
        "README.md",
        "LICENSE-MIT",
        "traces/netsfs.csv.zst",
        "packaging/monitoring/alerts.yml",
        "packaging/monitoring/dashboard.json",
    ] {
        assert!(listing.lines().any(|line| line == format!("{inside}/{file}")), "{file} in {listing}");
    }
    let root = folder.join("root");
    tool("dpkg-deb", &["--extract", text(&folder.join(&deb)), text(&root)]);
    for file in [
        "usr/bin/flashwise",
        "usr/lib/systemd/system/flashwise.service",
        "usr/lib/sysusers.d/flashwise.conf",
        "usr/share/man/man1/flashwise.1.gz",
        "usr/share/man/man5/flashwise.toml.5.gz",
        "usr/share/man/man8/flashwise-serve.8.gz",
        "usr/share/bash-completion/completions/flashwise",
        "usr/share/zsh/vendor-completions/_flashwise",
        "usr/share/fish/vendor_completions.d/flashwise.fish",
        "usr/share/doc/flashwise/copyright",
        "etc/flashwise/flashwise.toml",
    ] {
        assert!(root.join(file).exists(), "{file}");
    }
    let control = tool("dpkg-deb", &["--info", text(&folder.join(&deb)), "conffiles"]);
    assert_eq!(control, "/etc/flashwise/flashwise.toml\n", "what was changed in it outlives an upgrade");
    // All links of documents work in both packages.
    tool("tar", &["-xzf", text(&folder.join(&tarball)), "-C", text(&root)]);
    for documents in [root.join(inside), root.join("usr/share/doc/flashwise")] {
        let mut links = 0;
        for name in ["README.md", "docs/SUMMARY.md", "docs/install.md", "docs/runbook.md", "docs/serve.md"] {
            let path = documents.join(name);
            let markdown = std::fs::read_to_string(&path).unwrap();
            for target in linked_files(&markdown) {
                links += 1;
                assert!(path.parent().unwrap().join(target).exists(), "{}: {target}", path.display());
            }
        }
        assert!(links >= 40, "only {links} links were found");
        assert_has_notices(&documents);
    }
    let owners = tool("dpkg-deb", &["--contents", text(&folder.join(&deb))]);
    assert!(owners.lines().all(|line| line.contains(" root/root ")), "{owners}");
    let control = tool("dpkg-deb", &["--field", text(&folder.join(&deb)), "Package", "Version", "Architecture"]);
    assert_eq!(control, format!("Package: flashwise\nVersion: {version}\nArchitecture: amd64\n"));
}

#[test]
fn the_image_is_whole_runs_without_root_and_is_the_same_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let images = ["a.tar", "b.tar"].map(|name| folder.path().join(name));
    for image in &images {
        script("image.py", &[text(image), "x86_64=/bin/true", "aarch64=/bin/false"]);
    }
    assert!(std::fs::read(&images[0]).unwrap() == std::fs::read(&images[1]).unwrap(), "the image is another each time");
    for (architecture, program) in [("x86_64", "/bin/true"), ("aarch64", "/bin/false")] {
        let root = folder.path().join(architecture);
        let config = script("unpack_image.py", &[text(&images[0]), architecture, text(&root)]);
        let config: serde_json::Value = serde_json::from_str(&config).unwrap();
        assert_eq!(
            (config["User"].as_str(), config["Entrypoint"][0].as_str()),
            (Some("65532:65532"), Some("/usr/bin/flashwise"))
        );
        assert!(std::fs::read(root.join("usr/bin/flashwise")).unwrap() == std::fs::read(program).unwrap());
        assert!(std::fs::read_to_string(root.join("etc/passwd")).unwrap().starts_with("flashwise:x:65532:"));
        assert_has_notices(&root.join("usr/share/doc/flashwise"));
    }
}

/// The names of the crates that are published, and their manifests.
fn published() -> Vec<(String, String)> {
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let folder = entry.unwrap().path();
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = ")).unwrap().trim_matches('"').to_owned();
        (name, manifest)
    };
    let manifests = std::fs::read_dir(project().join("crates")).unwrap().map(read);
    let published: Vec<_> =
        manifests.filter(|(_, manifest)| manifest.contains("\npublish.workspace = true\n")).collect();
    assert!(published.len() >= 8, "only {} crates are published", published.len());
    published
}

#[test]
fn every_published_crate_has_its_licences_and_the_one_address() {
    let published = published();
    let workspace = project().join("Cargo.toml");
    let mut arguments = vec!["package", "--list", "--allow-dirty", "--locked", "--manifest-path", text(&workspace)];
    for (name, manifest) in &published {
        arguments.extend(["--package", name]);
        assert!(manifest.contains("\nrepository.workspace = true\n"), "{name}");
    }
    let files = tool("cargo", &arguments);
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        let found = files.lines().filter(|file| *file == licence).count();
        assert_eq!(found, published.len(), "each crate has {licence}: {files}");
    }
}

/// `cargo binstall` finds the tarball and the program in it under the names that packaging gives them.
#[test]
fn binstall_looks_for_the_tarball_that_is_made() {
    let manifest = std::fs::read_to_string(project().join("crates/cli/Cargo.toml")).unwrap();
    let value = |key: &str| {
        let line = manifest.lines().find_map(|line| line.strip_prefix(&format!("{key} = ")));
        let with = |text: &str| {
            text.trim_matches('"').replace("{ version }", "1.2.3").replace("{ target }", "x86_64-unknown-linux-musl")
        };
        with(line.unwrap_or_else(|| panic!("{key}")))
    };
    assert!(value("pkg-url").ends_with("/flashwise-1.2.3-x86_64-unknown-linux-musl.tar.gz"), "{}", value("pkg-url"));
    assert_eq!(value("bin-dir"), "flashwise-1.2.3-x86_64-unknown-linux-musl/flashwise");
    let package = std::fs::read_to_string(project().join("packaging/package")).unwrap();
    assert!(package.contains("name=flashwise-$version-$architecture-unknown-linux-musl\n"));
}

/// The installed configuration, before any changes. `packaging/test` starts the service with it.
#[test]
fn the_configuration_that_is_installed_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let config = std::fs::read_to_string(project().join("packaging/flashwise.toml")).unwrap();
    let token = folder.path().join("token");
    flashwise_testing::write_private(&token, "sesame\n");
    let own = config
        .replace("/run/flashwise/nbd.sock", text(&folder.path().join("nbd.sock")))
        .replace("/etc/flashwise/token", text(&token))
        .replace("127.0.0.1:9470\"\n", "127.0.0.1:0\"\n");
    assert_eq!(own.matches(text(folder.path())).count(), 2, "{own}");
    std::fs::write(folder.path().join("flashwise.toml"), own).unwrap();
    let told = succeed(folder.path(), &["serve", "--check-config", "flashwise.toml"]);
    assert!(told.contains("127.0.0.1:0") && told.contains("nbd.sock"), "{told}");
}

#[test]
fn systemd_finds_nothing_wrong_with_the_unit() {
    let folder = tempfile::tempdir().unwrap();
    let unit = std::fs::read_to_string(project().join("packaging/flashwise.service")).unwrap();
    // The code of what trying again cannot mend, an end of restarts, and a place for what has to be kept.
    for line in ["RestartPreventExitStatus=2", "StartLimitBurst=20", "StateDirectory=flashwise"] {
        assert!(unit.lines().any(|found| found == line), "{line}");
    }
    let unit = unit.replace("/usr/bin/flashwise", env!("CARGO_BIN_EXE_flashwise"));
    std::fs::write(folder.path().join("flashwise.service"), unit).unwrap();
    assert_verified(folder.path(), &["flashwise.service"]);
}

/// Asserts that systemd finds no error in the units of a folder.
fn assert_verified(folder: &Path, units: &[&str]) {
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]).args(units).current_dir(folder);
    verify.env("SYSTEMD_UNIT_PATH", format!("{}:", folder.display()));
    let (out, err, code) = parts(verify.output().unwrap());
    assert!(code == 0 && !units.iter().any(|unit| err.contains(unit)), "{out}{err}");
}

/// They connect and mount a volume after the server starts, and in the reverse order when it stops.
#[test]
fn systemd_finds_nothing_wrong_with_the_example_units() {
    let folder = tempfile::tempdir().unwrap();
    let units = ["packaging/flashwise.service", "examples/flashwise-nbd0.service", "examples/srv-data.mount"];
    for unit in units {
        let mut own = std::fs::read_to_string(project().join(unit)).unwrap();
        for program in ["/usr/bin/flashwise", "/usr/sbin/nbd-client", "/sbin/modprobe"] {
            own = own.replace(program, "/bin/true");
        }
        std::fs::write(folder.path().join(Path::new(unit).file_name().unwrap()), own).unwrap();
    }
    assert_verified(folder.path(), &["srv-data.mount", "flashwise-nbd0.service", "flashwise.service"]);
}

#[test]
fn the_unit_is_sandboxed() {
    let unit = project().join("packaging/flashwise.service");
    // In tenths: 3.0, where less is more closed.
    let arguments = ["security", "--offline=true", "--threshold=30", text(&unit)];
    let (out, err, code) = parts(Command::new("systemd-analyze").args(arguments).output().unwrap());
    assert_eq!(code, 0, "{out}{err}");
}

#[test]
fn every_command_has_a_manual_page_and_is_completed() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(succeed(folder.path(), &["man", "pages"]), "");
    let help = succeed(folder.path(), &["--help"]);
    let commands = help.split_once("\nFind out:\n").unwrap().1.split_once("\nOptions:\n").unwrap().0;
    let is_command = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
    let commands: Vec<&str> =
        commands.lines().filter(is_command).map(|line| line.split_whitespace().next().unwrap()).collect();
    assert!(commands.len() > 10 && commands.contains(&"simulate"), "{commands:?}");
    let scripts = ["bash", "zsh", "fish"].map(|shell| succeed(folder.path(), &["completions", shell]));
    for command in commands.into_iter().filter(|command| *command != "help") {
        let section = if command == "serve" { 8 } else { 1 };
        let page = std::fs::read_to_string(folder.path().join(format!("pages/flashwise-{command}.{section}"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{command}");
        assert!(scripts.iter().all(|script| script.contains(command)), "{command}");
    }
    let pages = folder.path().join("pages");
    let names = std::fs::read_dir(&pages).unwrap().map(|entry| entry.unwrap().file_name());
    let lint = Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).args(names).current_dir(&pages).output();
    assert_eq!(parts(lint.unwrap()), (String::new(), String::new(), 0));
    for (name, sections) in [
        ("flashwise.1", &["COMMANDS", "EXAMPLES", "ENVIRONMENT", "FILES", "EXIT STATUS", "SEE ALSO"][..]),
        ("flashwise-serve.8", &["SIGNALS", "EXAMPLES", "FILES", "EXIT STATUS", "SEE ALSO"]),
        ("flashwise.toml.5", &["[API]", "[[VOLUME]]", "[[POOL]]", "EXAMPLES", "FILES", "SEE ALSO"]),
    ] {
        let source = std::fs::read_to_string(pages.join(name)).unwrap();
        let headings: Vec<&str> =
            source.lines().filter_map(|line| Some(line.strip_prefix(".SH ")?.trim_matches('"'))).collect();
        assert!(sections.iter().all(|section| headings.contains(section)), "{name}: {headings:?}");
    }
    let configuration = std::fs::read_to_string(pages.join("flashwise.toml.5")).unwrap();
    for key in ["listen", "token\\-file", "memory\\-max", "policy", "dirty\\-high", "disks"] {
        assert!(configuration.contains(&format!("\n\\fB{key}\\fR = ")), "{key}");
    }
    // A shell understands its script.
    std::fs::write(folder.path().join("completions"), &scripts[0]).unwrap();
    let complete = "source ./completions; COMP_WORDS=(flashwise sim); COMP_CWORD=1; _flashwise flashwise sim \
        flashwise; echo \"${COMPREPLY[@]}\"";
    let output = Command::new("bash").args(["-c", complete]).current_dir(folder.path()).output().unwrap();
    assert_eq!(parts(output), ("simulate\n".to_owned(), String::new(), 0));
    let (_, err, code) = run(folder.path(), &["completions", "csh"]);
    assert!(code == 2 && err.contains("[possible values: bash, elvish, fish, powershell, zsh]"), "{err}");
}
