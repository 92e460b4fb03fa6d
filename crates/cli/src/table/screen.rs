//! Layout of a table of figures on the screen.
//!
//! A table that fits has a line for each row. A wider one states once what all rows have in common. If it is still too
//! wide, figures go down the screen and rows across. If that does not fit either, the table continues below itself. A
//! single row is a list, each figure with its note.

use comfy_table::Table;

use super::{GAP, plain};
use crate::fit;

/// Figures of some rows.
#[derive(Debug)]
pub struct FigureTable<'a> {
    /// Headings of columns. Names, such as that of the policy, come first.
    pub header: Vec<&'a str>,
    /// Number of columns that are names.
    pub names: usize,
    /// The meaning of each column, or nothing: for the list of a single row.
    pub notes: Vec<&'a str>,
    /// The cells of each row.
    pub rows: Vec<Vec<String>>,
    /// Rows that start a group.
    pub begins: Vec<usize>,
}

impl FigureTable<'_> {
    /// Returns the figures: a table, or what fits the width.
    pub fn print(&self, width: Option<usize>) -> String {
        let all: Vec<usize> = (0..self.header.len()).collect();
        let Some(limit) = width.filter(|&limit| !self.fits(&all, limit)) else { return self.table(&all) };
        if let [row] = &self.rows[..] {
            return self.list(row, limit);
        }
        let (same, other): (Vec<usize>, Vec<usize>) = all.into_iter().partition(|&column| self.is_same(column));
        let same: Vec<String> =
            same.iter().map(|&column| format!("{} {}", self.header[column], self.rows[0][column])).collect();
        let same = match same.is_empty() {
            true => String::new(),
            false => fit::sentences(&format!("In all rows: {}.", same.join(", ")), 0, width) + "\n\n",
        };
        let figures = if self.fits(&other, limit) { Some(self.table(&other)) } else { self.across(&other, limit) };
        same + &figures.unwrap_or_else(|| self.below(&other, limit))
    }

    fn is_same(&self, column: usize) -> bool {
        self.rows.iter().all(|row| row[column] == self.rows[0][column])
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].as_str());
        cells.chain([self.header[column]]).map(|text| text.chars().count()).max().unwrap_or(0)
    }

    fn fits(&self, columns: &[usize], limit: usize) -> bool {
        columns.iter().map(|&column| self.width(column) + GAP).sum::<usize>() <= limit + GAP
    }

    /// A line for each row.
    fn table(&self, columns: &[usize]) -> String {
        let header: Vec<&str> = columns.iter().map(|&column| self.header[column]).collect();
        let mut table = plain(&header, columns.iter().filter(|&&column| column < self.names).count());
        for (number, row) in self.rows.iter().enumerate() {
            if self.begins.contains(&number) {
                table.add_row(columns.iter().map(|_| ""));
            }
            table.add_row(columns.iter().map(|&column| &row[column]));
        }
        table.trim_fmt()
    }

    /// A column for each row, if that fits.
    fn across(&self, columns: &[usize], limit: usize) -> Option<String> {
        let of_row = |row: &Vec<String>| columns.iter().map(|&column| row[column].chars().count()).max().unwrap_or(0);
        let headings = columns.iter().map(|&column| self.header[column].chars().count()).max()?;
        let wide = headings + self.rows.iter().map(|row| GAP + of_row(row)).sum::<usize>();
        let line =
            |column: usize| [self.header[column]].into_iter().chain(self.rows.iter().map(move |row| &row[column][..]));
        let (first, others) = columns.split_first().filter(|_| wide <= limit)?;
        let mut table: Table = plain(&line(*first).collect::<Vec<_>>(), 1);
        for &column in others {
            table.add_row(line(column));
        }
        Some(table.trim_fmt())
    }

    /// Tables below each other, each with the names.
    fn below(&self, columns: &[usize], limit: usize) -> String {
        let widths: Vec<usize> = columns.iter().map(|&column| self.width(column) + GAP).collect();
        let keys = columns.iter().filter(|&&column| column < self.names).count();
        let groups = fit::groups(&widths, keys, Some(limit + GAP)).into_iter();
        let of_group = |group: Vec<usize>| self.table(&group.iter().map(|&at| columns[at]).collect::<Vec<_>>());
        groups.map(of_group).collect::<Vec<_>>().join("\n\n")
    }

    /// The one row, a line for each figure.
    fn list(&self, row: &[String], limit: usize) -> String {
        let len = |text: &str| text.chars().count();
        let headings = self.header.iter().map(|head| len(head)).max().unwrap_or(0);
        let numbers = row[self.names..].iter().map(|cell| len(cell)).max().unwrap_or(0);
        let indent = headings + numbers + 2 * GAP;
        let mut lines = Vec::new();
        for (column, (head, cell)) in self.header.iter().zip(row).enumerate() {
            if column < self.names {
                lines.push(format!("{head:<headings$}  {cell}"));
                continue;
            }
            if column == self.names {
                lines.push(String::new());
            }
            let line = format!("{head:<headings$}  {cell:>numbers$}  {}", self.notes[column]);
            lines.push(fit::sentences(line.trim_end(), indent, Some(limit)));
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures<'a>(rows: &[&[&str]]) -> FigureTable<'a> {
        FigureTable {
            header: vec!["policy", "size", "hits", "erased", "copied"],
            names: 2,
            notes: vec!["", "", "share of block accesses", "erase units", ""],
            rows: rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect(),
            begins: vec![2],
        }
    }

    #[test]
    fn a_table_that_is_too_wide_says_once_what_is_the_same() {
        let rows: &[&[&str]] = &[
            &["lru", "5%", "5.13%", "17,087", "0"],
            &["lru", "10%", "11.85%", "16,924", "0"],
            &["larc", "5%", "-", "6,255", "0"],
        ];
        let table = figures(rows);
        let at = |width| table.print(width);
        let whole = "policy  size    hits  erased  copied\nlru     5%     5.13%  17,087       0\nlru     10%   11.85%  16,924       0\n\n\
                     larc    5%         -   6,255       0";
        assert_eq!(at(None), whole);
        assert_eq!(at(Some(61)), whole);
        let without = "In all rows: copied \
            0.\n\npolicy  size    hits  erased\nlru     5%     5.13%  17,087\nlru     10%   11.85%  16,924\n\n\
                       larc    5%         -   6,255";
        assert!(at(Some(35)).starts_with(without), "{}", at(Some(35)));
        assert!(at(Some(28)).starts_with(without), "{}", at(Some(28)));
    }

    #[test]
    fn figures_go_down_where_rows_fit_across_alone_and_on_below_where_nothing_fits() {
        let rows: [&[&str]; 2] =
            [&["lru", "5%", "5.13%", "17,087", "719,348"], &["lru", "10%", "11.85%", "16,924", "719,340"]];
        let header = vec!["policy", "size", "hits", "erased", "written back"];
        let table = FigureTable { header, begins: Vec::new(), ..figures(&rows) };
        let across = "In all rows: policy lru.\n\n\
                      size               5%      10%\n\
                      hits            5.13%   11.85%\n\
                      erased         17,087   16,924\n\
                      written back  719,348  719,340";
        assert!(table.print(Some(34)).starts_with("In all rows: policy lru.\n\nsize    hits  erased  written back\n"));
        assert!(table.print(Some(33)).starts_with(across), "{}", table.print(Some(33)));
        assert!(table.print(Some(30)).starts_with(across), "{}", table.print(Some(30)));
        let below = "size    hits  erased\n5%     5.13%  17,087\n10%   11.85%  16,924\n\n\
                     size  written back\n5%         719,348\n10%        719,340";
        assert!(table.print(Some(29)).contains(below), "{}", table.print(Some(29)));
    }

    #[test]
    fn a_single_row_is_a_list() {
        let table = figures(&[&["larc:fill=ghost", "5%", "5.13%", "17,087", "0"]]);
        let list = "policy  larc:fill=ghost\nsize    5%\n\nhits     5.13%  share \
            of\n                block\n                accesses\n\
                    erased  17,087  erase units\ncopied       0";
        assert_eq!(table.print(Some(27)), list);
    }
}
