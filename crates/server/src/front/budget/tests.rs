use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};

use super::*;

const MIB: usize = 1 << 20;

/// A connection, as seen by a budget.
struct Connection {
    account: Account,
    completions: Arc<Completions>,
}

impl Connection {
    fn new(budget: &Arc<Budget>) -> Connection {
        let completions = Arc::new(Completions::new().unwrap());
        Connection { account: Account::new(budget, &completions), completions }
    }

    /// True if its bell rang since the last call.
    fn is_rung(&self) -> bool {
        rustix::io::read(self.completions.bell(), &mut [0; 8]).is_ok()
    }

    /// Takes memory for a whole request; true if it is available immediately.
    fn take(&mut self, bytes: usize) -> bool {
        self.account.take(Need::whole(bytes), false) == bytes
    }

    /// Takes `bytes`, and waits until they are available.
    fn take_patiently(&mut self, bytes: usize) {
        self.take_parts(bytes, bytes);
    }

    /// Takes `bytes` in parts of at most `part_bytes`, and waits for each.
    fn take_parts(&mut self, bytes: usize, part_bytes: usize) {
        let mut taken = 0;
        while taken < bytes {
            let rest_bytes = bytes - taken;
            taken += self.await_memory(Need { bytes: part_bytes.min(rest_bytes), rest_bytes });
        }
    }

    fn await_memory(&mut self, need: Need) -> usize {
        loop {
            let taken = self.account.take(need, true);
            if taken > 0 {
                return taken;
            }
            poll(&mut [PollFd::from_borrowed_fd(self.completions.bell().as_fd(), PollFlags::IN)], None).unwrap();
            self.is_rung();
        }
    }
}

/// Returns a budget of `bytes` that all belong to the pool.
fn pool(bytes: usize) -> Arc<Budget> {
    Arc::new(Budget::new(bytes + OVERHEAD_BYTES, usize::MAX, 0, Arc::default()))
}

#[test]
fn a_connection_may_hold_a_quarter_of_the_free_memory() {
    // h <= (512 - h) / 4, so h <= 512 / 5 = 102.4.
    let budget = pool(512 * MIB);
    let mut alone = Connection::new(&budget);
    assert_eq!((0..512).filter(|_| alone.take(MIB)).count(), 102);
    assert_eq!(budget.used_bytes(), 102 * MIB);
    // 410 are free: h <= (410 - h) / 4, so h <= 82.
    let mut other = Connection::new(&budget);
    assert_eq!((0..512).filter(|_| other.take(MIB)).count(), 82);
    alone.account.keep(10 * MIB);
    other.account.keep(0);
    assert_eq!(budget.used_bytes(), 10 * MIB);
    drop((alone, other));
    assert_eq!(budget.used_bytes(), 0);
}

/// 4,096 connections have 512 MiB / 4 / 4,096 = 32 KiB each of their own.
#[test]
fn greedy_connections_do_not_block_small_requests_of_others() {
    for request_bytes in [4 << 10, 256 << 10, MIB, 32 * MIB] {
        let budget = Arc::new(Budget::new(512 * MIB, 4096, 32 * MIB, Arc::default()));
        let mut hogs: Vec<Connection> = (0..4095).map(|_| Connection::new(&budget)).collect();
        for hog in &mut hogs {
            while hog.take(request_bytes) {}
        }
        assert!((384 * MIB..=512 * MIB).contains(&budget.used_bytes()), "{}", budget.used_bytes());
        let mut modest = Connection::new(&budget);
        for _ in 0..3 {
            assert!((0..8).all(|_| modest.take(4 << 10)), "beside requests of {request_bytes} bytes");
            assert!(!modest.take(40 * MIB));
            modest.account.keep(0);
        }
        drop(hogs);
        assert_eq!(budget.used_bytes(), 32 << 10);
    }
}

/// 15 times 32 MiB leave 32, which is the reserve; one more would leave nothing for others.
#[test]
fn a_long_request_waits_for_its_turn_and_others_go_on() {
    let budget = pool(512 * MIB);
    let mut hogs: Vec<Connection> = (0..15).map(|_| Connection::new(&budget)).collect();
    for hog in &mut hogs {
        hog.take_patiently(32 * MIB);
        hog.is_rung();
    }
    let mut first = Connection::new(&budget);
    let mut second = Connection::new(&budget);
    assert!(!first.take(32 * MIB));
    assert!(!second.take(16 * MIB));
    let mut modest = Connection::new(&budget);
    for _ in 0..1000 {
        assert!(modest.take(MIB), "others go on");
        modest.account.keep(0);
    }
    assert!(!first.take(32 * MIB) && !first.is_rung());
    hogs.pop();
    assert!(first.is_rung() && first.take(32 * MIB), "the one that has waited longest is admitted");
    assert!(!second.is_rung() && !second.take(16 * MIB));
    hogs.pop();
    assert!(second.is_rung() && second.take(16 * MIB));
    drop((first, second, hogs, modest));
    assert_eq!((budget.used_bytes(), budget.queue.lock().len()), (0, 0));
}

#[test]
fn a_connection_that_ends_or_changes_its_need_leaves_the_queue() {
    let budget = pool(64 * MIB);
    let mut hog = Connection::new(&budget);
    hog.take_patiently(40 * MIB);
    let mut waiting: Vec<Connection> = (0..3).map(|_| Connection::new(&budget)).collect();
    waiting.iter_mut().for_each(|connection| assert!(!connection.take(32 * MIB)));
    drop(waiting.remove(0));
    assert!(waiting[0].take(MIB), "a refusal needs less than what was asked for");
    waiting[0].account.keep(0);
    hog.account.keep(0);
    assert!(waiting[1].is_rung() && waiting[1].take(32 * MIB));
    // It was admitted, and left before it noticed.
    assert!(!waiting[0].take(32 * MIB));
    waiting[1].account.keep(0);
    assert_eq!(budget.used_bytes(), 32 * MIB);
    drop(waiting);
    assert_eq!((budget.used_bytes(), budget.queue.lock().len()), (0, 0));
}

/// Partial writes fill the pool. They get their rest from the lane one by one, those that need little in between.
#[test]
fn requests_that_hold_a_part_get_their_rest_from_the_lane_in_turn() {
    let budget = Arc::new(Budget::new(48 * MIB, usize::MAX, 32 * MIB, Arc::default()));
    let mut parts: Vec<Connection> = (0..8).map(|_| Connection::new(&budget)).collect();
    while parts.iter_mut().map(|part| part.take(MIB / 4)).filter(|taken| *taken).count() > 0 {}
    let need = |rest_bytes| Need { bytes: 16 * MIB, rest_bytes };
    assert!(parts[0].account.take(need(32 * MIB), true) == 0, "its bell will ring");
    assert_eq!(parts[0].account.take(need(32 * MIB), true), 32 * MIB, "the lane is free");
    assert!(parts[0].account.has_lane());
    for part in &mut parts[1..4] {
        assert_eq!(part.account.take(need(32 * MIB), true), 0);
    }
    assert_eq!(parts[4].account.take(need(20 * MIB), true), 0);
    let held_bytes = parts[0].account.held_bytes;
    parts[0].account.keep(held_bytes - 12 * MIB);
    assert_eq!(parts[1].account.take(need(32 * MIB), true), 0, "20 MiB of the lane are in use");
    parts[0].account.keep(0);
    assert_eq!(parts[4].account.take(need(20 * MIB), true), 20 * MIB, "the turn is of the one that needs least");
    assert!(parts[1..4].iter_mut().all(|part| part.account.take(need(32 * MIB), true) == 0));
    parts[4].account.keep(0);
    assert_eq!(parts[1].account.take(need(32 * MIB), true), 32 * MIB, "the turn is of the one that has waited longest");
    drop(parts);
    assert_eq!((budget.used_bytes(), budget.queue.lock().len()), (0, 0));
}

#[test]
fn buffers_take_no_more_than_half() {
    let budget = pool(64 * MIB);
    let mut connections: Vec<Connection> = (0..64).map(|_| Connection::new(&budget)).collect();
    assert_eq!(connections.iter_mut().filter_map(|one| one.account.grow_buffers(MIB).then_some(())).count(), 32);
    assert!(connections[0].account.grow_buffers(MIB), "it has that");
    assert!(!connections[0].account.grow_buffers(2 * MIB));
    connections.iter_mut().for_each(|one| one.account.drop_buffers());
    assert_eq!(budget.used_bytes(), 0);
}

/// Each waits for memory as a connection does. A lost wake-up would leave one waiting forever.
#[test]
fn no_request_waits_forever() {
    let budget = Arc::new(Budget::new(80 * MIB, 160, 32 * MIB, Arc::default()));
    std::thread::scope(|scope| {
        for number in 0..16_u64 {
            let budget = &budget;
            scope.spawn(move || {
                let mut state = number + 1;
                let mut connection = Connection::new(budget);
                for _ in 0..1500 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let bytes = match (state >> 33) % 4 {
                        0 => 32 * MIB,
                        1 => 1 + (state >> 40) as usize % (32 * MIB),
                        _ => 1 + (state >> 40) as usize % MIB,
                    };
                    match state >> 37 & 1 {
                        0 => connection.take_patiently(bytes),
                        _ => connection.take_parts(bytes, 4 * MIB),
                    }
                    assert!(budget.used_bytes() <= budget.bytes_max());
                    if (state >> 36).is_multiple_of(3) {
                        std::thread::yield_now();
                    }
                    match (state >> 38) % 8 {
                        // Another connection takes its place.
                        0 => {
                            connection = Connection::new(budget);
                            let _ = connection.take(bytes);
                            connection = Connection::new(budget);
                        }
                        _ => connection.account.keep(0),
                    }
                }
            });
        }
    });
    assert_eq!((budget.used_bytes(), budget.queue.lock().len()), (0, 0));
}
