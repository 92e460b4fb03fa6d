// How clients open an export: lines to copy.
import { useEffect, useState } from "preact/hooks";
import { html, Icon, Message } from "./parts.mjs";
import { ask } from "./server.mjs";

const NBD_PORT = "10809";
const ISCSI_PORT = "3260";
const ANY = ["0.0.0.0", "[::]"];

export const linkToConnect = name => `#/connect/${encodeURIComponent(name)}`;

/** The parts of an address that the server listens at: protocol, socket or host and port. */
function parsed(uri) {
  const [scheme, rest] = uri.split(/:\/\/(.*)/);
  const socket = rest.match(/[?&]socket=([^&]*)/)?.[1];
  if (socket) return { protocol: "nbd", tls: scheme.startsWith("nbds"), socket: decodeURIComponent(socket) };
  const [, host, port] = rest.match(/^(\[[^\]]*\]|[^:/]*)(?::(\d+))?/);
  return { protocol: scheme.startsWith("iscsi") ? "iscsi" : "nbd", tls: scheme.startsWith("nbds"), host: ANY.includes(host) || host === "" ? location.hostname : host, port: port ?? (scheme.startsWith("iscsi") ? ISCSI_PORT : NBD_PORT) };
}

/** A word of a shell. */
const word = text => (/^[\w./:@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** A value of an attribute in XML. */
const attribute = text => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll("'", "&apos;");

const disk = source => `<disk type='network' device='disk'>
  <driver name='qemu' type='raw' cache='none' discard='unmap'/>
  ${source}
  <target dev='vdb' bus='virtio'/>
</disk>`;

/** What opens an export at an address: for each client, its name and its lines. */
export function recipes(name, target, { protocol, tls, socket, host, port }) {
  const bare = host?.replace(/[[\]]/g, "");
  if (protocol === "iscsi") {
    const portal = `${host}:${port}`;
    return [
      ["Linux, with iscsiadm", `sudo iscsiadm -m discovery -t sendtargets -p ${word(portal)}\nsudo iscsiadm -m node -T ${word(target)} -p ${word(portal)} --login`],
      ["QEMU", `-drive file=${word(`iscsi:${"//"}${portal}/${target}/0`)},format=raw,if=virtio,cache=none`],
      ["libvirt", disk(`<source protocol='iscsi' name='${attribute(`${target}/0`)}'>\n    <host name='${attribute(bare)}' port='${port}'/>\n  </source>`)],
    ];
  }
  const scheme = tls ? "nbds" : "nbd";
  const nbd = socket ? `-unix ${word(socket)}` : `${word(bare)} ${port}`;
  const uri = socket ? `nbd+unix:${"///"}${name}?socket=${socket}` : `${scheme}:${"//"}${host}:${port}/${name}`;
  const place = socket ? `<host transport='unix' socket='${attribute(socket)}'/>` : `<host name='${attribute(bare)}' port='${port}'/>`;
  return [
    ["Linux, with nbd-client", `sudo modprobe nbd\nsudo nbd-client -b 4096 -N ${word(name)} ${nbd}${tls ? " -x" : ""} /dev/nbd0`],
    ["QEMU", `-drive file=${word(uri)},format=raw,if=virtio,cache=none`],
    ["libvirt", disk(`<source protocol='nbd' name='${attribute(name)}'${tls ? " tls='yes'" : ""}>\n    ${place}\n  </source>`)],
  ];
}

function Copy({ label, text }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // The clipboard needs HTTPS or this machine; a selection can be copied anywhere.
      const field = document.createElement("textarea");
      field.value = text;
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
    setDone(true);
    setTimeout(() => setDone(false), 2000);
  };
  return html`<button type="button" class="copy" aria-label=${`Copy the lines for ${label}`} onClick=${copy}>${done ? "Copied" : "Copy"}</button>`;
}

function Address({ name, target, uri }) {
  const place = parsed(uri);
  const over = place.protocol === "iscsi" ? "iSCSI" : "NBD";
  const isLocal = place.socket || /^(127\.|localhost$|\[::1\]$)/.test(place.host);
  const at = `at ${place.socket ?? `${place.host}:${place.port}`}${place.tls ? ", with TLS" : ""}${isLocal ? ", from the server itself only" : ""}`;
  return html`<section><h3>${over} <small>${at}</small></h3>
    <div class="recipes">${recipes(name, target, place).map(([client, lines]) => html`<figure class="recipe">
      <figcaption>${client}<${Copy} label=${`${client}, ${over} ${at}`} text=${lines} /></figcaption>
      <pre>${lines}</pre></figure>`)}</div></section>`;
}

export function Connect({ status, name }) {
  const [found, setFound] = useState(null);
  const [failed, setFailed] = useState(null);
  useEffect(() => {
    ask("GET", "/v1/iscsi").then(setFound, error => setFailed(error.message));
  }, []);
  const title = html`<p class="path"><a href="#/clients">Clients</a></p><h2 id="view-title" tabindex="-1">Connect to ${name}</h2>`;
  if (!found) return html`${title}${failed ? html`<${Message} bad=${true} text=${failed} />` : html`<p>Loading.</p>`}`;
  const access = found.exports.find(access => access.name === name);
  if (!access) return html`${title}<p>There is no export ${name}.</p>`;
  return html`${title}
    ${access.assigned && html`<p class="banner warning"><${Icon} kind="warning" /> ${name} is assigned to named clients only. <a href="#/clients">See who can open it</a>.</p>`}
    ${found.chap_name && html`<p>iSCSI initiators log in with CHAP, as ${found.chap_name}.</p>`}
    ${status.listening.map(uri => html`<${Address} key=${uri} name=${name} target=${access.target} uri=${uri} />`)}`;
}
