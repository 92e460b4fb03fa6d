// All volumes, and all pools.
import { useEffect, useState } from "preact/hooks";
import { html, Meter, State, Table, useChange } from "./parts.mjs";
import { MakeVolume } from "./make_volume.mjs";
import { ask } from "./server.mjs";
import { dirtyAge, lifetime, linkToVolume, ratesOf } from "./overview.mjs";
import { isFlashless } from "./health.mjs";
import { linkToPool } from "./pool.mjs";
import * as numbers from "./numbers.mjs";

/** Fewer rows than this need no filter. */
const FILTER_MIN = 8;

/** Rows whose name or state contains a text. */
function useFilter(rows, label) {
  const [text, setText] = useState("");
  const kept = rows.filter(row => `${row.name} ${row.state}`.includes(text.trim().toLowerCase()));
  const field = rows.length < FILTER_MIN ? null : html`<p class="filter"><label>${label} <input type="search" autocomplete="off" spellcheck=${false} placeholder="name or state" value=${text} onInput=${event => setText(event.target.value)} /></label> <small role="status">${numbers.count(kept.length)} of ${numbers.count(rows.length)}</small></p>`;
  return { kept, field };
}

export function Volumes({ status, recent, pools }) {
  const rates = ratesOf(recent);
  const own = status.volumes.filter(volume => !pools.some(pool => pool.name === volume.name)).toSorted((a, b) => a.name.localeCompare(b.name));
  const { kept, field } = useFilter(own, "Find volumes");
  const [disks, setDisks] = useState([]);
  const load = () => ask("GET", "/v1/disks").then(setDisks, () => {});
  useEffect(() => void load(), []);
  const { start, shown } = useChange(load);
  // The form is blank once its volume is made.
  const [made, setMade] = useState(0);
  const make = change => start({ ...change, then: () => (setMade(made + 1), load()) });
  const used = own.flatMap(volume => [volume.backend, volume.flash]);
  const p99 = volume => numbers.micros(volume.latencies.find(of => of.operation === "read" && of.count > 0)?.p99_us);
  return html`<h2 id="view-title" tabindex="-1">Volumes</h2>
    ${field}
    <${Table} caption="Volumes" isTitled=${true} empty=${own.length > 0 ? "No volume has this name or state." : "There are no volumes yet."}
      head=${["volume", "state", "size", "flash", "hit ratio", "requests", "throughput", "p99 of reads", "dirty", "age of dirty data", "flash lifetime"]} numbers=${[2, 3, 4, 5, 6, 7, 8, 9, 10]}
      rows=${kept.map(volume => [
        html`<a href=${linkToVolume(volume.name)}>${volume.name}</a>`,
        html`<${State} state=${volume.state} />`,
        numbers.bytes(volume.size_bytes),
        isFlashless(volume) ? "none" : numbers.bytes(volume.flash_bytes),
        numbers.percent(volume.reads > 0 ? volume.read_hit_ratio : null),
        rates.has(volume.name) ? `${numbers.number(rates.get(volume.name).requests)}/s` : "none",
        rates.has(volume.name) ? `${numbers.bytes(rates.get(volume.name).bytes)}/s` : "none",
        p99(volume),
        numbers.bytes(volume.dirty_bytes),
        dirtyAge(volume),
        lifetime(volume)[0],
      ])} />
    ${shown}
    <${MakeVolume} key=${made} disks=${disks.filter(disk => !used.includes(disk.path))} change=${make} />`;
}

export function Pools({ pools }) {
  const { kept, field } = useFilter(pools, "Find pools");
  return html`<h2 id="view-title" tabindex="-1">Pools</h2>
    ${field}
    <${Table} caption="Pools" isTitled=${true} empty=${pools.length > 0 ? "No pool has this name or state." : html`There are no pools. <a href="#/disks">Make a pool</a> of this machine's disks.`}
      head=${["pool", "state", "size", "used", "logical disks", "disks"]} numbers=${[2, 4, 5]}
      rows=${kept.map(pool => [
        html`<a href=${linkToPool(pool.name)}>${pool.name}</a>`,
        html`<${State} state=${pool.state} />`,
        numbers.bytes(pool.size_bytes),
        html`<${Meter} label=${`Pool ${pool.name}: used share`} share=${pool.size_bytes > 0 ? pool.used_bytes / pool.size_bytes : 0} text=${numbers.bytes(pool.used_bytes)} />`,
        numbers.count(pool.logical_disks.length),
        numbers.count(pool.disks.length),
      ])} />`;
}
