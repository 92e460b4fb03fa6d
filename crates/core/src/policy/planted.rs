//! Planted: a minimal policy for tests of the table. This file and its row are all that a new policy needs.

use super::{Info, OnDemand, Policy, of_blocks, on_demand};
use crate::blocks::{Blocks, List, NodeId};
use crate::index::Index;
use crate::options::Options;

/// The planted policy's row in the table of policies.
pub static INFO: Info =
    Info { name: "planted", title: "Planted by a test", source: "none", parameters: &[], offline: false };

/// The cached blocks, the last admitted at the back.
const Q: List = List(0);

/// Evicts the block that was admitted last.
#[derive(Debug)]
pub struct Planted<I: Index> {
    c: usize,
    blocks: Blocks<I, ()>,
}

impl<I: Index> Planted<I> {
    /// Creates an empty cache of `capacity` blocks.
    pub fn new(index: I, capacity: usize, _options: &Options) -> Self {
        Planted { c: capacity, blocks: Blocks::new(index, 1, 0) }
    }
}

impl<I: Index> OnDemand<I> for Planted<I> {
    #[inline]
    fn is_full(&self) -> bool {
        self.blocks.len(Q) == self.c
    }

    #[inline]
    fn hit(&mut self, _: NodeId) {}

    #[inline]
    fn evict(&mut self) -> Option<I::Key> {
        self.blocks.pop_back(Q)
    }

    #[inline]
    fn admit(&mut self, block: I::Key) {
        self.blocks.insert_back(Q, block, ());
    }
}

impl<I: Index> Policy for Planted<I> {
    of_blocks!(I);
    on_demand!(I);

    fn check(&self) {
        self.blocks.check(self.c);
    }
}

#[cfg(test)]
mod tests {
    use crate::access::Access;
    use crate::index::{Dense, Index};
    use crate::policy::{Outcome, POLICIES, Policy, Spec, Visitor};

    struct Run;

    impl<K: Copy + Eq + From<u8> + std::fmt::Debug> Visitor<K> for Run {
        type Output = ();

        fn visit<P: Policy<Key = K> + Send + 'static>(self, mut policy: P) {
            let key = K::from;
            let admit = |evicted| Outcome::Admit { evicted };
            assert_eq!(policy.access(Access::read(key(1))), admit(None));
            assert_eq!(policy.access(Access::read(key(2))), admit(None));
            assert_eq!(policy.access(Access::read(key(3))), admit(Some(key(2))));
            assert_eq!(policy.access(Access::read(key(1))), Outcome::Hit);
            // The table of blocks provides the methods that the policy's file does not.
            assert!(policy.contains(key(3)) && !policy.contains(key(2)) && policy.len() == 2);
            assert!(policy.remove(key(3)) && !policy.remove(key(3)) && policy.len() == 1);
            policy.prefetch(key(1), key(2));
            assert!(policy.directory().is_some() && policy.directory_mut().is_some());
            policy.check();
        }
    }

    fn run<I: Index<Key: From<u8>> + Send + 'static>(index: I) {
        let spec: Spec = "planted".parse().unwrap();
        spec.build(index, 2, Run);
    }

    #[test]
    fn a_file_and_a_row_make_a_policy() {
        assert!(POLICIES.iter().any(|info| info.name == "planted"));
        run(Dense::new(4));
        run(crate::index::Hashed::<u64>::new());
    }
}
