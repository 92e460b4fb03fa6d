// How the server is: faults, warnings and planned work, in sentences.
import { useEffect, useState } from "preact/hooks";
import { html, Icon, kindOf } from "./parts.mjs";
import { ask, pathOf } from "./server.mjs";
import * as numbers from "./numbers.mjs";

const KINDS = ["bad", "warning", "planned"];

/** @returns {boolean} true if the volume is served without its flash, or has none */
export const isFlashless = volume => !volume.flash || ["detached", "without-flash"].includes(volume.state);

/** Everything to know of a volume: its kind is bad, warning or planned. */
export function findingsOf(volume) {
  const found = [];
  const add = (kind, text) => found.push({ kind, text });
  const { name, state } = volume;
  if (state === "detaching") add("planned", `${name}: the flash is being detached.`);
  else if (state === "detached") add("planned", volume.attaches_at_start ? `${name}: the next start of the server uses the flash again.` : `${name}: the flash is detached, as requested.`);
  else if (state !== "ok") add("bad", `${name}: ${state.replace("-", " ")}${volume.state_reason ? `, ${volume.state_reason}` : ""}.${state === "flash-failed" ? " Writes are refused: detach the flash to go on without it." : ""}`);
  else if (volume.state_reason) add("warning", `${name}: ${volume.state_reason}.`);
  if (state === "ok" && volume.unwritten_blocks > 0) add("bad", `${name}: ${numbers.count(volume.unwritten_blocks)} written blocks have no place yet. Flushes fail, and the blocks are lost if the server stops.`);
  if (volume.lost_blocks.length > 0) add("bad", `${name} has lost ${numbers.count(volume.lost_blocks.length)} blocks. Reads of them fail.`);
  const errors = volume.faults.flash_read_errors + volume.faults.flash_checksum_errors + volume.faults.flash_write_errors;
  if (errors > 0 && state === "ok") add("warning", `${name}: ${numbers.count(errors)} transfers of the flash failed since the start. Detach the flash while it is readable.`);
  const backend = volume.backend_state;
  if (backend && !backend.is_consistent) add("warning", `${name}: without its flash, the backend is a mixture of old and new blocks until earlier dirty blocks are written back.`);
  if (backend?.age_seconds > backend?.age_seconds_max) add("warning", `${name}: without its flash, the backend is consistent as of ${numbers.clock(backend.consistent_seconds)}, ${numbers.duration(backend.age_seconds)} ago; dirty-age allows ${numbers.duration(backend.age_seconds_max)}.`);
  const rated = volume.drive_writes_per_day_rated;
  if (rated != null && !isFlashless(volume) && !numbers.isEarly(volume) && volume.drive_writes_per_day > rated) add("warning", `${name} writes its flash ${numbers.number(volume.drive_writes_per_day)} times a day; it is rated for ${rated}.`);
  return found;
}

/** All findings of the server, the worst first. */
export function findings(status, pools) {
  const found = pools.filter(pool => pool.warning).map(pool => ({ kind: "bad", text: `Pool ${pool.name}: ${pool.warning}.` }));
  for (const pool of pools) {
    for (const disk of pool.disks.filter(disk => disk.state === "leaving")) found.push({ kind: "planned", text: `Pool ${pool.name}: ${disk.path} is being emptied, ${numbers.bytes(disk.used_bytes)} left.` });
  }
  for (const volume of status.unserved_volumes) found.push({ kind: "bad", text: `Volume ${volume.name} is not served: ${volume.reason}.` });
  for (const pool of status.unserved_pools) found.push({ kind: "bad", text: `Pool ${pool.name} is not served: ${pool.reason}.` });
  for (const uri of status.insecure) found.push({ kind: "warning", text: `Every machine that can connect to ${uri} can read and write every volume, because the configuration sets insecure.` });
  found.push(...status.volumes.flatMap(findingsOf));
  if (status.recording && status.recording.state !== "recording") found.push({ kind: "warning", text: `The recording is ${status.recording.state}.` });
  return found.sort((a, b) => KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind));
}

/** The worst kind of some findings. */
export const worst = found => KINDS.find(kind => found.some(one => one.kind === kind)) ?? "good";

const counted = (found, kind, one, many) => {
  const count = found.filter(finding => finding.kind === kind).length;
  return count === 0 ? [] : [`${count} ${count === 1 ? one : many}`];
};

/** More findings than this are folded. */
const SHOWN_MAX = 3;

/** One line of health; its findings unfold below it. */
export function Health({ found, load }) {
  const kind = worst(found);
  const counts = [...counted(found, "bad", "fault", "faults"), ...counted(found, "warning", "warning", "warnings"), ...counted(found, "planned", "planned task", "planned tasks")].join(", ");
  const line = text => html`<${Icon} kind=${kind} /><strong>${text}</strong><span class="load">${load}</span>`;
  if (found.length === 0) return html`<p class="health good">${line("All is well")}</p>`;
  const item = finding => html`<li class=${finding.kind}><${Icon} kind=${finding.kind} /><span>${finding.text}</span></li>`;
  return html`<div role=${kind === "bad" ? "alert" : undefined}><details class=${`health ${kind}`} open=${found.length <= SHOWN_MAX}>
    <summary>${line(counts)}</summary>
    <ul>${found.map(item)}</ul>
  </details></div>`;
}

/** How far planned work is: a bar, bytes and the remaining time, if that is known. */
function Task({ text, done, all, seconds }) {
  const time = seconds == null ? "" : `, about ${numbers.duration(seconds)} left`;
  return html`<p class="task planned" role="status"><label><span>${text}: ${numbers.bytes(done)} of ${numbers.bytes(all)}${time}</span>
    <progress max=${Math.max(1, all)} value=${done}></progress></label></p>`;
}

/** Disks that are being emptied: the bytes on each when this page saw it first, and when that was. */
const emptying = new Map();

/** How far the disks of a pool are from empty. */
export function Emptying({ pool }) {
  return pool.disks.map(({ path, number, state, used_bytes: used }) => {
    const key = `${pool.name} ${number}`;
    const [now, first] = [performance.now(), emptying.get(key)];
    if (state !== "leaving") {
      emptying.delete(key);
      return null;
    }
    if (!first || first.used < used) emptying.set(key, { used, at: now });
    const { used: all, at } = emptying.get(key);
    const done = all - used;
    const seconds = done > 0 ? ((used / done) * (now - at)) / 1000 : null;
    return html`<${Task} key=${key} text=${`Emptying ${path}`} done=${done} all=${all} seconds=${seconds} />`;
  });
}

/** How far a detach is. */
export function Detaching({ volume }) {
  const [progress, setProgress] = useState(null);
  useEffect(() => {
    const load = () => ask("GET", `${pathOf(volume.name)}/detach`).then(setProgress, error => setProgress({ failed: error.message }));
    load();
    const timer = setInterval(load, 1000);
    return () => clearInterval(timer);
  }, [volume.name]);
  if (kindOf(volume.state) !== "planned" || !progress) return null;
  if (progress.failed) return html`<p class="task bad">Detaching failed: ${progress.failed}</p>`;
  if (progress.state === "detached") return html`<p class="task planned"><${Icon} kind="planned" /> The flash is detached. The backend has all data.${volume.attaches_at_start && " The next start of the server uses the flash again."}</p>`;
  if (progress.state !== "detaching") return null;
  const { dirty_blocks: left, destaged_blocks: done, remaining_seconds: remaining } = progress;
  return html`<${Task} text="Writing back" done=${done * 4096} all=${(left + done) * 4096} seconds=${remaining} />`;
}
