//! The figures of rows: each is named, described and given its unit and its heading once, where its field is. JSON, CSV, Parquet, the tables of
//! terminals and reports, and the page of figures come from that.

/// What a cell of a column holds; none where there is no such figure.
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
    /// As CSV has it; empty where there is none.
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

    /// Its number, if it holds one.
    pub fn number(&self) -> Option<f64> {
        match *self {
            Cell::Text(_) => None,
            Cell::Count(value) => value.map(|value| value as f64),
            Cell::Ratio(value) => value,
        }
    }
}

/// A type that a figure can be of.
pub trait Figure {
    /// Whether there may be none.
    const OPTIONAL: bool;
    /// Its cell where a row has it not.
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
    &'static str, Text, value => (*value).to_owned();
    u64, Count, value => *value;
    f64, Ratio, value => *value;
}

/// What is said of a figure.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its name in every output.
    pub name: &'static str,
    /// What it counts, or in what it is measured; empty for names.
    pub unit: &'static str,
    /// What it means, in sentences.
    pub(crate) meaning: &'static [&'static str],
    /// How tables in a terminal show it, if they do.
    pub head: Option<Head>,
}

impl About {
    /// What it means, on one line.
    pub fn meaning(&self) -> String {
        self.meaning.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
    }

    /// What it is called where there is room: how its meaning begins, before a colon.
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

/// The heading of a figure in tables that have to be narrow.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// The heading.
    pub text: &'static str,
    /// What is said of it below the table; empty if nothing is.
    pub note: &'static str,
    /// How its numbers are shown.
    pub show: Show,
}

/// How numbers are shown in tables that have to be narrow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Show {
    /// As suits their unit: bytes with a prefix, shares as percentages, other real numbers with two digits.
    #[default]
    ByUnit,
    /// Numbers of blocks as bytes.
    Bytes,
    /// Real numbers with this many digits after the point.
    Digits(u8),
    /// Real numbers with an exponent.
    Exponent,
    /// Rates and lifetimes, which are marked where what limits them is said of the row.
    Rate,
}

/// A figure of rows of type `R`.
#[derive(Debug)]
pub struct Column<R> {
    /// What is said of it.
    pub about: About,
    /// Whether rows may have none.
    pub optional: bool,
    /// Its cell where a row does not have it.
    pub none: Cell,
    /// Its cell of a row.
    pub cell: fn(&R) -> Cell,
}

impl<R> Column<R> {
    /// Its cells of some rows, of which some have none of its group.
    pub fn cells(&self, rows: &[Option<&R>]) -> Vec<Cell> {
        rows.iter().map(|row| row.map_or_else(|| self.none.clone(), |row| (self.cell)(row))).collect()
    }
}

/// What is said of the figure of this name, which there must be: a constant is not made of one that there is not.
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

/// Declares a struct of figures, each with its meaning, its unit and its type, and the table of its columns. What tables in a terminal show has a
/// heading, what is said of it below them, and how it is shown if that does not follow from its unit.
///
/// `@flash` and `@log` before a struct put the figures of that name of [`cache_figures`](flashwise_core::cache_figures) between its own, which stand
/// in two braces.
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
