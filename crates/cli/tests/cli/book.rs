//! The documentation as a book: `docs/SUMMARY.md` lists each page once, and links lead to pages and headings.
//! `make book` builds it.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::project;
use crate::documentation::documents;

fn read(name: &str) -> String {
    std::fs::read_to_string(project().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The lines of a document outside of fenced blocks.
fn prose(markdown: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    markdown.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The targets of the links of a document.
fn targets(markdown: &str) -> Vec<&str> {
    let links = prose(markdown).flat_map(|line| line.split("](").skip(1));
    links.filter_map(|rest| Some(rest.split_once(')')?.0)).collect()
}

/// The anchors of a document's headings, as GitHub and mdBook make them.
fn anchors(markdown: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for heading in prose(markdown).filter(|line| line.starts_with('#')) {
        let text = heading.trim_start_matches('#').trim();
        let letters = text.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        let anchor: String =
            letters.map(|letter| if letter == ' ' { '-' } else { letter.to_ascii_lowercase() }).collect();
        let count = counts.entry(anchor.clone()).or_default();
        anchors.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
        *count += 1;
    }
    anchors
}

/// The path that `target` leads to from the folder of `document`, and its anchor.
fn resolved(document: &str, target: &str) -> (String, String) {
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let mut parts: Vec<&str> = document.split('/').collect();
    if !file.is_empty() {
        parts.pop();
        for part in file.split('/') {
            match part {
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
    }
    (parts.join("/"), anchor.to_owned())
}

#[test]
fn the_summary_lists_every_page_once() {
    let summary = read("docs/SUMMARY.md");
    let listed: Vec<String> =
        targets(&summary).into_iter().map(|target| resolved("docs/SUMMARY.md", target).0).collect();
    let unique: BTreeSet<&String> = listed.iter().collect();
    assert_eq!(unique.len(), listed.len(), "a page is listed twice: {listed:#?}");
    let documents = documents();
    let pages = documents.iter().filter(|name| name.starts_with("docs/") && *name != "docs/SUMMARY.md");
    let pages: BTreeSet<&String> = pages.collect();
    let unlisted: Vec<_> = pages.difference(&unique).collect();
    assert!(unlisted.is_empty(), "docs/SUMMARY.md does not list {unlisted:?}");
    let unknown: Vec<_> = unique.difference(&pages).collect();
    assert!(unknown.is_empty(), "docs/SUMMARY.md lists {unknown:?}, found no such page");
}

#[test]
fn every_link_leads_to_a_page_and_a_heading() {
    let mut count = 0;
    let mut broken = Vec::new();
    for document in documents() {
        for target in targets(&read(&document)).into_iter().filter(|target| !target.contains("://")) {
            count += 1;
            let (file, anchor) = resolved(&document, target);
            let leads =
                project().join(&file).exists() && (anchor.is_empty() || anchors(&read(&file)).contains(&anchor));
            if !leads {
                broken.push(format!("{document}: {target}"));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere: {broken:#?}");
    assert!(count > 150, "only {count} links were found");
}

#[test]
fn anchors_are_those_of_github() {
    let markdown = "# What is on a disk, and `--why`\n## Memory\n```sh\n# none\n```\n## Memory\n";
    let expected = ["memory", "memory-1", "what-is-on-a-disk-and---why"];
    assert_eq!(anchors(markdown).into_iter().collect::<Vec<_>>(), expected);
    assert_eq!(resolved("docs/a/b.md", "../c.md#d"), ("docs/c.md".to_owned(), "d".to_owned()));
    assert_eq!(resolved("docs/a/b.md", "#d"), ("docs/a/b.md".to_owned(), "d".to_owned()));
}
