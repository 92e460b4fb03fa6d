// One volume: its figures, its settings, what can be done with it, and how it was over time.
import { useEffect, useState } from "preact/hooks";
import { html, Act, Confirm, Figures, focusRow, Icon, kindOf, Message, State, useChange } from "./parts.mjs";
import { Charts } from "./charts.mjs";
import { linkToConnect } from "./connect.mjs";
import { healthOf, isWorn } from "./disks.mjs";
import { Detaching, findingsOf, isFlashless } from "./health.mjs";
import { backendState, dirtyAge, lifetime } from "./overview.mjs";
import { linkToPool } from "./pool.mjs";
import { WhatIf } from "./what_if.mjs";
import { ask, askTagged, pathOf } from "./server.mjs";
import * as numbers from "./numbers.mjs";

/** A reference to a command, which the page replaces by a list. */
const SEE_COMMAND = /: see `[^`]*`/;

/** A key as words, such as "Dirty age". */
const inWords = key => key[0].toUpperCase() + key.slice(1).replaceAll("-", " ");

function Setting({ setting, value, change }) {
  const isDefault = setting.value === setting.default;
  const id = `setting-${setting.name}`;
  const set = event => change(setting.name, event.target.value);
  const names = setting.names ?? [];
  const choices = names.length > 0 ? names : setting.choices;
  // What has options, such as probability:p=0.3, is a name from the list and a text.
  const [, name, options] = names.length > 0 ? value.match(/^([^:]*):?(.*)$/s) : [null, value, ""];
  const put = (name, options) => change(setting.name, options.trim() ? `${name}:${options.trim()}` : name);
  const all = choices.includes(name) ? choices : [name, ...choices];
  const field = choices.length
    ? html`<span class="pair"><select id=${id} aria-describedby=${`${id}-meaning`} onChange=${event => put(event.target.value, "")}>${all.map(choice => html`<option selected=${choice === name}>${choice}</option>`)}</select>
      ${names.length > 0 && html`<input aria-label=${`Options of ${inWords(setting.name).toLowerCase()}`} placeholder="options" autocomplete="off" spellcheck=${false} value=${options} onInput=${event => put(name, event.target.value)} />`}</span>`
    : html`<input id=${id} aria-describedby=${`${id}-meaning`} autocomplete="off" spellcheck=${false} value=${value} onInput=${set} />`;
  return html`<div class=${isDefault ? "setting" : "setting differs"}>
    <label for=${id}>${inWords(setting.name)}</label>${field}
    ${(!isDefault || setting.changed) && html`<p class="marks">${!isDefault && html`<span class="state planned">default: ${setting.default}</span>`}${setting.changed && html`<span class="state warning">until the next start</span>`}</p>`}
    <p id=${`${id}-meaning`}>${setting.meaning.replace(SEE_COMMAND, "")}. ${isDefault ? "This is the default." : ""} <code>${setting.name}</code></p>
  </div>`;
}

function Settings({ volume }) {
  const [settings, setSettings] = useState([]);
  const [changes, setChanges] = useState({});
  const [plan, setPlan] = useState(null);
  const [message, setMessage] = useState(null);
  // A change is made to the settings that were seen, and to no others.
  const [tag, setTag] = useState(null);
  const load = () => askTagged("GET", `${pathOf(volume)}/settings`).then(({ json, tag }) => {
    setSettings(json);
    setTag(tag);
  }, error => setMessage({ text: error.message, bad: true }));
  useEffect(() => {
    setChanges({});
    setMessage(null);
    load();
  }, [volume]);
  const change = (name, value) => {
    const kept = settings.find(setting => setting.name === name).value;
    const { [name]: _, ...others } = changes;
    setChanges(value === kept ? others : { ...others, [name]: value });
  };
  const review = async event => {
    event.preventDefault();
    setMessage(null);
    try {
      setPlan(await ask("PATCH", `${pathOf(volume)}?dry-run=true`, changes, tag));
    } catch (error) {
      if (error.status === 412) await load();
      setMessage({ text: error.message, bad: true });
    }
  };
  const act = async () => {
    try {
      await ask("PATCH", pathOf(volume), changes, tag);
    } finally {
      await load();
    }
    setChanges({});
    setMessage({ text: "The settings are changed until the next start. To keep them, change the configuration too." });
  };
  return html`<section aria-labelledby="settings">
    <h3 id="settings">Settings</h3>
    <form onSubmit=${review}>
      <div class="settings">${settings.map(setting => html`<${Setting} key=${setting.name} setting=${setting} value=${changes[setting.name] ?? setting.value} change=${change} />`)}</div>
      ${message && html`<${Message} ...${message} />`}
      <p class="buttons"><${Act} submit=${true} text="Review changes" disabled=${Object.keys(changes).length === 0} /></p>
    </form>
    ${plan && html`<${Confirm} title=${`Change settings of ${volume}`} action="Change settings" plan=${plan} name=${volume} act=${act} close=${() => setPlan(null)} />`}
  </section>`;
}

function Actions({ volume, isOfPool }) {
  const { name, state, attaches_at_start: attaches } = volume;
  const { start, shown, setMessage } = useChange(() => {});
  const remove = () => start({ title: `Remove volume ${name}`, action: "Remove the volume", name, method: "DELETE", path: pathOf(name), sure: { query: `?confirm=${encodeURIComponent(name)}` }, done: "", then: () => { location.hash = "#/volumes"; } });
  const detach = () => start({ title: `Detach the flash of ${name}`, action: "Detach the flash", name, method: "POST", path: `${pathOf(name)}/detach`, done: "" });
  const attach = () => start({ title: `Attach the flash of ${name}`, action: "Attach the flash", name, method: "POST", path: `${pathOf(name)}/attach`, done: "The next start of the server uses the flash again." });
  const flush = async () => {
    setMessage({ text: "Flushing." });
    try {
      await ask("POST", `${pathOf(name)}/flush`);
      setMessage({ text: "All written data is durable." });
    } catch (error) {
      setMessage({ text: error.message, bad: true });
    }
  };
  // A button that was pressed goes with its state.
  const shape = `${state} ${attaches}`;
  useEffect(() => {
    if (document.activeElement === document.body) focusRow(name);
  }, [shape]);
  const canDetach = state !== "detached" || attaches;
  return html`<section aria-labelledby="actions">
    <h3 id="actions">Actions</h3>
    <p class="buttons">
      <${Act} text="Flush" act=${flush} />
      ${volume.flash && canDetach && html`<${Act} text="Detach the flash" destroys=${true} act=${detach} disabled=${state === "detaching"} />`}
      ${volume.flash && !canDetach && html`<${Act} text="Attach the flash" act=${attach} />`}
      ${volume.made && !isOfPool && html`<${Act} text="Remove the volume" destroys=${true} act=${remove} />`}
    </p>
    ${shown}
  </section>`;
}

function transferTime({ transfers, transfer_seconds: seconds }) {
  return transfers === 0 ? "" : `, ${numbers.micros((seconds * 1e6) / transfers)} on average`;
}

/** The disk that is a flash, or that has it as a part. */
const diskOf = (disks, path) => disks.find(disk => disk.path === path || disk.partitions.some(part => part.path === path));

/** Figures that are asked for less often. */
function Facts({ volume }) {
  const flash = !isFlashless(volume);
  const [drive, setDrive] = useState(null);
  useEffect(() => {
    if (flash) ask("GET", "/v1/disks").then(disks => setDrive(diskOf(disks, volume.flash)), () => {});
  }, [flash, volume.flash]);
  const health = drive ? healthOf(drive) : [];
  const facts = [
    ["Size", numbers.bytes(volume.size_bytes)],
    ["Backend", volume.backend],
    ["Flash", !volume.flash ? "none, the cache is in RAM" : `${volume.flash}, ${numbers.bytes(volume.flash_bytes)}${flash ? "" : ", not in use"}`],
    ...(flash ? [
      ["Policy", `${volume.policy}, ${volume.write_mode}`],
      ["Cached", `${numbers.bytes(volume.cached_blocks * 4096)} of ${numbers.bytes(volume.flash_room_blocks * 4096)}`],
      ["Written to flash", `${numbers.bytes(volume.flash_bytes_written)}, ${numbers.number(volume.drive_writes_per_day)} drive writes a day`],
      ...(volume.backend_state ? [["Backend state", backendState(volume.backend_state)]] : []),
      ...(volume.write_budget ? [["Write budget", numbers.budget(volume.write_budget)]] : []),
      ...(health.length > 0 ? [["Flash drive", html`<span class=${isWorn(drive) ? "bad" : ""}>${health.join(", ")}</span>`]] : []),
    ] : []),
    ["Writes", `p99 ${latencyOf(volume, "write", "p99_us")}, median ${latencyOf(volume, "write", "p50_us")}`],
    ["Backend transfers", `${numbers.count(volume.backend_load.under_way)} now${transferTime(volume.backend_load)}`],
    ["Clients", `${numbers.count(volume.clients.length)}, ${numbers.count(volume.faults.failed_requests)} failed requests`],
  ];
  return html`<dl class="facts">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

function latencyOf(volume, operation, percentile) {
  const found = volume.latencies.find(latency => latency.operation === operation && latency.count > 0);
  return numbers.micros(found?.[percentile]);
}

export function Volume({ volume, pool, part }) {
  const kind = kindOf(volume.state);
  return html`${pool && html`<p class="path"><a href=${linkToPool(pool.name)}>Pool ${pool.name}</a></p>`}
    <div class="heading"><h2 id="view-title" tabindex="-1">${pool ? "Cache of pool" : "Volume"} ${volume.name} <${State} state=${volume.state} /></h2>
      ${!pool && html`<a class="button" href=${linkToConnect(volume.name)}>Connect</a>`}</div>
    ${kind === "planned" && html`<${Detaching} volume=${volume} />`}
    ${kind !== "planned" && findingsOf(volume).map(finding => html`<p class=${`banner ${finding.kind}`} role="alert"><${Icon} kind=${finding.kind} /> ${finding.text}</p>`)}
    <${Figures} of=${[
      ["Hit ratio", numbers.percent(volume.reads > 0 ? volume.read_hit_ratio : null), `of ${numbers.count(volume.reads)} blocks read since start`],
      ["p99 of reads", latencyOf(volume, "read", "p99_us"), `median ${latencyOf(volume, "read", "p50_us")}`],
      ["Dirty", numbers.bytes(volume.dirty_bytes), dirtyAge(volume)],
      ["Flash lifetime", ...lifetime(volume)],
    ]} />
    <${Facts} volume=${volume} />
    <${WhatIf} volume=${volume.name} open=${part === "what-if"} />
    <${Charts} volume=${volume} />
    <${Actions} volume=${volume} isOfPool=${pool != null} />
    <${Settings} volume=${volume.name} />`;
}
