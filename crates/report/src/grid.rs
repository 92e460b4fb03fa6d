//! The rows of one trace as a grid of policies and cache sizes, for tables, charts and sentences.

use crate::numbers;
use flashwise_core::policy::Spec;
use flashwise_sim::endurance::Algorithm;
use flashwise_sim::results::{ResultRow, SpecText};

/// A policy of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridPolicy<'a> {
    /// Its name as given by the user, with options.
    pub name: &'a str,
    /// Its name without options.
    pub base: &'a str,
    /// True if it is offline: it knows the future, which no running cache does.
    pub offline: bool,
}

impl<'a> GridPolicy<'a> {
    fn new(policy: &'a SpecText) -> Self {
        let offline = Algorithm::parse(policy).map_or_else(
            |_| Spec::parse(policy).is_ok_and(|policy| policy.info().offline),
            |algorithm| algorithm.offline(),
        );
        GridPolicy { name: policy, base: policy.name(), offline }
    }
}

/// A cache size of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridSize<'a> {
    /// As given by the user.
    pub given: &'a str,
    /// In blocks.
    pub blocks: u64,
    /// In bytes; the size of the flash, if known.
    pub bytes: u64,
    /// True if the flash is larger than its cached blocks.
    pub is_more: bool,
}

impl GridSize<'_> {
    /// Returns the size for sentences and headings: `241 MiB (61,717 blocks)`, or `64 MiB (holds 11,385 blocks)` if
    /// metadata and free space take a part.
    pub fn named(&self) -> String {
        let holds = if self.is_more { "holds " } else { "" };
        format!("{} ({holds}{})", numbers::bytes(self.bytes), numbers::counted(self.blocks, "block", "blocks"))
    }
}

/// The rows of one trace by policy, in the order of first appearance, and by size, the smallest first.
#[derive(Debug)]
pub struct Grid<'a> {
    /// The policies.
    pub policies: Vec<GridPolicy<'a>>,
    /// The sizes; two with the same number of blocks are one.
    pub sizes: Vec<GridSize<'a>>,
    rows: &'a [ResultRow],
}

impl<'a> Grid<'a> {
    /// Returns the grid of `rows`, all of one trace. Of rows with the same policy and number of blocks the first
    /// counts.
    pub fn new(rows: &'a [ResultRow]) -> Grid<'a> {
        let (mut policies, mut sizes) = (Vec::<GridPolicy>::new(), Vec::<GridSize>::new());
        for row in rows {
            if !policies.iter().any(|policy| row.policy == policy.name) {
                policies.push(GridPolicy::new(&row.policy));
            }
            if !sizes.iter().any(|size| size.blocks == row.capacity_blocks) {
                let held = row.capacity_blocks.saturating_mul(row.block_size_bytes);
                let bytes = row.cache.as_ref().map_or(held, |cache| cache.flash_bytes.max(held));
                sizes.push(GridSize { given: &row.size, blocks: row.capacity_blocks, bytes, is_more: bytes > held });
            }
        }
        sizes.sort_by_key(|size| size.blocks);
        Grid { policies, sizes, rows }
    }

    /// The row of a policy and a size, if it was simulated.
    pub fn row(&self, policy: GridPolicy, size: GridSize) -> Option<&'a ResultRow> {
        self.rows.iter().find(|row| row.policy == policy.name && row.capacity_blocks == size.blocks)
    }

    /// MIN with bypass, which has the most hits possible.
    pub fn bound(&self) -> Option<GridPolicy<'a>> {
        self.policies.iter().copied().find(|policy| policy.base == "min")
    }

    /// The policies to choose from: the online ones, or all if there are none.
    pub fn candidates(&self) -> Vec<GridPolicy<'a>> {
        let online: Vec<_> = self.policies.iter().copied().filter(|policy| !policy.offline).collect();
        if online.is_empty() { self.policies.clone() } else { online }
    }
}
