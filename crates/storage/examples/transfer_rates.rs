//! Random 4 KiB reads of a file by each method: transfers per second and processor time per transfer.
//!
//!     transfer_rates FILE SECONDS [direct|buffered] [ring|pool] [callback|thread] [DEPTH]
//!
//! After each transfer, another is submitted: by the function that receives the completion (`callback`), or by another
//! thread (`thread`). All combinations of omitted arguments are measured.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use flashwise_storage::disk::file::{FileDisk, Options, PageCache};
use flashwise_storage::disk::{
    ALIGNMENT, Buffer, Completed, Completion, Disk, Method, Operation, Transfer, Transfers, transfers,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Submits one transfer after another.
struct Reads {
    memory: Vec<u8>,
    units: u64,
    random: Xoshiro256PlusPlus,
}

impl Reads {
    fn new(depth: usize, size: u64) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(1);
        Self { memory: vec![0; (depth + 1) * ALIGNMENT], units: size / ALIGNMENT as u64, random }
    }

    fn next(&mut self, tag: u64) -> Transfer {
        let start = self.memory.as_ptr().align_offset(ALIGNMENT) + tag as usize * ALIGNMENT;
        let start = self.memory.as_mut_ptr().wrapping_add(start);
        let offset = self.random.random_range(0..self.units) * ALIGNMENT as u64;
        let buffers = vec![Buffer { start, length: ALIGNMENT }];
        Transfer { tag, disk: 0, operation: Operation::Read, offset, length: ALIGNMENT as u64, buffers, stream: 0 }
    }
}

/// Transfers done in `time`, each followed by another.
fn measure(disk: Arc<FileDisk>, method: Method, in_callback: bool, depth: usize, time: Duration) -> u64 {
    let reads = Arc::new(Mutex::new(Reads::new(depth, disk.size())));
    let follow = move |batch: &mut Vec<Completion>, next: &mut Vec<Transfer>| {
        let mut reads = reads.lock().expect("no thread panics with it");
        next.extend(batch.drain(..).map(|completion| {
            completion.result.expect("the file is readable");
            reads.next(completion.tag)
        }));
    };
    let (ended, ends) = channel::<Vec<Completion>>();
    let performs: Arc<OnceLock<Arc<dyn Transfers>>> = Arc::default();
    let done = Arc::new(Mutex::new((0, false)));
    let completed: Completed = {
        let (performs, done, mut next, follow) = (performs.clone(), done.clone(), Vec::new(), follow.clone());
        Box::new(move |batch| {
            let mut state = done.lock().expect("no thread panics with it");
            state.0 += batch.len() as u64;
            if state.1 {
                return;
            }
            drop(state);
            if in_callback {
                follow(batch, &mut next);
                performs.get().expect("it was made before it was used").submit(&mut next);
            } else {
                ended.send(std::mem::take(batch)).expect("its receiver lives");
            }
        })
    };
    let made = transfers(vec![disk], method, completed).expect("the method is allowed");
    assert!(performs.set(Arc::clone(&made)).is_ok());
    let mut next = Vec::new();
    let mut first = (0..depth).map(|tag| Completion { tag: tag as u64, result: Ok(()) }).collect();
    follow(&mut first, &mut next);
    made.submit(&mut next);
    let started = Instant::now();
    while started.elapsed() < time {
        if in_callback {
            std::thread::sleep(time.saturating_sub(started.elapsed()));
        } else if let Ok(mut batch) = ends.recv_timeout(time) {
            while let Ok(more) = ends.try_recv() {
                batch.extend(more);
            }
            follow(&mut batch, &mut next);
            made.submit(&mut next);
        }
    }
    let mut state = done.lock().expect("no thread panics with it");
    state.1 = true;
    state.0
}

/// Processor time of this process, from proc(5); in ticks of 10 ms.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("proc is mounted");
    let fields: Vec<_> = stat.rsplit(')').next().expect("it has a name").split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|ticks| ticks.parse::<u64>().expect("a number")).sum();
    Duration::from_millis(ticks * 10)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, seconds, chosen @ ..] = &arguments[..] else {
        panic!("usage: transfer_rates FILE SECONDS [direct|buffered] [ring|pool] [callback|thread] [DEPTH]");
    };
    let time = Duration::from_secs_f64(seconds.parse().expect("SECONDS is a number"));
    let wanted = |choice: &str, choices: &[&str]| {
        chosen.iter().any(|chosen| chosen == choice) || !chosen.iter().any(|chosen| choices.contains(&chosen.as_str()))
    };
    println!("page cache  method  submitted by  depth  transfers/s  processor us/transfer");
    for (cache_name, page_cache) in [("buffered", PageCache::Use), ("direct", PageCache::Avoid)] {
        for (method_name, method) in [("ring", Method::Ring), ("pool", Method::Pool)] {
            for by in ["callback", "thread"] {
                for depth in [1, 16, 64] {
                    let depths = ["1", "16", "64"];
                    if !wanted(cache_name, &["buffered", "direct"])
                        || !wanted(method_name, &["ring", "pool"])
                        || !wanted(by, &["callback", "thread"])
                        || !wanted(&depth.to_string(), &depths)
                    {
                        continue;
                    }
                    let disk = FileDisk::open(path.as_ref(), Options { read_only: true, page_cache });
                    let disk = Arc::new(disk.expect("the file can be opened"));
                    let before = processor_time();
                    let count = measure(disk, method, by == "callback", depth, time);
                    let used = (processor_time() - before).as_secs_f64() * 1e6 / count as f64;
                    let rate = count as f64 / time.as_secs_f64();
                    println!("{cache_name:10}  {method_name:6}  {by:12}  {depth:5}  {rate:11.0}  {used:21.1}");
                }
            }
        }
    }
}
