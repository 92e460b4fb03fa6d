//! Charts, their scales and their looks.

pub(crate) mod boxes;
pub(crate) mod charts;
pub(crate) mod labels;
pub(crate) mod look;
pub(crate) mod panels;
pub(crate) mod scales;
pub(crate) mod timeline;
