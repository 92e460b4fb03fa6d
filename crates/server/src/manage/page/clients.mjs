// Who is connected, and who may open what.
import { useEffect, useState } from "preact/hooks";
import { html, Act, Message, Table, useChange } from "./parts.mjs";
import { ask, askTagged } from "./server.mjs";

const NOBODY = { initiator: "", read_only: false };

/** Whether it is a client of NBD, by its certificate. */
const isOfNbd = own => own.initiator.startsWith("tls:");

/** Those of an export's clients, in words. */
const named = clients => clients.map(own => own.initiator + (own.read_only ? " (may only read)" : "")).join(", ");

/** Who an export is for over iSCSI, in words. */
function overIscsi({ assigned }) {
  return assigned ? named(assigned.filter(own => !isOfNbd(own))) || "nobody" : "all that may log in";
}

/** Who an export is for over NBD, in words. */
const overNbd = ({ assigned }) => named((assigned ?? []).filter(isOfNbd)) || "all";

/** What can be assigned to, by an example of each. */
function examples({ listening, nbd_certificates: certificates }) {
  const both = [listening.length > 0 && "iqn.1993-08.org.debian:01:abc", certificates && "tls:db.example.com"];
  return both.filter(Boolean).join(" or ");
}

/** Assigns an export: the clients that may open it, and one more line than there are. */
function Assign({ access, iscsi, known, change, asConfigured, close }) {
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
    <p>Over iSCSI, these initiators alone may open ${access.name}; nobody where none is named. Over NBD, all may, unless certificates are named: then those clients alone whose certificate has the name behind <code>tls:</code>.</p>
    ${!iscsi.nbd_certificates && html`<p>No client of NBD can show a certificate: that needs client-authorities of [tls] in the configuration.</p>`}
    <datalist id="clients">${known.map(name => html`<option value=${name} />`)}</datalist>
    ${rows.map((row, at) => html`<div class="field" key=${at}><label for=${`client-${at}`}>Client ${at + 1}</label>
      <input id=${`client-${at}`} list="clients" autocomplete="off" spellcheck=${false} maxlength="1028" placeholder=${examples(iscsi)} value=${row.initiator} onInput=${event => set(at, { initiator: event.target.value })} />
      <label><input type="checkbox" aria-label=${`Client ${at + 1} may only read`} checked=${row.read_only} onChange=${event => set(at, { read_only: event.target.checked })} /> may only read</label></div>`)}
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

/** Who may come over each protocol. */
function admitted({ listening, initiators, nbd_certificates: certificates, ...chap }) {
  const over = certificates ? "Clients of NBD show certificates where they come over TLS." : "Clients of NBD show no certificates.";
  if (listening.length === 0) return `iSCSI is not served. ${over}`;
  return `iSCSI is served at ${listening.join(", ")}. ${initiators ? `Only these may log in: ${initiators.join(", ")}.` : "All initiators may log in."} ${proof(chap)} ${over}`;
}

function Access({ known }) {
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
  const isFixed = iscsi.listening.length === 0 && !iscsi.nbd_certificates && !iscsi.exports.some(access => access.changed);
  if (isFixed) return html`<h3>Who may open what</h3><p>iSCSI is not served, and clients of NBD show no certificates: all may open all.</p>`;
  const change = (name, assigned) => start({ title: "Assign", match: seen.tag, method: assigned ? "PUT" : "DELETE", path: `/v1/iscsi/exports/${encodeURIComponent(name)}`, body: assigned && { assigned }, done: `${name} is assigned.` });
  const access = iscsi.exports.find(access => access.name === open);
  const show = name => {
    setOpen(name);
    setTimeout(() => document.getElementById("assign")?.focus());
  };
  return html`<h3>Who may open what</h3>
    <p>${admitted(iscsi)}</p>
    ${shown}
    <${Table} caption="Who may open what" empty="There is nothing to open."
      head=${["export", "target", "over iSCSI", "over NBD", "said by", "actions"]}
      rows=${iscsi.exports.map(access => [
        access.name,
        access.target,
        overIscsi(access),
        overNbd(access),
        access.changed ? "the API" : "the configuration",
        html`<${Act} label=${`Assign ${access.name}`} text="Assign" act=${() => show(access.name)} />`,
      ])} />
    ${access && html`<${Assign} key=${open} access=${access} iscsi=${iscsi} known=${known} change=${assigned => change(open, assigned)} asConfigured=${() => change(open)} close=${() => setOpen(null)} />`}`;
}

export function Clients({ status }) {
  const clients = status.volumes.flatMap(volume => volume.clients.map(client => ({ volume: volume.name, ...client })));
  const { start, shown } = useChange(() => {});
  const name = client => client.initiator ?? client.program ?? client.address ?? "the client";
  const end = client => start({ title: "Disconnect", method: "DELETE", path: `/v1/clients/${client.number}`, done: `${name(client)} is disconnected from ${client.export}.` });
  const known = [...new Set(clients.flatMap(client => client.initiator ?? client.tls_names.map(name => `tls:${name}`)))];
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
    <${Access} known=${known} />`;
}
