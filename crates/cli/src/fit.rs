//! Output that fits the terminal: wide tables continue below, and sentences wrap between words.
//!
//! If standard output is no terminal, nothing wraps unless COLUMNS gives a width.

use std::io::IsTerminal;

/// Width of the output in columns; `None` is no limit.
pub fn width() -> Option<usize> {
    let given = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).filter(|&columns| columns > 0);
    let terminal = || {
        let stdout = std::io::stdout();
        stdout.is_terminal().then(terminal_size::terminal_size).flatten().map(|(width, _)| usize::from(width.0))
    };
    given.or_else(terminal)
}

/// Width of standard error in columns, if it is a terminal.
pub fn width_of_errors() -> Option<usize> {
    let stderr = std::io::stderr();
    stderr
        .is_terminal()
        .then(|| terminal_size::terminal_size_of(&stderr))
        .flatten()
        .map(|(width, _)| usize::from(width.0))
}

/// Wraps the lines of a text between words; continued lines are indented by `indent` spaces.
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

/// Splits a word at its commas if it is longer than a line, such as a list of names.
fn pieces(word: &str, width: usize) -> impl Iterator<Item = &str> {
    let is_long = word.trim_end().chars().count() > width;
    word.split_inclusive(move |letter| is_long && letter == ',')
}

/// Splits columns, given by number, into groups that fit the width. The first `keys` columns are in every group.
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
