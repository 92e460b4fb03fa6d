//! Processor time of a server, and the report of a load generator.

use std::error::Error;

/// The kernel's unit of processor time, per second, on all common machines (`getconf CLK_TCK`).
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns the processor time of a process and its threads in seconds, user and system: fields 14 and 15 of
/// `/proc/PID/stat`.
pub fn seconds(pid: usize) -> Result<f64, Box<dyn Error + Send + Sync>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit_once(") ").ok_or("/proc/PID/stat has no name")?.1;
    let ticks: Vec<u64> = after_name.split(' ').skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<u64>() as f64 / TICKS_PER_SECOND)
}

/// Prints the latencies of all requests, and the server's processor time for each.
pub fn tell(latencies_ns: &mut [u64], seconds: f64, server_cpu_seconds: Option<f64>) {
    latencies_ns.sort_unstable();
    let count = latencies_ns.len();
    let percentile = |part: f64| latencies_ns[(count as f64 * part) as usize] as f64 / 1000.0;
    let cpu = server_cpu_seconds.map_or("-".into(), |cpu| format!("{:.2}", cpu * 1e6 / count as f64));
    println!(
        "iops {:.0} latency_us p50 {:.1} p99 {:.1} p99.9 {:.1} server_cpu_us_per_io {cpu}",
        count as f64 / seconds,
        percentile(0.5),
        percentile(0.99),
        percentile(0.999),
    );
}
