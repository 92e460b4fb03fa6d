//! Ordered lists of small numbers, such as those of erase units: each number is on one list or none.

/// Lists of the numbers from 0 up. All operations on a number take constant time.
#[derive(Clone, Debug)]
pub struct Lists {
    /// The lists' heads, then the numbers.
    links: Vec<Link>,
    lens: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u32,
    next: u32,
    list: u8,
}

const NONE: u8 = u8::MAX;

impl Lists {
    /// Creates `lists` empty lists, numbered from 0.
    pub fn new(lists: u8) -> Lists {
        let head = |list: u8| Link { previous: list.into(), next: list.into(), list };
        Lists { links: (0..lists).map(head).collect(), lens: vec![0; lists.into()] }
    }

    #[inline]
    fn node(&self, number: u32) -> u32 {
        number + self.lens.len() as u32
    }

    #[inline]
    fn number(&self, node: u32) -> Option<u32> {
        node.checked_sub(self.lens.len() as u32)
    }

    /// Returns the list of `number`, if it is on one.
    #[inline]
    pub fn list_of(&self, number: u32) -> Option<u8> {
        let link = self.links.get(self.node(number) as usize)?;
        (link.list != NONE).then_some(link.list)
    }

    /// Returns the length of `list`.
    #[inline]
    pub fn len(&self, list: u8) -> u32 {
        self.lens[usize::from(list)]
    }

    /// True if `list` is empty.
    #[inline]
    pub fn is_empty(&self, list: u8) -> bool {
        self.len(list) == 0
    }

    /// Adds `number`, which is on no list, at the front of `list`.
    #[inline]
    pub fn push_front(&mut self, list: u8, number: u32) {
        self.link(list, number, u32::from(list), self.links[usize::from(list)].next);
    }

    /// Adds `number`, which is on no list, at the back of `list`.
    #[inline]
    pub fn push_back(&mut self, list: u8, number: u32) {
        self.link(list, number, self.links[usize::from(list)].previous, u32::from(list));
    }

    #[inline]
    fn link(&mut self, list: u8, number: u32, previous: u32, next: u32) {
        assert_eq!(self.list_of(number), None, "{number} is on two lists");
        let node = self.node(number);
        if node as usize >= self.links.len() {
            self.links.resize(node as usize + 1, Link { previous: 0, next: 0, list: NONE });
        }
        self.links[node as usize] = Link { previous, next, list };
        self.links[previous as usize].next = node;
        self.links[next as usize].previous = node;
        self.lens[usize::from(list)] += 1;
    }

    /// Removes `number` from its list, and returns the list.
    #[inline]
    pub fn remove(&mut self, number: u32) -> u8 {
        let node = self.node(number);
        let Link { previous, next, list } = self.links[node as usize];
        assert!(list != NONE, "{number} is taken off a list that it is not on");
        self.links[previous as usize].next = next;
        self.links[next as usize].previous = previous;
        self.links[node as usize].list = NONE;
        self.lens[usize::from(list)] -= 1;
        list
    }

    /// Moves `number`, which is on a list, to the front of `list`.
    #[inline]
    pub fn move_front(&mut self, number: u32, list: u8) {
        self.remove(number);
        self.push_front(list, number);
    }

    /// Returns the number at the back of `list`.
    #[inline]
    pub fn back(&self, list: u8) -> Option<u32> {
        self.number(self.links[usize::from(list)].previous)
    }

    /// Returns the number at the front of `list`.
    #[inline]
    pub fn front(&self, list: u8) -> Option<u32> {
        self.number(self.links[usize::from(list)].next)
    }

    /// Returns the neighbour of `number` towards the front of its list.
    #[inline]
    pub fn toward_front(&self, number: u32) -> Option<u32> {
        self.number(self.links[self.node(number) as usize].previous)
    }

    /// Iterates over the numbers on `list`, back to front.
    pub fn from_back(&self, list: u8) -> impl Iterator<Item = u32> {
        std::iter::successors(self.back(list), |&number| self.toward_front(number))
    }

    /// Asserts that links and lengths agree.
    pub fn check(&self) {
        for (list, &len) in (0..).zip(&self.lens) {
            let numbers: Vec<_> = self.from_back(list).take(self.links.len()).collect();
            assert_eq!(numbers.len(), len as usize, "the length of list {list}");
            for number in numbers {
                assert_eq!(self.list_of(number), Some(list), "{number} is linked on list {list}");
                let Link { previous, next, .. } = self.links[self.node(number) as usize];
                assert_eq!(self.links[previous as usize].next, self.node(number));
                assert_eq!(self.links[next as usize].previous, self.node(number));
            }
        }
        let listed = self.links.iter().skip(self.lens.len()).filter(|link| link.list != NONE).count();
        assert_eq!(listed, self.lens.iter().sum::<u32>() as usize, "numbers that name a list are on it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn lists_match_queues() {
        let mut lists = Lists::new(3);
        let mut queues: [VecDeque<u32>; 3] = Default::default();
        let mut state = 5_u32;
        for _ in 0..5_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (number, list) = ((state >> 8) % 20, ((state >> 20) % 3) as u8);
            let held = queues.iter().position(|queue| queue.contains(&number)).map(|list| list as u8);
            assert_eq!(lists.list_of(number), held);
            queues.iter_mut().for_each(|queue| queue.retain(|&queued| queued != number));
            match (held, state >> 30) {
                (None, 0) => lists.push_back(list, number),
                (None, _) => lists.push_front(list, number),
                (Some(_), 0) => lists.move_front(number, list),
                (Some(held), _) => assert_eq!(lists.remove(number), held),
            }
            if held.is_none() && state >> 30 == 0 {
                queues[usize::from(list)].push_back(number);
            } else if held.is_none() || state >> 30 == 0 {
                queues[usize::from(list)].push_front(number);
            }
            lists.check();
            for (list, queue) in (0..).zip(&queues) {
                assert!(lists.from_back(list).eq(queue.iter().rev().copied()));
                assert_eq!(lists.front(list), queue.front().copied());
                assert_eq!((lists.len(list), lists.is_empty(list)), (queue.len() as u32, queue.is_empty()));
            }
        }
    }
}
