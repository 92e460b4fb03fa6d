//! Tables as the page shows them: text only, escaped by the template.

use serde::Serialize;

use super::charts::LegendKey;

/// A table whose rows begin with what they are about.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// Heads of the columns; the first is that of the rows' heads.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// A row of a table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What it is about.
    pub head: String,
    /// The cells, one less than there are columns.
    pub cells: Vec<String>,
}

impl Table {
    /// A table of these columns, without rows.
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
    /// What it shows.
    pub caption: String,
    /// The chart, as an `svg` element.
    pub svg: String,
    /// The same for a narrow screen.
    pub narrow: String,
    /// The switches of its series.
    pub legend: Vec<LegendKey>,
    /// The numbers of the chart.
    pub table: Table,
    /// Whether the table is shown from the start.
    pub open: bool,
}
