//! File sets and random variables of Filebench 1.4.9.1.

use std::collections::BTreeSet;

use rand::seq::SliceRandom;
use rand::{Rng, RngExt};
use rand_distr::{Distribution, Gamma};

use super::guest::{Disk, FileId, Guest};

/// The distribution of a random variable: percentages of the values with their lowest and highest value, in KiB.
pub type Table = &'static [(u32, u64, u64)];

/// Returns a value from a table, in bytes; a whole number of KiB.
pub fn tabular(table: Table, random: &mut impl Rng) -> u64 {
    let mut percent = random.random_range(0..100);
    for &(share, low, high) in table {
        if percent < share {
            return random.random_range(low..=high) << 10;
        }
        percent -= share;
    }
    unreachable!("the shares of a table add up to 100")
}

/// Returns a file size in bytes, from a gamma distribution with Filebench's shape of 1.5.
pub fn gamma_size(mean_bytes: u64, random: &mut impl Rng) -> u64 {
    let gamma = Gamma::new(1.5, mean_bytes as f64 / 1.5).expect("shape and scale are above 0");
    gamma.sample(random) as u64
}

/// Files by index. Missing ones can be created.
#[derive(Debug)]
pub struct FileSet {
    /// The initial size of each file, in bytes.
    sizes: Vec<u64>,
    files: Vec<Option<FileId>>,
    existing: BTreeSet<u32>,
    missing: BTreeSet<u32>,
    /// Distance between two directories on the disk, in blocks.
    directory_blocks: f64,
}

/// Mean number of files in a directory, in both workloads.
const DIRECTORY_FILES: u32 = 20;

impl FileSet {
    /// Creates a set of files with these sizes, over the first `blocks` blocks of the disk. Of them `existing_percent`
    /// exist. They are placed in random order, each as close as possible to the others of its directory.
    pub fn new(
        guest: &mut Guest<impl Disk>,
        sizes: Vec<u64>,
        existing_percent: u32,
        blocks: u32,
        random: &mut impl Rng,
    ) -> Self {
        let entries = sizes.len() as u32;
        let directories = entries.div_ceil(DIRECTORY_FILES);
        let mut set = Self {
            files: vec![None; sizes.len()],
            sizes,
            existing: BTreeSet::new(),
            missing: BTreeSet::new(),
            directory_blocks: f64::from(blocks) / f64::from(directories),
        };
        let mut order: Vec<u32> = (0..entries).collect();
        order.shuffle(random);
        for index in order {
            if random.random_range(0..100) < existing_percent {
                set.files[index as usize] = Some(guest.make(set.goal(index), set.sizes[index as usize]));
                set.existing.insert(index);
            } else {
                set.missing.insert(index);
            }
        }
        set
    }

    fn goal(&self, index: u32) -> u32 {
        (f64::from(index / DIRECTORY_FILES) * self.directory_blocks) as u32
    }

    /// Returns an index: a gamma variable (alpha 0.1, beta 1.0) times half the number of entries, wrapped around.
    fn draw(&self, random: &mut impl Rng) -> u32 {
        let entries = self.sizes.len() as u64;
        let gamma = Gamma::new(0.1, 1.0).expect("shape and scale are above 0");
        ((gamma.sample(random) * (entries / 2) as f64) as u64 % entries) as u32
    }

    /// Returns an existing file and its index.
    pub fn pick(&self, random: &mut impl Rng) -> (u32, FileId) {
        let index = nearest(&self.existing, self.draw(random));
        (index, self.files[index as usize].expect("it exists"))
    }

    /// Returns the initial size of this file, in bytes.
    pub fn size(&self, index: u32) -> u64 {
        self.sizes[index as usize]
    }

    /// Creates an empty file.
    pub fn create(&mut self, guest: &mut Guest<impl Disk>, random: &mut impl Rng) -> FileId {
        let index = nearest(&self.missing, self.draw(random));
        self.missing.remove(&index);
        self.existing.insert(index);
        let file = guest.make(self.goal(index), 0);
        self.files[index as usize] = Some(file);
        file
    }

    /// Removes a file from the set; the caller deletes it.
    pub fn forget(&mut self, index: u32) {
        self.existing.remove(&index);
        self.missing.insert(index);
        self.files[index as usize] = None;
    }
}

/// Returns the index, the next higher one, or the first.
fn nearest(indices: &BTreeSet<u32>, index: u32) -> u32 {
    let found = indices.range(index..).next().or_else(|| indices.first());
    *found.expect("some files exist, and some are missing")
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::super::guest::tests::guest;
    use super::*;

    #[test]
    fn the_first_file_is_chosen_as_often_as_the_gamma_distribution_says() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let set = FileSet::new(&mut guest(1), vec![1; 6250], 100, 20_000, &mut random);
        let first = (0..100_000).filter(|_| set.pick(&mut random).0 == 0).count();
        // Below 1/3125 the distribution function is x^0.1 / gamma(1.1) = 0.4472 / 0.9514, with an error below 0.001.
        // Values beyond x = 2 wrap around; they add 0.1 E1(2) = 0.005 over all indices, hardly anything here.
        assert!((46_500..47_500).contains(&first), "{first}");
    }

    #[test]
    fn a_file_that_is_created_was_missing_and_one_that_is_forgotten_is() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut guest = guest(1);
        let mut set = FileSet::new(&mut guest, vec![5000; 100], 60, 1000, &mut random);
        let existing = set.existing.len();
        assert!((45..75).contains(&existing), "{existing}");
        let file = set.create(&mut guest, &mut random);
        assert_eq!((set.existing.len(), set.missing.len()), (existing + 1, 99 - existing));
        let (index, picked) = (0..1000).map(|_| set.pick(&mut random)).find(|picked| picked.1 == file).unwrap();
        assert_eq!(picked, file);
        set.forget(index);
        assert!(set.missing.contains(&index) && set.files[index as usize].is_none());
    }
}
