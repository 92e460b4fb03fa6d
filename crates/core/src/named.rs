//! Rows of a table that users select by name, with options: replacement policies, container policies, admission rules.
//!
//! ```
//! use flashwise_core::policy::Spec;
//!
//! let larc = Spec::parse("larc:fill=ghost,cr=50%")?;
//! assert_eq!(larc.info().title, "Lazy Adaptive Replacement Cache");
//! assert_eq!(larc.options().number("cr"), 0.5);
//! assert_eq!(larc.options().text("writes"), "filter", "omitted options have their default");
//! assert_eq!(larc.to_string(), "larc:fill=ghost,cr=50%");
//!
//! assert_eq!(Spec::parse("LARC:fill=ghost")?.to_string(), "larc:fill=ghost");
//! assert_eq!(Spec::parse("S3FIFO")?.to_string(), "s3-fifo");
//! assert_eq!(Spec::parse("belady")?.to_string(), "fif");
//!
//! let error = "lrac".parse::<Spec>().unwrap_err();
//! let expected = "unknown policy 'lrac' (did you mean 'larc'?); expected one of: lru, fifo, ";
//! assert!(error.to_string().starts_with(expected));
//! # Ok::<(), flashwise_core::options::OptionError>(())
//! ```

use std::fmt;
use std::str::FromStr;

use crate::options::{OptionError, Options, Parameter, is_called, named};

/// A row of a table.
pub trait Row: fmt::Debug + 'static {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Its parameters.
    fn parameters(&self) -> &'static [Parameter];
}

/// A table whose rows users select by name. Its type stands for the table and has no values.
pub trait Table: 'static {
    /// The type of a row.
    type Row: Row;

    /// The kind of thing in this table, for error messages.
    const WHAT: &'static str;

    /// Aliases of rows, each with the row's own name.
    const ALIASES: &'static [(&'static str, &'static str)] = &[];

    /// Returns the rows, in the order of the table.
    fn rows() -> &'static [&'static Self::Row];

    /// Rejects options that are each valid, but make no sense together.
    fn check(row: &Self::Row, options: &Options) -> Result<(), OptionError> {
        let _ = (row, options);
        Ok(())
    }
}

/// A row of a table and its options as a user wrote them: `lru`, `larc:fill=ghost`, `size:max=64KiB`.
pub struct Named<T: Table> {
    text: String,
    row: &'static T::Row,
    options: Options,
}

impl<T: Table> Named<T> {
    /// Parses a name, or an alias, spelled as in [`is_called`], and options. The result is displayed with the row's own
    /// name.
    pub fn parse(text: &str) -> Result<Self, OptionError> {
        let (given, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
        let alias = T::ALIASES.iter().find(|(alias, _)| is_called(given, alias));
        let meant = alias.map_or_else(|| text.to_owned(), |(_, name)| format!("{name}{rest}"));
        let (row, options) = named(T::WHAT, &meant, T::rows().iter().copied(), |row| row.name())?;
        let options = Options::parse(row.name(), row.parameters(), options)?;
        T::check(row, &options)?;
        Ok(Named { text: format!("{}{rest}", row.name()), row, options })
    }

    /// Sets the text that is displayed.
    pub fn called(self, text: &str) -> Self {
        Named { text: text.to_owned(), ..self }
    }

    /// Returns it with another value of option `name`, and displayed so.
    ///
    /// # Errors
    /// There is no such option, or it does not accept the value.
    pub fn with(&self, name: &str, value: &str) -> Result<Self, OptionError> {
        let options = self.options.with(self.row.name(), name, value)?;
        T::check(self.row, &options)?;
        Ok(Named { text: format!("{}:{options}", self.row.name()), row: self.row, options })
    }

    /// Returns the selected row.
    pub fn info(&self) -> &'static T::Row {
        self.row
    }

    /// Returns the options, with defaults for the omitted ones.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// True if `row` is the selected one.
    pub(crate) fn is(&self, row: &'static T::Row) -> bool {
        std::ptr::eq(self.row, row)
    }
}

impl<T: Table> Clone for Named<T> {
    fn clone(&self) -> Self {
        Named { text: self.text.clone(), row: self.row, options: self.options.clone() }
    }
}

impl<T: Table> fmt::Debug for Named<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", T::WHAT, self.text)
    }
}

impl<T: Table> fmt::Display for Named<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<T: Table> FromStr for Named<T> {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        Named::parse(text)
    }
}
