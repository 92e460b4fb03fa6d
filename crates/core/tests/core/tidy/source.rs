//! The properties of a Rust file that tidiness depends on: its modules, its uses, its length and its lists.

use std::collections::BTreeSet;

/// A Rust file, without unit tests at its end and without comments.
#[derive(Debug)]
pub struct Source {
    /// Its path in the project.
    pub path: String,
    /// Its module path from the crate's root; empty for the root, none outside of a crate's `src`.
    pub module: Option<Vec<String>>,
    /// Its lines, comments included.
    pub lines: usize,
    /// Modules that plain lines declare, including those for tests.
    declared: Vec<String>,
    /// Files that attributes name for modules.
    named_files: Vec<String>,
    /// Paths that it names: in `use` lines, and anywhere else those that begin with `crate`, `super` or `self`.
    pub paths: Vec<Vec<String>>,
    tokens: Vec<Token>,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Text(String),
    Mark(char),
}

impl Source {
    /// Parses the file at `path` with these contents.
    pub fn new(path: String, contents: &str) -> Source {
        let body = match contents.find("#[cfg(test)]\nmod tests {") {
            Some(tests) => &contents[..tests],
            None => contents,
        };
        let tokens = tokens(body);
        let mut declared = Vec::new();
        for window in tokens.windows(3) {
            if let [Token::Word(keyword), Token::Word(name), Token::Mark(';')] = window
                && keyword == "mod"
            {
                declared.push(name.clone());
            }
        }
        let mut named_files = Vec::new();
        for window in tokens.windows(4) {
            if let [Token::Mark('['), Token::Word(attribute), Token::Mark('='), Token::Text(file)] = window
                && attribute == "path"
            {
                named_files.push(file.clone());
            }
        }
        let paths = paths(&tokens);
        let module = module(&path);
        Source { lines: body.lines().count(), path, module, declared, named_files, paths, tokens }
    }

    /// Returns the names of the types that the file defines.
    pub fn defined(&self) -> BTreeSet<&str> {
        self.named_by(&["struct", "enum", "union"])
    }

    /// Returns the names of the aliases of types that the file defines.
    pub fn aliases(&self) -> BTreeSet<&str> {
        self.named_by(&["type"])
    }

    fn named_by(&self, keywords: &[&str]) -> BTreeSet<&str> {
        let is_type = |word: &str| keywords.contains(&word);
        let pairs = self.tokens.windows(2).filter_map(|pair| match pair {
            [Token::Word(keyword), Token::Word(name)] if is_type(keyword) => Some(name.as_str()),
            _ => None,
        });
        pairs.collect()
    }

    /// Returns the names of the types that the file has inherent impls of.
    pub fn implemented(&self) -> BTreeSet<&str> {
        let is = |token: &Token, word: &str| matches!(token, Token::Word(found) if found == word);
        let mut found = BTreeSet::new();
        for at in (0..self.tokens.len()).filter(|&at| is(&self.tokens[at], "impl")) {
            // In types such as `-> impl Iterator`, another token stands before it.
            let begins_item = at == 0
                || matches!(self.tokens[at - 1], Token::Mark('}' | ';' | ']' | '{'))
                || is(&self.tokens[at - 1], "unsafe");
            let head: Vec<&Token> =
                self.tokens[at + 1..].iter().take_while(|token| **token != Token::Mark('{')).collect();
            if !begins_item || head.iter().any(|token| is(token, "for")) {
                continue;
            }
            let (mut depth, mut name, mut before) = (0, None, '{');
            for token in head.into_iter().take_while(|token| !is(token, "where")) {
                match token {
                    Token::Mark('<') => depth += 1,
                    Token::Mark('>') if before != '-' => depth -= 1,
                    Token::Word(word) if depth == 0 => name = Some(word.as_str()),
                    _ => {}
                }
                before = if let Token::Mark(mark) = token { *mark } else { 'w' };
            }
            found.extend(name);
        }
        found
    }

    /// Returns the crate's folder, if the file is in its `src`.
    pub fn crate_folder(&self) -> Option<&str> {
        self.path.find("/src/").map(|at| &self.path[..at])
    }

    /// Returns the files that its `mod` lines may declare.
    pub fn declared_files(&self) -> Vec<String> {
        let own_folder = self.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        // Each file in these folders is the root of a binary.
        let is_binary = ["/tests", "/examples", "/bin"].iter().any(|folder| own_folder.ends_with(folder))
            && (!own_folder.contains("/src/") || own_folder.ends_with("/src/bin"));
        let is_root = is_binary || ["/mod.rs", "/lib.rs", "/main.rs"].iter().any(|root| self.path.ends_with(root));
        let folder = if is_root { own_folder } else { self.path.trim_end_matches(".rs") };
        let of_line = |name: &String| [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
        let named = self.named_files.iter().map(|file| format!("{own_folder}/{file}"));
        self.declared.iter().flat_map(of_line).chain(named).collect()
    }

    /// Returns the number of modules in files named by attributes.
    pub fn named_files(&self) -> usize {
        self.named_files.len()
    }

    /// Returns the number of calls of a function named `sleep`.
    pub fn sleeps(&self) -> usize {
        let call = [Token::Word("sleep".to_owned()), Token::Mark('(')];
        self.tokens.windows(2).filter(|window| **window == call).count()
    }

    /// Returns the texts between quotes, as written in the file.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().filter_map(|token| if let Token::Text(text) = token { Some(text.as_str()) } else { None })
    }

    /// Returns the words in each of its lists: the contents of brackets, and each text separately.
    pub fn lists(&self) -> Vec<BTreeSet<String>> {
        let words = |text: &str| -> Vec<String> {
            text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').map(str::to_owned).collect()
        };
        let (mut lists, mut open): (Vec<BTreeSet<String>>, Vec<BTreeSet<String>>) = (Vec::new(), Vec::new());
        for token in &self.tokens {
            match token {
                Token::Mark('[') => open.push(BTreeSet::new()),
                Token::Mark(']') => lists.extend(open.pop()),
                Token::Text(text) => {
                    open.iter_mut().for_each(|list| list.extend(words(text)));
                    lists.push(words(text).into_iter().collect());
                }
                _ => {}
            }
        }
        lists
    }
}

/// Returns the module of a file in a crate's `src`.
fn module(path: &str) -> Option<Vec<String>> {
    let (_, inside) = path.split_once("/src/")?;
    let mut parts: Vec<_> = inside.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        parts.pop();
    }
    Some(parts)
}

/// Returns words, texts and marks, without comments, lifetimes and character literals.
fn tokens(source: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let raw = rest.strip_prefix('r').map(|rest| (rest, rest.bytes().take_while(|byte| *byte == b'#').count()));
        if rest.starts_with("//") {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
        } else if rest.starts_with("/*") {
            rest = rest.split_once("*/").map_or("", |(_, rest)| rest);
        } else if let Some((text, hashes)) = raw.filter(|(text, hashes)| text[*hashes..].starts_with('"')) {
            let (text, after) =
                text[hashes + 1..].split_once(&format!("\"{}", "#".repeat(hashes))).unwrap_or((text, ""));
            found.push(Token::Text(text.to_owned()));
            rest = after;
        } else if first == '"' {
            let mut escaped = false;
            let end = rest[1..].find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            let end = 1 + end.unwrap_or(rest.len() - 1);
            found.push(Token::Text(rest[1..end].to_owned()));
            rest = rest.get(end + 1..).unwrap_or("");
        } else if first == '\'' {
            let mut characters = rest.char_indices().skip(1);
            let (_, character) = characters.next().unwrap_or((0, ' '));
            let (after, quote) = characters.next().unwrap_or((1, ' '));
            rest = match (character, quote) {
                // The escaped character may itself be a quote.
                ('\\', _) => rest[after + quote.len_utf8()..].split_once('\'').map_or("", |(_, rest)| rest),
                (_, '\'') => &rest[after + 1..],
                _ => &rest[1..],
            };
        } else if first.is_alphanumeric() || first == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            found.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        } else {
            if !first.is_whitespace() {
                found.push(Token::Mark(first));
            }
            rest = &rest[first.len_utf8()..];
        }
    }
    found
}

/// Returns the paths that `tokens` name.
fn paths(tokens: &[Token]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        at = match &tokens[at] {
            Token::Word(word) if word == "use" => tree(tokens, at + 1, &[], &mut found),
            // In a macro `$crate` is a path in the macro's output.
            Token::Word(word) if ["crate", "super", "self"].contains(&word.as_str()) => {
                let macros = at > 0 && tokens[at - 1] == Token::Mark('$');
                let mut skipped = Vec::new();
                tree(tokens, at, &[], if macros { &mut skipped } else { &mut found })
            }
            _ => at + 1,
        };
    }
    found.retain(|path| path.len() > 1);
    found
}

/// Parses one tree of a `use` line from `at`, after `prefix`, and returns its end.
fn tree(tokens: &[Token], mut at: usize, prefix: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let mut path = prefix.to_vec();
    while at < tokens.len() {
        match &tokens[at] {
            Token::Word(word) => path.push(word.clone()),
            Token::Mark('{') => {
                at += 1;
                while at < tokens.len() && tokens[at] != Token::Mark('}') {
                    at = tree(tokens, at, &path, found);
                    if tokens.get(at) == Some(&Token::Mark(',')) {
                        at += 1;
                    }
                }
                return at + 1;
            }
            _ => break,
        }
        at += 1;
        if tokens.get(at) != Some(&Token::Mark(':')) || tokens.get(at + 1) != Some(&Token::Mark(':')) {
            break;
        }
        at += 2;
    }
    found.push(path);
    if tokens.get(at) == Some(&Token::Word("as".to_owned())) {
        at += 2;
    }
    // A `*` ends its path.
    at + usize::from(tokens.get(at) == Some(&Token::Mark('*')))
}

#[test]
fn paths_declarations_and_lists_are_read() {
    let source = r##"
        //! use crate::comment;
        use crate::a::{b::C, d as e, f::*};
        pub mod g;
        #[cfg(test)]
        mod tests;
        const Q: char = '"';
        fn run<'a>(h: &'a super::h::I) -> [&str; 2] { ["lru", r#"larc:" use crate::text"#] }
        macro_rules! m { () => { $crate::hidden::X } }
        #[cfg(test)]
mod tests {
    use crate::test;
}
"##;
    let source = Source::new(
        "crates/x/src/y/mod.rs".to_owned(),
        &source.replace("        #[cfg(test)]\nmod tests {", "#[cfg(test)]\nmod tests {"),
    );
    let paths: Vec<_> = source.paths.iter().map(|path| path.join("::")).collect();
    assert_eq!(paths, ["crate::a::b::C", "crate::a::d", "crate::a::f", "super::h::I"]);
    assert_eq!(source.declared_files()[0], "crates/x/src/y/g.rs");
    assert_eq!((source.module.clone(), source.lines), (Some(vec!["y".to_owned()]), 9));
    assert!(source.lists().iter().any(|list| list.contains("lru") && list.contains("larc")));
}
