//! Columns of rows. Each figure has its name, meaning, unit and heading in one place, at its field. JSON, CSV, Parquet,
//! tables, reports and the page of figures are made from that.

use crate::spec_text::SpecText;

/// The value of a cell; `None` if the row does not have the figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A name.
    Text(Option<String>),
    /// A whole number.
    Count(Option<u64>),
    /// A real number.
    Ratio(Option<f64>),
}

impl Cell {
    /// Returns the cell as in CSV; empty if it has no value.
    pub fn text(&self) -> String {
        fn shown(value: &Option<impl ToString>) -> String {
            value.as_ref().map(ToString::to_string).unwrap_or_default()
        }
        match self {
            Cell::Text(value) => shown(value),
            Cell::Count(value) => shown(value),
            Cell::Ratio(value) => shown(value),
        }
    }

    /// The number of the cell, if it has one.
    pub fn number(&self) -> Option<f64> {
        match *self {
            Cell::Text(_) => None,
            Cell::Count(value) => value.map(|value| value as f64),
            Cell::Ratio(value) => value,
        }
    }
}

/// A type that a figure can have.
pub trait Figure {
    /// True if a value may be missing.
    const OPTIONAL: bool;
    /// The cell of a row without the figure.
    const NONE: Cell;

    /// Its cell.
    fn cell(&self) -> Cell;
}

macro_rules! figure_types {
    ($($type:ty, $kind:ident, $value:ident => $cell:expr;)*) => {
        $(impl Figure for $type {
            const OPTIONAL: bool = false;
            const NONE: Cell = Cell::$kind(None);

            fn cell(&self) -> Cell {
                let $value = self;
                Cell::$kind(Some($cell))
            }
        }

        impl Figure for Option<$type> {
            const OPTIONAL: bool = true;
            const NONE: Cell = Cell::$kind(None);

            fn cell(&self) -> Cell {
                Cell::$kind(self.as_ref().map(|$value| $cell))
            }
        })*
    };
}

figure_types! {
    String, Text, value => value.clone();
    SpecText, Text, value => value.to_string();
    &'static str, Text, value => (*value).to_owned();
    u64, Count, value => *value;
    f64, Ratio, value => *value;
}

/// Description of a figure.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its name in every output.
    pub name: &'static str,
    /// Unit; empty for names.
    pub unit: &'static str,
    /// Meaning, in sentences.
    pub(crate) meaning: &'static [&'static str],
    /// Heading in tables of a terminal, if they show it.
    pub head: Option<Head>,
}

impl About {
    /// Returns the meaning on one line.
    pub fn meaning(&self) -> String {
        self.meaning.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
    }

    /// Returns a long name: the start of the meaning, up to a colon.
    pub const fn title(&self) -> &'static str {
        let meaning = self.meaning[0].as_bytes();
        let mut end = 0;
        while end < meaning.len() && meaning[end] != b':' {
            end += 1;
        }
        // A line of documentation begins with a space.
        self.meaning[0].split_at(end).0.split_at(1).1
    }
}

/// Heading of a figure in narrow tables.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// The heading.
    pub text: &'static str,
    /// Note below the table; may be empty.
    pub note: &'static str,
    /// Format of its numbers.
    pub show: Show,
}

/// Format of numbers in narrow tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Show {
    /// By unit: bytes with a prefix, shares as percentages, durations with their unit.
    #[default]
    ByUnit,
    /// Numbers of blocks as bytes.
    Bytes,
    /// Rates and lifetimes, which are marked if the row has a caveat.
    Rate,
}

/// A figure of rows of type `R`.
#[derive(Debug)]
pub struct Column<R> {
    /// Its description.
    pub about: About,
    /// True if rows may lack it.
    pub optional: bool,
    /// The cell of a row without it.
    pub none: Cell,
    /// Returns its cell of a row.
    pub cell: fn(&R) -> Cell,
}

impl<R> Column<R> {
    /// Returns the cells of some rows; `None` is a row without the group of figures.
    pub fn cells(&self, rows: &[Option<&R>]) -> Vec<Cell> {
        rows.iter().map(|row| row.map_or_else(|| self.none.clone(), |row| (self.cell)(row))).collect()
    }
}

/// Returns the description of the figure `name`. In a constant, an unknown name does not compile.
pub const fn about<R>(columns: &'static [Column<R>], name: &str) -> About {
    let mut at = 0;
    while at < columns.len() {
        if is_same(columns[at].about.name.as_bytes(), name.as_bytes()) {
            return columns[at].about;
        }
        at += 1;
    }
    panic!("there is no such figure")
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// Declares a struct of figures, each with its meaning, unit and type, and the table of its columns. A figure for
/// tables in a terminal has a heading, a note below the table, and a format if its unit does not determine that.
///
/// `@flash` and `@log` before a struct insert the figures of that name of
/// [`cache_figures`](flashwise_core::cache_figures) between its own, which stand in two braces.
macro_rules! figures {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident {
            $(
                $(#[doc = $meaning:literal])+ $(#[serde($($serde:tt)*)])?
                $figure:ident: $type:ty, $unit:literal $(, $head:literal, $note:literal $(, $show:expr)?)?;
            )*
        }
        $($(#[doc = $other_meaning:literal])+ #[serde($($other_serde:tt)*)] $other:ident: $other_type:ty;)*
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
        pub struct $name {
            $($(#[doc = $meaning])+ $(#[serde($($serde)*)])? pub $figure: $type,)*
            $($(#[doc = $other_meaning])+ #[serde($($other_serde)*)] pub $other: $other_type,)*
        }

        impl $name {
            /// Its figures, in the order of every output.
            pub const COLUMNS: &'static [$crate::columns::Column<$name>] = &[$($crate::columns::Column {
                about: $crate::columns::About {
                    name: stringify!($figure),
                    unit: $unit,
                    meaning: &[$($meaning),+],
                    head: $crate::columns::head!($($head, $note $(, $show)?)?),
                },
                optional: <$type as $crate::columns::Figure>::OPTIONAL,
                none: <$type as $crate::columns::Figure>::NONE,
                cell: |row| $crate::columns::Figure::cell(&row.$figure),
            }),*];
        }
    };
    (@flash $(#[$attribute:meta])* pub struct $name:ident { $($before:tt)* } { $($after:tt)* } [$($flash:tt)*] [$($log:tt)*]) => {
        $crate::columns::figures! { $(#[$attribute])* pub struct $name { $($before)* $($flash)* $($after)* } }
    };
    (@log $(#[$attribute:meta])* pub struct $name:ident { $($before:tt)* } { $($after:tt)* } [$($flash:tt)*] [$($log:tt)*]) => {
        $crate::columns::figures! { $(#[$attribute])* pub struct $name { $($before)* $($log)* $($after)* } }
    };
}

/// The heading of a figure, if it has one.
macro_rules! head {
    () => {
        None
    };
    ($head:literal, $note:literal) => {
        $crate::columns::head!($head, $note, $crate::columns::Show::ByUnit)
    };
    ($head:literal, $note:literal, $show:expr) => {
        Some($crate::columns::Head { text: $head, note: $note, show: $show })
    };
}

pub(crate) use figures;
pub(crate) use head;
