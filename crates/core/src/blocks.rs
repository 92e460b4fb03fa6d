//! The blocks that a policy remembers, each on one of a few ordered lists.
//!
//! Every policy here is made of queues of blocks (`Q` and `Q_r` in LARC; `T1`, `T2`, `B1`, `B2` in ARC) and asks two
//! questions: which node remembers this block, and what stands at the end of that queue. [`Blocks`] answers both: an
//! [`Index`] from key to node, and a slab of nodes linked into circular doubly linked lists. The first nodes of the slab are
//! the lists' heads, so that linking never branches on an empty list, and node 0 is never a block.

use crate::index::Index;
use crate::prefetch::prefetch;

/// A list of [`Blocks`], by its number from 0. Policies name theirs with constants in their papers' letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List(pub u8);

/// A remembered block. Valid until the block is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeId(u32);

#[derive(Clone, Copy, Debug)]
struct Node<K, T> {
    key: K,
    prev: u32,
    next: u32,
    list: List,
    data: T,
}

const FREE: List = List(u8::MAX);

/// The blocks a policy remembers. `T` is what it keeps of each besides its place, `()` if nothing.
///
/// Memory: the index, plus 12 bytes and the key and `T` per remembered block (16 bytes for `u32` keys and a small `T`).
#[derive(Clone, Debug)]
pub struct Blocks<I: Index, T> {
    index: I,
    nodes: Vec<Node<I::Key, T>>,
    lens: Vec<u32>,
    /// First free node, linked through `next`; 0 if none.
    free: u32,
}

impl<I: Index, T: Default> Blocks<I, T> {
    /// No blocks yet, on `list_count` lists.
    pub fn new(index: I, list_count: u8) -> Self {
        let head = |list: u8| Node {
            key: I::Key::default(),
            prev: u32::from(list),
            next: u32::from(list),
            list: List(list),
            data: T::default(),
        };
        let nodes = (0..list_count).map(head).collect();
        Blocks { index, nodes, lens: vec![0; list_count.into()], free: 0 }
    }

    /// Puts `key`, which must not be remembered yet, at the front of `list`.
    #[inline]
    pub fn insert_front(&mut self, list: List, key: I::Key, data: T) -> NodeId {
        let after = u32::from(list.0);
        self.insert_after(list, after, key, data)
    }

    /// Puts `key`, which must not be remembered yet, at the back of `list`.
    #[inline]
    pub fn insert_back(&mut self, list: List, key: I::Key, data: T) -> NodeId {
        let after = self.nodes[usize::from(list.0)].prev;
        self.insert_after(list, after, key, data)
    }

    /// Puts `key`, which must not be remembered yet, just before `other`: one step nearer to the front of its list.
    #[inline]
    pub fn insert_before(&mut self, other: NodeId, key: I::Key, data: T) -> NodeId {
        let Node { prev, list, .. } = self.nodes[other.0 as usize];
        self.insert_after(list, prev, key, data)
    }

    #[inline]
    fn insert_after(&mut self, list: List, after: u32, key: I::Key, data: T) -> NodeId {
        let node = self.take_free(key, data);
        self.link_after(list, after, node);
        let Blocks { index, nodes, .. } = self;
        index.insert(key, node, |node| nodes[node as usize].key);
        NodeId(node)
    }

    #[inline]
    fn take_free(&mut self, key: I::Key, data: T) -> u32 {
        let node = self.free;
        if node != 0 {
            let reused = &mut self.nodes[node as usize];
            self.free = reused.next;
            reused.key = key;
            reused.data = data;
            return node;
        }
        let node = u32::try_from(self.nodes.len()).expect("fewer than 2^32 blocks are remembered");
        if self.nodes.len() == self.nodes.capacity() {
            // By an eighth, not twofold: the slab is most of what a cache remembers in RAM.
            self.nodes.reserve_exact(self.nodes.len() / 8 + 64);
        }
        self.nodes.push(Node { key, prev: 0, next: 0, list: FREE, data });
        node
    }

    /// Forgets the block at the back of `list` and returns its key. What the next call will touch, which has not been used for
    /// long, is fetched ahead.
    #[inline]
    pub fn pop_back(&mut self, list: List) -> Option<I::Key> {
        let back = self.back(list)?;
        let key = self.remove(back);
        if let Some(next) = self.back(list) {
            self.index.prefetch(self.key(next));
            self.prefetch_toward_front(next);
        }
        Some(key)
    }

    /// Forgets `key` if it is remembered, and returns the list that it was on.
    pub fn forget(&mut self, key: I::Key) -> Option<List> {
        let node = self.find(key)?;
        let list = self.list(node);
        self.remove(node);
        Some(list)
    }

    /// Forgets the block of `node` and returns its key.
    #[inline]
    pub fn remove(&mut self, node: NodeId) -> I::Key {
        self.unlink(node.0);
        let key = self.nodes[node.0 as usize].key;
        let Blocks { index, nodes, .. } = self;
        index.remove(key, |node| nodes[node as usize].key);
        let freed = &mut self.nodes[node.0 as usize];
        freed.list = FREE;
        freed.next = self.free;
        self.free = node.0;
        key
    }
}

impl<I: Index, T> Blocks<I, T> {
    /// The node of `key`, if it is remembered on any list.
    #[inline]
    pub fn find(&self, key: I::Key) -> Option<NodeId> {
        match self.index.get(key, |node| self.nodes[node as usize].key) {
            0 => None,
            node => Some(NodeId(node)),
        }
    }

    /// Number of blocks on `list`.
    #[inline]
    pub fn len(&self, list: List) -> usize {
        self.lens[usize::from(list.0)] as usize
    }

    /// Whether no block is on `list`.
    #[inline]
    pub fn is_empty(&self, list: List) -> bool {
        self.len(list) == 0
    }

    /// The block of `node`.
    #[inline]
    pub fn key(&self, node: NodeId) -> I::Key {
        self.nodes[node.0 as usize].key
    }

    /// The list that `node` is on.
    #[inline]
    pub fn list(&self, node: NodeId) -> List {
        self.nodes[node.0 as usize].list
    }

    /// What the policy keeps of the block of `node`.
    #[inline]
    pub fn data(&self, node: NodeId) -> &T {
        &self.nodes[node.0 as usize].data
    }

    /// What the policy keeps of the block of `node`, to change.
    #[inline]
    pub fn data_mut(&mut self, node: NodeId) -> &mut T {
        &mut self.nodes[node.0 as usize].data
    }

    /// The front of `list`, where the most recently inserted block stands.
    #[inline]
    pub fn front(&self, list: List) -> Option<NodeId> {
        self.block_at(self.nodes[usize::from(list.0)].next)
    }

    /// The back of `list`.
    #[inline]
    pub fn back(&self, list: List) -> Option<NodeId> {
        self.block_at(self.nodes[usize::from(list.0)].prev)
    }

    /// The neighbour of `node` towards the front of its list.
    #[inline]
    pub fn toward_front(&self, node: NodeId) -> Option<NodeId> {
        self.block_at(self.nodes[node.0 as usize].prev)
    }

    /// The neighbour of `node` towards the back of its list.
    #[inline]
    pub fn toward_back(&self, node: NodeId) -> Option<NodeId> {
        self.block_at(self.nodes[node.0 as usize].next)
    }

    /// `None` for a list's head.
    #[inline]
    fn block_at(&self, node: u32) -> Option<NodeId> {
        (node as usize >= self.lens.len()).then_some(NodeId(node))
    }

    /// Moves the block of `node` to the front of `list`, from whichever list it is on.
    #[inline]
    pub fn move_front(&mut self, node: NodeId, list: List) {
        self.unlink(node.0);
        self.link_after(list, u32::from(list.0), node.0);
    }

    /// Moves the block of `node` to the back of `list`, from whichever list it is on.
    #[inline]
    pub fn move_back(&mut self, node: NodeId, list: List) {
        self.unlink(node.0);
        self.link_after(list, self.nodes[usize::from(list.0)].prev, node.0);
    }

    /// Moves the block of `node` to just before `other`: one step nearer to the front of the list that `other` is on.
    #[inline]
    pub fn move_before(&mut self, node: NodeId, other: NodeId) {
        assert_ne!(node, other);
        self.unlink(node.0);
        let Node { prev, list, .. } = self.nodes[other.0 as usize];
        self.link_after(list, prev, node.0);
    }

    #[inline]
    fn unlink(&mut self, node: u32) {
        let Node { prev, next, list, .. } = self.nodes[node as usize];
        self.nodes[prev as usize].next = next;
        self.nodes[next as usize].prev = prev;
        self.lens[usize::from(list.0)] -= 1;
    }

    #[inline]
    fn link_after(&mut self, list: List, prev: u32, node: u32) {
        let next = self.nodes[prev as usize].next;
        let linked = &mut self.nodes[node as usize];
        linked.prev = prev;
        linked.next = next;
        linked.list = list;
        self.nodes[prev as usize].next = node;
        self.nodes[next as usize].prev = node;
        self.lens[usize::from(list.0)] += 1;
    }

    /// The keys on `list`, front to back.
    pub fn keys(&self, list: List) -> impl Iterator<Item = I::Key> {
        let step = |&node: &NodeId| self.toward_back(node);
        std::iter::successors(self.front(list), step).map(|node| self.key(node))
    }

    /// A hint that `key` will be looked up soon.
    #[inline]
    pub fn prefetch_index(&self, key: I::Key) {
        self.index.prefetch(key);
    }

    /// A hint that the node of `key`, if any, will be used soon. Best given some accesses after
    /// [`prefetch_index`](Self::prefetch_index) for the same key.
    #[inline]
    pub fn prefetch_node(&self, key: I::Key) {
        let node = self.index.get(key, |node| self.nodes[node as usize].key);
        prefetch(&self.nodes, node as usize);
    }

    /// A hint that the neighbour of `node` towards the front of its list will be used soon.
    #[inline]
    pub fn prefetch_toward_front(&self, node: NodeId) {
        prefetch(&self.nodes, self.nodes[node.0 as usize].prev as usize);
    }

    /// Asserts that lists, lengths and index agree, and that no more than `blocks_max` blocks are remembered.
    pub fn check(&self, blocks_max: usize) {
        let mut remembered = 0;
        for number in 0..self.lens.len() {
            let list = List(number as u8);
            let mut previous = number as u32;
            let mut len = 0;
            let mut node = self.nodes[number].next;
            while node as usize != number {
                let Node { key, prev, next, list: on, .. } = self.nodes[node as usize];
                assert_eq!(prev, previous, "the links of list {number} disagree at {key:?}");
                assert_eq!(on, list, "{key:?} is linked on list {number} but names another");
                assert_eq!(self.find(key), Some(NodeId(node)), "{key:?} is listed but not indexed");
                (previous, node, len) = (node, next, len + 1);
                assert!(len <= self.nodes.len(), "list {number} does not end");
            }
            assert_eq!(len, self.len(list), "the length of list {number}");
            remembered += len;
        }
        assert!(remembered <= blocks_max, "{remembered} blocks are remembered, {blocks_max} at most are allowed");
    }
}
