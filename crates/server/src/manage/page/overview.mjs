// How the server is, at one look.
import { html, Figures, Meter, State, Table } from "./parts.mjs";
import { advice, useWhatIf } from "./what_if.mjs";
import { linkToPool } from "./pool.mjs";
import * as numbers from "./numbers.mjs";

/** How long a volume has to be served before what it writes a day is known well enough to warn of. */
const RATE_KNOWN_SECONDS = 3600;

/** What is wrong anywhere, in sentences. */
function worries(status, pools) {
  const found = pools.filter(pool => pool.warning).map(pool => `Pool ${pool.name}: ${pool.warning}.`);
  for (const volume of status.unserved_volumes) found.push(`Volume ${volume.name} is not served: ${volume.reason}.`);
  for (const pool of status.unserved_pools) found.push(`Pool ${pool.name} is not served: ${pool.reason}.`);
  for (const uri of status.insecure) found.push(`Every machine that can connect to ${uri} may read and write every volume, as the configuration says insecure.`);
  for (const volume of status.volumes) {
    if (volume.state !== "ok") found.push(`${volume.name} is ${volume.state}${volume.state_reason ? `: ${volume.state_reason}` : ""}.`);
    if (volume.state === "ok" && volume.unwritten_blocks > 0) found.push(`${volume.name}: ${numbers.count(volume.unwritten_blocks)} blocks that were answered wait in memory for a place: flushes fail, and they are lost if the server ends before.`);
    if (volume.lost_blocks.length > 0) found.push(`${volume.name} has lost ${numbers.count(volume.lost_blocks.length)} blocks: reading them is an error.`);
    const rated = volume.drive_writes_per_day_rated;
    if (rated != null && volume.uptime_seconds >= RATE_KNOWN_SECONDS && volume.drive_writes_per_day > rated) found.push(`${volume.name} writes its flash ${volume.drive_writes_per_day.toFixed(2)} times a day; it is rated for ${rated}.`);
  }
  if (status.recording && status.recording.state !== "recording") found.push(`The recording is ${status.recording.state}.`);
  return found;
}

const link = name => `#/volume/${encodeURIComponent(name)}`;

function Advice({ volume }) {
  const found = useWhatIf(volume);
  return html`<li><a href=${link(volume)}>${volume}</a>: ${(found && advice(found)) ?? "not enough was asked for yet to tell"}</li>`;
}

/** What a volume has done: requests that were answered, and bytes that were read and written. */
function done(volume) {
  const requests = volume.latencies.filter(of => ["read", "write"].includes(of.operation)).reduce((all, of) => all + of.count, 0);
  return { requests, bytes: (volume.reads + volume.writes) * 4096 };
}

/** Of each volume, requests and bytes a second since the first of what came last; none before two have come, or where the server was started since. */
function ratesOf(recent) {
  const [first, last] = [recent[0], recent[recent.length - 1]];
  const rates = new Map();
  if (recent.length < 2) return rates;
  const seconds = (last.at - first.at) / 1000;
  for (const volume of last.status.volumes) {
    const before = first.status.volumes.find(other => other.name === volume.name);
    const [then, now] = [before && done(before), done(volume)];
    if (then && now.requests >= then.requests) {
      rates.set(volume.name, { requests: (now.requests - then.requests) / seconds, bytes: Math.max(0, now.bytes - then.bytes) / seconds });
    }
  }
  return rates;
}

/** What a flash is rated for, in bytes a day. */
const budget = volume => volume.drive_writes_per_day_rated * volume.flash_bytes;

export function Overview({ status, recent, pools }) {
  const found = worries(status, pools);
  const rates = ratesOf(recent);
  const rate = of => (rates.size > 0 ? [...rates.values()].reduce((all, rate) => all + of(rate), 0) : null);
  const [requests, bytes] = [rate(of => of.requests), rate(of => of.bytes)];
  const rated = status.volumes.filter(volume => volume.flash && volume.drive_writes_per_day_rated != null);
  const sum = of => status.volumes.reduce((all, volume) => all + of(volume), 0);
  const reads = sum(volume => volume.reads);
  const hits = sum(volume => volume.ram_read_hits + volume.flash_read_hits);
  return html`<h2 id="view-title" tabindex="-1">Overview</h2>
    ${found.length === 0 ? html`<p class="banner good"><strong>✓ All is well.</strong></p>` : html`<div class="banner bad" role="alert"><strong>! Look at this:</strong><ul>${found.map(text => html`<li>${text}</li>`)}</ul></div>`}
    <${Figures} of=${[
      ["Volumes", numbers.count(status.volumes.length)],
      ["Requests", requests == null ? "none" : `${numbers.rate(requests)}/s`, "reads and writes, in the last 5 seconds"],
      ["Throughput", bytes == null ? "none" : `${numbers.bytes(bytes)}/s`, "read and written, in the last 5 seconds"],
      ["Reads from RAM or flash", numbers.percent(reads > 0 ? hits / reads : null), "since the start"],
      ["Dirty", numbers.bytes(sum(volume => volume.dirty_bytes)), "only on flash or in RAM"],
      ["Written to flash", numbers.bytes(sum(volume => volume.flash_bytes_per_day)), `a day, at the rate so far${rated.length > 0 ? `; rated for ${numbers.bytes(rated.reduce((all, volume) => all + budget(volume), 0))}` : ""}`],
      ["Connections", numbers.count(status.connections)],
      ["Memory of requests", numbers.bytes(status.request_memory_bytes), `of at most ${numbers.bytes(status.request_memory_bytes_max)}`],
    ]} />
    <${Table} caption="Volumes" empty=${html`There are no volumes. <a href="#/disks">Make a pool</a> of this machine's disks, or name volumes in the configuration.`}
      head=${["volume", "state", "size", "flash", "policy", "read hits", "requests", "throughput", "reads take", "writes take", "dirty", "written to flash a day", "flash lifetime"]}
      rows=${status.volumes.map(volume => [
        html`<a href=${link(volume.name)}>${volume.name}</a>`,
        html`<${State} state=${volume.state} />`,
        numbers.bytes(volume.size_bytes),
        volume.flash ? numbers.bytes(volume.flash_bytes) : "none",
        volume.flash ? volume.policy : "none, RAM alone",
        numbers.percent(volume.reads > 0 ? volume.read_hit_ratio : null),
        rates.has(volume.name) ? `${numbers.rate(rates.get(volume.name).requests)}/s` : "none",
        rates.has(volume.name) ? `${numbers.bytes(rates.get(volume.name).bytes)}/s` : "none",
        numbers.latency(volume, "read"),
        numbers.latency(volume, "write"),
        numbers.bytes(volume.dirty_bytes),
        volume.flash ? `${numbers.bytes(volume.flash_bytes_per_day)}${volume.drive_writes_per_day_rated == null ? "" : ` of ${numbers.bytes(budget(volume))}`}` : "none",
        volume.flash ? numbers.years(volume) : "none",
      ])} />
    ${status.volumes.length > 0 && html`<p>Reads and writes take: median and 99th percentile, since the start.</p>`}
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
