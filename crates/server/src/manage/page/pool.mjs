// One pool: its disks, its logical disks, and where these lie.
import { useEffect, useState } from "preact/hooks";
import { html, Act, Figures, Icon, Message, Meter, NameField, State, Table, useChange, useLatest, useOpen } from "./parts.mjs";
import { linkToConnect } from "./connect.mjs";
import { Emptying } from "./health.mjs";
import { ask, askTagged, pathOf, pathOfPool } from "./server.mjs";
import * as numbers from "./numbers.mjs";

const PERIOD_MS = 3000;
const UNITS = { MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };
const BLOCK = 4096;

const share = (part, whole) => (whole > 0 ? part / whole : 0);

/** A forecast needs so much of the past, ... */
const FORECAST_SECONDS = 86400;
/** ... and does not reach further than this. */
const FORECAST_DAYS_MAX = 3650;

/**
 * When a pool is full, by a line through its use of up to 30 days: a figure and a note.
 * @param {{time_seconds: number, used_bytes: ?number}[]} points
 * @param {number} free
 */
export function forecast(points, free) {
  const known = points.filter(point => point.used_bytes != null);
  const seconds = known.length > 1 ? known.at(-1).time_seconds - known[0].time_seconds : 0;
  if (seconds < FORECAST_SECONDS) return ["too early", "known after a day"];
  const mean = of => known.reduce((sum, point) => sum + of(point), 0) / known.length;
  const [time, used] = [mean(point => point.time_seconds), mean(point => point.used_bytes)];
  const slope = mean(point => (point.time_seconds - time) * (point.used_bytes - used)) / mean(point => (point.time_seconds - time) ** 2);
  const perDay = slope * 86400;
  const note = `${numbers.bytes(Math.abs(perDay))} ${perDay < 0 ? "less" : "more"} a day, over ${numbers.duration(seconds)}`;
  const days = free / perDay;
  if (!(perDay > 0) || days > FORECAST_DAYS_MAX) return ["not in sight", note];
  return [`in ${numbers.duration(days * 86400)}`, note];
}

/** The view of a pool. */
export const linkToPool = pool => `#/pool/${encodeURIComponent(pool)}`;

/** Where written data is when a client has its answer. */
const MODES = { "write-back": "on the flash, and later on the disks", "write-through": "on the disks and the flash", "write-around": "on the disks only" };

/** A size that people give: a number and a unit. */
function Size({ id, label, bytes }) {
  const own = bytes && (Object.keys(UNITS).findLast(unit => bytes >= UNITS[unit]) ?? "MiB");
  return html`<div class="field"><label for=${id}>${label}</label>
    <span class="pair"><input id=${id} name="number" type="number" min="0" step="any" inputmode="decimal" required defaultValue=${own && bytes / UNITS[own]} />
    <select name="unit" aria-label="Unit">${Object.keys(UNITS).map(unit => html`<option selected=${unit === (own || "GiB")}>${unit}</option>`)}</select></span></div>`;
}

/** A mode; where another that is stricter counts, it says so. */
export function Mode({ id, label, mode, stricter = true }) {
  return html`<div class="field"><label for=${id}>${label}</label>
    <select id=${id} name="mode" aria-describedby=${`${id}-note`}>${Object.entries(MODES).map(([name, where]) => html`<option value=${name} selected=${name === mode}>${name}: ${where}</option>`)}</select>
    <small id=${`${id}-note`}>The place of written data when a client has its answer.${stricter ? " A stricter mode of the pool wins." : ""}</small></div>`;
}

/** How much RAM is kept for a logical disk. */
function Kept({ id, label, bytes }) {
  return html`<div class="field"><label for=${id}>${label}</label>
    <input id=${id} name="kept" type="number" min="0" step="any" inputmode="decimal" required defaultValue=${bytes / UNITS.MiB} aria-describedby=${`${id}-note`} />
    <small id=${`${id}-note`}>This part of the pool's read buffer holds its blocks that were read last.</small></div>`;
}

/** The bytes that a number of a unit is, as whole blocks. */
const inBlocks = (number, unit) => Math.round((Number(number) * UNITS[unit]) / BLOCK) * BLOCK;

/** What a form says of a logical disk that is made or changed. */
const saidOf = form => ({ size_bytes: inBlocks(form.get("number"), form.get("unit")), pinned_ram_bytes: inBlocks(form.get("kept"), "MiB"), mode: form.get("mode"), cached: form.get("cached") === "on" });

/** Makes a logical disk: six questions, and then what it will do. */
function Create({ pool, change }) {
  const review = event => {
    event.preventDefault();
    const form = new FormData(event.target);
    const body = { name: form.get("name"), thick: form.get("space") === "thick", striped: form.get("place") === "striped", ...saidOf(form) };
    change({ title: `Make logical disk ${body.name}`, action: "Make the logical disk", row: body.name, method: "POST", path: `${pathOfPool(pool)}/logical-disks`, body, done: `The logical disk ${body.name} is made.` });
  };
  const choice = (group, value, text, note) => html`<label><input type="radio" name=${group} value=${value} defaultChecked=${value === "thin" || value === "striped"} /> ${text} <small>${note}</small></label>`;
  return html`<form class="wizard" onSubmit=${review} aria-labelledby="create">
    <h3 id="create">Make a logical disk</h3>
    <${NameField} id="disk-name" label="1. Name" note="Clients open it by this name." />
    <${Size} id="disk-size" label="2. Size" />
    <fieldset><legend>3. Space</legend>
      ${choice("space", "thin", "Thin:", "allocates space on the first write")}
      ${choice("space", "thick", "Thick:", "allocates all space now")}</fieldset>
    <fieldset><legend>4. Place</legend>
      ${choice("place", "striped", "Striped:", "spreads neighbouring blocks over the disks")}
      ${choice("place", "linear", "Linear:", "fills one disk after the other")}</fieldset>
    <${Mode} id="disk-mode" label="5. Mode" mode="write-back" />
    <${Kept} id="disk-kept" label="6. Reserved RAM, in MiB" bytes=${0} />
    <label><input type="checkbox" name="cached" defaultChecked=${true} /> Its requests go through the pool's cache</label>
    <p class="buttons"><${Act} submit=${true} text="Review the logical disk" /></p>
  </form>`;
}

/** Adds a disk, which may have to be wiped. */
function Add({ pool, machine, change }) {
  const review = event => {
    event.preventDefault();
    const form = new FormData(event.target);
    const path = form.get("path");
    const body = form.get("wipe") === "on" ? { path, wipe: path } : { path };
    change({ title: `Add disk ${path}`, action: "Add the disk", what: "disk", name: path, method: "POST", path: `${pathOfPool(pool)}/disks`, body, done: `${path} is a disk of the pool.` });
  };
  const free = machine.filter(disk => !disk.refused || disk.can_be_wiped);
  return html`<form class="wizard" onSubmit=${review} aria-labelledby="add">
    <h3 id="add">Add a disk</h3>
    <div class="field"><label for="add-path">Block device or file</label>
      <input id="add-path" name="path" required list="free-disks" autocomplete="off" spellcheck=${false} />
      <datalist id="free-disks">${free.map(disk => html`<option value=${disk.path}>${disk.role}, ${numbers.bytes(disk.size_bytes)}</option>`)}</datalist></div>
    <label><input type="checkbox" name="wipe" /> Wipe it if it holds data</label>
    <p class="buttons"><${Act} submit=${true} text="Review the disk" /></p>
  </form>`;
}

/** Changes a logical disk: sends only what is different. */
function Change({ pool, disk, change, close }) {
  // The disk as the form began; the tag finds changes by others.
  const [was] = useState(disk);
  const [failed, setFailed] = useState(null);
  const review = event => {
    event.preventDefault();
    const form = new FormData(event.target);
    const body = Object.fromEntries(Object.entries(saidOf(form)).filter(([key, value]) => value !== was[key]));
    if (Object.keys(body).length === 0) return setFailed("Nothing is different. Change a value first.");
    change({ title: `Change logical disk ${was.name}`, action: "Change the logical disk", row: was.name, method: "PATCH", path: `${pathOfPool(pool)}/logical-disks/${encodeURIComponent(was.name)}`, body, done: `${was.name} is changed.` });
    return close();
  };
  return html`<form class="wizard" onSubmit=${review} aria-labelledby="change">
    <h3 id="change" tabindex="-1">Change ${was.name}</h3>
    <${Size} id="new-size" label="Size" bytes=${was.size_bytes} />
    <${Mode} id="new-mode" label="Mode" mode=${was.mode} />
    <${Kept} id="kept" label="Reserved RAM, in MiB" bytes=${was.pinned_ram_bytes} />
    <label><input type="checkbox" name="cached" defaultChecked=${was.cached} /> Its requests go through the pool's cache</label>
    ${failed && html`<${Message} bad=${true} text=${failed} />`}
    <p class="buttons"><button type="button" onClick=${close}>Cancel</button><${Act} submit=${true} text="Review the change" /></p>
  </form>`;
}

/** A strip of a disk has this many parts. */
const PARTS = 200;
/** So many pieces are listed at first, and more on request. */
const PIECES = 20;
const PIECES_MORE = 200;

/** Which kind of chunk a run is. */
const kindOfRun = run => (run.missing ? "missing" : run.written ? "written" : "kept");

/** How much of each part of a disk the runs fill, by kind: {kind, part, share}. */
function densities(runs, size) {
  const length = size / PARTS;
  const filled = new Map();
  for (const run of runs) {
    const end = run.disk_offset_bytes + run.length_bytes;
    for (let part = Math.floor(run.disk_offset_bytes / length); part < PARTS && part * length < end; part += 1) {
      const key = `${kindOfRun(run)} ${part}`;
      const bytes = Math.min(end, (part + 1) * length) - Math.max(run.disk_offset_bytes, part * length);
      filled.set(key, (filled.get(key) ?? 0) + bytes / length);
    }
  }
  return [...filled].map(([key, share]) => ({ kind: key.split(" ")[0], part: Number(key.split(" ")[1]), share }));
}

/** Where the chunks of a logical disk are: a strip for each disk, and the same as a table. */
function Places({ pool, disk, onClose }) {
  const [runs, setRuns] = useState(null);
  const [failed, setFailed] = useState(null);
  const [pieces, setPieces] = useState(PIECES);
  useEffect(() => {
    ask("GET", `${pathOfPool(pool.name)}/logical-disks/${encodeURIComponent(disk)}/map`).then(setRuns, error => setFailed(error.message));
  }, [pool.generation, disk]);
  // A little is seen, too.
  const shown = share => Math.min(1, Math.max(share, 0.1));
  const strip = of => {
    const here = runs.filter(run => run.disk === of.number);
    const length = here.reduce((all, run) => all + run.length_bytes, 0);
    const label = `${of.path}: ${numbers.bytes(length)} of ${disk}, in ${here.length} ${here.length === 1 ? "piece" : "pieces"}`;
    return html`<figure class="strip"><figcaption>${label}</figcaption>
      <svg viewBox="0 0 1000 20" preserveAspectRatio="none" role="img" aria-label=${label}>
        <rect class="room" width="1000" height="20" />
        ${densities(here, of.size_bytes).map(({ kind, part, share }) => html`<rect class=${kind} x=${(1000 / PARTS) * part} width=${1000 / PARTS} y=${20 - 20 * shown(share)} height=${20 * shown(share)} />`)}
      </svg></figure>`;
  };
  return html`<section aria-labelledby="map"><h3 id="map" tabindex="-1">Where ${disk} lies</h3>
    ${failed && html`<${Message} bad=${true} text=${failed} />`}
    ${runs && pool.disks.map(strip)}
    ${runs && html`<p class="note">The height shows how much of each part of the disk is filled.</p>`}
    ${runs && html`<${Table} caption=${`Pieces of ${disk}`} empty="Nothing of it is allocated yet."
      head=${["offset", "length", "disk", "offset on the disk", "written"]} numbers=${[1, 3]}
      rows=${runs.slice(0, pieces).map(run => [
        numbers.bytes(run.offset_bytes) + (run.step_bytes > 65536 ? `, every ${numbers.bytes(run.step_bytes)}` : ""),
        numbers.bytes(run.length_bytes),
        run.path,
        numbers.bytes(run.disk_offset_bytes),
        run.lost ? "! lost" : run.missing ? "! the disk is missing" : run.written ? "yes" : "no, reads as zeroes",
      ])} />`}
    ${runs && runs.length > pieces && html`<p>${numbers.count(pieces)} of ${numbers.count(runs.length)} pieces. <button type="button" onClick=${() => setPieces(pieces + PIECES_MORE)}>Show ${PIECES_MORE} more</button></p>`}
    <p class="buttons"><button type="button" onClick=${onClose}>Close the map</button></p></section>`;
}

function Logical({ pool, change, show }) {
  const path = disk => `${pathOfPool(pool.name)}/logical-disks/${encodeURIComponent(disk.name)}`;
  const remove = disk => change({ title: `Delete logical disk ${disk.name}`, action: "Delete the logical disk", what: "logical disk", name: disk.name, method: "DELETE", path: path(disk), sure: { query: `?confirm=${encodeURIComponent(disk.name)}` }, done: `${disk.name} is deleted.` });
  return html`<${Table} caption="Logical disks" empty="There are no logical disks yet."
    head=${["logical disk", "size", "allocated", "layout", "cached", "mode", "clients", "read", "hit ratio", "written", "actions"]} numbers=${[1, 6, 7, 8, 9]}
    rows=${pool.logical_disks.map(disk => [
      disk.name,
      numbers.bytes(disk.size_bytes),
      html`<${Meter} label=${`${disk.name}: allocated share`} share=${share(disk.allocated_bytes, disk.size_bytes)} text=${numbers.bytes(disk.allocated_bytes)} />${disk.missing_bytes > 0 && html`<span class="bad"> ! ${numbers.bytes(disk.missing_bytes)} missing</span>`}${disk.lost_bytes > 0 && html`<span class="bad"> ! ${numbers.bytes(disk.lost_bytes)} lost</span>`}`,
      `${disk.thick ? "thick" : "thin"}, ${disk.striped ? "striped" : "linear"}`,
      disk.cached ? "yes" : "no",
      disk.mode + (disk.pinned_ram_bytes > 0 ? `, ${numbers.bytes(disk.pinned_ram_bytes)} of RAM reserved` : ""),
      numbers.count(disk.clients),
      numbers.bytes(disk.read_bytes),
      numbers.percent(disk.reads > 0 ? disk.read_hit_ratio : null),
      numbers.bytes(disk.written_bytes),
      html`<span class="buttons">
        <a class="button" href=${linkToConnect(disk.name)} aria-label=${`Connect to ${disk.name}`}>Connect</a>
        <button type="button" aria-label=${`Map of ${disk.name}`} onClick=${() => show("map", disk.name)}>Map</button>
        <${Act} label=${`Change ${disk.name}`} text="Change" act=${() => show("change", disk.name)} />
        <${Act} destroys=${true} label=${`Delete ${disk.name}`} text="Delete" act=${() => remove(disk)} />
      </span>`,
    ])} />`;
}

export function Pool({ name }) {
  const [seen, setSeen] = useState(null);
  const [failed, setFailed] = useState(null);
  const [machine, setMachine] = useState([]);
  const [open, setOpen] = useOpen();
  const [past, setPast] = useState([]);
  const load = useLatest(() => askTagged("GET", pathOfPool(name)), seen => {
    setSeen(seen);
    setFailed(null);
  }, error => setFailed(error.message));
  useEffect(() => {
    load();
    ask("GET", "/v1/disks").then(setMachine, () => {});
    ask("GET", `${pathOf(name)}/history?range=30d`).then(past => setPast(past.points), () => {});
    const timer = setInterval(load, PERIOD_MS);
    return () => clearInterval(timer);
  }, [name]);
  const { start, shown } = useChange(load);
  // A change is made to the pool that was seen when it was asked for, and to no other.
  const change = what => start({ match: seen.tag, ...what });
  // A form is blank once it has done what it is for; what others do meanwhile leaves it as it is.
  const [done, setDone] = useState({ create: 0, add: 0 });
  const by = form => what => change({ ...what, then: () => (setDone({ ...done, [form]: done[form] + 1 }), load()) });
  if (!seen) return html`<h2 id="view-title" tabindex="-1">Pool ${name}</h2>${failed ? html`<${Message} bad=${true} text=${failed} />` : html`<p>Loading.</p>`}`;
  const pool = seen.json;
  const show = (what, disk) => setOpen({ what, disk });
  const remove = disk => change({ title: `Take out disk ${disk.path}`, action: "Empty and take out", row: disk.path, method: "DELETE", path: `${pathOfPool(name)}/disks/${disk.number}`, done: `${disk.path} is being emptied.` });
  const keep = disk => change({ title: `Keep disk ${disk.path}`, action: "Keep the disk", row: disk.path, method: "POST", path: `${pathOfPool(name)}/disks/${disk.number}/keep`, done: `${disk.path} stays.` });
  const giveUp = disk => change({ title: `Give up disk ${disk.path}`, action: "Give up the disk", what: "disk", name: disk.path, method: "POST", path: `${pathOfPool(name)}/disks/${disk.number}/give-up`, body: {}, sure: { body: { confirm: disk.path } }, done: `${disk.path} is given up.` });
  const end = () => change({ title: `Delete pool ${name}`, action: "Delete the pool", what: "pool", name, method: "DELETE", path: pathOfPool(name), sure: { query: `?confirm=${encodeURIComponent(name)}` }, done: `The pool ${name} is deleted.`, then: () => { location.hash = "#/disks"; } });
  const actions = disk => {
    if (disk.state === "leaving") return html`<${Act} label=${`Keep ${disk.path}`} text="Keep" act=${() => keep(disk)} />`;
    if (disk.state === "missing") return html`<${Act} destroys=${true} label=${`Give up ${disk.path}`} text="Give up" act=${() => giveUp(disk)} />`;
    return html`<${Act} destroys=${true} label=${`Take out ${disk.path}`} text="Take out" act=${() => remove(disk)} />`;
  };
  const disk = open && pool.logical_disks.find(disk => disk.name === open.disk);
  return html`<h2 id="view-title" tabindex="-1">Pool ${name} <${State} state=${pool.state} /></h2>
    ${failed && html`<${Message} bad=${true} text=${failed} />`}
    ${pool.warning && html`<p class="banner bad" role="alert"><${Icon} kind="bad" /> ${pool.warning}</p>`}
    <${Emptying} pool=${pool} />
    <${Figures} of=${[
      ["Size", numbers.bytes(pool.size_bytes), `on ${numbers.count(pool.disks.length)} disks`],
      ["Used", numbers.bytes(pool.used_bytes), html`<${Meter} label="Used share of the pool" share=${share(pool.used_bytes, pool.size_bytes)} text=${numbers.percent(share(pool.used_bytes, pool.size_bytes))} />`],
      ["Free", numbers.bytes(pool.free_bytes)],
      ["Full", ...forecast(past, pool.free_bytes)],
      ["Logical disks", numbers.bytes(pool.provisioned_bytes), `${numbers.count(pool.logical_disks.length)} in total`],
      ["Cache", html`<a href=${`#/volume/${encodeURIComponent(name)}`}>volume ${name}</a>`, "figures, settings, flush and detach"],
    ]} />
    ${shown}
    <${Logical} pool=${pool} change=${change} show=${show} />
    ${disk && open.what === "change" && html`<${Change} key=${disk.name} pool=${name} disk=${disk} change=${change} close=${() => setOpen(null)} />`}
    ${disk && open.what === "map" && html`<${Places} pool=${pool} disk=${disk.name} onClose=${() => setOpen(null)} />`}
    <${Table} caption="Disks of the pool" empty="There are no disks."
      head=${["disk", "number", "state", "size", "used", "actions"]} numbers=${[1, 3]}
      rows=${pool.disks.map(disk => [
        disk.path,
        disk.number,
        html`<${State} state=${disk.state} />${disk.failed && html` <span class="bad">${disk.failed}</span>`}`,
        numbers.bytes(disk.size_bytes),
        html`<${Meter} label=${`${disk.path}: share that is used`} share=${share(disk.used_bytes, disk.size_bytes)} text=${numbers.bytes(disk.used_bytes)} />`,
        actions(disk),
      ])} />
    ${pool.made && pool.logical_disks.length === 0 && html`<p class="buttons"><${Act} destroys=${true} text="Delete the pool" act=${end} /></p>`}
    <div class="wizards"><${Create} key=${`create ${done.create}`} pool=${name} change=${by("create")} />
    <${Add} key=${`add ${done.add}`} pool=${name} machine=${machine} change=${by("add")} /></div>`;
}
