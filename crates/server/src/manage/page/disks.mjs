// The machine's disks: what they are, what they hold, and what they could be used for.
import { useEffect, useState } from "preact/hooks";
import { html, Act, Icon, Message, Table, useChange, useFilter } from "./parts.mjs";
import { MakePool } from "./make_pool.mjs";
import { ask } from "./server.mjs";
import * as numbers from "./numbers.mjs";

/** What a disk holds, and who uses it. */
function holds(disk) {
  const named = of => of.signatures.map(({ kind, label }) => (label ? `${kind} ${label}` : kind));
  const used = of => [...of.mounts, ...of.holders];
  const parts = disk.partitions.map(part => [part.path, ...named(part), ...used(part)].join(" "));
  return [...named(disk), ...used(disk), ...parts].join(", ") || disk.refused || "nothing";
}

/** What a disk is. */
function kind(disk) {
  // The kernel says of virtual disks that they rotate.
  const isVirtual = disk.path.startsWith("/dev/vd");
  return disk.is_file ? "file" : isVirtual ? "virtual" : disk.rotational == null ? "" : disk.rotational ? "hard disk" : "SSD";
}

const counted = (count, one, many) => `${numbers.count(count)} ${count === 1 ? one : many}`;

/** How a disk is, by its own account (SMART), as a list; empty if it says nothing. */
export function healthOf(disk) {
  const known = (value, text) => (value == null ? [] : [text(value)]);
  return [
    ...(disk.is_failing ? ["it expects to fail"] : []),
    ...known(disk.wear_percent, percent => `${percent}% of its endurance used`),
    ...known(disk.spare_percent, percent => `${percent}% spare left`),
    ...known(disk.media_errors, count => counted(count, "media error", "media errors")),
    ...known(disk.reallocated, count => counted(count, "reallocated sector", "reallocated sectors")),
    ...known(disk.temperature_celsius, celsius => `${Math.round(celsius)} °C`),
    ...known(disk.power_on_hours, hours => `powered on for ${numbers.duration(hours * 3600)}`),
  ];
}

/** True if the disk itself, or what it counts, calls for another one. */
export const isWorn = disk => disk.is_failing || disk.wear_percent >= 100 || disk.media_errors > 0;

/** The health of a disk, with a mark if it is bad. */
function Health({ disk }) {
  const found = healthOf(disk);
  if (found.length === 0) return "";
  return isWorn(disk) ? html`<span class="bad"><${Icon} kind="bad" /> ${found.join(", ")}</span>` : found.join(", ");
}

export function Disks({ pools, status }) {
  const [disks, setDisks] = useState(null);
  const [failed, setFailed] = useState(null);
  const load = () => ask("GET", "/v1/disks").then(disks => {
    setDisks(disks);
    setFailed(null);
  }, error => setFailed(error.message));
  useEffect(() => void load(), []);
  const { start, shown } = useChange(load);
  const { kept, field } = useFilter(disks ?? [], "Find disks", "path, role or contents", disk => `${disk.path} ${disk.role} ${disk.model ?? ""} ${disk.serial ?? ""} ${holds(disk)}`);
  // The form is blank once its pool is made; what others do meanwhile leaves it as it is.
  const [made, setMade] = useState(0);
  const make = change => start({ ...change, then: () => (setMade(made + 1), load()) });
  // What this server uses is not to be wiped, which it would refuse.
  const used = [...pools.flatMap(pool => pool.disks), ...status.volumes.flatMap(({ backend, flash }) => [{ path: backend }, { path: flash }])];
  const isServed = disk => used.some(({ path }) => path === disk.path);
  const wipe = ({ path }) => start({ title: `Wipe disk ${path}`, action: "Wipe the disk", what: "disk", name: path, method: "POST", path: "/v1/disks/wipe", body: { path }, sure: { body: { path, confirm: path } }, done: `${path} is blank.` });
  return html`<div class="heading"><h2 id="view-title" tabindex="-1">Disks</h2><button type="button" onClick=${load}>Rescan</button></div>
    ${failed && html`<${Message} bad=${true} text=${failed} />`}
    ${shown}
    ${!disks && !failed && html`<p>Loading.</p>`}
    ${field}
    ${disks && html`<${Table} caption="Disks of this machine, and files that volumes and pools use" empty=${disks.length > 0 ? "No disk is like that." : "There are no disks."}
      head=${["disk", "role", "size", "model", "serial number", "address", "kind", "health", "holds", "actions"]} numbers=${[2]}
      rows=${kept.map(disk => [
        disk.path,
        html`<span class="role">${disk.role}</span>`,
        numbers.bytes(disk.size_bytes),
        disk.model ?? "",
        disk.serial ?? "",
        disk.bus_address ?? "",
        kind(disk),
        html`<${Health} disk=${disk} />`,
        holds(disk),
        disk.refused && disk.can_be_wiped && !isServed(disk) ? html`<${Act} destroys=${true} label=${`Wipe ${disk.path}`} text="Wipe" act=${() => wipe(disk)} />` : "",
      ])} />
      <p class="note">Roles: data is a part of a pool, cache holds a cache, spare is blank, foreign holds other data, system is in use.</p>`}
    ${disks && html`<${MakePool} key=${made} disks=${disks.filter(disk => !isServed(disk))} change=${make} />`}`;
}
