//! Names of layouts.

use std::fmt;
use std::str::FromStr;

use flashwise_core::options::word;

use crate::wlfc::System;

/// Layout of cached blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutName {
    /// No flash.
    None,
    /// Each block in a slot of its own.
    InPlace,
    /// The log of a server's cache.
    Log,
    /// Erase units that are written and reset whole.
    Containers,
    /// Buckets.
    Buckets(System),
}

/// A row of the table of layouts.
#[derive(Clone, Copy, Debug)]
pub struct LayoutRow {
    /// Name.
    pub name: &'static str,
    /// Further names.
    pub aliases: &'static [&'static str],
    /// Meaning, for help.
    pub meaning: &'static str,
    layout: LayoutName,
}

impl LayoutName {
    /// All layouts, in listing order.
    pub const ROWS: [LayoutRow; 7] = [
        row("none", &[], "No flash: decisions of policies only", LayoutName::None),
        row("in-place", &["slots"], "Each block in a slot of its own on a modelled SSD", LayoutName::InPlace),
        row("log", &[], "The log of the whole cache that flashwise serve runs", LayoutName::Log),
        row("containers", &[], "Erase units that are written and reset whole", LayoutName::Containers),
        row(System::Wlfc.name(), &[], "Buckets on host-managed flash", LayoutName::Buckets(System::Wlfc)),
        row(
            System::WlfcC.name(),
            &["wlfc-c"],
            "Buckets on host-managed flash, behind RAM",
            LayoutName::Buckets(System::WlfcC),
        ),
        row(System::BLike.name(), &[], "Buckets on a conventional SSD", LayoutName::Buckets(System::BLike)),
    ];
}

const fn row(
    name: &'static str,
    aliases: &'static [&'static str],
    meaning: &'static str,
    layout: LayoutName,
) -> LayoutRow {
    LayoutRow { name, aliases, meaning, layout }
}

impl FromStr for LayoutName {
    type Err = String;

    fn from_str(text: &str) -> Result<LayoutName, String> {
        match LayoutName::ROWS.iter().find(|row| row.aliases.contains(&text)) {
            Some(row) => Ok(row.layout),
            None => word(text, &LayoutName::ROWS.map(|row| (row.name, row.layout))),
        }
    }
}

impl fmt::Display for LayoutName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = LayoutName::ROWS.iter().find(|row| row.layout == *self).expect("each layout has a row");
        f.write_str(row.name)
    }
}
