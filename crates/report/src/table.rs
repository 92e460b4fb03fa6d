//! Tables as the page shows them: text only, escaped by the template.

use serde::Serialize;

use crate::draw::charts::LegendKey;

/// A table whose rows start with a head.
/// A chart for wide and for narrow screens.
#[derive(Debug, Serialize)]
pub struct Picture {
    pub caption: String,
    pub wide: String,
    pub narrow: String,
    pub legend: Vec<LegendKey>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// Caption.
    pub caption: String,
    /// Heads of the columns; the first is above the rows' heads.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// A row of a table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Head.
    pub head: String,
    /// The cells, one fewer than the columns.
    pub cells: Vec<String>,
}

impl Table {
    /// Returns a table of these columns without rows.
    pub fn new<S: Into<String>>(caption: impl Into<String>, columns: impl IntoIterator<Item = S>) -> Table {
        Table { caption: caption.into(), columns: columns.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn push(&mut self, head: impl Into<String>, cells: Vec<String>) {
        assert_eq!(cells.len() + 1, self.columns.len(), "a row fills its table");
        self.rows.push(Row { head: head.into(), cells });
    }
}

/// A chart and its numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Caption.
    pub caption: String,
    /// The chart, as an `svg` element.
    pub svg: String,
    /// The chart for a narrow screen.
    pub narrow: String,
    /// The switches of its series.
    pub legend: Vec<LegendKey>,
    /// The numbers of the chart.
    pub table: Table,
    /// True if the table is shown from the start.
    pub open: bool,
}
