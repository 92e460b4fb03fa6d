use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::directory::{Directory, Moved};
use crate::index::{Dense, Hashed};

const KEYS: u32 = 24;
const LISTS: usize = 3;

/// A model: queues of keys with a number each, and the contents of slots, each with a flag if current.
#[derive(Default)]
struct Model {
    queues: [VecDeque<(u32, u8)>; LISTS],
    slots: BTreeMap<u32, (u32, bool)>,
}

impl Model {
    fn list_of(&self, key: u32) -> Option<usize> {
        self.queues.iter().position(|queue| queue.iter().any(|&(queued, _)| queued == key))
    }

    /// Removes `key` from its list.
    fn take(&mut self, key: u32) -> u8 {
        let queue = &mut self.queues[self.list_of(key).expect("it is on a list")];
        let at = queue.iter().position(|&(queued, _)| queued == key).expect("it is on this list");
        queue.remove(at).expect("there is one").1
    }

    fn slot_of(&self, key: u32) -> Option<u32> {
        self.slots.iter().find(|(_, held)| **held == (key, true)).map(|(slot, _)| *slot)
    }

    fn is_current(&self, slot: u32) -> bool {
        self.slots.get(&slot).is_some_and(|&(_, current)| current)
    }

    fn supersede(&mut self, slot: u32) {
        self.slots.get_mut(&slot).expect("there is a block").1 = false;
    }
}

struct Compare<I: Index<Key = u32>> {
    blocks: Blocks<I, u8>,
    model: Model,
    slots: u32,
    state: u64,
    /// The node of each listed key, as a policy that handles moves knows it.
    node_of: BTreeMap<u32, NodeId>,
}

impl<I: Index<Key = u32>> Compare<I> {
    fn random(&mut self, below: u32) -> u32 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) as u32 % below
    }

    fn moved(&mut self, key: u32, moved: Option<Moved>) {
        assert_eq!(moved.is_some(), self.node_of.contains_key(&key), "a policy is told of blocks on lists");
        if let Some(Moved { from, to }) = moved {
            assert_eq!(self.node_of.insert(key, to), Some(from));
        }
    }

    /// Changes a block on no list, like a policy.
    fn insert(&mut self, key: u32) {
        let (list, data) = (self.random(LISTS as u32) as usize, self.random(200) as u8);
        let at = List(list as u8);
        let queue = &mut self.model.queues[list];
        let node = match self.state >> 20 & 3 {
            0 if !queue.is_empty() => {
                queue.insert(0, (key, data));
                let front = self.blocks.front(at).expect("the list is not empty");
                self.blocks.insert_before(front, key, data)
            }
            0 | 1 => {
                queue.push_front((key, data));
                self.blocks.insert_front(at, key, data)
            }
            _ => {
                queue.push_back((key, data));
                self.blocks.insert_back(at, key, data)
            }
        };
        self.node_of.insert(key, node);
    }

    /// Changes a remembered block, like a policy.
    fn change(&mut self, key: u32) {
        let (list, what) = (self.random(LISTS as u32) as usize, self.random(6));
        let (at, node) = (List(list as u8), self.node_of[&key]);
        let data = self.model.take(key);
        match what {
            0 => {
                assert_eq!(self.blocks.remove(node), key);
                self.node_of.remove(&key);
            }
            1 => {
                assert!(self.blocks.forget(key).is_some());
                self.node_of.remove(&key);
            }
            2 => {
                self.blocks.move_front(node, at);
                *self.blocks.data_mut(node) = data / 2;
                self.model.queues[list].push_front((key, data / 2));
            }
            3 if !self.model.queues[list].is_empty() => {
                let (back, _) = *self.model.queues[list].back().expect("the list is not empty");
                let at = self.model.queues[list].len() - 1;
                self.blocks.move_before(node, self.node_of[&back]);
                self.model.queues[list].insert(at, (key, data));
            }
            4 => {
                self.model.queues[list].push_back((key, data));
                self.blocks.move_back(node, at);
                let popped = self.blocks.pop_back(at);
                assert_eq!(popped, self.model.queues[list].pop_back().map(|(key, _)| key));
                self.node_of.remove(&key);
            }
            _ => {
                self.blocks.move_back(node, at);
                self.model.queues[list].push_back((key, data));
            }
        }
    }

    /// Changes a slot, like a log.
    fn log(&mut self, key: u32) {
        let slot = self.random(self.slots);
        match self.model.slots.get(&slot).copied() {
            Some((held, true)) => {
                self.model.supersede(slot);
                let moved = self.blocks.supersede(slot);
                self.moved(held, moved);
            }
            Some(_) if self.state >> 21 & 1 == 0 => {
                self.model.slots.remove(&slot);
                self.blocks.clear(slot);
            }
            _ => {
                if let Some(old) = self.model.slot_of(key) {
                    self.model.supersede(old);
                }
                self.model.slots.insert(slot, (key, true));
                let moved = self.blocks.place(key, slot);
                self.moved(key, moved);
            }
        }
    }

    fn check(&self) {
        self.blocks.check(KEYS as usize);
        for (list, queue) in (0..).zip(&self.model.queues) {
            assert!(self.blocks.keys(List(list)).eq(queue.iter().map(|&(key, _)| key)), "list {list}");
            assert_eq!(
                (self.blocks.len(List(list)), self.blocks.is_empty(List(list))),
                (queue.len(), queue.is_empty())
            );
            let share = self.blocks.young.get(list as usize).map_or(0.0, |young| young.share);
            let young = (queue.len() as f64 * share) as usize;
            for (at, &(key, data)) in queue.iter().enumerate() {
                assert_eq!(self.blocks.is_young(key), at < young, "whether {key} is young");
                let node = self.blocks.find(key).expect("it is remembered");
                assert_eq!((*self.blocks.data(node), self.node_of[&key]), (data, node));
            }
        }
        for key in 0..KEYS {
            assert_eq!(self.blocks.find(key).is_some(), self.model.list_of(key).is_some(), "{key} is remembered");
            assert_eq!(self.blocks.slot_of(key), self.model.slot_of(key), "the slot of {key}");
        }
        for slot in 0..self.slots {
            assert_eq!(self.blocks.block_at(slot), self.model.slots.get(&slot).map(|&(key, _)| key), "slot {slot}");
            assert_eq!(self.blocks.is_current(slot), self.model.is_current(slot), "slot {slot}");
        }
        assert_eq!(Directory::len(&self.blocks), self.model.slots.values().filter(|(_, current)| *current).count());
        // No more loose nodes than were ever in use at once.
        assert!(self.blocks.nodes.len() <= LISTS + (self.slots + KEYS) as usize);
    }
}

fn compare<I: Index<Key = u32>>(index: I, slots: u32) {
    let mut blocks = Blocks::new(index, LISTS as u8, 0);
    if slots > 0 {
        blocks.set_slots(slots);
        blocks.set_young(&[List(0), List(2)], 0.4);
    }
    let model = Model::default();
    let mut compare = Compare { blocks, model, slots, state: u64::from(slots), node_of: BTreeMap::new() };
    for step in 0..6_000 {
        if slots > 0 && step % 1_000 == 500 {
            let share = f64::from(compare.random(11)) / 10.0;
            compare.blocks.set_young(&[List(1), List(2)], share);
        }
        let key = compare.random(KEYS);
        if slots > 0 && compare.random(2) == 0 {
            compare.log(key);
        } else if compare.model.list_of(key).is_some() {
            compare.change(key);
        } else {
            compare.insert(key);
        }
        compare.check();
    }
}

#[test]
fn lists_and_slots_match_queues_and_maps_with_either_index() {
    compare(Dense::new(KEYS as usize), 0);
    for slots in [0, 1, 2, 7, 20, 60] {
        compare(Hashed::new(), slots);
        compare(Hashed::with_capacity(KEYS as usize, 4), slots);
    }
}

/// Nodes: 0 head, 1 to 4 the slots 0 to 3, 5 and 6 loose.
///
/// ```text
///                      list    slots                  nodes of 7, 8
///  remember 8, then 7  7 8                            6 5
///  7 into slot 1       7 8     1: 7                   2 5
///  8 into slot 2       7 8     1: 7  2: 8             2 3
///  7 into slot 3       7 8     1: -  2: 8  3: 7       4 3
///  8 is forgotten      7       1: -  2: 8  3: 7       4 3, unlisted
///  7 is taken out      7       1: -  2: 8  3: -       5 3
///  8 is remembered     8 7     1: -  2: 8  3: -       5 3
/// ```
#[test]
fn a_block_goes_from_node_to_node_with_its_slot_and_keeps_its_place() {
    let mut blocks: Blocks<Hashed<u32>, ()> = Blocks::new(Hashed::new(), 1, 0);
    blocks.set_slots(4);
    let q = List(0);
    let moved = |from, to| Some(Moved { from: NodeId(from), to: NodeId(to) });
    assert_eq!(blocks.insert_front(q, 8, ()), NodeId(5));
    assert_eq!(blocks.insert_front(q, 7, ()), NodeId(6));
    assert_eq!(blocks.place(7, 1), moved(6, 2));
    assert_eq!(blocks.place(8, 2), moved(5, 3));
    assert_eq!(blocks.place(7, 3), moved(2, 4));
    assert_eq!((blocks.block_at(1), blocks.is_current(1)), (Some(7), false));
    assert_eq!(blocks.forget(8), Some(q));
    assert_eq!((blocks.find(8), blocks.slot_of(8)), (None, Some(2)));
    assert_eq!(blocks.supersede(3), moved(4, 5));
    assert_eq!((blocks.find(7), blocks.slot_of(7)), (Some(NodeId(5)), None));
    assert_eq!(blocks.insert_front(q, 8, ()), NodeId(3));
    assert!(blocks.keys(q).eq([8, 7]));
    blocks.check(2);
    blocks.clear(1);
    assert_eq!(blocks.block_at(1), None);
}

#[test]
fn a_table_with_slots_takes_thirteen_bytes_for_each_and_its_index() {
    let mut blocks: Blocks<Hashed<u32>, ()> = Blocks::new(Hashed::with_capacity(1_000, 1_100), 1, 0);
    blocks.set_slots(1_000);
    for slot in 1..1_000 {
        blocks.insert_front(List(0), slot, ());
        assert!(blocks.place(slot, slot).is_some());
    }
    let nodes = 1 + 1_000 + LOOSE_NODES_MIN;
    assert_eq!((blocks.nodes.capacity(), size_of::<Node<u32>>()), (nodes, 13));
}
