// Who is connected, and what happened.
import { html, Table } from "./parts.mjs";
import * as numbers from "./numbers.mjs";

export function Clients({ status }) {
  const clients = status.volumes.flatMap(volume => volume.clients.map(client => ({ volume: volume.name, ...client })));
  return html`<h2 id="view-title" tabindex="-1">Clients</h2>
    <${Table} caption="Clients that have a volume or a logical disk open" empty="No client has a volume or a logical disk open."
      head=${["export", "protocol", "volume", "from", "initiator", "program", "user", "certificate", "cached"]}
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
      ])} />`;
}

export function Events({ events }) {
  return html`<h2 id="view-title" tabindex="-1">Events</h2>
    <${Table} caption="What happened since the start, the newest first" empty="Nothing has happened since the start."
      head=${["time", "volume or pool", "what"]}
      rows=${events.toReversed().map(event => [numbers.time(event.time_seconds), event.volume ?? "server", event.text])} />`;
}
