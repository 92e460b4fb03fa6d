//! The devices of a tier. Each serves a number of accesses in parallel, first come, first served.
//!
//! Source: the queue G/D/c of queueing theory, one for each device. Latencies are those of the device, as in Moon,
//! Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays through workload sampling. MSST
//! 2016, section VI.B, which has no queues.
//!
//! Blocks are striped over the devices by number. A device with a seek time and a transfer rate serves the blocks of a
//! request as one run. The first takes the latency, each further one its transfer. The planes and buses of an SSD are
//! not modelled one by one: its channels give its parallelism.

use flashwise_core::access::Op;
use flashwise_device::TierModel;

/// The channels of all devices of a tier. Accesses come in order of time.
#[derive(Clone, Debug)]
pub(super) struct Channels {
    devices: u32,
    /// Channels per device.
    channels: usize,
    latency_ns: [u64; 2],
    /// Time for a further block of a run.
    transfer_ns: Option<u64>,
    /// Time when each channel is free: a heap per device, the earliest first.
    free_ns: Vec<u64>,
    /// Total work of each device.
    work_ns: Vec<u64>,
    /// For each device, the request of its last run, and the end of that run.
    runs: Vec<(u64, u64)>,
}

impl Channels {
    pub fn new(model: &TierModel, block_bytes: u64) -> Channels {
        let devices = model.tier.devices as u32;
        let channels = model.service.channels as usize;
        assert!(devices > 0 && channels > 0 && f64::from(devices) == model.tier.devices, "checked before: {model:?}");
        let device = &model.tier.device;
        // Every access takes time, so an effect is later than its cause.
        let ns = |us: f64| ((us * 1e3).round() as u64).max(1);
        Channels {
            devices,
            channels,
            latency_ns: [ns(device.read_latency_us), ns(device.write_latency_us)],
            transfer_ns: model.service.transfer_mb_per_s.map(|mb_per_s| ns(block_bytes as f64 / mb_per_s)),
            free_ns: vec![0; devices as usize * channels],
            work_ns: vec![0; devices as usize],
            runs: vec![(u64::MAX, 0); devices as usize],
        }
    }

    /// Serves an access at `at_ns`, which must not be earlier than previous ones. Returns its end.
    #[inline]
    pub fn access(&mut self, block: u32, op: Op, at_ns: u64) -> u64 {
        let device = self.device(block);
        self.serve(device, self.latency_ns[op as usize], at_ns)
    }

    /// Serves an access of a numbered request. Accesses that come while one before is served continue its run.
    #[inline]
    pub fn access_of(&mut self, request: u64, block: u32, op: Op, at_ns: u64) -> u64 {
        let device = self.device(block);
        let Some(transfer_ns) = self.transfer_ns else {
            return self.serve(device, self.latency_ns[op as usize], at_ns);
        };
        let done_ns = match self.runs[device] {
            (running, end_ns) if running == request && end_ns >= at_ns => self.go_on(device, end_ns, transfer_ns),
            _ => self.serve(device, self.latency_ns[op as usize], at_ns),
        };
        self.runs[device] = (request, done_ns);
        done_ns
    }

    /// Flushes all devices at `at_ns`, each in its turn, and returns the end. It takes no time of its own.
    pub fn flush(&mut self, at_ns: u64) -> u64 {
        (0..self.devices as usize).map(|device| self.serve(device, 0, at_ns)).max().expect("there is a device")
    }

    /// Work of the busiest device per channel, since `before`, an earlier [`Channels::work_ns`].
    pub fn work_ns_max(&self, before: &[u64]) -> f64 {
        let of_device = |(work_ns, before_ns): (&u64, &u64)| work_ns.saturating_sub(*before_ns);
        let most_ns = self.work_ns.iter().zip(before).map(of_device).max();
        most_ns.expect("there is a device") as f64 / self.channels as f64
    }

    /// Total work of each device so far.
    pub fn work_ns(&self) -> &[u64] {
        &self.work_ns
    }

    #[inline]
    fn device(&self, block: u32) -> usize {
        if self.devices == 1 { 0 } else { (block % self.devices) as usize }
    }

    #[inline]
    fn serve(&mut self, device: usize, service_ns: u64, at_ns: u64) -> u64 {
        self.work_ns[device] = self.work_ns[device].saturating_add(service_ns);
        let heap = &mut self.free_ns[device * self.channels..][..self.channels];
        let done_ns = heap[0].max(at_ns).saturating_add(service_ns);
        put_later(heap, 0, done_ns);
        done_ns
    }

    /// Extends the run that ends at `end_ns` by one block.
    fn go_on(&mut self, device: usize, end_ns: u64, transfer_ns: u64) -> u64 {
        self.work_ns[device] = self.work_ns[device].saturating_add(transfer_ns);
        let heap = &mut self.free_ns[device * self.channels..][..self.channels];
        let done_ns = end_ns.saturating_add(transfer_ns);
        let channel =
            heap.iter().position(|free_ns| *free_ns == end_ns).expect("a run that goes on is the last of its channel");
        put_later(heap, channel, done_ns);
        done_ns
    }
}

/// Replaces the time at `at` of a min-heap by a later one.
#[inline]
fn put_later(heap: &mut [u64], mut at: usize, time_ns: u64) {
    loop {
        let left = 2 * at + 1;
        let Some(&left_ns) = heap.get(left) else { break };
        let (child, child_ns) = match heap.get(left + 1) {
            Some(&right_ns) if right_ns < left_ns => (left + 1, right_ns),
            _ => (left, left_ns),
        };
        if child_ns >= time_ns {
            break;
        }
        heap[at] = child_ns;
        at = child;
    }
    heap[at] = time_ns;
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashwise_device::tier_model_of_option;

    fn channels(device: &str) -> Channels {
        Channels::new(&tier_model_of_option("test", device).unwrap(), 4096)
    }

    /// Reads take 40 us. Three come at 0 and one at 50; the two channels end them at 40, 40, 80 and 90.
    #[test]
    fn an_access_waits_for_the_first_channel_that_is_free() {
        let mut slc = channels("slc:channels=2");
        let done = [0, 0, 0, 50].map(|at_us| slc.access(7, Op::Read, at_us * 1000) / 1000);
        assert_eq!(done, [40, 40, 80, 90]);
        // The other channel is free at 90, this one at 80; a write takes 200 us.
        assert_eq!(slc.access(7, Op::Write, 85_000), 285_000);
        assert_eq!(slc.work_ns(), [360_000]);
        assert_eq!(slc.work_ns_max(&[160_000]), 100_000.0);
    }

    /// Writes take 200 us. Three come at 0, on two channels.
    #[test]
    fn a_flush_waits_for_its_turn_at_each_device() {
        let mut slc = channels("slc:channels=2,devices=2");
        assert_eq!(slc.flush(7), 7);
        assert_eq!([2, 4, 6].map(|block| slc.access(block, Op::Write, 10_000)), [210_000, 210_000, 410_000]);
        assert_eq!(slc.flush(20_000), 210_000);
        assert_eq!(slc.work_ns(), [600_000, 0]);
    }

    #[test]
    fn blocks_are_striped_over_devices_that_work_side_by_side() {
        let mut slc = channels("slc:devices=3,channels=1");
        let done = [0, 1, 2, 3, 6].map(|block| slc.access(block, Op::Read, 0) / 1000);
        assert_eq!(done, [40, 40, 40, 80, 120]);
        assert_eq!(slc.work_ns(), [120_000, 40_000, 40_000]);
    }

    /// A disk of 4.096 MB/s takes 10 ms to find the first block, then 1 ms for each block of 4 KiB.
    #[test]
    fn the_blocks_of_a_request_are_found_once_and_then_transferred() {
        let disk =
            "capacity-gb=1,endurance-cycles=unlimited,read-latency-ms=10,write-latency-ms=10,transfer-mb-per-s=4.096";
        let mut two = channels(&format!("{disk},devices=2"));
        let done = [0, 1, 2, 4].map(|block| two.access_of(1, block, Op::Read, 0) / 1_000_000);
        assert_eq!(done, [10, 10, 11, 12]);
        // Another request seeks again, and so does an access without a request.
        assert_eq!(two.access_of(2, 6, Op::Read, 0), 22_000_000);
        assert_eq!(two.access(8, Op::Write, 0), 32_000_000);
        assert_eq!(two.work_ns(), [32_000_000, 10_000_000]);
        // With two channels the run stays on its channel.
        let mut dual = channels(&format!("{disk},channels=2"));
        let done = [(1, 0), (2, 1), (2, 2), (3, 3)];
        let done = done.map(|(request, block)| dual.access_of(request, block, Op::Read, 0) / 1_000_000);
        assert_eq!(done, [10, 10, 11, 20]);
    }

    #[test]
    fn many_channels_are_had_in_the_order_in_which_they_are_free() {
        let mut wide = channels("slc:channels=37");
        let mut free = vec![0_u64; 37];
        let (mut state, mut at_ns) = (1_u64, 0);
        for _ in 0..2000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            at_ns += (state >> 33) % 5000;
            let op = if state >> 63 == 0 { Op::Read } else { Op::Write };
            let first = free.iter_mut().min().unwrap();
            *first = (*first).max(at_ns) + if op == Op::Read { 40_000 } else { 200_000 };
            assert_eq!(wide.access(3, op, at_ns), *first);
        }
    }
}
