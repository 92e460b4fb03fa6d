//! Slow, simple versions of the policies, written from the papers and not from the policies' code: vectors with linear
//! search. One file per policy, one row per policy and set of options.

use flashwise_core::access::Access;
use flashwise_core::policy::Outcome;

mod arc;
mod cacheus;
mod car;
mod clock;
mod clock_pro;
mod fif;
mod fifo;
mod larc;
mod lecar;
mod lfu;
mod lirs;
mod lirs2;
mod lru;
mod min;
mod mq;
mod ocf_lru;
mod s3_fifo;
mod sieve;
mod slru;
mod smq;
mod two_q;
mod w_tinylfu;

/// The expected behaviour of a policy.
pub trait Model {
    fn access(&mut self, access: Access<u32>) -> Outcome<u32>;

    /// Forgets `block`. Returns true if it was cached.
    fn remove(&mut self, block: u32) -> bool;

    /// Removes `block`, which is cached and has no space.
    fn refuse(&mut self, block: u32) {
        self.remove(block);
    }
}

/// Creates a model of a cache of this many blocks.
pub type Make = fn(usize) -> Box<dyn Model>;

/// Policies as named on the command line, with their models.
pub const MODELS: &[(&str, Make)] = &[
    ("lru", |c| Box::new(lru::Lru { c, q: vec![] })),
    ("fifo", |c| Box::new(fifo::Fifo { c, q: vec![] })),
    ("clock", |c| Box::new(clock::Clock { c, uses_max: 1, circle: vec![] })),
    ("clock:bits=2", |c| Box::new(clock::Clock { c, uses_max: 3, circle: vec![] })),
    ("clock:bits=8", |c| Box::new(clock::Clock { c, uses_max: 255, circle: vec![] })),
    ("clock-pro", |c| Box::new(clock_pro::ClockPro::new(c, 0.01, 1.0))),
    ("clock-pro:cold=50%,ghosts=0", |c| Box::new(clock_pro::ClockPro::new(c, 0.5, 0.0))),
    ("clock-pro:cold=10%,ghosts=200%", |c| Box::new(clock_pro::ClockPro::new(c, 0.1, 2.0))),
    ("slru", |c| Box::new(slru::Slru::new(c, 2, 0.8))),
    ("slru:segments=4,protected=75%", |c| Box::new(slru::Slru::new(c, 4, 0.75))),
    ("slru:protected=100%", |c| Box::new(slru::Slru::new(c, 2, 1.0))),
    ("slru:segments=3,protected=0", |c| Box::new(slru::Slru::new(c, 3, 0.0))),
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
    ("car", |c| Box::new(car::Car::new(c))),
    ("larc", |c| Box::new(larc::Larc::new(c, true, false))),
    ("larc:fill=ghost", |c| Box::new(larc::Larc::new(c, false, false))),
    ("larc:writes=admit", |c| Box::new(larc::Larc::new(c, true, true))),
    ("lecar", |c| Box::new(lecar::Lecar::new(c, 0.45, 0.005, 0.5, 1))),
    ("lecar:rate=1,discount=0.5,history=300%,seed=7", |c| Box::new(lecar::Lecar::new(c, 1.0, 0.5, 3.0, 7))),
    ("lecar:history=0", |c| Box::new(lecar::Lecar::new(c, 0.45, 0.005, 0.0, 1))),
    ("cacheus", |c| Box::new(cacheus::Cacheus::new(c, 1))),
    ("cacheus:seed=7", |c| Box::new(cacheus::Cacheus::new(c, 7))),
    ("ocf-lru", |c| Box::new(ocf_lru::OcfLru { c, q: vec![] })),
    ("smq", |c| Box::new(smq::Smq::new(c, 4.0, 1000))),
    ("smq:hotspots=25%,rate=1", |c| Box::new(smq::Smq::new(c, 0.25, 1))),
    ("smq:rate=10", |c| Box::new(smq::Smq::new(c, 4.0, 10))),
    ("lirs", |c| Box::new(lirs::Lirs::new(c, 0.01, f64::MAX))),
    ("lirs:hirs=10%", |c| Box::new(lirs::Lirs::new(c, 0.1, f64::MAX))),
    ("lirs:hirs=100%", |c| Box::new(lirs::Lirs::new(c, 1.0, f64::MAX))),
    ("lirs:ghosts=30%", |c| Box::new(lirs::Lirs::new(c, 0.01, 0.3))),
    ("lirs:hirs=5%,ghosts=0", |c| Box::new(lirs::Lirs::new(c, 0.05, 0.0))),
    ("lirs2", |c| Box::new(lirs2::Lirs2::new(c, 0.01, 3.0))),
    ("lirs2:hirs=10%,ghosts=1000", |c| Box::new(lirs2::Lirs2::new(c, 0.1, 1000.0))),
    ("lirs2:hirs=100%", |c| Box::new(lirs2::Lirs2::new(c, 1.0, 3.0))),
    ("lirs2:hirs=40%,ghosts=30%", |c| Box::new(lirs2::Lirs2::new(c, 0.4, 0.3))),
    ("lirs2:hirs=5%,ghosts=0", |c| Box::new(lirs2::Lirs2::new(c, 0.05, 0.0))),
    ("s3-fifo", |c| Box::new(s3_fifo::S3Fifo::new(c, 0.1, 0.9, 1))),
    ("s3-fifo:threshold=0", |c| Box::new(s3_fifo::S3Fifo::new(c, 0.1, 0.9, 0))),
    ("s3-fifo:small=50%,ghost=200%,threshold=2", |c| Box::new(s3_fifo::S3Fifo::new(c, 0.5, 2.0, 2))),
    ("s3-fifo:small=0,ghost=0", |c| Box::new(s3_fifo::S3Fifo::new(c, 0.0, 0.0, 1))),
    ("s3-fifo:variant=libcachesim", |c| Box::new(s3_fifo::S3Fifo::new(c, 0.1, 0.9, 1).shipped())),
    ("s3-fifo:variant=libcachesim,small=45%,ghost=30%,threshold=0", |c| {
        Box::new(s3_fifo::S3Fifo::new(c, 0.45, 0.3, 0).shipped())
    }),
    ("s3-fifo:small=100%", |c| Box::new(s3_fifo::S3Fifo::new(c, 1.0, 0.9, 1))),
    ("sieve", |c| Box::new(sieve::Sieve { c, t: vec![], hand: None })),
    ("w-tinylfu", |c| Box::new(w_tinylfu::WTinyLfu::new(c, 0.01, 0.8, 10.0, false))),
    ("w-tinylfu:doorkeeper=on", |c| Box::new(w_tinylfu::WTinyLfu::new(c, 0.01, 0.8, 10.0, true))),
    ("w-tinylfu:window=0,sample=3", |c| Box::new(w_tinylfu::WTinyLfu::new(c, 0.0, 0.8, 3.0, false))),
    ("w-tinylfu:window=30%,protected=100%", |c| Box::new(w_tinylfu::WTinyLfu::new(c, 0.3, 1.0, 10.0, false))),
    ("w-tinylfu:window=100%", |c| Box::new(w_tinylfu::WTinyLfu::new(c, 1.0, 0.8, 10.0, false))),
    ("w-tinylfu:climb=on,sample=2", |c| Box::new(w_tinylfu::WTinyLfu::new(c, 0.01, 0.8, 2.0, false).climbing(2.0))),
    ("w-tinylfu:climb=on,window=50%,sample=1", |c| {
        Box::new(w_tinylfu::WTinyLfu::new(c, 0.5, 0.8, 1.0, false).climbing(1.0))
    }),
    ("min", |c| Box::new(min::Min { c, cached: vec![] })),
    ("fif", |c| Box::new(fif::Fif { c, cached: vec![] })),
];

/// Removes `block` from `queue`. Returns true if it was there.
pub fn take(queue: &mut Vec<u32>, block: u32) -> bool {
    let at = queue.iter().position(|&queued| queued == block);
    at.map(|at| queue.remove(at)).is_some()
}
