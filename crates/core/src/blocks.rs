//! The blocks that a policy remembers, each on one of a few ordered lists; for a log on flash also the contents of its
//! slots.
//!
//! Every policy here consists of queues of blocks (`Q` and `Q_r` in LARC; `T1`, `T2`, `B1`, `B2` in ARC). It needs two
//! answers: the node of a block, and the end of a queue. [`Blocks`] gives both: an [`Index`] from key to node, and a
//! slab of nodes linked into circular doubly linked lists. The first nodes of the slab are the lists' heads, so linking
//! never branches on an empty list, and node 0 is never a block.
//!
//! A log needs two more: the slot of a block, and the block in a slot. Separate tables would take as much memory again,
//! so the policy's table also answers these ([`Directory`](crate::directory::Directory)). The heads are followed by a
//! node for each slot of the log, then by *loose* nodes. A block with a copy in the log uses its slot's node, even if
//! the policy does not remember it. A loose node is for a block that the policy remembers without a copy: a ghost, or a
//! block just admitted. When the log places, moves or removes a copy, the block moves from node to node, and keeps its
//! position on its list. A node's `list` encodes its state:
//!
//! | `list` | indexed | of a slot: | loose: |
//! | --- | --- | --- | --- |
//! | a list | yes | the block's copy is here, and the policy remembers it | the policy remembers it, without a copy |
//! | `UNLISTED` | yes | its copy is here, and the policy does not remember it | |
//! | `SUPERSEDED` | no | its copy was here: there is a newer one, or no valid one | |
//! | `FREE` | no | nothing was placed here since the slot was cleared | free for reuse, linked through `next` |
//!
//! A log also asks which blocks are `young`. Policies only see blocks on lists. Without a log there are no slots, and
//! every node is loose.

mod queues;
mod slots;
#[cfg(test)]
mod tests;
mod young;

use bytemuck::Zeroable;

use crate::index::Index;
use crate::prefetch::prefetch;
pub use queues::Queues;
use young::Young;

/// A list of [`Blocks`], by its number from 0. Policies name theirs with constants in their papers' letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List(pub u8);

/// A remembered block. Valid until the block is removed, or [`Moved`](crate::directory::Moved).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeId(u32);

const LIST_BITS: u8 = 0x7f;
const YOUNG_BIT: u8 = 0x80;

/// Packed: list and age take one byte, so a cache line holds most nodes entirely.
///
/// A node of zeroes is [`FREE`]: nodes of slots that never held a block are untouched memory, which is not allocated.
#[derive(Clone, Copy, Zeroable)]
#[repr(C, packed)]
struct Node<K> {
    prev: u32,
    next: u32,
    /// The list's number in [`LIST_BITS`], inverted; and [`YOUNG_BIT`] if the block is young.
    list_flipped: u8,
    key: K,
}

impl<K> Node<K> {
    fn new(key: K, prev: u32, next: u32, list: List) -> Self {
        Node { prev, next, list_flipped: !list.0 & LIST_BITS, key }
    }

    #[inline]
    fn list(&self) -> List {
        List(!self.list_flipped & LIST_BITS)
    }

    /// Sets the list; the block is not young there.
    #[inline]
    fn set_list(&mut self, list: List) {
        self.list_flipped = !list.0 & LIST_BITS;
    }

    #[inline]
    fn is_young(&self) -> bool {
        self.list_flipped & YOUNG_BIT != 0
    }

    #[inline]
    fn set_young(&mut self, young: bool) {
        self.list_flipped = self.list_flipped & LIST_BITS | if young { YOUNG_BIT } else { 0 };
    }
}

impl<K: Copy + std::fmt::Debug> std::fmt::Debug for Node<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Node { prev, next, key, .. }, list) = (*self, self.list());
        write!(f, "{key:?} on {list:?} between {prev} and {next}")
    }
}

/// Markers instead of a list for nodes on no list; see the module.
const FREE: List = List(LIST_BITS);
const SUPERSEDED: List = List(LIST_BITS - 1);
const UNLISTED: List = List(LIST_BITS - 2);

/// Minimum number of loose nodes to reserve.
const LOOSE_NODES_MIN: usize = 64;

/// The blocks that a policy remembers. `T` is the policy's own data per block, `()` if none.
#[derive(Clone, Debug)]
pub struct Blocks<I: Index, T> {
    index: I,
    nodes: Vec<Node<I::Key>>,
    data: Vec<T>,
    lens: Vec<u32>,
    /// The number of lists of cached blocks, which come first; the others hold ghosts.
    cached_lists: u8,
    /// By list; empty if age is not used.
    young: Vec<Young>,
    /// Nodes behind the heads that are slots of a log.
    slots: u32,
    /// Slots with a current copy.
    placed: u32,
    /// First free loose node, linked through `next`; 0 if none.
    free: u32,
}

impl<I: Index, T: Default> Blocks<I, T> {
    /// Creates an empty table with `cached_lists` lists of cached blocks, followed by `ghost_lists` lists of ghosts.
    pub fn new(index: I, cached_lists: u8, ghost_lists: u8) -> Self {
        let list_count = cached_lists.saturating_add(ghost_lists);
        assert!(list_count <= UNLISTED.0, "{list_count} lists");
        let head = |list: u8| Node::new(I::Key::default(), u32::from(list), u32::from(list), List(list));
        Blocks {
            index,
            nodes: (0..list_count).map(head).collect(),
            data: (0..list_count).map(|_| T::default()).collect(),
            lens: vec![0; list_count.into()],
            cached_lists,
            young: Vec::new(),
            slots: 0,
            placed: 0,
            free: 0,
        }
    }

    /// Inserts `key`, which must not be remembered, at the front of `list`.
    #[inline]
    pub fn insert_front(&mut self, list: List, key: I::Key, data: T) -> NodeId {
        let after = u32::from(list.0);
        self.insert_after(list, after, key, data)
    }

    /// Inserts `key`, which must not be remembered, at the back of `list`.
    #[inline]
    pub fn insert_back(&mut self, list: List, key: I::Key, data: T) -> NodeId {
        let after = self.nodes[usize::from(list.0)].prev;
        self.insert_after(list, after, key, data)
    }

    /// Inserts `key`, which must not be remembered, just before `other`: one step nearer to the front of its list.
    #[inline]
    pub fn insert_before(&mut self, other: NodeId, key: I::Key, data: T) -> NodeId {
        let list = self.list(other);
        self.insert_after(list, self.nodes[other.0 as usize].prev, key, data)
    }

    #[inline]
    fn insert_after(&mut self, list: List, after: u32, key: I::Key, data: T) -> NodeId {
        if self.has_slots()
            && let Some(node) = self.slot_node_of(key)
        {
            assert_eq!(self.nodes[node as usize].list(), UNLISTED, "{key:?} is remembered already");
            self.data[node as usize] = data;
            self.join(list, after, node);
            return NodeId(node);
        }
        let node = self.take_free(key, data);
        self.join(list, after, node);
        let Blocks { index, nodes, .. } = self;
        index.insert(key, node, |node| nodes[node as usize].key);
        NodeId(node)
    }

    /// Links `node`, which is on no list, into one.
    #[inline]
    fn join(&mut self, list: List, after: u32, node: u32) {
        self.link_after(after, node);
        self.nodes[node as usize].set_list(list);
        self.lens[usize::from(list.0)] += 1;
        self.joined(node);
        self.balance(list);
    }

    /// Allocates a loose node, on no list.
    #[inline]
    fn take_free(&mut self, key: I::Key, data: T) -> u32 {
        let node = self.free;
        if node != 0 {
            let reused = &mut self.nodes[node as usize];
            self.free = reused.next;
            reused.key = key;
            self.data[node as usize] = data;
            return node;
        }
        let node = u32::try_from(self.nodes.len()).expect("fewer than 2^32 blocks are remembered");
        if self.nodes.len() == self.nodes.capacity() {
            // Grows by an eighth instead of doubling: the slab is most of a cache's memory.
            let loose = self.nodes.len() - self.slots as usize;
            self.reserve(loose / 8 + LOOSE_NODES_MIN);
        }
        self.nodes.push(Node::new(key, 0, 0, FREE));
        self.data.push(data);
        node
    }

    fn reserve(&mut self, nodes: usize) {
        self.nodes.reserve_exact(nodes);
        self.data.reserve_exact(nodes);
    }

    /// Frees a loose node whose block is not indexed.
    #[inline]
    fn free(&mut self, node: u32) {
        self.nodes[node as usize].set_list(FREE);
        self.nodes[node as usize].next = self.free;
        self.free = node;
    }

    /// Forgets the block at the back of `list` and returns its key. Prefetches the next one, which was probably not
    /// used recently.
    #[inline]
    pub fn pop_back(&mut self, list: List) -> Option<I::Key> {
        let back = self.back(list)?;
        let key = self.remove(back);
        if let Some(next) = self.back(list) {
            self.prefetch_removal(next);
        }
        Some(key)
    }

    /// Forgets `key` if it is remembered, and returns its list.
    pub fn forget(&mut self, key: I::Key) -> Option<List> {
        let node = self.find(key)?;
        let list = self.list(node);
        self.remove(node);
        Some(list)
    }

    /// Forgets the block of `node` and returns its key.
    #[inline]
    pub fn remove(&mut self, node: NodeId) -> I::Key {
        let list = self.list(node);
        self.leaves(node.0);
        self.unlink(node.0);
        self.lens[usize::from(list.0)] -= 1;
        self.balance(list);
        let key = self.nodes[node.0 as usize].key;
        if self.is_slot(node.0) {
            self.nodes[node.0 as usize].set_list(UNLISTED);
            return key;
        }
        let Blocks { index, nodes, .. } = self;
        index.remove(key, |node| nodes[node as usize].key);
        self.free(node.0);
        key
    }
}

impl<I: Index, T> Blocks<I, T> {
    /// Returns the node of `key`, if it is remembered on any list.
    #[inline]
    pub fn find(&self, key: I::Key) -> Option<NodeId> {
        match self.indexed(key) {
            0 => None,
            node if self.has_slots() && self.nodes[node as usize].list() == UNLISTED => None,
            node => Some(NodeId(node)),
        }
    }

    /// Returns the node of `key`, if its block is cached.
    #[inline]
    pub fn find_cached(&self, key: I::Key) -> Option<NodeId> {
        self.find(key).filter(|&node| self.is_cached_node(node))
    }

    /// Returns the node of `key`, on a list or not, or 0.
    #[inline]
    fn indexed(&self, key: I::Key) -> u32 {
        self.index.get(key, |node| self.nodes[node as usize].key)
    }

    /// True if this is the directory of a log.
    #[inline]
    fn has_slots(&self) -> bool {
        I::SERVES_LOG && self.slots > 0
    }

    /// True if `node` belongs to a slot of the log.
    #[inline]
    fn is_slot(&self, node: u32) -> bool {
        self.has_slots() && (node as usize).wrapping_sub(self.lens.len()) < self.slots as usize
    }

    /// Returns the node of the slot of `key`, if any.
    fn slot_node_of(&self, key: I::Key) -> Option<u32> {
        Some(self.indexed(key)).filter(|&node| node != 0)
    }

    /// Returns the number of blocks on `list`.
    #[inline]
    pub fn len(&self, list: List) -> usize {
        self.lens[usize::from(list.0)] as usize
    }

    /// Returns the number of cached blocks, without ghosts.
    #[inline]
    pub fn cached_len(&self) -> usize {
        self.lens[..usize::from(self.cached_lists)].iter().map(|&len| len as usize).sum()
    }

    /// True if the block of `node` is cached. If there are no ghosts, the node is not read.
    #[inline]
    fn is_cached_node(&self, node: NodeId) -> bool {
        self.lens.len() == usize::from(self.cached_lists) || self.list(node).0 < self.cached_lists
    }

    /// True if `list` is empty.
    #[inline]
    pub fn is_empty(&self, list: List) -> bool {
        self.len(list) == 0
    }

    /// Returns the block of `node`.
    #[inline]
    pub fn key(&self, node: NodeId) -> I::Key {
        self.nodes[node.0 as usize].key
    }

    /// Returns the list of `node`.
    #[inline]
    pub fn list(&self, node: NodeId) -> List {
        self.nodes[node.0 as usize].list()
    }

    /// Returns the policy's data for `node`.
    #[inline]
    pub fn data(&self, node: NodeId) -> &T {
        &self.data[node.0 as usize]
    }

    /// Returns the policy's data for `node`, mutable.
    #[inline]
    pub fn data_mut(&mut self, node: NodeId) -> &mut T {
        &mut self.data[node.0 as usize]
    }

    /// Returns the front of `list`, the most recently inserted block.
    #[inline]
    pub fn front(&self, list: List) -> Option<NodeId> {
        self.unless_head(self.nodes[usize::from(list.0)].next)
    }

    /// Returns the back of `list`.
    #[inline]
    pub fn back(&self, list: List) -> Option<NodeId> {
        self.unless_head(self.nodes[usize::from(list.0)].prev)
    }

    /// Returns the neighbour of `node` towards the front of its list.
    #[inline]
    pub fn toward_front(&self, node: NodeId) -> Option<NodeId> {
        self.unless_head(self.nodes[node.0 as usize].prev)
    }

    /// Returns the neighbour of `node` towards the back of its list.
    #[inline]
    pub fn toward_back(&self, node: NodeId) -> Option<NodeId> {
        self.unless_head(self.nodes[node.0 as usize].next)
    }

    /// Returns `None` for a list's head.
    #[inline]
    fn unless_head(&self, node: u32) -> Option<NodeId> {
        (node as usize >= self.lens.len()).then_some(NodeId(node))
    }

    /// Moves the block of `node` from its list to the front of `list`.
    #[inline]
    pub fn move_front(&mut self, node: NodeId, list: List) {
        self.relink(node, u32::from(list.0), list);
    }

    /// Moves the block of `node` from its list to the back of `list`.
    #[inline]
    pub fn move_back(&mut self, node: NodeId, list: List) {
        let back = self.nodes[usize::from(list.0)].prev;
        if back != node.0 {
            self.relink(node, back, list);
        }
    }

    /// Moves the block of `node` just before `other`: one step nearer to the front of the list of `other`.
    #[inline]
    pub fn move_before(&mut self, node: NodeId, other: NodeId) {
        assert_ne!(node, other);
        let before = self.nodes[other.0 as usize].prev;
        if before != node.0 {
            self.relink(node, before, self.list(other));
        }
    }

    /// Moves `node` to the position after `after`, another node of `list`.
    #[inline]
    fn relink(&mut self, node: NodeId, after: u32, list: List) {
        let from = self.list(node);
        self.leaves(node.0);
        self.unlink(node.0);
        self.link_after(after, node.0);
        if from != list {
            self.nodes[node.0 as usize].set_list(list);
            self.lens[usize::from(from.0)] -= 1;
            self.lens[usize::from(list.0)] += 1;
        }
        self.joined(node.0);
        if from != list {
            self.balance(from);
        }
        self.balance(list);
    }

    #[inline]
    fn unlink(&mut self, node: u32) {
        let Node { prev, next, .. } = self.nodes[node as usize];
        self.nodes[prev as usize].next = next;
        self.nodes[next as usize].prev = prev;
    }

    #[inline]
    fn link_after(&mut self, prev: u32, node: u32) {
        let next = self.nodes[prev as usize].next;
        let linked = &mut self.nodes[node as usize];
        linked.prev = prev;
        linked.next = next;
        self.nodes[prev as usize].next = node;
        self.nodes[next as usize].prev = node;
    }

    /// Iterates over the keys on `list`, front to back.
    pub fn keys(&self, list: List) -> impl Iterator<Item = I::Key> {
        let step = |&node: &NodeId| self.toward_back(node);
        std::iter::successors(self.front(list), step).map(|node| self.key(node))
    }

    /// Hints that `key` will be looked up soon.
    #[inline]
    pub fn prefetch_index(&self, key: I::Key) {
        self.index.prefetch(key);
    }

    /// Hints that the node of `key`, if any, will be used soon. Best given some accesses after
    /// [`prefetch_index`](Self::prefetch_index) for the same key.
    #[inline]
    pub fn prefetch_node(&self, key: I::Key) {
        self.prefetch(self.indexed(key));
    }

    /// As [`prefetch_node`](Self::prefetch_node), if only the policy's data of the block will be used.
    #[inline]
    pub fn prefetch_data(&self, key: I::Key) {
        prefetch(&self.data, self.indexed(key) as usize);
    }

    #[inline]
    fn prefetch(&self, node: u32) {
        prefetch(&self.nodes, node as usize);
        if size_of::<T>() > 0 {
            prefetch(&self.data, node as usize);
        }
    }

    /// Hints that `node`, and then its neighbour towards the front of its list, will be removed soon.
    #[inline]
    pub fn prefetch_removal(&self, node: NodeId) {
        self.index.prefetch(self.key(node));
        self.prefetch_toward_front(node);
    }

    /// Hints that the block at the back of `list` will be used soon.
    #[inline]
    pub fn prefetch_back(&self, list: List) {
        self.prefetch(self.nodes[usize::from(list.0)].prev);
    }

    /// Hints that the neighbour of `node` towards the front of its list will be used soon.
    #[inline]
    pub fn prefetch_toward_front(&self, node: NodeId) {
        self.prefetch(self.nodes[node.0 as usize].prev);
    }

    /// Asserts that lists, lengths and index agree, and that at most `blocks_max` blocks are remembered.
    pub fn check(&self, blocks_max: usize) {
        let remembered = (0..self.lens.len()).map(|list| self.check_list(List(list as u8))).sum::<usize>();
        assert!(remembered <= blocks_max, "{remembered} blocks are remembered, {blocks_max} at most are allowed");
        self.check_states(remembered);
    }

    /// Asserts that links, length and index agree, and returns the length.
    fn check_list(&self, list: List) -> usize {
        let (mut previous, mut len) = (u32::from(list.0), 0);
        let mut node = self.nodes[usize::from(list.0)].next;
        while node != u32::from(list.0) {
            let Node { key, prev, next, .. } = self.nodes[node as usize];
            assert_eq!(prev, previous, "the links of {list:?} disagree at {key:?}");
            assert_eq!(self.nodes[node as usize].list(), list, "{key:?} is linked on {list:?} but names another");
            assert_eq!(self.find(key), Some(NodeId(node)), "{key:?} is listed but not indexed");
            (previous, node, len) = (node, next, len + 1);
            assert!(len <= self.nodes.len(), "{list:?} does not end");
        }
        assert_eq!(len, self.len(list), "the length of {list:?}");
        self.check_young(list);
        len
    }

    /// Asserts that every node has a valid state for its kind, and agrees with the index.
    fn check_states(&self, remembered: usize) {
        let (mut listed, mut placed, mut free) = (0, 0, 0);
        for node in self.lens.len()..self.nodes.len() {
            let (list, key) = (self.nodes[node].list(), self.nodes[node].key);
            let (is_slot, indexed) = (self.is_slot(node as u32), self.indexed(key) as usize == node);
            match list {
                FREE => free += usize::from(!is_slot),
                SUPERSEDED => assert!(is_slot && !indexed, "{key:?} at node {node} is superseded"),
                UNLISTED => assert!(is_slot && indexed, "{key:?} at node {node} is in a slot"),
                _ => listed += 1,
            }
            placed += usize::from(is_slot && is_current(list));
        }
        assert_eq!(listed, remembered, "every node that names a list is on it");
        assert_eq!(placed, self.placed as usize, "the number of blocks in slots");
        let next = |&node: &u32| Some(self.nodes[node as usize].next);
        let chain = std::iter::successors(Some(self.free), next).take_while(|&node| node != 0);
        assert_eq!(chain.take(self.nodes.len()).count(), free, "every loose node is used or linked as free");
    }
}

/// True if the block of a node with this `list` is indexed.
#[inline]
fn is_current(list: List) -> bool {
    !matches!(list, SUPERSEDED | FREE)
}
