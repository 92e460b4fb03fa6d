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
  if (us < 1000) return `${short(us)}\u00a0us`;
  return us < 1e6 ? `${short(us / 1000)}\u00a0ms` : `${short(us / 1e6)}\u00a0s`;
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

/** @param {{bytes_per_day: number, today_used: number, life_used: number, source: string}} budget what is used of a budget of flash writes: today, and of all that it allowed so far */
export const budget = ({ bytes_per_day: day, today_used: today, life_used: life, source }) => [`${percent(today)} today`, `of ${bytes(day)} a day; ${percent(life)} over its life, by ${source === "drive" ? "the drive's own counter" : "flashwise's own count"}`];

/** A rate of minutes says nothing of years: the server has no lifetime before a volume was open for this long. */
const RATE_KNOWN_SECONDS = 3600;

/** @param {{uptime_seconds: number}} volume @returns {boolean} true in the first hour of a volume */
export const isEarly = volume => volume.uptime_seconds < RATE_KNOWN_SECONDS;

/** @param {any} volume @returns {string} how long its flash lasts at the rate so far */
export function years(volume) {
  const { lifetime_years_rated: years, drive_writes_per_day_rated: rated } = volume;
  if (rated == null) return "not rated";
  if (isEarly(volume)) return "too early";
  if (years == null) return "nothing written yet";
  if (years > 1000) return "more than 1,000 years";
  return years < 1 ? `${count(years * 365)} days` : `${years.toFixed(1)} years`;
}

/** @param {number} seconds since 1970 @param {number} step between ticks @returns {string} the date, or the time of the day */
export function tick(seconds, step) {
  const at = new Date(seconds * 1000);
  if (step >= 86400) return at.toLocaleDateString(undefined, { month: "short", day: "numeric" });
  return at.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hour12: false, ...(step < 60 ? { second: "2-digit" } : {}) });
}

/** @param {number} seconds since 1970 @returns {string} the time of the day */
export const clock = seconds => new Date(seconds * 1000).toLocaleTimeString();
