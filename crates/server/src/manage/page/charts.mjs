// A volume over time: lines, and the same numbers as a table.
import { useEffect, useRef, useState } from "preact/hooks";
import { html, Table } from "./parts.mjs";
import { ask, pathOf } from "./server.mjs";
import * as numbers from "./numbers.mjs";

const RANGES = [
  ["15min", "15 minutes", 5],
  ["24h", "24 hours", 60],
  ["30d", "30 days", 600],
];

const bytesPerSecond = value => (value == null ? "none" : `${numbers.bytes(value)}/s`);

/** Title, how a value is written, and the lines: name and field of a point. */
const CHARTS = [
  ["Requests per second", numbers.rate, [["reads", "reads_per_second"], ["writes", "writes_per_second"]]],
  ["Throughput", bytesPerSecond, [["read", "read_bytes_per_second"], ["written", "written_bytes_per_second"], ["written to flash", "flash_written_bytes_per_second"]]],
  ["Read hit ratio", numbers.percent, [["hits", "read_hit_ratio"]]],
  ["Latency", numbers.micros, [["median", "latency_p50_us"], ["99th percentile", "latency_p99_us"]]],
  ["Dirty", numbers.bytes, [["dirty bytes", "dirty_bytes"]]],
];

const LINES = ["--line-1", "--line-2", "--line-3"];
const TABLE_ROWS = 30;

const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Times and values, with a gap where the server did not run. */
function columns(points, fields, step) {
  const times = [];
  const values = fields.map(() => []);
  for (const [at, point] of points.entries()) {
    if (at > 0 && point.time_seconds > points[at - 1].time_seconds + 2 * step) {
      times.push(points[at - 1].time_seconds + step);
      values.forEach(column => column.push(null));
    }
    times.push(point.time_seconds);
    fields.forEach((field, line) => values[line].push(point[field]));
  }
  return [times, ...values];
}

function Chart({ title, shown, lines, past }) {
  const place = useRef(null);
  const plot = useRef(null);
  const data = columns(past.points, lines.map(([, field]) => field), past.step_seconds);
  useEffect(() => {
    const element = place.current;
    const axis = { stroke: colour("--ink"), grid: { stroke: colour("--rule"), width: 1 }, ticks: { stroke: colour("--rule"), width: 1 } };
    const share = title === "Read hit ratio";
    const top = (_, min, max) => [0, share ? 1 : max > 0 ? max * 1.05 : 1];
    plot.current = new globalThis.uPlot(
      {
        width: element.clientWidth,
        height: 200,
        scales: { y: { range: top } },
        axes: [axis, { ...axis, size: 84, values: (_, ticks) => ticks.map(shown) }],
        series: [
          { value: (_, at) => (at == null ? "" : numbers.time(at)) },
          ...lines.map(([name], line) => ({ label: name, stroke: colour(LINES[line]), width: 2, points: { show: true, size: 4 }, dash: line ? [6, 3 * line] : undefined, value: (_, value) => (value == null ? "" : shown(value)) })),
        ],
      },
      data,
      element,
    );
    const resized = new ResizeObserver(() => plot.current.setSize({ width: element.clientWidth, height: 200 }));
    resized.observe(element);
    return () => {
      resized.disconnect();
      plot.current.destroy();
    };
  }, []);
  useEffect(() => plot.current.setData(data), [past]);
  const last = past.points.slice(-TABLE_ROWS).reverse();
  return html`<figure>
    <figcaption>${title}</figcaption>
    <div ref=${place} class="plot" role="img" aria-label=${`${title} over time; the table below has the numbers`}></div>
    <details>
      <summary>${title} as a table</summary>
      <${Table} caption=${`${title}, the newest first`} head=${["time", ...lines.map(([name]) => name)]} empty="Nothing yet."
        rows=${last.map(point => [numbers.time(point.time_seconds), ...lines.map(([, field]) => (point[field] == null ? "none" : shown(point[field])))])} />
    </details>
  </figure>`;
}

/** All charts of a volume, brought up to date by themselves. */
export function Charts({ volume }) {
  const [range, setRange] = useState("15min");
  const [past, setPast] = useState(null);
  useEffect(() => {
    let wanted = true;
    const load = () => ask("GET", `${pathOf(volume)}/history?range=${range}`).then(past => wanted && setPast(past), () => {});
    setPast(null);
    load();
    const seconds = RANGES.find(([name]) => name === range)[2];
    const timer = setInterval(load, seconds * 1000);
    return () => {
      wanted = false;
      clearInterval(timer);
    };
  }, [volume, range]);
  return html`<section aria-labelledby="over-time">
    <h3 id="over-time">Over time</h3>
    <fieldset class="choice"><legend>How far back</legend>
      ${RANGES.map(([name, text]) => html`<label><input type="radio" name="range" value=${name} checked=${name === range} onChange=${() => setRange(name)} /> ${text}</label>`)}
    </fieldset>
    ${!past && html`<p>Loading.</p>`}
    ${past && past.points.length === 0 && html`<p>Nothing yet: the first point comes after ${numbers.duration(past.step_seconds)}.</p>`}
    ${past && past.points.length > 0 && html`<div class="charts" key=${`${volume} ${range}`}>${CHARTS.map(([title, shown, lines]) => html`<${Chart} title=${title} shown=${shown} lines=${lines} past=${past} />`)}</div>`}
  </section>`;
}
