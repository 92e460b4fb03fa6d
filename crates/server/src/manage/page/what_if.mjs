// What another policy or another size would do for a volume.
import { useEffect, useState } from "preact/hooks";
import { html, Table } from "./parts.mjs";
import { ask, pathOf } from "./server.mjs";
import * as numbers from "./numbers.mjs";

const PERIOD_MS = 10000;
/** Fewer sampled accesses tell nothing. */
const SAMPLED_MIN = 1000;

/** Asked for again and again; null until it is there, and where the volume has none. */
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

/** The best of the other policies at the present size, in a sentence; null where there is nothing to say. */
export function advice({ estimates, sampled_accesses }) {
  const own = estimates.find(estimate => estimate.is_present);
  if (!own || own.read_hit_ratio == null || sampled_accesses < SAMPLED_MIN) return null;
  const rivals = estimates.filter(({ capacity_bytes, policy }) => capacity_bytes === own.capacity_bytes && policy !== own.policy);
  const best = rivals.reduce((best, other) => (other.read_hit_ratio > best.read_hit_ratio ? other : best), own);
  const double = estimates.find(({ capacity_bytes, policy }) => policy === own.policy && capacity_bytes >= 2 * own.capacity_bytes);
  const more = (other, name) => `${name} would hit ${numbers.percent(other.read_hit_ratio)} of the reads`;
  const found = [best !== own && best.read_hit_ratio > own.read_hit_ratio + 0.01 && more(best, best.policy), double && more(double, "twice the flash")].filter(Boolean);
  return `${own.policy} alone hits ${numbers.percent(own.read_hit_ratio)}${found.length ? `; ${found.join(", ")}` : ""}`;
}

export function WhatIf({ volume }) {
  const found = useWhatIf(volume);
  if (!found) return null;
  const own = found.estimates.find(estimate => estimate.is_present);
  const enough = found.sampled_accesses >= SAMPLED_MIN;
  return html`<section aria-labelledby="what-if"><h3 id="what-if">What another policy or size would do</h3>
    ${!enough && html`<p>Not enough was asked for yet to tell.</p>`}
    ${enough && html`<${Table} caption=${`By a sample of ${numbers.percent(found.sampled_share)} of the blocks since the volume was opened; each is the policy alone, without RAM and admission rule`}
      head=${["policy", "size", "reads that hit", "than now", "written to flash"]}
      rows=${found.estimates.map(estimate => [
        `${estimate.policy}${estimate.is_present ? " (now)" : ""}`,
        numbers.bytes(estimate.capacity_bytes),
        numbers.percent(estimate.read_hit_ratio),
        estimate.is_present || estimate.read_hit_ratio == null ? "" : `${estimate.read_hit_ratio < own.read_hit_ratio ? "-" : "+"}${numbers.percent(Math.abs(estimate.read_hit_ratio - own.read_hit_ratio))}`,
        numbers.bytes(estimate.flash_bytes_written),
      ])} />`}
    ${found.dropped_accesses > 0 && html`<p class="bad">! ${numbers.count(found.dropped_accesses)} accesses of the sample were not looked at, for want of time.</p>`}
  </section>`;
}
