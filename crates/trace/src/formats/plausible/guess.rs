//! Guesses the columns of a table without names.

use flashwise_core::access::Op;

use super::super::fields::TimeUnit;
use super::super::spellings::known_op;
use super::columns::Places;
use super::{COMMAS, Columns, Fitting, LINES_MIN, Layout, Sample};

/// Returns the usual meaning of 0 and 1.
fn digit_op(word: &[u8]) -> Option<Op> {
    match word {
        b"0" => Some(Op::Read),
        b"1" => Some(Op::Write),
        _ => None,
    }
}

/// Separators that are tried; `None` stands for blanks.
const SEPARATORS: [Option<u8>; 5] = [Some(b','), Some(b';'), Some(b'\t'), Some(b'|'), None];

fn is_json(sample: &Sample) -> bool {
    sample.bytes.trim_ascii_start().starts_with(b"{")
}

/// Returns the likely columns and units of a table of requests.
pub fn table(sample: &Sample) -> Option<Fitting> {
    SEPARATORS.into_iter().filter(|_| !is_json(sample)).find_map(|separator| parted(sample, separator))
}

/// Returns the likely `--format` for a table of objects, which have names or numbers and no lengths.
pub fn objects(sample: &Sample) -> Option<String> {
    SEPARATORS.into_iter().filter(|_| !is_json(sample)).find_map(|separator| objects_parted(sample, separator))
}

/// Returns the likely columns and units of a table whose fields are separated by `separator`.
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
    // The first column among those with most distinct values.
    let offset = rest.iter().copied().rev().max_by_key(|at| columns.distinct(*at))?;
    let share_of_pages = |at: usize| {
        let numbers = columns.numbers(at).unwrap_or_default();
        let pages = numbers.iter().filter(|number| **number > 0 && number.is_multiple_of(8)).count();
        (pages, numbers.iter().filter(|number| **number > 0).count())
    };
    let length = rest.iter().copied().filter(|at| *at != offset).rev().max_by_key(|at| share_of_pages(*at))?;
    let is_left = |at: &usize| Some(*at) != time && Some(*at) != op && *at != offset && *at != length;
    // Numbers that are mostly whole pages are another length.
    let names =
        |at: &usize| 2 * share_of_pages(*at).0 < rows.len() && (2..=rows.len() / 10).contains(&columns.distinct(*at));
    let volume = (0..width).filter(is_left).filter(names).take(1).collect();
    Some(columns.likely_at(&Places { time, offset, length, volume }, time.map(|_| TimeUnit::Seconds)))
}

/// Returns the likely `--format` for objects in a table with this separator.
fn objects_parted(sample: &Sample, separator: Option<u8>) -> Option<String> {
    const IDS: [&str; 9] = ["key", "id", "obj", "object", "object_id", "obj_id", "uuid", "hash", "url"];
    let layout = Layout { separator, ..COMMAS };
    let mut rows: Vec<Vec<&[u8]>> = sample.lines().map(|line| layout.fields(line)).collect();
    let (lines, width) = (rows.len(), rows.last()?.len());
    rows.retain(|fields| fields.len() == width);
    if rows.len() < LINES_MIN || 20 * rows.len() < 19 * lines || width < 2 {
        return None;
    }
    let has_header = !rows[0].iter().any(|field| field.iter().any(u8::is_ascii_digit));
    let names: Vec<String> = if has_header {
        rows.remove(0).iter().map(|name| String::from_utf8_lossy(name).trim().to_ascii_lowercase()).collect()
    } else {
        Vec::new()
    };
    let columns = Columns::new(&layout, &rows);
    let is_id = |name: &String| IDS.contains(&name.as_str());
    let named = names.iter().position(is_id);
    let time = (0..width).find(|at| columns.is_clock(*at) && Some(*at) != named);
    let most = (0..width).filter(|at| Some(*at) != time).max_by_key(|at| columns.distinct(*at));
    let id = named.or_else(|| most.filter(|at| columns.distinct(*at) > rows.len() / 20))?;
    let op = (0..width).find_map(|at| Some((at, op_words(&rows, at)?)).filter(|_| at != id));
    let mut options = Vec::new();
    options.extend(separator.is_none().then(|| "delimiter=space".to_owned()));
    options.extend(time.map(|at| format!("time={at}")));
    options.extend(op.map(|(at, words)| format!("op={at}{words}")));
    options.push(format!("hash={id}"));
    Some(format!("csv:{}", options.join(",")))
}

/// Returns the options of `csv` for the words in a column, if all of them name operations on objects.
fn op_words(rows: &[Vec<&[u8]>], at: usize) -> Option<String> {
    let mut words: Vec<&[u8]> = rows.iter().map(|row| row[at].trim_ascii()).collect();
    words.sort_unstable();
    words.dedup();
    if words.iter().all(|word| matches!(known_op(word), Ok(Some(_)))) {
        return Some(String::new());
    }
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    for word in words {
        let word = std::str::from_utf8(word).ok()?;
        match word.to_ascii_lowercase().as_str() {
            "get" | "gets" | "read" | "fetch" | "head" => reads.push(word),
            "set" | "put" | "write" | "add" | "post" | "update" | "insert" | "replace" => writes.push(word),
            _ => return None,
        }
    }
    let options = [("read", reads), ("write", writes)];
    let options = options.iter().filter(|(_, words)| !words.is_empty());
    Some(options.map(|(key, words)| format!(",{key}={}", words.join("/"))).collect())
}
