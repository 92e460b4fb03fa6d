// The demo: the same requests on a volume with a cache and on one without, side by side.
import { html, Meter, Table } from "./parts.mjs";
import * as numbers from "./numbers.mjs";

const of = (volume, operation) => volume.latencies.find(latency => latency.operation === operation && latency.count > 0);

/** The two volumes that `status.comparison` names. */
export function Comparison({ status }) {
  const { cached, uncached } = status.comparison;
  const sides = [cached, uncached].map(name => status.volumes.find(volume => volume.name === name));
  if (sides.includes(undefined)) return null;
  // Each cell has a bar, as long as its share of `most`: of 1, or of the larger value.
  const row = (name, values, text, most = Math.max(...values.map(value => value ?? 0))) => {
    const cell = (value, at) => (value == null ? "none" : html`${text(value)}<br /><${Meter} label=${`${name}, ${at === 0 ? "with" : "without"} the cache`} share=${most > 0 ? value / most : 0} text="" />`);
    return [name, ...values.map(cell)];
  };
  const latency = (operation, figure) => sides.map(volume => of(volume, operation)?.[figure]);
  const diskReads = sides.map(volume => volume.backend_read_blocks);
  const [cachedRead, uncachedRead] = latency("read", "mean_us");
  const faster = uncachedRead / cachedRead;
  const verdict = faster >= 1.05 && `Reads are ${numbers.number(faster)} times as fast with the cache. `;
  return html`<section aria-label="Comparison">
    <p class="verdict">${verdict}The cache avoided ${numbers.count(Math.max(0, diskReads[1] - diskReads[0]))} of ${numbers.count(diskReads[1])} disk reads.</p>
    <${Table} caption="The same requests, with and without the cache" head=${["Figure", "With the cache", "Without"]} rows=${[
      row("Mean of reads", [cachedRead, uncachedRead], numbers.micros),
      row("p99 of reads", latency("read", "p99_us"), numbers.micros),
      row("Mean of writes", latency("write", "mean_us"), numbers.micros),
      row("Hit ratio", sides.map(volume => (volume.reads > 0 ? volume.read_hit_ratio : null)), numbers.percent, 1),
      row("Disk reads", diskReads, numbers.count),
    ]} />
  </section>`;
}
