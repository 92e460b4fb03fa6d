//! The durability contract: a model of the legal contents of each block, checked at every read.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use flashwise_testing::history::History;

pub const SECTORS: usize = 8;
pub const SECTOR_BYTES: usize = 512;

/// A block's content, as the number that fills each of its sectors.
pub type Content = [u64; SECTORS];

#[derive(Clone, Debug)]
struct Version {
    /// The content if no write failed.
    content: Content,
    /// The sectors that were written.
    sectors: std::ops::Range<usize>,
    answered: bool,
    /// It may have happened or not.
    failed: bool,
    /// A client has read it since the last crash.
    seen: bool,
    /// When it was submitted, in the history.
    submitted: u64,
}

impl Version {
    fn whole(content: Content) -> Version {
        Version { content, sectors: 0..SECTORS, answered: true, failed: false, seen: false, submitted: 0 }
    }

    /// True if no client can know whether it happened.
    fn is_uncertain(&self) -> bool {
        self.failed && !self.seen
    }
}

/// A block's versions, oldest first, and which of them a read may still return.
#[derive(Clone, Debug)]
struct Block {
    versions: Vec<Version>,
    /// The first version that may still be what a crash leaves.
    durable: usize,
    /// The first version that reads may return while nothing crashes.
    current: usize,
}

/// All blocks of a volume.
#[derive(Clone, Debug)]
pub struct Model {
    blocks: Vec<Block>,
    /// True if devices fail, so that errors are legal.
    faults: bool,
    /// Blocks with writes that failed.
    failed: BTreeSet<usize>,
    pub history: History<Content>,
}

pub type Shared = Arc<Mutex<Model>>;

impl Block {
    /// True if the block may hold `content` in `sectors` after all writes up to `version`; each failed write may have
    /// happened or not.
    fn is_possible(&self, version: usize, content: &Content, mut sectors: std::ops::Range<usize>) -> bool {
        if self.versions[version].content[sectors.clone()] == content[sectors.clone()] {
            return true;
        }
        let written = &self.versions[..=version];
        if !written.iter().any(Version::is_uncertain) {
            return false;
        }
        sectors.all(|sector| {
            let mut writes = written.iter().rev().filter(|version| version.sectors.contains(&sector));
            writes
                .by_ref()
                .take_while(|version| version.is_uncertain())
                .any(|version| version.content[sector] == content[sector])
                || written
                    .iter()
                    .rfind(|version| version.sectors.contains(&sector) && !version.is_uncertain())
                    .is_some_and(|version| version.content[sector] == content[sector])
        })
    }
}

impl Model {
    pub fn new(blocks: usize, faults: bool) -> Model {
        let zero = Version::whole([0; SECTORS]);
        let block = Block { versions: vec![zero], durable: 0, current: 0 };
        let history = History::new(vec![[0; SECTORS]; blocks]);
        Model { blocks: vec![block; blocks], faults, failed: BTreeSet::new(), history }
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// The newest content, over which a partial write goes.
    pub fn newest(&self, block: usize) -> Content {
        self.blocks[block].versions.last().unwrap().content
    }

    /// A write was submitted; returns its version.
    pub fn written(&mut self, block: usize, content: Content, sectors: std::ops::Range<usize>) -> usize {
        let submitted = self.history.written(block, content);
        let block = &mut self.blocks[block];
        block.versions.push(Version { sectors, answered: false, submitted, ..Version::whole(content) });
        block.versions.len() - 1
    }

    /// A write was answered with an error.
    pub fn write_failed(&mut self, block: usize, version: usize) {
        self.failed.insert(block);
        self.blocks[block].versions[version].failed = true;
    }

    /// A write was answered, without an error.
    pub fn acknowledged(&mut self, number: usize, version: usize, durable: bool) {
        let block = &mut self.blocks[number];
        block.versions[version].answered = true;
        block.current = block.current.max(version);
        if durable {
            block.durable = block.durable.max(version);
            let submitted = block.versions[version].submitted;
            self.history.promised([(number, submitted)]);
        }
    }

    /// The newest answered version of each block: what a flush that is submitted now makes durable.
    pub fn answered(&self) -> Vec<usize> {
        let newest = |block: &Block| block.versions.iter().rposition(|version| version.answered).unwrap_or(0);
        self.blocks.iter().map(newest).collect()
    }

    /// A flush was answered, without an error.
    pub fn flushed(&mut self, versions: &[usize]) {
        for (block, &version) in self.blocks.iter_mut().zip(versions) {
            block.durable = block.durable.max(version);
        }
        let submitted = self.blocks.iter().zip(versions).map(|(block, &version)| block.versions[version].submitted);
        self.history.promised(submitted.enumerate());
    }

    /// Which version a read that is submitted now may return at the earliest.
    pub fn earliest(&self, block: usize) -> usize {
        self.blocks[block].current
    }

    /// A read that was submitted when `earliest` was returned `content`.
    pub fn read(
        &mut self,
        block: usize,
        earliest: usize,
        content: &Content,
        sectors: std::ops::Range<usize>,
    ) -> Result<(), String> {
        let state = &mut self.blocks[block];
        let found =
            (earliest..state.versions.len()).find(|&version| state.is_possible(version, content, sectors.clone()));
        match found {
            Some(version) => {
                if sectors.len() == SECTORS {
                    state.current = state.current.max(version);
                    // From now on no read may return older content, even if the write fails.
                    state.versions[version].seen |= state.versions[version].content == *content;
                }
                Ok(())
            }
            None => Err(format!(
                "block {block} reads {:x?} in sectors {sectors:?}; durable is version {}, the earliest allowed is \
                 {earliest}, of {:x?}",
                &content[sectors.clone()],
                state.durable,
                state.versions.iter().map(|version| version.content).collect::<Vec<_>>()
            )),
        }
    }

    /// A request failed.
    pub fn failed(&self, operation: impl std::fmt::Debug) -> Result<(), String> {
        if self.faults { Ok(()) } else { Err(format!("{operation:?} failed, and no device did")) }
    }

    /// A block cannot be read although no device fails. `listed`: the cache lists it as lost.
    pub fn read_lost(&self, block: usize, listed: bool) -> Result<(), String> {
        match (self.faults, listed) {
            (true, true) => Ok(()),
            (true, false) => Err(format!("block {block} cannot be read and is not listed as lost")),
            (false, _) => Err(format!("block {block} cannot be read, and no device failed")),
        }
    }

    /// Blocks are lost at the end.
    pub fn lost_are_allowed(&self, lost: &BTreeSet<usize>) -> Result<(), String> {
        if self.faults || lost.is_empty() {
            Ok(())
        } else {
            Err(format!("blocks {lost:?} are lost, and no device failed"))
        }
    }

    /// Compares the blocks of a bare backend, as `page` returns them, with the states that the volume could have.
    pub fn check_backend(&self, page: impl Fn(usize) -> Vec<u8>) -> Result<(), String> {
        let content = |block| decode(&page(block)).try_into().unwrap();
        let contents: Vec<Content> = (0..self.blocks.len()).map(content).collect();
        // Where a write of a part failed, it may hold a mixture that is no version.
        let is_mixed = |block: usize| {
            let (content, state) = (&contents[block], &self.blocks[block]);
            let is_possible = |version| state.is_possible(version, content, 0..SECTORS);
            !self.history.has(block, content) || (state.durable..state.versions.len()).any(is_possible)
        };
        self.history.check_except(&contents, |block| self.failed.contains(&block) && is_mixed(block)).map(drop)
    }

    /// Makes errors legal or illegal.
    pub fn set_faults(&mut self, faults: bool) {
        self.faults = faults;
    }

    /// The power failed: what was not durable may be gone.
    pub fn crashed(&mut self) {
        for block in &mut self.blocks {
            block.current = block.durable;
            block.versions.iter_mut().for_each(|version| version.seen = false);
        }
    }

    /// Fixes the version of a block at its first read after a crash. No newer version may appear later. An older one
    /// may appear only if the process was `killed`, because devices can still lose data.
    pub fn settled(&mut self, block: usize, content: &Content, killed: bool) -> Result<(), String> {
        let earliest = self.blocks[block].durable;
        self.read(block, earliest, content, 0..SECTORS)?;
        let state = &mut self.blocks[block];
        if killed {
            // Two versions may be alike: it may be the newest.
            let is_found = |version: &usize| state.is_possible(*version, content, 0..SECTORS);
            state.current = (earliest..state.versions.len()).rev().find(is_found).unwrap_or(state.current);
            state.versions.truncate(state.current + 1);
            state.versions[state.current].answered = true;
            self.history.settled(block, content, !killed);
            return Ok(());
        }
        let submitted = self.history.settled(block, content, !killed);
        state.versions = vec![Version { submitted, ..Version::whole(*content) }];
        (state.durable, state.current) = (0, 0);
        Ok(())
    }
}

pub fn encode(content: &Content) -> Vec<u8> {
    content.iter().map(|tag| tag.to_le_bytes().repeat(SECTOR_BYTES / 8)).collect::<Vec<_>>().concat()
}

/// Returns the content that these bytes stand for. A sector with mixed contents gets a unique number.
pub fn decode(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks(SECTOR_BYTES)
        .map(|sector| {
            let tag = u64::from_le_bytes(sector[..8].try_into().unwrap());
            let whole = sector[8..] == sector[..sector.len() - 8];
            if whole { tag } else { 0xBAD0_0000_0000_0000 }
        })
        .collect()
}
