// A volume over time: lines, and the same numbers as a table.
import { useEffect, useRef, useState } from "preact/hooks";
import { html, Table } from "./parts.mjs";
import { ask, pathOf } from "./server.mjs";
import { linearTicks, logTicks, thinned } from "./ticks.mjs";
import * as numbers from "./numbers.mjs";

const RANGES = [
  ["15min", "15 minutes", 5],
  ["24h", "24 hours", 60],
  ["30d", "30 days", 600],
];

const bytesPerSecond = value => `${numbers.bytes(value)}/s`;

const DAY_SECONDS = 86400;

/** The charts of a volume: title, how a value is written, the lines (name and value of a point), and the kind of axis. */
function chartsOf(volume) {
  const field = name => point => point[name];
  // A logarithmic axis has no zero, which stands for less than a microsecond.
  const micros = name => point => (point[name] == null ? null : Math.max(1, point[name]));
  const perDay = point => (point.flash_written_bytes_per_second * DAY_SECONDS) / volume.flash_bytes;
  const rated = volume.drive_writes_per_day_rated;
  const budget = volume.write_budget && volume.write_budget.bytes_per_day / volume.flash_bytes;
  // Without a rule that has a budget, it is what the flash is rated for.
  const isOwn = budget != null && (rated == null || Math.abs(budget - rated) > 1e-3 * rated);
  return [
    { title: "Read hit ratio", shown: numbers.percent, axis: "share", lines: [["hits", field("read_hit_ratio")]] },
    { title: "Latency", shown: numbers.micros, axis: "log", lines: [["median", micros("latency_p50_us")], ["p99", micros("latency_p99_us")]] },
    { title: "Requests per second", shown: numbers.number, axis: "decimal", lines: [["reads", field("reads_per_second")], ["writes", field("writes_per_second")]] },
    { title: "Throughput", shown: bytesPerSecond, axis: "binary", lines: [["read", field("read_bytes_per_second")], ["written", field("written_bytes_per_second")], ...(volume.flash_bytes > 0 ? [["written to flash", field("flash_written_bytes_per_second")]] : [])] },
    { title: "Dirty data", shown: numbers.bytes, axis: "binary", lines: [["dirty", field("dirty_bytes")]] },
    ...(volume.flash_bytes > 0 ? [{ title: "Drive writes per day", shown: numbers.number, axis: "decimal", lines: [["written", perDay], ...(rated == null ? [] : [["rated", () => rated]]), ...(isOwn ? [["budget", () => budget]] : [])] }] : []),
  ];
}

const LINES = ["--line-1", "--line-2", "--line-3"];
const TABLE_ROWS = 30;
const HEIGHT = 190;
/** More points than this are combined, as a line of noise shows nothing. */
const POINTS_MAX = 120;

const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Times and values, with a gap where the server did not run. */
function columns(points, lines, step) {
  const times = [];
  const values = lines.map(() => []);
  for (const [at, point] of points.entries()) {
    if (at > 0 && point.time_seconds > points[at - 1].time_seconds + 2 * step) {
      times.push(points[at - 1].time_seconds + step);
      values.forEach(column => column.push(null));
    }
    times.push(point.time_seconds);
    lines.forEach(([, value], line) => values[line].push(value(point) ?? null));
  }
  return [times, ...values];
}

/** The points of a column that have no neighbour, which a line does not show. */
export const lonely = column => column.flatMap((value, at) => (value != null && column[at - 1] == null && column[at + 1] == null ? [at] : []));

/** How the values of an axis are scaled and where its ticks are. */
function scaled(axis) {
  if (axis === "log") {
    const ends = (_, min, max) => logTicks(min, max).ends;
    return { scale: { distr: 3, log: 10, range: ends }, splits: (_, __, min, max) => logTicks(min, max).ticks };
  }
  if (axis === "share") return { scale: { range: [0, 1] }, splits: () => [0, 0.25, 0.5, 0.75, 1] };
  const ends = (_, __, max) => [0, linearTicks(max ?? 0, axis === "binary").at(-1)];
  return { scale: { range: ends }, splits: (_, __, ___, max) => linearTicks(max, axis === "binary") };
}

/** How far the points of a line are apart, in seconds. */
const stepOf = ({ points, step_seconds: step }) => Math.max(step, points.length > POINTS_MAX ? (points.at(-1).time_seconds - points[0].time_seconds) / POINTS_MAX : 0);

function Chart({ title, shown, axis, lines, past }) {
  const place = useRef(null);
  const plot = useRef(null);
  // The point under the pointer; null for the newest.
  const [at, setAt] = useState(null);
  const points = thinned(past.points, POINTS_MAX);
  const data = columns(points, lines, stepOf(past));
  useEffect(() => {
    const element = place.current;
    const side = { stroke: colour("--soft"), grid: { stroke: colour("--rule"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const { scale, splits } = scaled(axis);
    plot.current = new globalThis.uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false, points: { size: 7 } },
        scales: { y: scale },
        axes: [{ ...side, space: 70, size: 28, values: (_, ticks, __, ___, step) => ticks.map(tick => numbers.tick(tick, step)) }, { ...side, size: 74, gap: 6, splits, filter: (_, ticks) => ticks, values: (_, ticks) => ticks.map(tick => (tick == null ? "" : shown(tick))) }],
        series: [{}, ...lines.map(([name], line) => ({ label: name, stroke: colour(LINES[line]), width: 1.5, points: { show: true, size: 4, filter: (self, series) => lonely(self.data[series]) } }))],
        hooks: { setCursor: [self => setAt(self.cursor.idx ?? null)] },
      },
      data,
      element,
    );
    const resized = new ResizeObserver(() => plot.current.setSize({ width: element.clientWidth, height: HEIGHT }));
    resized.observe(element);
    return () => {
      resized.disconnect();
      plot.current.destroy();
    };
  }, []);
  useEffect(() => plot.current.setData(data), [past]);
  const last = past.points.slice(-TABLE_ROWS).reverse();
  const text = value => (value == null ? "none" : shown(value));
  const index = at != null && at < data[0].length ? at : data[0].length - 1;
  return html`<figure class="chart">
    <figcaption><span>${title}</span> <small>${at == null ? "now" : numbers.clock(data[0][index])}</small></figcaption>
    <p class="legend">${lines.map(([name], line) => html`<span class=${`key line-${line + 1}`}>${name} <strong>${text(data[line + 1][index])}</strong></span>`)}</p>
    <div ref=${place} class="plot" role="img" aria-label=${`${title} over time; the table below has the numbers`}></div>
    <details>
      <summary>${title} as a table</summary>
      <${Table} caption=${`${title}, newest first`} head=${["time", ...lines.map(([name]) => name)]} empty="Nothing yet." numbers=${lines.map((_, line) => line + 1)}
        rows=${last.map(point => [numbers.time(point.time_seconds), ...lines.map(([, value]) => text(value(point)))])} />
    </details>
  </figure>`;
}

/** All charts of a volume, brought up to date by themselves. */
export function Charts({ volume }) {
  const { name } = volume;
  const [range, setRange] = useState("15min");
  const [past, setPast] = useState(null);
  useEffect(() => {
    let wanted = true;
    const load = () => ask("GET", `${pathOf(name)}/history?range=${range}`).then(past => wanted && setPast(past), () => {});
    setPast(null);
    load();
    const seconds = RANGES.find(([name]) => name === range)[2];
    const timer = setInterval(load, seconds * 1000);
    return () => {
      wanted = false;
      clearInterval(timer);
    };
  }, [name, range]);
  return html`<section aria-labelledby="over-time">
    <div class="heading"><h3 id="over-time">Over time</h3>
    <fieldset class="choice"><legend>How far back</legend>
      ${RANGES.map(([name, text]) => html`<label><input type="radio" name="range" value=${name} checked=${name === range} onChange=${() => setRange(name)} /> ${text}</label>`)}
    </fieldset></div>
    ${!past && html`<p>Loading.</p>`}
    ${past && past.points.length === 0 && html`<p>Nothing yet: the first point comes after ${numbers.duration(past.step_seconds)}.</p>`}
    ${past && past.points.length > 0 && stepOf(past) >= 2 * past.step_seconds && html`<p class="note">Each point is the mean of ${numbers.duration(Math.round(stepOf(past)))}; of p99, it is the largest.</p>`}
    ${past && past.points.length > 0 && html`<div class="charts" key=${`${name} ${range}`}>${chartsOf(volume).map(chart => html`<${Chart} key=${chart.title} ...${chart} past=${past} />`)}</div>`}
  </section>`;
}
