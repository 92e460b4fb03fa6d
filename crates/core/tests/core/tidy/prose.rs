//! Plain English in documents, doc comments, help and messages.
//!
//! `prose_exceptions.txt` lists the offences that each file still has. The numbers only shrink: a file with more
//! offences fails, and so does a file with fewer until its line has the new numbers.
//! `FLASHWISE_WRITE_PROSE=1 cargo test -p flashwise-core --test core tidy::prose` writes them.

use std::collections::BTreeMap;
use std::fmt;

use super::source::Source;
use super::{files, project, sources};

const WORDS_MAX: usize = 25;
const MEAN_WORDS_MAX: f64 = 15.0;
const EXCEPTIONS: &str = "crates/core/tests/core/tidy/prose_exceptions.txt";

/// No statement has a clause with one of these as its subject.
const OPENINGS: [&str; 7] = ["what", "whatever", "whether", "who", "whoever", "whom", "whose"];

const BANNED: [&str; 21] = [
    "told",
    "tell of",
    "tells of",
    "say so",
    "says so",
    "said so",
    "what is",
    "of which",
    "whatever",
    "but for",
    "alone",
    "as of now",
    "come to nothing",
    "comes to nothing",
    "taken for",
    "let to",
    "at a time",
    "beforehand",
    "nobody",
    "somebody",
    "whoever",
];

/// A full stop after one of these ends no sentence.
const ABBREVIATIONS: [&str; 14] =
    ["e.g", "i.e", "al", "vs", "cf", "fig", "figs", "sec", "pp", "p", "vol", "no", "approx", "eq"];

/// A piece of text: the number of its first line, and its lines.
#[derive(Clone, Debug)]
struct Paragraph {
    line: usize,
    text: String,
    /// A cell of a table, a string or another text that need not be a sentence.
    is_fragment: bool,
}

/// Offences of a file by kind, and the mean length of its sentences in tenths of words if that is too long.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts([usize; 4]);

const KINDS: [&str; 4] = ["openings", "words", "long", "mean"];
const OPENING: usize = 0;
const WORD: usize = 1;
const LONG: usize = 2;
const MEAN: usize = 3;

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let counts = KINDS.iter().zip(self.0).filter(|(_, count)| *count > 0);
        f.write_str(&counts.map(|(kind, count)| format!("{kind}={count}")).collect::<Vec<_>>().join(" "))
    }
}

#[derive(Debug, Default)]
struct Findings {
    counts: Counts,
    /// Kind, and a line for people: file, line, sentence.
    offences: Vec<(usize, String)>,
}

/// The paragraphs of Markdown, given with line numbers. Headings, code and pictures are left out.
fn paragraphs<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Paragraph> {
    let mut found: Vec<Paragraph> = Vec::new();
    let (mut open, mut fenced, mut last) = (false, false, 0);
    for (number, line) in lines {
        let text = line.trim();
        let fence = text.starts_with("```");
        fenced ^= fence;
        let is_apart = number != last + 1;
        last = number;
        if fenced
            || fence
            || text.is_empty()
            || text.starts_with('#')
            || text.starts_with("![")
            || line.starts_with("     ")
        {
            open = false;
            continue;
        }
        if text.starts_with('|') {
            let cells = text.split('|').filter(|cell| cell.chars().any(char::is_alphanumeric));
            found.extend(cells.map(|cell| Paragraph { line: number, text: cell.to_owned(), is_fragment: true }));
            open = false;
            continue;
        }
        let marks = ["- ", "* "].iter().find_map(|mark| text.strip_prefix(mark));
        let numbered = text.split_once(". ").filter(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()));
        match (open && !is_apart, marks.or(numbered.map(|(_, rest)| rest))) {
            (true, None) => {
                let paragraph = found.last_mut().unwrap();
                paragraph.text.push('\n');
                paragraph.text.push_str(text);
            }
            (_, item) => {
                found.push(Paragraph { line: number, text: item.unwrap_or(text).to_owned(), is_fragment: false });
            }
        }
        open = true;
    }
    found
}

/// A paragraph without code, links and emphasis. Line breaks stay, so that lines can be counted.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['`', '[', ']', '*']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if rest.starts_with('`') {
            let ticks = rest.bytes().take_while(|byte| *byte == b'`').count();
            let (code, after) = rest[ticks..].split_once(&rest[..ticks]).unwrap_or((&rest[ticks..], ""));
            out.push_str("CODE");
            out.extend(code.chars().filter(|letter| *letter == '\n'));
            rest = after;
        } else if rest.starts_with("](") {
            let (target, after) = rest.split_once(')').unwrap_or((rest, ""));
            out.extend(target.chars().filter(|letter| *letter == '\n'));
            rest = after;
        } else {
            rest = &rest[1..];
        }
    }
    out + rest
}

/// The sentences of a text without marks, each with the number of line breaks before it.
fn sentences(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut start = 0;
    let letters: Vec<(usize, char)> = text.char_indices().collect();
    for (index, (at, letter)) in letters.iter().enumerate() {
        if !['.', '!', '?'].contains(letter) {
            continue;
        }
        let after = letters[index + 1..].iter().find(|(_, next)| !['"', ')', '\''].contains(next));
        let word = text[start..*at].rsplit([' ', '\n', '(']).next().unwrap();
        let is_initial = word.len() == 1 && word.chars().all(char::is_uppercase);
        let is_short = is_initial || ABBREVIATIONS.contains(&word.to_lowercase().as_str());
        if after.is_none_or(|(_, next)| next.is_whitespace()) && !is_short {
            let end = after.map_or(text.len(), |(end, _)| *end);
            found.push((start, &text[start..end]));
            start = end;
        }
    }
    found.push((start, &text[start..]));
    let is_sentence = |(_, sentence): &(usize, &str)| sentence.chars().any(char::is_alphanumeric);
    let found = found.into_iter().filter(is_sentence);
    found
        .map(|(start, sentence)| {
            let blank = sentence.len() - sentence.trim_start().len();
            (text[..start + blank].matches('\n').count(), sentence.trim())
        })
        .collect()
}

/// The words of a sentence in small letters.
fn words(sentence: &str) -> Vec<String> {
    let is_word = |word: &&str| word.chars().any(char::is_alphanumeric);
    let bare = |word: &str| word.trim_matches(|letter: char| !letter.is_alphanumeric()).to_lowercase();
    sentence.split_whitespace().filter(is_word).map(bare).collect()
}

/// How often `words` have the words of `banned` in a row. One thing at a time is good English.
fn uses(words: &[String], banned: &str) -> usize {
    let parts: Vec<&str> = banned.split(' ').collect();
    let is_one = |at: usize| banned == "at a time" && words[at.saturating_sub(2)..at].iter().any(|word| word == "one");
    words.windows(parts.len()).enumerate().filter(|(at, window)| *window == parts.as_slice() && !is_one(*at)).count()
}

/// Looks for offences in the paragraphs of a file. Only documents have a limit to the mean.
fn check(path: &str, paragraphs: &[Paragraph]) -> Findings {
    let mut findings = Findings::default();
    let (mut count, mut total) = (0, 0);
    for paragraph in paragraphs {
        for (line, sentence) in sentences(&plain(&paragraph.text)) {
            let words = words(sentence);
            let is_question = sentence.ends_with('?');
            let mut add = |kind: usize, why: &str| {
                findings.counts.0[kind] += 1;
                let sentence = sentence.split_whitespace().collect::<Vec<_>>().join(" ");
                findings.offences.push((kind, format!("{path}:{}: {why}: {sentence}", paragraph.line + line)));
            };
            if !paragraph.is_fragment {
                count += 1;
                total += words.len();
                if OPENINGS.contains(&words[0].as_str()) && !is_question {
                    add(OPENING, &format!("begins with '{}'", words[0]));
                }
            }
            for banned in BANNED.iter().filter(|banned| !is_question || **banned != "what is") {
                (0..uses(&words, banned)).for_each(|_| add(WORD, &format!("has '{banned}'")));
            }
            if words.len() > WORDS_MAX && words[0] != "source" {
                add(LONG, &format!("has {} words", words.len()));
            }
        }
    }
    let mean = total as f64 / f64::from(count.max(1));
    if path.ends_with(".md") && mean > MEAN_WORDS_MAX {
        findings.counts.0[MEAN] = (mean * 10.0).ceil() as usize;
        findings
            .offences
            .push((MEAN, format!("{path}: {mean:.1} words a sentence, at most {MEAN_WORDS_MAX} are allowed")));
    }
    findings
}

/// The comments of a configuration, without keys that are commented out.
fn comments<'a>(text: &'a str, marks: &'static [&'static str]) -> impl Iterator<Item = (usize, &'a str)> {
    let comment = |(index, line): (usize, &'a str)| {
        let line = line.trim_start();
        let text = marks.iter().find_map(|mark| line.strip_prefix(mark))?;
        (!text.contains(" = ") || marks.len() > 1).then_some((index + 1, text))
    };
    text.lines().enumerate().filter_map(comment)
}

/// Doc comments, and the strings of a program that are sentences: help and messages.
fn of_source(source: &Source, text: &str) -> Vec<Paragraph> {
    let mut found = paragraphs(comments(text, &["///", "//!"]));
    let path = &source.path;
    if path.contains("/src/") && !path.contains("/tests/") && !path.ends_with("/tests.rs") {
        for string in source.texts() {
            let joined = string.replace("\\n", " ").replace('\\', " ");
            if joined.split_whitespace().count() > 3 {
                let first = joined.split_whitespace().next().unwrap();
                let line = text.lines().position(|line| line.contains(first)).unwrap_or(0) + 1;
                let is_fragment = !first.starts_with(char::is_uppercase);
                found.push(Paragraph { line, text: joined, is_fragment });
            }
        }
    }
    found
}

/// Returns the offences of every file of the project.
fn found() -> BTreeMap<String, Findings> {
    let mut found = BTreeMap::new();
    for source in sources() {
        let text = std::fs::read_to_string(project().join(&source.path)).unwrap();
        found.insert(source.path.clone(), check(&source.path, &of_source(source, &text)));
    }
    for path in files() {
        let is_document = path.ends_with(".md") && !path.starts_with("crates/");
        let is_config = path.starts_with("docs/") && path.ends_with(".toml");
        if is_document || is_config {
            let text = std::fs::read_to_string(project().join(&path)).unwrap();
            let lines: Vec<_> = text.lines().enumerate().map(|(index, line)| (index + 1, line)).collect();
            let paragraphs =
                if is_document { paragraphs(lines.into_iter()) } else { paragraphs(comments(&text, &["#"])) };
            found.insert(path.clone(), check(&path, &paragraphs));
        }
    }
    found.retain(|_, findings| findings.counts != Counts::default());
    found
}

fn read_exceptions(text: &str) -> BTreeMap<String, Counts> {
    let line = |line: &str| {
        let (path, counts) = line.split_once(' ').unwrap();
        let mut read = Counts::default();
        for count in counts.split(' ') {
            let (kind, number) = count.split_once('=').unwrap();
            read.0[KINDS.iter().position(|known| *known == kind).unwrap()] = number.parse().unwrap();
        }
        (path.to_owned(), read)
    };
    text.lines().map(line).collect()
}

/// The complaints about `found` where exactly the offences of `allowed` are expected.
fn complaints(found: &BTreeMap<String, Findings>, allowed: &BTreeMap<String, Counts>) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, findings) in found {
        let allowed = allowed.get(path).copied().unwrap_or_default();
        for (kind, name) in KINDS.iter().enumerate() {
            if findings.counts.0[kind] > allowed.0[kind] {
                let offences =
                    findings.offences.iter().filter(|(of, _)| *of == kind).map(|(_, offence)| offence.clone());
                complaints.push(format!("{path}: {} {}, at most {}:", findings.counts.0[kind], name, allowed.0[kind]));
                complaints.extend(offences);
            }
        }
    }
    if complaints.is_empty() {
        for (path, allowed) in allowed {
            let counts = found.get(path).map(|findings| findings.counts).unwrap_or_default();
            if counts != *allowed {
                let line =
                    if counts == Counts::default() { "nothing".to_owned() } else { format!("'{path} {counts}'") };
                complaints.push(format!("{path} is better than '{allowed}': write {line} to {EXCEPTIONS}"));
            }
        }
    }
    complaints
}

#[test]
fn prose_is_plain_english() {
    let path = project().join(EXCEPTIONS);
    let found = found();
    let allowed = read_exceptions(&std::fs::read_to_string(&path).unwrap_or_default());
    let mut complaints = complaints(&found, &allowed);
    let grew = complaints.first().is_some_and(|first| first.contains("at most"));
    if std::env::var_os("FLASHWISE_WRITE_PROSE").is_some() && (!grew || allowed.is_empty()) {
        let lines = found.iter().map(|(path, findings)| format!("{path} {}\n", findings.counts));
        std::fs::write(&path, lines.collect::<String>()).unwrap();
        complaints.clear();
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn offences_are_found_and_exceptions_only_shrink() {
    let long = "word ".repeat(26);
    let text = format!(
        "# What is a heading\n\nWhat is read is told. A question: what is it? Is `what is` code?\nSee Lee et al. 2010, \
         e.g. this.\n\n\
         - Nobody [knows](a.md)\n  it beforehand.\n\n| What | the server alone |\n\n```text\nwhatever\n```\n{long}."
    );
    let lines: Vec<_> = text.lines().enumerate().map(|(index, line)| (index + 1, line)).collect();
    let found = check("a.md", &paragraphs(lines.into_iter()));
    assert_eq!(found.counts, Counts([1, 5, 1, 0]), "{found:#?}");
    assert!(found.offences.iter().any(|(_, offence)| offence.starts_with("a.md:6: has 'nobody': Nobody knows it")));
    let source = "/// Whether it is.\nfn f() { fail(\"What was found is not told: {}\", \"what is\") } // whatever";
    let source = (Source::new("crates/x/src/x.rs".to_owned(), source), source);
    assert_eq!(check("x.rs", &of_source(&source.0, source.1)).counts, Counts([2, 1, 0, 0]));
    let files = BTreeMap::from([("a.md".to_owned(), found)]);
    let allowed = |line| complaints(&files, &read_exceptions(line));
    assert!(allowed("a.md openings=1 words=5 long=1").is_empty());
    assert_eq!(allowed("a.md openings=1 words=4 long=1").len(), 6);
    assert!(allowed("a.md openings=2 words=5 long=1")[0].contains("write 'a.md openings=1 words=5 long=1' to"));
    assert!(
        allowed("a.md openings=1 words=5 long=1\nb.md long=1")[0]
            .contains("b.md is better than 'long=1': write nothing")
    );
}
