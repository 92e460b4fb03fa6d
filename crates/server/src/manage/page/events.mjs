// What happened, what of it needs attention, and where alerts go.
import { useEffect, useRef, useState } from "preact/hooks";
import { html, Act, Icon, Message, Table } from "./parts.mjs";
import { ask } from "./server.mjs";
import * as numbers from "./numbers.mjs";

const SEVERITIES = ["info", "warning", "fault"];
/** Alerts that the bell lists. */
const BELL_MAX = 20;
const READ = "flashwise-alerts-read";

const ICONS = { info: "good", warning: "warning", fault: "bad" };

const about = event => event.volume ?? "server";
const isAlert = event => (event.severity ?? "info") !== "info";

function Severity({ severity = "info" }) {
  const kind = ICONS[severity];
  if (severity === "info") return severity;
  return html`<span class=${`state ${kind}`}><${Icon} kind=${kind} />${severity}</span>`;
}

/** The number of the last alert that was read in this browser. */
function read() {
  try {
    return Number(localStorage.getItem(READ) ?? 0);
  } catch {
    return 0;
  }
}

/** The alerts in the head of the page: how many are new, and the last ones. */
export function Bell({ events }) {
  const [open, setOpen] = useState(false);
  const [seen, setSeen] = useState(read);
  const button = useRef(null);
  const last = events.at(-1)?.number ?? 0;
  const alerts = events.filter(isAlert);
  // Smaller numbers are of another history.
  const fresh = alerts.filter(event => event.number > (seen > last ? 0 : seen));
  const markRead = () => {
    setSeen(last);
    try {
      localStorage.setItem(READ, String(last));
    } catch {
      // They are new again in the next tab.
    }
  };
  const toggle = () => {
    if (open) markRead();
    setOpen(!open);
  };
  const close = () => {
    markRead();
    setOpen(false);
  };
  const onKeyDown = event => {
    if (event.key !== "Escape" || !open) return;
    close();
    button.current.focus();
  };
  return html`<div class="bell" onKeyDown=${onKeyDown}>
    <button ref=${button} type="button" aria-expanded=${open ? "true" : "false"} aria-controls="alerts" aria-label=${fresh.length > 0 ? `Alerts, ${fresh.length} new` : "Alerts"} onClick=${toggle}>
      <${Icon} kind="bell" />${fresh.length > 0 && html`<span class="fresh" aria-hidden="true">${fresh.length > 99 ? "99+" : fresh.length}</span>`}
    </button>
    <div id="alerts" class="alerts" role="region" aria-label="Alerts" hidden=${!open}>
      ${open && (alerts.length === 0 ? html`<p>No alerts.</p>` : html`<ul>${alerts.slice(-BELL_MAX).toReversed().map(event => html`<li key=${event.number} class=${fresh.includes(event) ? "new" : ""}>
        <span class=${ICONS[event.severity]}><${Icon} kind=${ICONS[event.severity]} /><span class="hidden">${event.severity}: </span></span>
        <span><strong>${about(event)}</strong> ${event.text} <small>${numbers.time(event.time_seconds)}</small></span></li>`)}</ul>`)}
      ${open && html`<p><a href="#/events" onClick=${close}>All events, and where alerts go</a></p>`}
    </div>
  </div>`;
}

/** How the last message to a receiver went, in words. */
function sent({ to, time_seconds: time, error }) {
  if (time == null) return `${to}, nothing sent since the start`;
  return error ? html`${to}, <span class="bad">failed at ${numbers.time(time)}: ${error}</span>` : `${to}, last sent at ${numbers.time(time)}`;
}

function Alerts() {
  const [status, setStatus] = useState(null);
  const [message, setMessage] = useState(null);
  const failed = error => setMessage({ text: error.message, bad: true });
  useEffect(() => void ask("GET", "/v1/alerts").then(setStatus, failed), []);
  const test = async () => {
    setMessage({ text: "Sending a test." });
    try {
      const status = await ask("POST", "/v1/alerts/test");
      const wrong = [status.webhook, status.mail].flatMap(to => (to?.error ? [`${to.to}: ${to.error}`] : []));
      setStatus(status);
      setMessage(wrong.length > 0 ? { text: `The test failed. ${wrong.join("; ")}`, bad: true } : { text: "The test was sent." });
    } catch (error) {
      failed(error);
    }
  };
  if (!status) return message && html`<${Message} ...${message} />`;
  const { webhook, mail, detach_seconds_max: detach, miss_p99_us_max: misses } = status;
  const goesNowhere = !webhook && !mail;
  return html`<section aria-labelledby="where-alerts-go">
    <h3 id="where-alerts-go">Where alerts go</h3>
    ${goesNowhere && html`<p>Warnings and faults are on this page only. To send them, set <code>webhook</code> or <code>mail</code> in the table <code>[alerts]</code> of the configuration.</p>`}
    ${!goesNowhere && html`<dl class="facts">${[["Webhook", webhook], ["Mail", mail]].map(([name, to]) => html`<div><dt>${name}</dt><dd>${to ? sent(to) : "none"}</dd></div>`)}</dl>`}
    <p class="note">Faults, warnings, a used-up budget of flash writes and a detach of more than ${numbers.duration(detach)} raise alerts.${misses == null ? "" : ` So does a p99 of reads that miss of more than ${numbers.micros(misses)}.`}</p>
    ${message && html`<${Message} ...${message} />`}
    ${!goesNowhere && html`<p class="buttons"><${Act} text="Send a test" act=${test} /></p>`}
  </section>`;
}

export function Events({ events }) {
  const [least, setLeast] = useState("info");
  const [text, setText] = useState("");
  const words = event => `${about(event)} ${event.text} ${event.by ?? ""}`.toLowerCase();
  const kept = events.filter(event => SEVERITIES.indexOf(event.severity ?? "info") >= SEVERITIES.indexOf(least) && words(event).includes(text.trim().toLowerCase()));
  const exported = format => `/v1/events/export?format=${format}&severity=${least}`;
  return html`<h2 id="view-title" tabindex="-1">Events</h2>
    <p class="filter"><label>Severity <select value=${least} onChange=${event => setLeast(event.target.value)}><option value="info">all</option><option value="warning">warnings and faults</option><option value="fault">faults</option></select></label>
      <label>Find events <input type="search" autocomplete="off" spellcheck=${false} placeholder="volume, text or user" value=${text} onInput=${event => setText(event.target.value)} /></label>
      <small role="status">${numbers.count(kept.length)} of ${numbers.count(events.length)}</small>
      <span>Export as <a href=${exported("csv")} download>CSV</a> or <a href=${exported("json")} download>JSON</a></span></p>
    <div class="events"><${Table} caption="Events, newest first" empty=${events.length > 0 ? "No event is like that." : "Nothing has happened yet."}
      head=${["time", "severity", "volume or pool", "what", "who"]}
      rows=${kept.toReversed().map(event => [numbers.time(event.time_seconds), html`<${Severity} severity=${event.severity} />`, about(event), event.text, event.by ?? ""])} /></div>
    <${Alerts} />`;
}
