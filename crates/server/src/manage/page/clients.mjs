// Who is connected, and who can open which export.
import { useEffect, useState } from "preact/hooks";
import { html, Act, Message, Table, useChange, useFilter, useOpen } from "./parts.mjs";
import { linkToConnect } from "./connect.mjs";
import { ask, askTagged } from "./server.mjs";
import * as numbers from "./numbers.mjs";

const NOBODY = { initiator: "", read_only: false };

/** True for a client of NBD, which is known by its certificate. */
const isOfNbd = own => own.initiator.startsWith("tls:");

/** The clients of an export, in words. */
const named = clients => clients.map(own => own.initiator + (own.read_only ? " (read-only)" : "")).join(", ");

/** Who an export is for over iSCSI, in words. */
function overIscsi({ assigned }) {
  return assigned ? named(assigned.filter(own => !isOfNbd(own))) || "no initiator" : "all initiators";
}

/** Who an export is for over NBD, in words. */
const overNbd = ({ assigned }) => named((assigned ?? []).filter(isOfNbd)) || "all clients";

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
    <p>Over iSCSI, only these initiators can open ${access.name}. Over NBD, all clients can, unless you name certificates with <code>tls:</code>.</p>
    ${!iscsi.nbd_certificates && html`<p>NBD clients cannot show certificates: set client-authorities in [tls] of the configuration.</p>`}
    <datalist id="clients">${known.map(name => html`<option value=${name} />`)}</datalist>
    ${rows.map((row, at) => html`<div class="field" key=${at}><label for=${`client-${at}`}>Client ${at + 1}</label>
      <input id=${`client-${at}`} list="clients" autocomplete="off" spellcheck=${false} maxlength="1028" placeholder=${examples(iscsi)} value=${row.initiator} onInput=${event => set(at, { initiator: event.target.value })} />
      <label><input type="checkbox" aria-label=${`Client ${at + 1} is read-only`} checked=${row.read_only} onChange=${event => set(at, { read_only: event.target.checked })} /> read-only</label></div>`)}
    <p class="buttons"><button type="button" onClick=${close}>Cancel</button>
      ${access.changed && html`<${Act} text="Use the configuration" act=${asConfigured} />`}
      <${Act} submit=${true} text="Review the assignment" /></p>
  </form>`;
}

/** How initiators authenticate. */
function proof({ chap_name: name, mutual_chap_name: mutual }) {
  if (!name) return "Initiators do not prove their names. To require CHAP, set chap-name and chap-secret-file in the configuration.";
  return `Initiators log in with CHAP, as ${name}${mutual ? `; the target answers as ${mutual}` : ""}.`;
}

/** Who may come over each protocol. */
function admitted({ listening, initiators, nbd_certificates: certificates, ...chap }) {
  const over = certificates ? "NBD clients show certificates over TLS." : "NBD clients show no certificates.";
  if (listening.length === 0) return `iSCSI is not served. ${over}`;
  return `iSCSI is served at ${listening.join(", ")}. ${initiators ? `Only these can log in: ${initiators.join(", ")}.` : "All initiators can log in."} ${proof(chap)} ${over}`;
}

function Access({ known }) {
  const [seen, setSeen] = useState(null);
  const [failed, setFailed] = useState(null);
  const [open, setOpen] = useOpen();
  const load = () => askTagged("GET", "/v1/iscsi").then(seen => {
    setSeen(seen);
    setFailed(null);
  }, error => setFailed(error.message));
  useEffect(() => void load(), []);
  const { start, shown } = useChange(async () => {
    setOpen(null);
    await load();
  });
  const { kept, field } = useFilter(seen?.json.exports ?? [], "Find exports", "name or client", access => `${access.name} ${overIscsi(access)} ${overNbd(access)}`);
  if (!seen) return failed && html`<${Message} bad=${true} text=${failed} />`;
  const iscsi = seen.json;
  // Without iSCSI and certificates, all clients can open all exports: there is nothing to assign.
  const isFixed = iscsi.listening.length === 0 && !iscsi.nbd_certificates && !iscsi.exports.some(access => access.changed);
  const change = (name, assigned) => start({ title: `Assign ${name}`, action: "Assign", row: name, match: seen.tag, method: assigned ? "PUT" : "DELETE", path: `/v1/iscsi/exports/${encodeURIComponent(name)}`, body: assigned && { assigned }, done: `${name} is assigned.` });
  const access = iscsi.exports.find(access => access.name === open?.name);
  return html`<h3>Exports</h3>
    <p>${admitted(iscsi)}${isFixed && " All clients can open all exports."}</p>
    ${shown}
    ${field}
    <${Table} caption="Exports and who can open them" empty=${iscsi.exports.length > 0 ? "No export is like that." : "There are no exports."}
      head=${["export", "target", "over iSCSI", "over NBD", "set by", "actions"]}
      rows=${kept.map(access => [
        access.name,
        access.target,
        overIscsi(access),
        overNbd(access),
        access.changed ? "the API" : "the configuration",
        html`<span class="buttons"><a class="button" href=${linkToConnect(access.name)} aria-label=${`Connect to ${access.name}`}>Connect</a>
          ${!isFixed && html`<${Act} label=${`Assign ${access.name}`} text="Assign" act=${() => setOpen({ what: "assign", name: access.name })} />`}</span>`,
      ])} />
    ${access && html`<${Assign} key=${open.name} access=${access} iscsi=${iscsi} known=${known} change=${assigned => change(open.name, assigned)} asConfigured=${() => change(open.name)} close=${() => setOpen(null)} />`}`;
}

/** Which requests of a client are cached, in words. */
const CACHING = { usual: "yes", always: "always", never: "no", through: "write-through" };

/** A client in words, besides its name. */
function detailsOf(client) {
  const known = (value, text) => (value == null ? [] : [text]);
  return [
    client.address == null ? "on this machine" : `from ${client.address}`,
    ...known(client.pid, `process ${client.pid}`),
    ...known(client.uid, `user ${client.uid}`),
    ...client.tls_names.map(name => `certificate of ${name}`),
  ].join(", ");
}

/** Requests and bytes per second of a client over the recent statuses: none before two have come. */
function ratesOf(recent, number) {
  const find = ({ status }) => status.volumes.flatMap(volume => volume.clients).find(client => client.number === number);
  const [first, last] = [recent[0], recent[recent.length - 1]];
  const [then, now] = recent.length < 2 ? [] : [find(first), find(last)];
  if (number == null || !then || !now) return null;
  const per = key => Math.max(0, now[key] - then[key]) / ((last.at - first.at) / 1000);
  return { requests: per("requests"), read: per("read_bytes"), written: per("written_bytes") };
}

export function Clients({ status, recent }) {
  const clients = status.volumes.flatMap(volume => volume.clients.map(client => ({ volume: volume.name, ...client })));
  const { start, shown } = useChange(() => {});
  const name = client => client.initiator ?? client.program ?? client.tls_names[0] ?? client.address ?? "the client";
  const end = client => start({ title: `Disconnect ${name(client)} from ${client.export}`, action: "Disconnect", method: "DELETE", path: `/v1/clients/${client.number}`, done: `${name(client)} is disconnected from ${client.export}.` });
  const known = [...new Set(clients.flatMap(client => client.initiator ?? client.tls_names.map(name => `tls:${name}`)))];
  const { kept, field } = useFilter(clients, "Find clients", "export or client", client => `${client.export} ${client.volume} ${name(client)} ${detailsOf(client)}`);
  return html`<h2 id="view-title" tabindex="-1">Clients</h2>
    ${shown}
    ${field}
    <${Table} caption="Clients that have a volume or a logical disk open" empty=${clients.length > 0 ? "No client is like that." : "No client has a volume or a logical disk open."}
      head=${["export", "protocol", "volume", "client", "cached", "requests", "read", "written", "actions"]} numbers=${[5, 6, 7]}
      rows=${kept.map(client => ({ client, rates: ratesOf(recent, client.number) })).map(({ client, rates }) => [
        client.export,
        client.protocol === "iscsi" ? "iSCSI" : client.protocol.toUpperCase(),
        client.volume,
        html`${name(client)} <small>${detailsOf(client)}</small>`,
        CACHING[client.caching] ?? client.caching,
        rates ? `${numbers.number(rates.requests)}/s` : "none",
        html`${rates ? `${numbers.bytes(rates.read)}/s` : "none"}<small> ${numbers.bytes(client.read_bytes)}</small>`,
        html`${rates ? `${numbers.bytes(rates.written)}/s` : "none"}<small> ${numbers.bytes(client.written_bytes)}</small>`,
        client.number != null && html`<${Act} label=${`Disconnect ${name(client)} from ${client.export}`} text="Disconnect" act=${() => end(client)} />`,
      ])} />
    <${Access} known=${known} />`;
}
