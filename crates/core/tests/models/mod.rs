//! Slow and obvious versions of the policies, written from the papers and not from the policies' code: vectors searched from
//! end to end. One file per policy, one row per policy and set of options.

use flashwise_core::access::Access;
use flashwise_core::policy::Outcome;

mod arc;
mod fifo;
mod larc;
mod lfu;
mod lru;
mod mq;
mod two_q;

/// What a policy should do.
pub trait Model {
    fn access(&mut self, access: Access<u32>) -> Outcome<u32>;
}

/// Makes a model of a cache of so many blocks.
pub type Make = fn(usize) -> Box<dyn Model>;

/// Policies as named on the command line, with their models.
pub const MODELS: &[(&str, Make)] = &[
    ("lru", |c| Box::new(lru::Lru { c, q: vec![] })),
    ("fifo", |c| Box::new(fifo::Fifo { c, q: vec![] })),
    ("lfu", |c| Box::new(lfu::Lfu { c, time: 0, cached: vec![] })),
    ("2q", |c| Box::new(two_q::TwoQ::new(c, 0.25, 0.5))),
    ("2q:kin=50%,kout=200%", |c| Box::new(two_q::TwoQ::new(c, 0.5, 2.0))),
    ("2q:kin=100%,kout=30%", |c| Box::new(two_q::TwoQ::new(c, 1.0, 0.3))),
    ("2q:kin=0,kout=0", |c| Box::new(two_q::TwoQ::new(c, 0.0, 0.0))),
    ("mq", |c| Box::new(mq::Mq::new(c, 8, None, 4.0))),
    ("mq:life=20", |c| Box::new(mq::Mq::new(c, 8, Some(20), 4.0))),
    ("mq:m=2,life=1,qout=50%", |c| Box::new(mq::Mq::new(c, 2, Some(1), 0.5))),
    ("mq:m=3,qout=0", |c| Box::new(mq::Mq::new(c, 3, None, 0.0))),
    ("mq:m=1", |c| Box::new(mq::Mq::new(c, 1, None, 4.0))),
    ("arc", |c| Box::new(arc::Arc::new(c))),
    ("larc", |c| Box::new(larc::Larc::new(c, true, false))),
    ("larc:fill=ghost", |c| Box::new(larc::Larc::new(c, false, false))),
    ("larc:writes=admit", |c| Box::new(larc::Larc::new(c, true, true))),
];

/// Takes `block` out of `queue` if it is there.
pub fn take(queue: &mut Vec<u32>, block: u32) -> bool {
    let at = queue.iter().position(|&queued| queued == block);
    at.map(|at| queue.remove(at)).is_some()
}
