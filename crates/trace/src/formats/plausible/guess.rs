//! The columns of a table that nothing names.

use flashwise_core::access::Op;

use super::super::fields::TimeUnit;
use super::super::spellings::known_op;
use super::columns::Places;
use super::{COMMAS, Columns, Fitting, LINES_MIN, Layout, Sample};

/// What 0 and 1 mostly say.
fn digit_op(word: &[u8]) -> Option<Op> {
    match word {
        b"0" => Some(Op::Read),
        b"1" => Some(Op::Write),
        _ => None,
    }
}

/// The columns and units that are likely in a table of requests.
pub fn table(sample: &Sample) -> Option<Fitting> {
    [Some(b','), Some(b';'), Some(b'\t'), Some(b'|'), None].into_iter().find_map(|separator| parted(sample, separator))
}

/// The same of a table whose fields `separator` parts.
fn parted(sample: &Sample, separator: Option<u8>) -> Option<Fitting> {
    let layout = Layout { separator, ..COMMAS };
    let mut rows: Vec<Vec<&[u8]>> = sample.lines().map(|line| layout.fields(line)).collect();
    let (lines, width) = (rows.len(), rows.last()?.len());
    rows.retain(|fields| fields.len() == width && fields.iter().any(|field| field.iter().any(u8::is_ascii_digit)));
    if rows.len() < LINES_MIN || 20 * rows.len() < 19 * lines || width < 2 {
        return None;
    }
    let all = |at: usize, is: &dyn Fn(&[u8]) -> bool| rows.iter().all(|row| is(row[at].trim_ascii()));
    let by_word = (0..width).find(|at| all(*at, &|word| matches!(known_op(word), Ok(Some(_)))));
    let has_both =
        |at: &usize| all(*at, &|word| digit_op(word).is_some()) && rows.iter().any(|row| row[*at] != rows[0][*at]);
    let op = by_word.or_else(|| (0..width).find(has_both));
    let layout = Layout { op, op_of: if by_word.is_some() { None } else { Some(digit_op) }, ..layout };
    let columns = Columns::new(&layout, &rows);
    let clocks = || (0..width).filter(|at| columns.is_clock(*at) && columns.distinct(*at) >= rows.len() / 20);
    let time = clocks().find(|at| columns.is_dated(*at)).or_else(|| clocks().next());
    let rest: Vec<usize> = (0..width).filter(|at| Some(*at) != time && columns.numbers(*at).is_some()).collect();
    // The first of those with most values.
    let offset = rest.iter().copied().rev().max_by_key(|at| columns.distinct(*at))?;
    let share_of_pages = |at: usize| {
        let numbers = columns.numbers(at).unwrap_or_default();
        let pages = numbers.iter().filter(|number| **number > 0 && number.is_multiple_of(8)).count();
        (pages, numbers.iter().filter(|number| **number > 0).count())
    };
    let length = rest.iter().copied().filter(|at| *at != offset).rev().max_by_key(|at| share_of_pages(*at))?;
    let is_left = |at: &usize| Some(*at) != time && Some(*at) != op && *at != offset && *at != length;
    // Numbers of which most are whole pages are another length.
    let names =
        |at: &usize| 2 * share_of_pages(*at).0 < rows.len() && (2..=rows.len() / 10).contains(&columns.distinct(*at));
    let volume = (0..width).filter(is_left).filter(names).take(1).collect();
    Some(columns.likely_at(&Places { time, offset, length, volume }, time.map(|_| TimeUnit::Seconds)))
}
