// Where the ticks of an axis are, and fewer points for a line.

const TICKS_MAX = 4;
const DECADES_MAX = 6;

/**
 * Ticks from 0 to the first that is not below the largest value, at most five, at round values: 1, 2 or 5 times a power of ten, or for bytes
 * a power of two.
 * @param {number} max
 * @param {boolean} binary
 * @returns {number[]}
 */
export function linearTicks(max, binary) {
  if (!(max > 0)) return binary ? [0, 1024] : [0, 1];
  const least = max / TICKS_MAX;
  const power = binary ? 2 ** Math.floor(Math.log2(least)) : 10 ** Math.floor(Math.log10(least));
  const step = power * (binary ? [1, 2] : [1, 2, 5, 10]).find(times => times * power >= least * (1 - 1e-9));
  const count = Math.max(1, Math.ceil(max / step - 1e-9));
  return Array.from({ length: count + 1 }, (_, at) => Number((at * step).toPrecision(12)));
}

/**
 * Powers of ten around all values, and those of them that are labelled: every second if there are more than seven.
 * @param {?number} min
 * @param {?number} max
 * @returns {{ ends: [number, number], ticks: number[] }}
 */
export function logTicks(min, max) {
  const first = Math.floor(Math.log10(Math.max(min || 1, 1e-9)) + 1e-9);
  const last = Math.max(first + 1, Math.ceil(Math.log10(Math.max(max || 1, 1e-9)) - 1e-9));
  const every = last - first > DECADES_MAX ? 2 : 1;
  const ticks = Array.from({ length: last - first + 1 }, (_, at) => Number(`1e${first + at}`)).filter((_, at) => at % every === 0);
  return { ends: [Number(`1e${first}`), Number(`1e${last}`)], ticks };
}

/** Fields whose largest value of several points stands for them; of all others, it is the mean. */
const LARGEST = ["latency_p99_us"];

/**
 * Combines neighbouring points of a history, so that a line has about `count` at most. The groups are counted back from the newest point.
 * @param {any[]} points in order of time
 * @param {number} count
 * @returns {any[]}
 */
export function thinned(points, count) {
  const step = points.length > count ? (points.at(-1).time_seconds - points[0].time_seconds) / count : 0;
  const bins = Map.groupBy(points, point => (step > 0 ? Math.floor((points.at(-1).time_seconds - point.time_seconds) / step) : point.time_seconds));
  return [...bins.values()].map(bin => {
    const value = key => {
      const known = bin.map(point => point[key]).filter(value => value != null);
      if (known.length === 0) return null;
      return LARGEST.includes(key) ? Math.max(...known) : known.reduce((all, value) => all + value, 0) / known.length;
    };
    return { ...Object.fromEntries(Object.keys(bin[0]).map(key => [key, value(key)])), time_seconds: bin.at(-1).time_seconds };
  });
}
