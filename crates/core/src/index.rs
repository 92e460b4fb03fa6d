//! The map from a block's key to its node: an array in the simulator, a hash table in the server.

use std::fmt::Debug;
use std::hash::{BuildHasher, Hash};

use bytemuck::Zeroable;
use rustc_hash::FxBuildHasher;

use crate::prefetch::prefetch;
use crate::table::Table;

/// A name of a block.
pub trait Key: Copy + Eq + Hash + Debug + Default + Zeroable + Send + 'static {}

impl<K: Copy + Eq + Hash + Debug + Default + Zeroable + Send + 'static> Key for K {}

/// Maps block keys to node numbers. Node number 0 means absent.
///
/// The index stores only node numbers; it gets the key of a node from `key_of`.
pub trait Index {
    /// The name of a block.
    type Key: Key;

    /// True if a table of blocks with this index may be the directory of a log. If false, no access asks for slots.
    const SERVES_LOG: bool;

    /// Returns the node of `key`, or 0.
    fn get(&self, key: Self::Key, key_of: impl Fn(u32) -> Self::Key) -> u32;

    /// Maps `key`, which is absent, to `node`, which is not 0.
    fn insert(&mut self, key: Self::Key, node: u32, key_of: impl Fn(u32) -> Self::Key);

    /// Moves `key` from node `old` to `new`, which is not 0 and has the same key.
    fn replace(&mut self, key: Self::Key, old: u32, new: u32, key_of: impl Fn(u32) -> Self::Key);

    /// Reserves room for `keys` in total.
    fn reserve(&mut self, keys: usize, key_of: impl Fn(u32) -> Self::Key);

    /// Forgets `key`, which is in the index.
    fn remove(&mut self, key: Self::Key, key_of: impl Fn(u32) -> Self::Key);

    /// A hint that `key` will be looked up soon.
    fn prefetch(&self, key: Self::Key);
}

/// The index for dense 32-bit block ids: an array, 4 bytes per block id. It grows to the largest id that is remembered.
#[derive(Clone, Debug)]
pub struct Dense {
    node_of: Vec<u32>,
}

impl Dense {
    /// An index for the block ids `0..block_count`.
    pub fn new(block_count: usize) -> Self {
        Dense { node_of: vec![0; block_count] }
    }

    #[cold]
    fn grow(&mut self, key: u32) {
        self.node_of.resize(key as usize + 1, 0);
    }
}

impl Index for Dense {
    type Key = u32;

    const SERVES_LOG: bool = false;

    #[inline]
    fn get(&self, key: u32, _key_of: impl Fn(u32) -> u32) -> u32 {
        self.node_of.get(key as usize).copied().unwrap_or(0)
    }

    #[inline]
    fn insert(&mut self, key: u32, node: u32, _key_of: impl Fn(u32) -> u32) {
        if key as usize >= self.node_of.len() {
            self.grow(key);
        }
        self.node_of[key as usize] = node;
    }

    #[inline]
    fn replace(&mut self, key: u32, _old: u32, new: u32, _key_of: impl Fn(u32) -> u32) {
        self.node_of[key as usize] = new;
    }

    fn reserve(&mut self, _keys: usize, _key_of: impl Fn(u32) -> u32) {}

    #[inline]
    fn remove(&mut self, key: u32, _key_of: impl Fn(u32) -> u32) {
        self.node_of[key as usize] = 0;
    }

    #[inline]
    fn prefetch(&self, key: u32) {
        prefetch(&self.node_of, key as usize);
    }
}

/// The index for any other key, such as the server's 64-bit block addresses: a [`Table`] of node numbers, about 5 bytes
/// per block.
#[derive(Clone, Debug)]
pub struct Hashed<K> {
    table: Table,
    key: std::marker::PhantomData<K>,
}

impl<K> Hashed<K> {
    /// An empty index.
    pub fn new() -> Self {
        Hashed { table: Table::new(), key: std::marker::PhantomData }
    }

    /// An empty index that will hold `capacity` blocks, with nodes up to `node_max`; more of either are no error.
    pub fn with_capacity(capacity: usize, node_max: u32) -> Self {
        Hashed { table: Table::with_capacity(capacity, node_max), key: std::marker::PhantomData }
    }
}

impl<K> Default for Hashed<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Key> Index for Hashed<K> {
    type Key = K;

    const SERVES_LOG: bool = true;

    #[inline]
    fn get(&self, key: K, key_of: impl Fn(u32) -> K) -> u32 {
        self.table.find(FxBuildHasher.hash_one(key), |node| key_of(node) == key)
    }

    #[inline]
    fn insert(&mut self, key: K, node: u32, key_of: impl Fn(u32) -> K) {
        self.table.insert(FxBuildHasher.hash_one(key), node, |node| FxBuildHasher.hash_one(key_of(node)));
    }

    #[inline]
    fn replace(&mut self, key: K, old: u32, new: u32, key_of: impl Fn(u32) -> K) {
        self.table.replace(FxBuildHasher.hash_one(key), old, new, |node| FxBuildHasher.hash_one(key_of(node)));
    }

    fn reserve(&mut self, keys: usize, key_of: impl Fn(u32) -> K) {
        self.table.reserve(keys, |node| FxBuildHasher.hash_one(key_of(node)));
    }

    #[inline]
    fn remove(&mut self, key: K, key_of: impl Fn(u32) -> K) {
        let found = self.table.remove(
            FxBuildHasher.hash_one(key),
            |node| key_of(node) == key,
            |node| FxBuildHasher.hash_one(key_of(node)),
        );
        assert!(found, "a block that is removed is in the index");
    }

    #[inline]
    fn prefetch(&self, key: K) {
        self.table.prefetch(FxBuildHasher.hash_one(key));
    }
}
