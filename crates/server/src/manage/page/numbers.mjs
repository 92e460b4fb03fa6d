// Numbers as people read them, by the rule of crates/core/src/human.rs: at most three significant digits and one unit.

/** @type {[string, number][]} */
const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].map((unit, power) => [unit, 1024 ** power]);
/** @type {[string, number][]} */
const TIMES_US = [["us", 1], ["ms", 1e3], ["s", 1e6], ["min", 6e7], ["h", 3.6e9], ["d", 8.64e10]];

/** @param {number} value */
export const count = value => Math.round(value).toLocaleString("en");

/** @param {number} value */
export function number(value) {
  const [digits, exponent] = value.toExponential(2).split("e").map(Number);
  if (exponent >= 3) return count(value);
  return exponent < -3 ? `${digits}e${exponent}` : String(Number(value.toPrecision(3)));
}

/** @param {number} amount of the first unit @param {[string, number][]} units @returns {string} in the largest unit that leaves at least 1 */
function inUnits(amount, units) {
  const rounded = value => (value < 999.5 ? Number(value.toPrecision(3)) : Math.round(value));
  const at = units.findIndex(([, size], at) => at === units.length - 1 || rounded(amount / size) * size < units[at + 1][1]);
  return `${number(amount / units[at][1])}\u00a0${units[at][0]}`;
}

/** @param {number} bytes */
export const bytes = bytes => inUnits(bytes, SIZES);

/** @param {?number} us */
export const micros = us => (us == null ? "none" : us === 0 ? "0\u00a0s" : inUnits(us, TIMES_US));

/** @param {number} seconds */
export const duration = seconds => micros(seconds * 1e6);

/** @param {?number} share */
export function percent(share) {
  if (share == null) return "none";
  if (share > 0 && share < 1e-5) return "< 0.001%";
  return share >= 0.9995 && share < 1 ? "> 99.9%" : `${number(100 * share)}%`;
}

/** @param {number} years */
export const years = years => (years > 1000 ? "> 1,000" : number(years));

/** @param {number} value in years */
export const lifetime = value => (years(value) === "1" ? "1 year" : `${years(value).replace(">", "more than")} years`);

/** @param {number} seconds since 1970 */
export const time = seconds => new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" });

/** A rate of minutes says nothing of years: the server has no lifetime before a volume was open for this long. */
const RATE_KNOWN_SECONDS = 3600;

/**
 * The part of a budget of flash writes that is used: today, and of all that it allowed so far.
 * @param {{bytes_per_day: number, today_used: number, life_days: number, life_used: number, source: string}} budget
 */
export function budget({ bytes_per_day: day, today_used: today, life_days: days, life_used: life, source }) {
  const ofLife = days * 86400 < RATE_KNOWN_SECONDS ? "too early for more" : `${percent(life)} of all that it allowed in ${duration(days * 86400)}`;
  return `${percent(today)} of today's ${bytes(day)}; ${ofLife}, by ${source === "drive" ? "the drive's own counter" : "the count of flashwise"}`;
}

/** @param {{uptime_seconds: number}} volume @returns {boolean} true in the first hour of a volume */
export const isEarly = volume => volume.uptime_seconds < RATE_KNOWN_SECONDS;

/** @param {any} volume @returns {string} how long its flash lasts at the rate so far */
export function flashLifetime(volume) {
  const { lifetime_years_rated: years, drive_writes_per_day_rated: rated } = volume;
  if (rated == null) return "not rated";
  if (isEarly(volume)) return "too early";
  if (years == null) return "nothing written yet";
  return lifetime(years);
}

/** @param {number} seconds since 1970 @param {number} step between ticks @returns {string} the date, or the time of the day */
export function tick(seconds, step) {
  const at = new Date(seconds * 1000);
  if (step >= 86400) return at.toLocaleDateString(undefined, { month: "short", day: "numeric" });
  return at.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hour12: false, ...(step < 60 ? { second: "2-digit" } : {}) });
}

/** @param {number} seconds since 1970 @returns {string} the time of the day */
export const clock = seconds => new Date(seconds * 1000).toLocaleTimeString();
