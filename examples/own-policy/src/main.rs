//! A replacement policy in a program of its own, over a trace of any format: `own-policy TRACE BLOCKS` prints its row
//! as CSV, beneath that of LRU.
//!
//! Source of the policy: LIP, the LRU insertion policy. Qureshi, Jaleel, Patt, Steely, Emer: Adaptive insertion
//! policies for high performance caching. ISCA 2007.

use std::error::Error;

use flashwise_core::access::Access;
use flashwise_core::blocks::{Blocks, List, Queues};
use flashwise_core::index::{Dense, Index};
use flashwise_core::policy::{Outcome, Policy};
use flashwise_sim::job::{Input, Job, run};
use flashwise_sim::results::{ResultRow, write_csv};
use flashwise_sim::simulate::{Counting, Warmup, run_own};
use flashwise_trace::normalised::{self, Settings};
use flashwise_trace::progress::Silent;

/// The cached blocks, in the order in which they stay.
const Q: List = List(0);

/// Inserts missed blocks where LRU evicts, and moves hit blocks to the other end. So part of a loop larger than the
/// cache stays.
#[derive(Debug)]
struct Lip<I: Index> {
    capacity: usize,
    blocks: Blocks<I, ()>,
}

impl<I: Index> Lip<I> {
    fn new(index: I, capacity: usize) -> Self {
        Lip { capacity, blocks: Blocks::new(index, 1, 0) }
    }
}

impl<I: Index> Policy for Lip<I> {
    type Key = I::Key;

    fn blocks(&self) -> Option<&dyn Queues<I::Key>> {
        Some(&self.blocks)
    }

    fn blocks_mut(&mut self) -> Option<&mut dyn Queues<I::Key>> {
        Some(&mut self.blocks)
    }

    fn access(&mut self, access: Access<I::Key>) -> Outcome<I::Key> {
        if let Some(node) = self.blocks.find(access.block) {
            self.blocks.move_front(node, Q);
            return Outcome::Hit;
        }
        let evicted = if self.blocks.len(Q) == self.capacity { self.blocks.pop_back(Q) } else { None };
        self.blocks.insert_back(Q, access.block, ());
        Outcome::Admit { evicted }
    }

    fn check(&self) {
        self.blocks.check(self.capacity);
    }
}

/// The rows of LRU and LIP for a cache of so many blocks.
fn rows(path: &str, capacity: usize) -> Result<Vec<ResultRow>, Box<dyn Error>> {
    let trace = normalised::open(path, &Settings::default(), &Silent)?;
    let lru: Job = format!("policy=lru size={capacity}").parse()?;
    let mut rows = run(&[Input::Open(trace.clone())], &[lru], &Silent)?.rows.concat();
    let counting = Counting { warmup: Warmup::Accesses(0), epoch: None };
    let lip = Lip::new(Dense::new(trace.unique_blocks()), capacity);
    let (counters, epochs) = run_own(&trace, lip, counting, &Silent);
    rows.push(ResultRow::of_policy(&trace, "lip", (&capacity.to_string(), capacity), &counters, &epochs));
    Ok(rows)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [trace, capacity] = &arguments[..] else { return Err("expected a trace and a number of blocks".into()) };
    Ok(write_csv(&rows(trace, capacity.parse()?)?, std::io::stdout())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten rounds of blocks 0 to 9 through a cache of 5. LRU never hits. LIP keeps 0 to 3 from the first round, which
    /// are 4 hits in each of the other nine. The fifth place changes on each miss; 9 has left before its next access.
    #[test]
    fn of_a_loop_a_part_stays() {
        let folder = std::env::temp_dir().join(format!("own-policy-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("loop.csv");
        let requests: String = (0..100).map(|at| format!("{},read,{},4096\n", at * 10, at % 10 * 4096)).collect();
        std::fs::write(&path, format!("time_us,op,offset_bytes,length_bytes\n{requests}")).unwrap();
        let rows = rows(path.to_str().unwrap(), 5).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(rows.iter().map(|row| (&row.policy[..], row.hits)).collect::<Vec<_>>(), [("lru", 0), ("lip", 36)]);
    }

    #[test]
    fn the_policy_holds_what_it_says() {
        let mut lip = Lip::new(Dense::new(7), 3);
        for at in 0..100_u32 {
            lip.access(Access::read(at * at % 7));
            lip.check();
        }
        assert_eq!(lip.len(), 3);
    }
}
