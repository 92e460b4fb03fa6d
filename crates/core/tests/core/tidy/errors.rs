//! Texts of errors that have a cause.
//!
//! An error is displayed with its causes after it. So its text must not repeat its cause: either the error has a
//! source, or its text has the cause.

/// Returns the fields after an attribute: up to the end of its first brackets.
fn fields(after: &str) -> &str {
    let mut rest = after;
    loop {
        rest = rest.trim_start();
        if rest.starts_with("//") {
            rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
        } else if rest.starts_with("#[") {
            rest = rest.split_once(']').map_or("", |(_, rest)| rest);
        } else {
            break;
        }
    }
    let Some(start) = rest.find(['{', '(', ',', ';', '}']) else { return "" };
    if !rest[start..].starts_with(['{', '(']) {
        return "";
    }
    let mut depth = 0;
    let end = rest[start..].find(|letter| {
        depth += i32::from(['{', '('].contains(&letter)) - i32::from(['}', ')'].contains(&letter));
        depth == 0
    });
    &rest[start..start + end.unwrap_or(0)]
}

/// Returns the field that is an error's cause: a name, or a number.
fn cause(fields: &str) -> Option<&str> {
    let named = fields.starts_with('{');
    for mark in ["#[from]", "#[source]"] {
        if let Some((_, field)) = fields.split_once(mark) {
            return if named { field.trim().split(':').next() } else { Some("0") };
        }
    }
    let has_source = named
        && fields.split(['{', ',', '\n']).any(|field| field.trim().trim_start_matches("pub ").starts_with("source:"));
    has_source.then_some("source")
}

/// Returns the texts in a file that repeat their cause.
pub fn said_twice(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (start, attribute) in source.match_indices("#[error(") {
        let rest = &source[start + attribute.len()..];
        let Some(end) = rest.find(")]\n") else { continue };
        let (text, after) = (&rest[..end], &rest[end + 2..]);
        let Some(cause) = cause(fields(after)) else { continue };
        let says =
            ["{NAME}", "{NAME:", " .NAME", "(.NAME"].iter().any(|says| text.contains(&says.replace("NAME", cause)));
        if says {
            found.push(text.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
    found
}

#[test]
fn texts_with_their_cause_are_found() {
    let source = r##"
        #[error("{path}: {source}")]
        A { path: String, source: io::Error },
        #[error("{path}: cannot be read")]
        B { path: String, source: io::Error },
        /// A wrong input.
        #[error("wrong: {0}")]
        C(#[from] io::Error),
        #[error(transparent)]
        D(#[from] io::Error),
        #[error("{found}, expected {}", listed(.source))]
        #[allow(missing_docs)]
        E {
            /// The value found.
            found: String,
            source: Listed,
        },
        #[error("{resource}: {0}", .1)]
        F,
        #[error("{path}: {error}")]
        G { path: String, error: io::Error },
    "##;
    let twice = ["\"{path}: {source}\"", "\"wrong: {0}\"", "\"{found}, expected {}\", listed(.source)"];
    assert_eq!(said_twice(source), twice);
}
