#!/usr/bin/env python3
"""Writes the licences of third-party software in an artefact: crates with their C code, the page's JavaScript, Rust's library, and musl.

usage: packaging/notices.py PACKAGE TARGET

PACKAGE is flashwise or flashwise-python, with the features of a release. The texts come from the sources that cargo has, each of them once.
Given a choice between MIT and Apache-2.0, the text is MIT. A missing text is an error, except for Apache-2.0, which the project has itself.
"""

import html
import json
import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
# As packaging/dist and `make wheel` build them.
FEATURES = {"flashwise": "s3", "flashwise-python": "extension"}
LICENCE = re.compile(r"(un)?licen[cs]e|copying|copyright|notice", re.IGNORECASE)
CODE = {".html", ".py", ".rs", ".sh"}
# liblzma has these for its scripts only; zstd offers one instead of BSD-3-Clause.
GPL = re.compile(r"\s*GNU (LESSER )?GENERAL PUBLIC LICENSE")


def run(*command):
    return subprocess.run(command, cwd=PROJECT, check=True, text=True, stdout=subprocess.PIPE).stdout


def crates(package, target):
    """The third-party crates in the package, as cargo describes them."""
    options = ["--locked", "--package", package, "--features", FEATURES[package], "--target", target]
    tree = run("cargo", "tree", *options, "--edges", "normal", "--prefix", "none", "--format", "{p}")
    metadata = run("cargo", "metadata", "--locked", "--all-features", "--filter-platform", target, "--format-version", "1")
    by_name = {(crate["name"], "v" + crate["version"]): crate for crate in json.loads(metadata)["packages"]}
    found = (by_name[name] for name in sorted({tuple(line.split()[:2]) for line in tree.splitlines()}))
    return [crate for crate in found if crate["source"]]


def chosen(licence, texts):
    """The texts, by the names of their files, that have to accompany the program."""
    texts = {name: text for name, text in texts.items() if not GPL.match(text)}
    may_choose = re.search(r" OR |/", licence) and " AND " not in licence
    if may_choose and any(re.fullmatch(r"licen[cs]e-mit(\..*)?", name, re.IGNORECASE) for name in texts):
        return {name: text for name, text in texts.items() if "apache" not in name.lower()}
    return texts


def of_crate(crate):
    folder, licence = Path(crate["manifest_path"]).parent, crate["license"] or ""
    files = [path for path in sorted(folder.rglob("*")) if LICENCE.match(path.name) and path.suffix not in CODE and path.is_file()]
    texts = {str(path.relative_to(folder)): path.read_text(errors="replace") for path in files}
    if not texts and "Apache-2.0" not in licence:
        sys.exit(f"notices.py: {folder}: found no text of the licence '{licence}'; add it to packaging/licences")
    return chosen(licence, texts) or {"Apache-2.0": (PROJECT / "LICENSE-APACHE").read_text()}


def of_standard_library():
    """The library and the crates in it, from the page that comes with the toolchain."""
    folder = Path(run("rustc", "--print", "sysroot").strip()) / "share/doc/rust"
    own, *others = (folder / "COPYRIGHT-library.html").read_text().split("<h3>📦 ")
    lines = html.unescape(re.sub(r"<head>.*</head>|<[^>]*>", "", own, flags=re.DOTALL)).splitlines()
    terms = "\n".join(line.strip() for line in lines if line.strip())
    version = run("rustc", "--version").split()[1]
    yield f"Rust standard library {version}", "Apache-2.0 OR MIT", {"COPYRIGHT": terms, "MIT": (folder / "licenses/MIT.txt").read_text()}
    for crate in others:
        name = crate.split("<", 1)[0]
        licence = html.unescape(re.search(r"License:</b> (.*)</p>", crate)[1])
        texts = re.findall(r"<summary><code>(.*?)</code></summary>\s*?<pre>\n(.*?)</pre>", crate, re.DOTALL)
        yield f"{name} in the standard library", licence, chosen(licence, {file: html.unescape(text) for file, text in texts})


def parts(package, target):
    """Each piece of third-party software: its name, licence, and texts."""
    for crate in crates(package, target):
        yield f"{crate['name']} {crate['version']}", crate["license"], of_crate(crate)
    yield from of_standard_library()
    if package == "flashwise":
        for path in sorted((PROJECT / "crates/server/src/manage/page/vendor").glob("LICENSE-*")):
            name, text = path.name.removeprefix("LICENSE-"), path.read_text()
            yield f"{name} (JavaScript)", "Apache-2.0" if "Apache License" in text else "MIT", {path.name: text}
    if target.endswith("-musl"):
        yield "musl", "MIT", {"COPYRIGHT": (PROJECT / "packaging/licences/musl").read_text()}


def notices(package, target):
    listed, texts = [], {}
    for name, licence, files in parts(package, target):
        listed.append(f"{name}: {licence}")
        for file, text in files.items():
            texts.setdefault(" ".join(text.split()), (text, []))[1].append(f"{name}: {file}")
    head = ["flashwise contains third-party software under these licences. Their texts follow.", "", *listed]
    return "\n".join(head + ["\n".join(["", "=" * 80, *names, "-" * 80, text.strip("\n")]) for text, names in texts.values()]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(notices(*sys.argv[1:]))
