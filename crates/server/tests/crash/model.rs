//! What each block may hold: the contract, as a model that is checked after every read.

use std::sync::{Arc, Mutex};

pub const SECTORS: usize = 8;
pub const SECTOR_BYTES: usize = 512;

/// A block's content, as the number that fills each of its sectors.
pub type Content = [u64; SECTORS];

#[derive(Clone, Debug)]
struct Version {
    content: Content,
    /// Failed writes may have happened or not.
    answered: bool,
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
    /// Whether devices fail, so that errors are no violation.
    faults: bool,
}

pub type Shared = Arc<Mutex<Model>>;

impl Model {
    pub fn new(blocks: usize, faults: bool) -> Model {
        let zero = Version { content: [0; SECTORS], answered: true };
        let block = Block { versions: vec![zero], durable: 0, current: 0 };
        Model { blocks: vec![block; blocks], faults }
    }

    /// The newest content, over which a partial write goes.
    pub fn newest(&self, block: usize) -> Content {
        self.blocks[block].versions.last().unwrap().content
    }

    /// A write was submitted; returns its version.
    pub fn written(&mut self, block: usize, content: Content) -> usize {
        let block = &mut self.blocks[block];
        block.versions.push(Version { content, answered: false });
        block.versions.len() - 1
    }

    /// A write was answered, without an error.
    pub fn acknowledged(&mut self, block: usize, version: usize, durable: bool) {
        let block = &mut self.blocks[block];
        block.versions[version].answered = true;
        block.current = block.current.max(version);
        if durable {
            block.durable = block.durable.max(version);
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
        let found = (earliest..state.versions.len())
            .find(|&version| state.versions[version].content[sectors.clone()] == content[sectors.clone()]);
        match found {
            Some(version) => {
                if sectors.len() == SECTORS {
                    state.current = state.current.max(version);
                }
                Ok(())
            }
            None => Err(format!(
                "block {block} reads {:x?} in sectors {sectors:?}; durable is version {}, the earliest allowed is {earliest}, of {:x?}",
                &content[sectors.clone()],
                state.durable,
                state.versions.iter().map(|version| version.content).collect::<Vec<_>>()
            )),
        }
    }

    /// A read failed.
    pub fn read_failed(&mut self, block: usize) -> Result<(), String> {
        if self.faults { Ok(()) } else { Err(format!("block {block} cannot be read, and no device failed")) }
    }

    /// The power failed: what was not durable may be gone.
    pub fn crashed(&mut self) {
        for block in &mut self.blocks {
            block.current = block.durable;
        }
    }

    /// After a crash, the first read of a block decides which version it is: no other comes back.
    pub fn settled(&mut self, block: usize, content: &Content) -> Result<(), String> {
        let earliest = self.blocks[block].durable;
        self.read(block, earliest, content, 0..SECTORS)?;
        let state = &mut self.blocks[block];
        state.versions = vec![Version { content: *content, answered: true }];
        (state.durable, state.current) = (0, 0);
        Ok(())
    }

    pub fn len(&self) -> usize {
        self.blocks.len()
    }
}

pub fn encode(content: &Content) -> Vec<u8> {
    content.iter().flat_map(|tag| tag.to_le_bytes().repeat(SECTOR_BYTES / 8)).collect()
}

/// The content that bytes are; a sector that is not of one number is told by a number of its own.
pub fn decode(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks(SECTOR_BYTES)
        .map(|sector| {
            let tag = u64::from_le_bytes(sector[..8].try_into().unwrap());
            let whole = sector.chunks(8).all(|piece| piece == tag.to_le_bytes());
            if whole { tag } else { 0xBAD0_0000_0000_0000 }
        })
        .collect()
}
