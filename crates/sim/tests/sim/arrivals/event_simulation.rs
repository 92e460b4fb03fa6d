//! Requests before an array, simulated event by event: each device has its queue and its channels, and time goes from
//! one event to the next. Slow, and without a line of what it checks.

use std::collections::VecDeque;

use flashwise_device::{ArrayModel, TierModel};
use flashwise_sim::array::Arrivals;
use flashwise_trace::Trace;

#[derive(Debug)]
pub struct Found {
    pub mean_us: f64,
    pub max_us: f64,
    pub p50_us: f64,
    pub requests_per_s: f64,
}

/// Work of a channel: one access, or the blocks of a request one after another.
#[derive(Clone, Debug)]
struct Task {
    tier: usize,
    blocks: Vec<u32>,
    write: bool,
    /// The request that waits for it.
    request: Option<usize>,
    /// Work that starts when each block is done.
    then: Vec<Option<Box<Task>>>,
}

#[derive(Debug)]
enum Event {
    Arrive(Task),
    /// A block of a task is done; after the last one the channel is free.
    BlockDone {
        then: Option<Box<Task>>,
        request: Option<usize>,
    },
    ChannelFree {
        tier: usize,
        device: usize,
    },
    RequestComes(usize),
}

struct Device {
    waiting: VecDeque<Task>,
    idle_channels: u32,
}

struct Simulation<'a> {
    model: &'a ArrayModel,
    devices: [Vec<Device>; 2],
    /// Time, rank at equal times, order.
    events: Vec<(u64, u8, u64, Event)>,
    order: u64,
    tasks: Vec<Vec<Task>>,
    background: Vec<Vec<Task>>,
    left: Vec<usize>,
    came: Vec<u64>,
    done: Vec<u64>,
}

const CACHE: usize = 0;
const STORAGE: usize = 1;

/// Runs the trace with LRU in a cache of so many blocks, which takes in requests of up to so many.
pub fn run(
    trace: &Trace,
    model: &ArrayModel,
    arrivals: Arrivals,
    (capacity, admitted_blocks_max): (usize, u32),
    warmup: usize,
) -> Found {
    let (tasks, background, times, counted) = tasks_of(trace, model, capacity, admitted_blocks_max, warmup);
    let requests = tasks.len();
    let devices = |tier: &TierModel| {
        let device = |_| Device { waiting: VecDeque::new(), idle_channels: tier.service.channels };
        (0..tier.tier.devices as usize).map(device).collect()
    };
    let left = tasks.iter().map(|tasks| tasks.iter().map(|task| task.blocks.len()).sum()).collect();
    let mut simulation = Simulation {
        model,
        devices: [devices(&model.cache), devices(&model.storage)],
        events: Vec::new(),
        order: 0,
        tasks,
        background,
        left,
        came: vec![0; requests],
        done: vec![0; requests],
    };
    let (mut next, at_first) = match arrivals {
        Arrivals::Closed { depth } => ((depth as usize).min(requests), (depth as usize).min(requests)),
        _ => (requests, requests),
    };
    for (request, time_us) in times.into_iter().enumerate().take(at_first) {
        let at_ns = match arrivals {
            Arrivals::Trace { speed } => (time_us * 1000) as f64 / speed,
            _ => 0.0,
        };
        simulation.add(at_ns as u64, 2, Event::RequestComes(request));
    }
    while let Some(now_ns) = simulation.step(&mut |_| {
        let comes = (next < requests).then_some(next);
        next += 1;
        comes
    }) {
        assert!(now_ns < 1 << 60);
    }
    let answered: Vec<usize> = (0..requests).filter(|request| counted[*request]).collect();
    let mut latencies: Vec<u64> =
        answered.iter().map(|&request| simulation.done[request] - simulation.came[request]).collect();
    latencies.sort_unstable();
    let first = simulation.came[answered[0]];
    let last = answered.iter().map(|&request| simulation.done[request]).max().unwrap();
    Found {
        mean_us: latencies.iter().sum::<u64>() as f64 / latencies.len() as f64 / 1e3,
        max_us: *latencies.last().unwrap() as f64 / 1e3,
        p50_us: latencies[latencies.len().div_ceil(2) - 1] as f64 / 1e3,
        requests_per_s: latencies.len() as f64 / ((last - first) as f64 / 1e9),
    }
}

/// The accesses that each request waits for and those in the background, its time, and true if it counts.
#[allow(clippy::type_complexity)]
fn tasks_of(
    trace: &Trace,
    model: &ArrayModel,
    capacity: usize,
    admitted_blocks_max: u32,
    warmup: usize,
) -> (Vec<Vec<Task>>, Vec<Vec<Task>>, Vec<u64>, Vec<bool>) {
    let (mut tasks, mut background, mut times, mut counted) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut cached: Vec<(u32, bool)> = Vec::new();
    let columns = trace.batches().next().expect("an access");
    for at in 0..columns.block.len() {
        let request = columns.request[at] as usize;
        if request == tasks.len() {
            tasks.push(Vec::new());
            background.push(Vec::new());
            times.push(columns.time_us[at] as u64);
            counted.push(false);
        }
        counted[request] = at >= warmup;
        let (block, write) = (columns.block[at] as u32, columns.op[at] == 1);
        let task =
            |tier, block, write, request, then| Task { tier, blocks: vec![block], write, request, then: vec![then] };
        let mut fill = None;
        let tier = if let Some(place) = cached.iter().position(|(cached, _)| *cached == block) {
            let (_, dirty) = cached.remove(place);
            cached.push((block, dirty || write));
            CACHE
        } else if columns.request_blocks[at] <= admitted_blocks_max {
            if cached.len() == capacity
                && let (victim, true) = cached.remove(0)
            {
                let write_back = Box::new(task(STORAGE, victim, true, None, None));
                background[request].push(task(CACHE, victim, false, None, Some(write_back)));
            }
            cached.push((block, write));
            fill = (!write).then(|| Box::new(task(CACHE, block, true, None, None)));
            if write { CACHE } else { STORAGE }
        } else {
            STORAGE
        };
        let model = [&model.cache, &model.storage][tier];
        let devices = model.tier.devices as u32;
        // The blocks that a device transfers one after the other are one task.
        let run = tasks[request].iter_mut().find(|task: &&mut Task| {
            model.service.transfer_mb_per_s.is_some()
                && task.tier == tier
                && task.blocks[0] % devices == block % devices
        });
        match run {
            Some(run) => {
                run.blocks.push(block);
                run.then.push(fill);
            }
            None => tasks[request].push(task(tier, block, write, Some(request), fill)),
        }
    }
    (tasks, background, times, counted)
}

impl Simulation<'_> {
    fn add(&mut self, at_ns: u64, rank: u8, event: Event) {
        self.order += 1;
        self.events.push((at_ns, rank, self.order, event));
    }

    /// Lets the next event happen and tells its time; `next` is the request that comes when one is answered.
    fn step(&mut self, next: &mut dyn FnMut(usize) -> Option<usize>) -> Option<u64> {
        let earliest = (0..self.events.len()).min_by_key(|&at| {
            let (at_ns, rank, order, _) = &self.events[at];
            (*at_ns, *rank, *order)
        })?;
        let (now_ns, _, _, event) = self.events.swap_remove(earliest);
        match event {
            Event::RequestComes(request) => {
                self.came[request] = now_ns;
                for task in std::mem::take(&mut self.tasks[request]) {
                    self.arrive(task, now_ns);
                }
                for task in std::mem::take(&mut self.background[request]) {
                    self.arrive(task, now_ns);
                }
            }
            Event::Arrive(task) => self.arrive(task, now_ns),
            Event::BlockDone { then, request } => {
                if let Some(task) = then {
                    self.add(now_ns, 1, Event::Arrive(*task));
                }
                if let Some(request) = request {
                    self.left[request] -= 1;
                    if self.left[request] == 0 {
                        self.done[request] = now_ns;
                        if let Some(next) = next(request) {
                            self.add(now_ns, 2, Event::RequestComes(next));
                        }
                    }
                }
            }
            Event::ChannelFree { tier, device } => {
                self.devices[tier][device].idle_channels += 1;
                self.begin(tier, device, now_ns);
            }
        }
        Some(now_ns)
    }

    fn arrive(&mut self, task: Task, now_ns: u64) {
        let tier = task.tier;
        let device = task.blocks[0] as usize % self.devices[tier].len();
        self.devices[tier][device].waiting.push_back(task);
        self.begin(tier, device, now_ns);
    }

    fn begin(&mut self, tier: usize, device: usize, now_ns: u64) {
        let of_tier = &mut self.devices[tier][device];
        if of_tier.idle_channels == 0 {
            return;
        }
        let Some(task) = of_tier.waiting.pop_front() else { return };
        of_tier.idle_channels -= 1;
        let model = [&self.model.cache, &self.model.storage][tier];
        let latency_us =
            if task.write { model.tier.device.write_latency_us } else { model.tier.device.read_latency_us };
        let mut at_ns = now_ns + (latency_us * 1e3).round() as u64;
        for (number, then) in task.then.into_iter().enumerate() {
            if number > 0 {
                at_ns += (4096e3 / model.service.transfer_mb_per_s.unwrap()).round() as u64;
            }
            self.add(at_ns, 0, Event::BlockDone { then, request: task.request });
        }
        self.add(at_ns, 0, Event::ChannelFree { tier, device });
    }
}
