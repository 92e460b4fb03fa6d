// How the server is, at one look.
import { html, Figures, Meter, State, Table } from "./parts.mjs";
import { advice, useWhatIf } from "./what_if.mjs";
import { linkToPool } from "./pool.mjs";
import * as numbers from "./numbers.mjs";

/** What is wrong anywhere, in sentences. */
function worries(status, pools) {
  const found = pools.filter(pool => pool.warning).map(pool => `Pool ${pool.name}: ${pool.warning}.`);
  for (const pool of status.unserved_pools) found.push(`Pool ${pool.name} is not served: ${pool.reason}.`);
  for (const volume of status.volumes) {
    if (volume.state !== "ok") found.push(`${volume.name} is ${volume.state}${volume.state_reason ? `: ${volume.state_reason}` : ""}.`);
    if (volume.state === "ok" && volume.unwritten_blocks > 0) found.push(`${volume.name}: ${numbers.count(volume.unwritten_blocks)} blocks that were answered wait in memory for a place: flushes fail, and they are lost if the server ends before.`);
    if (volume.lost_blocks.length > 0) found.push(`${volume.name} has lost ${numbers.count(volume.lost_blocks.length)} blocks: reading them is an error.`);
    const rated = volume.drive_writes_per_day_rated;
    if (rated != null && volume.drive_writes_per_day > rated) found.push(`${volume.name} writes its flash ${volume.drive_writes_per_day.toFixed(2)} times a day; it is rated for ${rated}.`);
  }
  if (status.recording && status.recording.state !== "recording") found.push(`The recording is ${status.recording.state}.`);
  return found;
}

const link = name => `#/volume/${encodeURIComponent(name)}`;

function Advice({ volume }) {
  const found = useWhatIf(volume);
  return html`<li><a href=${link(volume)}>${volume}</a>: ${(found && advice(found)) ?? "not enough was asked for yet to tell"}</li>`;
}

export function Overview({ status, pools }) {
  const found = worries(status, pools);
  const sum = of => status.volumes.reduce((all, volume) => all + of(volume), 0);
  const reads = sum(volume => volume.reads);
  const hits = sum(volume => volume.ram_read_hits + volume.flash_read_hits);
  return html`<h2 id="view-title" tabindex="-1">Overview</h2>
    ${found.length === 0 ? html`<p class="banner good"><strong>✓ All is well.</strong></p>` : html`<div class="banner bad" role="alert"><strong>! Look at this:</strong><ul>${found.map(text => html`<li>${text}</li>`)}</ul></div>`}
    <${Figures} of=${[
      ["Volumes", numbers.count(status.volumes.length)],
      ["Reads from RAM or flash", numbers.percent(reads > 0 ? hits / reads : null), "since the start"],
      ["Dirty", numbers.bytes(sum(volume => volume.dirty_bytes)), "only on flash or in RAM"],
      ["Written to flash", numbers.bytes(sum(volume => volume.flash_bytes_per_day)), "a day, at the rate so far"],
      ["Connections", numbers.count(status.connections)],
      ["Memory of requests", numbers.bytes(status.request_memory_bytes), `of at most ${numbers.bytes(status.request_memory_bytes_max)}`],
    ]} />
    <${Table} caption="Volumes" empty=${html`There are no volumes. <a href="#/disks">Make a pool</a> of this machine's disks, or name volumes in the configuration.`}
      head=${["volume", "state", "size", "flash", "policy", "read hits", "dirty", "flash lifetime"]}
      rows=${status.volumes.map(volume => [
        html`<a href=${link(volume.name)}>${volume.name}</a>`,
        html`<${State} state=${volume.state} />`,
        numbers.bytes(volume.size_bytes),
        volume.flash ? numbers.bytes(volume.flash_bytes) : "none",
        volume.flash ? volume.policy : "none, RAM alone",
        numbers.percent(volume.reads > 0 ? volume.read_hit_ratio : null),
        numbers.bytes(volume.dirty_bytes),
        volume.flash ? numbers.years(volume.lifetime_years_rated) : "none",
      ])} />
    ${status.volumes.some(volume => volume.flash_bytes > 0) && html`<h3>What another policy or size would do</h3>
      <ul>${status.volumes.filter(volume => volume.flash_bytes > 0).map(volume => html`<${Advice} key=${volume.name} volume=${volume.name} />`)}</ul>`}
    ${pools.length > 0 && html`<${Table} caption="Pools" head=${["pool", "state", "size", "used", "logical disks", "disks"]}
      rows=${pools.map(pool => [
        html`<a href=${linkToPool(pool.name)}>${pool.name}</a>`,
        html`<${State} state=${pool.state} />`,
        numbers.bytes(pool.size_bytes),
        html`<${Meter} label=${`Pool ${pool.name}: share that is used`} share=${pool.size_bytes > 0 ? pool.used_bytes / pool.size_bytes : 0} text=${numbers.bytes(pool.used_bytes)} />`,
        numbers.count(pool.logical_disks.length),
        numbers.count(pool.disks.length),
      ])} />`}
    <p>flashwise ${status.version}, process ${status.pid}, listening at ${status.listening.join(", ")}.</p>`;
}
