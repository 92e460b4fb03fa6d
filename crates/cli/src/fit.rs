//! What is printed fits the terminal: tables go on below where they are too wide, and sentences are broken between words.
//!
//! Where standard output is no terminal, nothing is broken, unless COLUMNS says how wide it is.

use std::io::IsTerminal;

/// Columns that output may take; none where there is no limit.
pub fn width() -> Option<usize> {
    let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).filter(|&columns| columns > 0);
    let terminal = || {
        let stdout = std::io::stdout();
        stdout.is_terminal().then(terminal_size::terminal_size).flatten().map(|(width, _)| usize::from(width.0))
    };
    told.or_else(terminal)
}

/// Columns of the terminal that standard error is, if it is one.
pub fn width_of_errors() -> Option<usize> {
    let stderr = std::io::stderr();
    stderr
        .is_terminal()
        .then(|| terminal_size::terminal_size_of(&stderr))
        .flatten()
        .map(|(width, _)| usize::from(width.0))
}

/// Breaks the lines of a text between words; what follows a break stands behind `indent` spaces.
pub fn sentences(text: &str, indent: usize, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_owned() };
    let lines: Vec<String> = text.split('\n').map(|line| wrapped(line, indent, width)).collect();
    lines.join("\n")
}

fn wrapped(line: &str, indent: usize, width: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in line.split_inclusive(' ').flat_map(|word| pieces(word, width.saturating_sub(indent))) {
        let len = word.trim_end().chars().count();
        if column > indent && column + len > width {
            out.truncate(out.trim_end().len());
            out += "\n";
            out += &" ".repeat(indent);
            column = indent;
        }
        out += word;
        column += word.chars().count();
    }
    out
}

/// A word, or one that is longer than a line by its commas: a list of names.
fn pieces(word: &str, width: usize) -> impl Iterator<Item = &str> {
    let is_long = word.trim_end().chars().count() > width;
    word.split_inclusive(move |letter| is_long && letter == ',')
}

/// Groups of columns by number, each of which fits beside the first `keys`, which stand in every group.
pub fn groups(widths: &[usize], keys: usize, width: Option<usize>) -> Vec<Vec<usize>> {
    let Some(width) = width else { return vec![(0..widths.len()).collect()] };
    let beside: usize = widths[..keys].iter().sum();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut taken = 0;
    for (number, &of_column) in widths.iter().enumerate().skip(keys) {
        match groups.last_mut() {
            Some(group) if taken + of_column <= width => group.push(number),
            _ => {
                groups.push((0..keys).chain([number]).collect());
                taken = beside;
            }
        }
        taken += of_column;
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_go_on_below_where_they_do_not_fit() {
        let widths = [10, 5, 20, 20, 20, 60];
        assert_eq!(groups(&widths, 2, None), [[0, 1, 2, 3, 4, 5]]);
        assert_eq!(groups(&widths, 2, Some(135)), [vec![0, 1, 2, 3, 4, 5]]);
        assert_eq!(groups(&widths, 2, Some(80)), [vec![0, 1, 2, 3, 4], vec![0, 1, 5]]);
        assert_eq!(groups(&widths, 2, Some(1)), [[0, 1, 2], [0, 1, 3], [0, 1, 4], [0, 1, 5]]);
    }

    #[test]
    fn sentences_are_broken_between_words() {
        assert_eq!(sentences("one two three", 0, None), "one two three");
        assert_eq!(sentences("one two three", 0, Some(13)), "one two three");
        assert_eq!(sentences("one two three", 0, Some(12)), "one two\nthree");
        assert_eq!(sentences("one two three", 2, Some(6)), "one\n  two\n  three");
        assert_eq!(sentences("  a  b\nc", 2, Some(80)), "  a  b\nc");
        assert_eq!(sentences("of one,two,three", 2, Some(9)), "of one,\n  two,\n  three");
        assert_eq!(sentences("    a,b c", 4, Some(7)), "    a,b\n    c");
    }
}
