// Numbers as people read them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** @param {number} value three significant digits, without an exponent */
function short(value) {
  if (value === 0) return "0";
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  return value.toLocaleString("en", { maximumFractionDigits: Math.min(digits, 3) });
}

/** @param {number} bytes */
export function bytes(bytes) {
  let unit = 0;
  while (Math.abs(bytes) >= 1024 && unit < UNITS.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return `${short(bytes)}\u00a0${UNITS[unit]}`;
}

/** @param {number} value */
export const count = value => Math.round(value).toLocaleString("en");

/** @param {number} value @returns {string} a rate per second */
export const rate = value => (value < 10 ? short(value) : count(value));

/** @param {?number} share */
export const percent = share => (share == null ? "none" : `${(share * 100).toFixed(1)} %`);

/** @param {?number} us */
export function micros(us) {
  if (us == null) return "none";
  if (us < 1000) return `${short(us)} us`;
  return us < 1e6 ? `${short(us / 1000)} ms` : `${short(us / 1e6)} s`;
}

/** @returns {string} how long requests of a kind take: median and 99th percentile */
export function latency(volume, operation) {
  const of = volume.latencies.find(latency => latency.operation === operation);
  return of && of.count > 0 ? `${micros(of.p50_us)}, ${micros(of.p99_us)}` : "none";
}

/** @param {number} seconds */
export function duration(seconds) {
  for (const [unit, length] of /** @type {[string, number][]} */ ([["days", 86400], ["h", 3600], ["min", 60]])) {
    if (seconds >= 2 * length) return `${count(seconds / length)} ${unit}`;
  }
  return `${count(seconds)} s`;
}

/** @param {number} seconds since 1970 */
export const time = seconds => new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" });

/** @param {{lifetime_years_rated: ?number, drive_writes_per_day_rated: ?number}} volume how long its flash lasts, where somebody said what that is rated for and something was written */
export const years = ({ lifetime_years_rated: years, drive_writes_per_day_rated: rated }) => (years == null ? (rated == null ? "not rated" : "nothing written yet") : years > 1000 ? "more than 1,000 years" : `${years.toFixed(1)} years`);

/** @param {{bytes_per_day: number, today_used: number, life_used: number, source: string}} budget what is used of a budget of flash writes: today, and of all that it allowed so far */
export const budget = ({ bytes_per_day: day, today_used: today, life_used: life, source }) => [`${percent(today)} today`, `of ${bytes(day)} a day; ${percent(life)} over its life, by ${source === "drive" ? "the drive's own counter" : "flashwise's own count"}`];
