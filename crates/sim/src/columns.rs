//! The figures of rows: each is named, described and given its unit once, where its field is. JSON, CSV, Parquet and the page of figures
//! come from that.

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

/// A figure of rows of type `R`.
#[derive(Debug)]
pub struct Column<R> {
    /// Its name in every output.
    pub name: &'static str,
    /// What it counts, or in what it is measured; empty for names.
    pub unit: &'static str,
    /// What it means, in sentences.
    pub meaning: &'static [&'static str],
    /// Whether rows may have none.
    pub optional: bool,
    /// Its cell where a row does not have it.
    pub none: Cell,
    /// Its cell of a row.
    pub cell: fn(&R) -> Cell,
}

impl<R> Column<R> {
    /// What it means, on one line.
    pub fn meaning(&self) -> String {
        self.meaning.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
    }

    /// Its cells of some rows, of which some have none of its group.
    pub fn cells(&self, rows: &[Option<&R>]) -> Vec<Cell> {
        rows.iter().map(|row| row.map_or_else(|| self.none.clone(), |row| (self.cell)(row))).collect()
    }
}

/// Declares a struct of figures, each with its meaning, its unit and its type, and the table of its columns.
macro_rules! figures {
    (
        $(#[$attribute:meta])*
        pub struct $name:ident {
            $($(#[doc = $meaning:literal])+ $(#[serde($($serde:tt)*)])? $figure:ident: $type:ty, $unit:literal;)*
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
                name: stringify!($figure),
                unit: $unit,
                meaning: &[$($meaning),+],
                optional: <$type as $crate::columns::Figure>::OPTIONAL,
                none: <$type as $crate::columns::Figure>::NONE,
                cell: |row| $crate::columns::Figure::cell(&row.$figure),
            }),*];
        }
    };
}

pub(crate) use figures;
