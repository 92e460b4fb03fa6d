// One volume: its figures, its settings, what can be done with it, and how it was over time.
import { useEffect, useState } from "preact/hooks";
import { html, Act, Confirm, Figures, Message, State } from "./parts.mjs";
import { Charts } from "./charts.mjs";
import { WhatIf } from "./what_if.mjs";
import { ask, askTagged, pathOf } from "./server.mjs";
import * as numbers from "./numbers.mjs";

function Setting({ setting, value, change }) {
  const id = `setting-${setting.name}`;
  const set = event => change(setting.name, event.target.value);
  const field = setting.choices.length
    ? html`<select id=${id} aria-describedby=${`${id}-meaning`} onChange=${set}>${setting.choices.map(choice => html`<option selected=${choice === value}>${choice}</option>`)}</select>`
    : html`<input id=${id} aria-describedby=${`${id}-meaning`} autocomplete="off" spellcheck=${false} value=${value} onInput=${set} />`;
  return html`<div class="setting">
    <label for=${id}>${setting.name}</label>${field}
    <p id=${`${id}-meaning`}>${setting.meaning}. The default is ${setting.default}.${setting.changed ? " Changed since the start." : ""}</p>
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
    setMessage({ text: "The settings are changed until the next start; to keep them, change the configuration too." });
  };
  return html`<section aria-labelledby="settings">
    <h3 id="settings">Settings</h3>
    <form onSubmit=${review}>
      <div class="settings">${settings.map(setting => html`<${Setting} key=${setting.name} setting=${setting} value=${changes[setting.name] ?? setting.value} change=${change} />`)}</div>
      ${message && html`<${Message} ...${message} />`}
      <p class="buttons"><${Act} submit=${true} text="Review changes" disabled=${Object.keys(changes).length === 0} /></p>
    </form>
    ${plan && html`<${Confirm} title="Change settings" plan=${plan} name=${volume} act=${act} close=${() => setPlan(null)} />`}
  </section>`;
}

function Detaching({ volume }) {
  const [progress, setProgress] = useState(null);
  useEffect(() => {
    const load = () => ask("GET", `${pathOf(volume.name)}/detach`).then(setProgress, error => setProgress({ failed: error.message }));
    load();
    const timer = setInterval(load, 1000);
    return () => clearInterval(timer);
  }, [volume.name]);
  if (!progress) return null;
  if (progress.failed) return html`<${Message} bad=${true} text=${`Detaching failed: ${progress.failed}`} />`;
  if (progress.state === "attached") return null;
  const { dirty_blocks: left, destaged_blocks: done, remaining_seconds: remaining } = progress;
  if (progress.state === "detached") return html`<${Message} text="Detached: the backend alone is whole." />`;
  return html`<p role="status"><label>Writing back, ${numbers.bytes(left * 4096)} left${remaining == null ? "" : `, about ${numbers.duration(remaining)}`} <progress max=${left + done} value=${done}></progress></label></p>`;
}

function Actions({ volume }) {
  const [plan, setPlan] = useState(null);
  const [message, setMessage] = useState(null);
  const flush = async () => {
    setMessage({ text: "Flushing." });
    try {
      await ask("POST", `${pathOf(volume.name)}/flush`);
      setMessage({ text: "What was written is durable." });
    } catch (error) {
      setMessage({ text: error.message, bad: true });
    }
  };
  const detach = async () => {
    setMessage(null);
    try {
      setPlan(await ask("POST", `${pathOf(volume.name)}/detach?dry-run=true`));
    } catch (error) {
      setMessage({ text: error.message, bad: true });
    }
  };
  const act = () => ask("POST", `${pathOf(volume.name)}/detach`);
  const gone = ["detaching", "detached"].includes(volume.state);
  return html`<section aria-labelledby="actions">
    <h3 id="actions">Actions</h3>
    <p class="buttons">
      <${Act} text="Flush" act=${flush} />
      ${volume.flash && html`<${Act} text="Detach the flash" act=${detach} disabled=${gone} />`}
    </p>
    ${message && html`<${Message} ...${message} />`}
    ${gone && html`<${Detaching} volume=${volume} />`}
    ${plan && html`<${Confirm} title="Detach" plan=${plan} name=${volume.name} act=${act} close=${() => setPlan(null)} />`}
  </section>`;
}

function dirtySince(seconds) {
  return seconds == null ? "only on flash or in RAM" : `the oldest for ${numbers.duration(seconds)}`;
}

function transferTime({ transfers, transfer_seconds: seconds }) {
  return transfers === 0 ? "under way" : `under way; each took ${numbers.micros(seconds * 1e6 / transfers)} on average`;
}

export function Volume({ volume }) {
  const shown = operation => [numbers.latency(volume, operation), "median, 99th percentile"];
  return html`<h2 id="view-title" tabindex="-1">Volume ${volume.name} <${State} state=${volume.state} /></h2>
    ${volume.state_reason && html`<${Message} bad=${true} text=${volume.state_reason} />`}
    <${Figures} of=${[
      ["Size", numbers.bytes(volume.size_bytes), volume.backend],
      ...(volume.flash ? [["Flash", numbers.bytes(volume.flash_bytes), volume.flash]] : [["Flash", "none", "the cache is in RAM alone"]]),
      ["Reads from RAM or flash", numbers.percent(volume.reads > 0 ? volume.read_hit_ratio : null), `of ${numbers.count(volume.reads)} blocks read`],
      ...(volume.flash ? [["Cached", numbers.bytes(volume.cached_blocks * 4096), `of at most ${numbers.bytes(volume.flash_room_blocks * 4096)}`]] : []),
      ["Dirty", numbers.bytes(volume.dirty_bytes), dirtySince(volume.oldest_dirty_seconds)],
      ["Backend transfers", numbers.count(volume.backend_load.under_way), transferTime(volume.backend_load)],
      ...(volume.flash ? [
        ["Written to flash", numbers.bytes(volume.flash_bytes_written), `${volume.drive_writes_per_day.toFixed(2)} drive writes a day`],
        ...(volume.write_budget ? [["Write budget", ...numbers.budget(volume.write_budget)]] : []),
        ["Flash lifetime", numbers.years(volume), "at the rate so far"],
      ] : []),
      ["Reads take", ...shown("read")],
      ["Writes take", ...shown("write")],
      ["Failed requests", numbers.count(volume.faults.failed_requests)],
    ]} />
    <${Charts} volume=${volume.name} />
    <${WhatIf} volume=${volume.name} />
    <${Actions} volume=${volume} />
    <${Settings} volume=${volume.name} />`;
}
