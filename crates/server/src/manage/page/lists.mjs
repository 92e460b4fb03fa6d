// All volumes, and all pools.
import { useEffect, useState } from "preact/hooks";
import { html, Act, Meter, State, Table, useChange, useFilter } from "./parts.mjs";
import { MakeVolume } from "./make_volume.mjs";
import { ask, pathOf, pathOfPool } from "./server.mjs";
import { dirtyAge, lifetime, linkToVolume, ratesOf } from "./overview.mjs";
import { isFlashless } from "./health.mjs";
import { linkToPool } from "./pool.mjs";
import * as numbers from "./numbers.mjs";

const words = ({ name, state }) => `${name} ${state}`;

/** Volumes or pools that are not served, and why. A running server forgets those that it made. */
function Unserved({ kind, all, path, start }) {
  if (all.length === 0) return null;
  const forget = ({ name }) => start({ title: `Forget ${kind} ${name}`, action: `Forget the ${kind}`, what: kind, name, method: "DELETE", path: path(name), sure: { query: `?confirm=${encodeURIComponent(name)}` }, done: `${name} is forgotten.` });
  return html`<${Table} caption=${`Not served: ${kind}s that could not be opened`} head=${[kind, "reason", "actions"]}
    rows=${all.map(one => [
      one.name,
      one.reason,
      one.made ? html`<${Act} destroys=${true} label=${`Forget ${one.name}`} text="Forget" act=${() => forget(one)} />` : "of the configuration",
    ])} />`;
}

export function Volumes({ status, recent, pools }) {
  const rates = ratesOf(recent);
  const own = status.volumes.filter(volume => !pools.some(pool => pool.name === volume.name)).toSorted((a, b) => a.name.localeCompare(b.name));
  const { kept, field } = useFilter(own, "Find volumes", "name or state", words);
  const [disks, setDisks] = useState([]);
  const load = () => ask("GET", "/v1/disks").then(setDisks, () => {});
  useEffect(() => void load(), []);
  const { start, shown } = useChange(load);
  // The form is blank once its volume is made.
  const [made, setMade] = useState(0);
  const make = change => start({ ...change, then: () => (setMade(made + 1), load()) });
  const used = own.flatMap(volume => [volume.backend, volume.flash]);
  const p99 = volume => numbers.micros(volume.latencies.find(of => of.operation === "read" && of.count > 0)?.p99_us);
  const goToForm = () => document.getElementById("volume-name").focus();
  return html`<div class="heading"><h2 id="view-title" tabindex="-1">Volumes</h2><button type="button" onClick=${goToForm}>Make a volume</button></div>
    ${field}
    <${Table} caption="Volumes" isTitled=${true} empty=${own.length > 0 ? "No volume has this name or state." : "There are no volumes yet."}
      head=${["volume", "state", "hit ratio", "p99 of reads", "dirty", "age of dirty data", "flash lifetime", "requests", "throughput", "size", "flash"]} numbers=${[2, 3, 4, 5, 6, 7, 8, 9, 10]} isStacked=${false}
      rows=${kept.map(volume => [
        html`<a href=${linkToVolume(volume.name)}>${volume.name}</a>`,
        html`<${State} state=${volume.state} />`,
        numbers.percent(volume.reads > 0 ? volume.read_hit_ratio : null),
        p99(volume),
        numbers.bytes(volume.dirty_bytes),
        dirtyAge(volume),
        lifetime(volume)[0],
        rates.has(volume.name) ? `${numbers.number(rates.get(volume.name).requests)}/s` : "none",
        rates.has(volume.name) ? `${numbers.bytes(rates.get(volume.name).bytes)}/s` : "none",
        numbers.bytes(volume.size_bytes),
        isFlashless(volume) ? "none" : numbers.bytes(volume.flash_bytes),
      ])} />
    ${shown}
    <${Unserved} kind="volume" all=${status.unserved_volumes} path=${pathOf} start=${start} />
    <${MakeVolume} key=${made} disks=${disks.filter(disk => !used.includes(disk.path))} change=${make} />`;
}

export function Pools({ status, pools }) {
  const { kept, field } = useFilter(pools, "Find pools", "name or state", words);
  const { start, shown } = useChange(() => {});
  return html`<div class="heading"><h2 id="view-title" tabindex="-1">Pools</h2>${pools.length > 0 && html`<a class="button" href="#/disks">Make a pool</a>`}</div>
    ${shown}
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
      ])} />
    <${Unserved} kind="pool" all=${status.unserved_pools} path=${pathOfPool} start=${start} />`;
}
