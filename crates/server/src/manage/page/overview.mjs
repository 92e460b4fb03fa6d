// The first view: one line of health, and a card for each volume.
import { useEffect, useState } from "preact/hooks";
import { html, kindOf, State } from "./parts.mjs";
import { Detaching, Emptying, findings, findingsOf, Health, isFlashless, worst } from "./health.mjs";
import { linkToPool } from "./pool.mjs";
import { thinned } from "./ticks.mjs";
import { ask, pathOf } from "./server.mjs";
import { Comparison } from "./comparison.mjs";
import { useWhatIf, verdict } from "./what_if.mjs";
import * as numbers from "./numbers.mjs";

/** More volumes than this are listed in the view of volumes only. */
const CARDS_MAX = 12;
const SPARK_PERIOD_MS = 15000;
/** How soon to look again while there is no line yet. */
const SPARK_FIRST_MS = 2000;
const SPARK_POINTS = 60;

export const linkToVolume = name => `#/volume/${encodeURIComponent(name)}`;

/** Requests that a volume answered, and bytes that it read and wrote. */
function done(volume) {
  const requests = volume.latencies.filter(of => ["read", "write"].includes(of.operation)).reduce((all, of) => all + of.count, 0);
  return { requests, bytes: (volume.reads + volume.writes) * 4096 };
}

/** Requests and bytes per second of each volume over the recent statuses; empty before two have come, or after a restart of the server. */
export function ratesOf(recent) {
  const [first, last] = [recent[0], recent[recent.length - 1]];
  const rates = new Map();
  if (recent.length < 2) return rates;
  const seconds = (last.at - first.at) / 1000;
  const before = new Map(first.status.volumes.map(volume => [volume.name, done(volume)]));
  for (const volume of last.status.volumes) {
    const [then, now] = [before.get(volume.name), done(volume)];
    if (then && now.requests >= then.requests) {
      rates.set(volume.name, { requests: (now.requests - then.requests) / seconds, bytes: Math.max(0, now.bytes - then.bytes) / seconds });
    }
  }
  return rates;
}

/** The hit ratio of the last 15 minutes as a line without axes, from 0 to 100 %. */
function Spark({ volume }) {
  const [points, setPoints] = useState([]);
  const known = thinned(points.filter(point => point.read_hit_ratio != null), SPARK_POINTS);
  const hasLine = known.length >= 2;
  useEffect(() => {
    const load = () => ask("GET", `${pathOf(volume)}/history?range=15min`).then(past => setPoints(past.points), () => {});
    load();
    const timer = setInterval(load, hasLine ? SPARK_PERIOD_MS : SPARK_FIRST_MS);
    return () => clearInterval(timer);
  }, [volume, hasLine]);
  if (!hasLine) return null;
  const [first, last] = [known[0].time_seconds, known[known.length - 1].time_seconds];
  const place = point => `${(((point.time_seconds - first) / (last - first)) * 100).toFixed(1)} ${(22 - 20 * point.read_hit_ratio).toFixed(1)}`;
  const line = `M${known.map(place).join("L")}`;
  return html`<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label=${`Hit ratio of ${volume} in the last ${numbers.duration(last - first)}, now ${numbers.percent(known[known.length - 1].read_hit_ratio)}`}>
    <path class="area" d=${`${line}L100 24L0 24Z`} /><path class="line" d=${line} /></svg>`;
}

/** What a volume's flash has ahead of it: a figure and a note. */
export function lifetime(volume) {
  if (!volume.flash) return ["no flash", "cache in RAM only"];
  if (isFlashless(volume)) return ["no flash", "it is not in use"];
  const [written, rated] = [numbers.number(volume.drive_writes_per_day), volume.drive_writes_per_day_rated];
  if (rated != null && numbers.isEarly(volume)) return ["too early", "known after the first hour"];
  return [numbers.flashLifetime(volume), `${written}${rated == null ? "" : ` of ${rated}`} writes/day`];
}

export function dirtyAge(volume) {
  if (volume.dirty_bytes === 0) return "nothing to write back";
  return volume.oldest_dirty_seconds == null ? "age unknown" : `oldest ${numbers.duration(volume.oldest_dirty_seconds)}`;
}

/** The state of the backend without its flash, in words. */
export function backendState({ is_consistent: isConsistent, consistent_seconds: moment, age_seconds: age, newer_blocks: newer }) {
  if (!isConsistent) return "a mixture of old and new blocks until earlier dirty blocks are written back";
  const lost = newer > 0 ? `; ${numbers.count(newer)} newer ${newer === 1 ? "block" : "blocks"}` : "";
  if (moment == null) return `consistent as of an unknown moment${lost}`;
  return `consistent as of ${numbers.clock(moment)} (${numbers.duration(age)} ago)${lost}`;
}

function Advice({ volume }) {
  const found = useWhatIf(volume);
  const text = found && verdict(found);
  return text ? html`<p class="advice"><a href=${`${linkToVolume(volume)}/what-if`} aria-label=${`What if, for ${volume}`}>What if</a> ${text}</p>` : null;
}

function Card({ volume, pool, rate }) {
  const reads = volume.latencies.find(of => of.operation === "read" && of.count > 0);
  const [lasts, lastsNote] = lifetime(volume);
  const figure = (name, value, note, more) => html`<div><dt>${name}</dt><dd>${value}<small>${note}</small>${more}</dd></div>`;
  const state = pool && pool.state !== "ok" ? pool.state : volume.state;
  const kind = kindOf(state) === "good" ? worst(findingsOf(volume)) : kindOf(state);
  return html`<article class=${`card ${kind}`} aria-label=${volume.name}>
    <header><h3><a href=${pool ? linkToPool(pool.name) : linkToVolume(volume.name)}>${volume.name}</a></h3><${State} state=${state} /></header>
    <p class="what">${pool ? "Pool" : "Volume"}, ${numbers.bytes(volume.size_bytes)}${volume.flash ? `, ${volume.policy}, ${volume.write_mode}` : ", RAM only"}${rate && html`<br />${numbers.number(rate.requests)} requests/s, ${numbers.bytes(rate.bytes)}/s`}</p>
    <dl>
      ${figure("Hit ratio", numbers.percent(volume.reads > 0 ? volume.read_hit_ratio : null), volume.reads > 0 ? "since the start" : "no reads yet", html`<${Spark} volume=${volume.name} />`)}
      ${figure("p99 of reads", reads ? numbers.micros(reads.p99_us) : "none", reads ? `median ${numbers.micros(reads.p50_us)}` : "no reads yet")}
      ${figure("Dirty", numbers.bytes(volume.dirty_bytes), dirtyAge(volume))}
      ${figure("Flash lifetime", lasts, lastsNote)}
    </dl>
    ${pool && html`<${Emptying} pool=${pool} />`}
    ${kindOf(volume.state) === "planned" && html`<${Detaching} volume=${volume} />`}
    ${!isFlashless(volume) && volume.state === "ok" && html`<${Advice} volume=${volume.name} />`}
  </article>`;
}

const plural = (count, one) => `${numbers.count(count)} ${one}${count === 1 ? "" : "s"}`;

export function Overview({ status, recent, pools }) {
  const rates = ratesOf(recent);
  const sum = of => [...rates.values()].reduce((all, rate) => all + of(rate), 0);
  const load = [plural(status.volumes.length, "volume"), ...(rates.size > 0 ? [`${numbers.number(sum(rate => rate.requests))} requests/s`, `${numbers.bytes(sum(rate => rate.bytes))}/s`] : []), plural(status.connections, "connection")].join(", ");
  const poolOf = volume => pools.find(pool => pool.name === volume.name);
  // What needs attention comes first; then the busiest.
  const order = ["bad", "warning", "planned", "good"];
  const rank = volume => (poolOf(volume)?.warning ? 0 : order.indexOf(worst(findingsOf(volume))));
  const busy = volume => rates.get(volume.name)?.requests ?? 0;
  const many = status.volumes.length > CARDS_MAX;
  const sorted = many ? status.volumes.toSorted((a, b) => rank(a) - rank(b) || Math.round(busy(b) - busy(a)) || a.name.localeCompare(b.name)) : status.volumes.toSorted((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
  return html`<h2 id="view-title" tabindex="-1" class="hidden">Overview</h2>
    <${Health} found=${findings(status, pools)} load=${load} />
    ${status.comparison && html`<${Comparison} status=${status} />`}
    ${status.volumes.length === 0 && html`<p>There are no volumes. <a href="#/volumes">Make a volume</a> of a disk, or <a href="#/disks">a pool</a> of several.</p>`}
    <div class="cards">${sorted.slice(0, CARDS_MAX).map(volume => html`<${Card} key=${volume.name} volume=${volume} pool=${poolOf(volume)} rate=${rates.get(volume.name)} />`)}</div>
    ${many && html`<p><a href="#/volumes">All ${numbers.count(status.volumes.length)} volumes</a>. These ${CARDS_MAX} need attention or are the busiest.</p>`}
    <p class="foot">flashwise ${status.version}, process ${status.pid}, listening at ${status.listening.join(", ")}</p>`;
}
