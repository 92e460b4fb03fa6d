// Who is connected, and who may open what over iSCSI.
import { useEffect, useState } from "preact/hooks";
import { html, Act, Message, Table, useChange } from "./parts.mjs";
import { ask, askTagged } from "./server.mjs";

const NOBODY = { initiator: "", read_only: false };

/** Who an export is for, in words. */
function whom({ assigned }) {
  if (!assigned) return "all that may log in";
  return assigned.map(own => own.initiator + (own.read_only ? " (may only read)" : "")).join(", ") || "nobody";
}

/** Assigns an export: the initiators that may open it, and one more line than there are. */
function Assign({ access, known, change, asConfigured, close }) {
  const [rows, setRows] = useState([...(access.assigned ?? []), NOBODY]);
  const set = (at, row) => {
    const others = rows.with(at, { ...rows[at], ...row });
    setRows(others.at(-1).initiator ? [...others, NOBODY] : others);
  };
  const review = event => {
    event.preventDefault();
    change(rows.map(row => ({ ...row, initiator: row.initiator.trim() })).filter(row => row.initiator));
  };
  return html`<form class="wizard" onSubmit=${review} aria-labelledby="assign">
    <h3 id="assign" tabindex="-1">Assign ${access.name}</h3>
    <p>Over iSCSI, these alone may open ${access.name}; nobody where none is named. NBD clients open it as before.</p>
    <datalist id="initiators">${known.map(name => html`<option value=${name} />`)}</datalist>
    ${rows.map((row, at) => html`<div class="field" key=${at}><label for=${`initiator-${at}`}>Initiator ${at + 1}</label>
      <input id=${`initiator-${at}`} list="initiators" autocomplete="off" spellcheck=${false} maxlength="223" placeholder="iqn.1993-08.org.debian:01:abc" value=${row.initiator} onInput=${event => set(at, { initiator: event.target.value })} />
      <label><input type="checkbox" aria-label=${`Initiator ${at + 1} may only read`} checked=${row.read_only} onChange=${event => set(at, { read_only: event.target.checked })} /> may only read</label></div>`)}
    <p class="buttons"><button type="button" onClick=${close}>Cancel</button>
      ${access.changed && html`<${Act} text="As the configuration says" act=${asConfigured} />`}
      <${Act} submit=${true} text="Review the assignment" /></p>
  </form>`;
}

/** How initiators prove who they are. */
function proof({ chap_name: name, mutual_chap_name: mutual }) {
  if (!name) return "No initiator has to prove who it is: whoever can connect can say such a name. chap-name and chap-secret-file in the configuration change that.";
  return `Initiators prove who they are by CHAP, as ${name}${mutual ? `; the target proves itself as ${mutual}` : ""}.`;
}

function Iscsi({ known }) {
  const [seen, setSeen] = useState(null);
  const [failed, setFailed] = useState(null);
  const [open, setOpen] = useState(null);
  const load = () => askTagged("GET", "/v1/iscsi").then(seen => {
    setSeen(seen);
    setFailed(null);
  }, error => setFailed(error.message));
  useEffect(() => void load(), []);
  const { start, shown } = useChange(async () => {
    setOpen(null);
    await load();
  });
  if (!seen) return failed && html`<${Message} bad=${true} text=${failed} />`;
  const iscsi = seen.json;
  if (iscsi.listening.length === 0) return html`<h3>iSCSI</h3><p>iSCSI is not served.</p>`;
  const change = (name, assigned) => start({ title: "Assign", match: seen.tag, method: assigned ? "PUT" : "DELETE", path: `/v1/iscsi/exports/${encodeURIComponent(name)}`, body: assigned && { assigned }, done: `${name} is assigned.` });
  const access = iscsi.exports.find(access => access.name === open);
  const show = name => {
    setOpen(name);
    setTimeout(() => document.getElementById("assign")?.focus());
  };
  return html`<h3>iSCSI</h3>
    <p>At ${iscsi.listening.join(", ")}. ${iscsi.initiators ? `Only these may log in: ${iscsi.initiators.join(", ")}.` : "All initiators may log in."} ${proof(iscsi)}</p>
    ${shown}
    <${Table} caption="Who may open what over iSCSI" empty="There is nothing to open."
      head=${["export", "target", "for", "said by", "actions"]}
      rows=${iscsi.exports.map(access => [
        access.name,
        access.target,
        whom(access),
        access.changed ? "the API" : "the configuration",
        html`<${Act} label=${`Assign ${access.name}`} text="Assign" act=${() => show(access.name)} />`,
      ])} />
    ${access && html`<${Assign} key=${open} access=${access} known=${known} change=${assigned => change(open, assigned)} asConfigured=${() => change(open)} close=${() => setOpen(null)} />`}`;
}

export function Clients({ status }) {
  const clients = status.volumes.flatMap(volume => volume.clients.map(client => ({ volume: volume.name, ...client })));
  const { start, shown } = useChange(() => {});
  const name = client => client.initiator ?? client.program ?? client.address ?? "the client";
  const end = client => start({ title: "Disconnect", method: "DELETE", path: `/v1/clients/${client.number}`, done: `${name(client)} is disconnected from ${client.export}.` });
  const known = [...new Set(clients.map(client => client.initiator).filter(Boolean))];
  return html`<h2 id="view-title" tabindex="-1">Clients</h2>
    ${shown}
    <${Table} caption="Clients that have a volume or a logical disk open" empty="No client has a volume or a logical disk open."
      head=${["export", "protocol", "volume", "from", "initiator", "program", "user", "certificate", "cached", "actions"]}
      rows=${clients.map(client => [
        client.export,
        client.protocol === "iscsi" ? "iSCSI" : client.protocol.toUpperCase(),
        client.volume,
        client.address ?? "this machine",
        client.initiator ?? "none",
        client.program ? `${client.program} (${client.pid})` : "unknown",
        client.uid ?? "unknown",
        client.tls_names.join(", ") || "none",
        client.caching,
        client.number != null && html`<${Act} label=${`Disconnect ${name(client)} from ${client.export}`} text="Disconnect" act=${() => end(client)} />`,
      ])} />
    <${Iscsi} known=${known} />`;
}
