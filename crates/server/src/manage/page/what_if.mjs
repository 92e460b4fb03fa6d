// What another policy or another size would do for a volume.
import { useEffect, useState } from "preact/hooks";
import { html, Table } from "./parts.mjs";
import { ask, pathOf } from "./server.mjs";
import * as numbers from "./numbers.mjs";

const PERIOD_MS = 10000;
/** Fewer sampled accesses say nothing. */
const SAMPLED_MIN = 1000;
/** A smaller difference of the hit ratio is none. */
const POINTS_MIN = 1;

/** The estimates, loaded again and again; null until they are there, and for a volume without any. */
export function useWhatIf(volume) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    const load = () => ask("GET", `${pathOf(volume)}/what-if`).then(setFound, () => setFound(null));
    load();
    const timer = setInterval(load, PERIOD_MS);
    return () => clearInterval(timer);
  }, [volume]);
  return found;
}

/** The present estimate, and the others with their difference in percentage points; null while too little is known. */
function compared({ estimates, sampled_accesses: sampled }) {
  const own = estimates.find(estimate => estimate.is_present);
  if (!own || own.read_hit_ratio == null || sampled < SAMPLED_MIN) return null;
  const points = estimate => 100 * (estimate.read_hit_ratio - own.read_hit_ratio);
  const known = estimates.filter(estimate => estimate.read_hit_ratio != null);
  return { own, all: known.map(estimate => ({ ...estimate, points: points(estimate) })).toSorted((a, b) => b.points - a.points) };
}

const size = points => `${numbers.number(Math.abs(points))} points`;

/** The conclusion in two sentences, on size and on policy; null while too little is known. */
export function verdict(found) {
  const known = compared(found);
  if (!known) return null;
  const { own, all } = known;
  const sized = factor => all.find(({ policy, capacity_bytes: bytes }) => policy === own.policy && Math.abs(bytes / own.capacity_bytes / factor - 1) < 0.1);
  const [double, half] = [sized(2), sized(0.5)];
  const best = all.find(({ policy, capacity_bytes: bytes }) => bytes === own.capacity_bytes && policy !== own.policy);
  const larger = double && (double.points >= POINTS_MIN ? `Twice the flash would gain ${size(double.points)}` : "A larger flash would not help");
  const smaller = half && (half.points <= -POINTS_MIN ? `half of it would cost ${size(half.points)}` : half.points < -0.05 ? `half of it costs only ${size(half.points)}` : "half of it would do as well");
  const sizes = [larger, smaller].filter(Boolean).join("; ");
  const other = best && (best.points >= POINTS_MIN ? `${best.policy} would gain ${size(best.points)} over ${own.policy}.` : `No other policy is better than ${own.policy} by a point or more.`);
  return [sizes && `${sizes[0].toUpperCase()}${sizes.slice(1)}.`, other].filter(Boolean).join(" ");
}

export function WhatIf({ volume, open }) {
  const found = useWhatIf(volume);
  useEffect(() => {
    if (open && found) document.getElementById("what-if")?.scrollIntoView();
  }, [open, found !== null]);
  if (!found) return null;
  const known = compared(found);
  const conclusion = verdict(found);
  const change = ({ is_present: isPresent, points }) => (isPresent ? "now" : Math.abs(points) < 0.05 ? "the same" : `${points < 0 ? "\u2212" : "+"}${size(points)}`);
  return html`<section aria-labelledby="what-if"><h3 id="what-if">What if</h3>
    ${!known && html`<p>Too few accesses were sampled so far to compare policies and sizes.</p>`}
    ${known && html`<p class="verdict">${conclusion}</p>
    <details class="fold"><summary>All ${known.all.length} policies and sizes</summary>
    <${Table} caption=${`From a sample of ${numbers.percent(found.sampled_share)} of the blocks since the volume was opened. Each policy runs alone, without RAM and admission rule.`} numbers=${[1, 2, 3, 4]}
      head=${["policy", "size", "hit ratio", "difference", "written to flash"]}
      rows=${known.all.map(estimate => [
        estimate.policy,
        numbers.bytes(estimate.capacity_bytes),
        numbers.percent(estimate.read_hit_ratio),
        estimate.is_present ? html`<strong>now</strong>` : change(estimate),
        numbers.bytes(estimate.flash_bytes_written),
      ])} /></details>`}
    ${found.dropped_accesses > 0 && html`<p class="bad">The sample misses ${numbers.count(found.dropped_accesses)} accesses, because the server was too busy.</p>`}
  </section>`;
}
