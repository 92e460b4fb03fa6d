// How the server is, at one look.
import { html, Figures, State, Table } from "./parts.mjs";
import * as numbers from "./numbers.mjs";

/** What is wrong anywhere, in sentences. */
function worries(status) {
  const found = [];
  for (const volume of status.volumes) {
    if (volume.state !== "ok") found.push(`${volume.name} is ${volume.state}${volume.state_reason ? `: ${volume.state_reason}` : ""}.`);
    if (volume.lost_blocks.length > 0) found.push(`${volume.name} has lost ${numbers.count(volume.lost_blocks.length)} blocks: reading them is an error.`);
    const rated = volume.drive_writes_per_day_rated;
    if (rated != null && volume.drive_writes_per_day > rated) found.push(`${volume.name} writes its flash ${volume.drive_writes_per_day.toFixed(2)} times a day; it is rated for ${rated}.`);
  }
  if (status.recording && status.recording.state !== "recording") found.push(`The recording is ${status.recording.state}.`);
  return found;
}

const link = name => `#/volume/${encodeURIComponent(name)}`;

export function Overview({ status }) {
  const found = worries(status);
  const sum = of => status.volumes.reduce((all, volume) => all + of(volume), 0);
  const reads = sum(volume => volume.read_blocks);
  const hits = sum(volume => volume.ram_read_hits + volume.flash_read_hits);
  return html`<h2 id="view-title" tabindex="-1">Overview</h2>
    ${found.length === 0 ? html`<p class="banner good"><strong>✓ All is well.</strong></p>` : html`<div class="banner bad" role="alert"><strong>! Look at this:</strong><ul>${found.map(text => html`<li>${text}</li>`)}</ul></div>`}
    <${Figures} of=${[
      ["Volumes", numbers.count(status.volumes.length)],
      ["Reads from RAM or flash", numbers.percent(reads > 0 ? hits / reads : null), "since the start"],
      ["Dirty", numbers.bytes(sum(volume => volume.dirty_bytes)), "only on flash or in RAM"],
      ["Written to flash", numbers.bytes(sum(volume => volume.flash_written_bytes_per_day)), "a day, at the rate so far"],
      ["Connections", numbers.count(status.connections)],
      ["Memory of requests", numbers.bytes(status.request_memory_bytes), `of at most ${numbers.bytes(status.request_memory_bytes_max)}`],
    ]} />
    <${Table} caption="Volumes" empty="There are no volumes."
      head=${["volume", "state", "size", "flash", "policy", "read hits", "dirty", "flash lifetime"]}
      rows=${status.volumes.map(volume => [
        html`<a href=${link(volume.name)}>${volume.name}</a>`,
        html`<${State} state=${volume.state} />`,
        numbers.bytes(volume.size_bytes),
        numbers.bytes(volume.flash_bytes),
        volume.policy,
        numbers.percent(volume.read_blocks > 0 ? volume.read_hit_ratio : null),
        numbers.bytes(volume.dirty_bytes),
        volume.lifetime_years == null ? "not rated" : `${volume.lifetime_years.toFixed(1)} years`,
      ])} />
    <p>flashwise ${status.version}, process ${status.pid}, listening at ${status.listening.join(", ")}.</p>`;
}
