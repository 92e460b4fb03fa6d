// What happened.
import { html, Table } from "./parts.mjs";
import * as numbers from "./numbers.mjs";

export function Events({ events }) {
  return html`<h2 id="view-title" tabindex="-1">Events</h2>
    <${Table} caption="Events, newest first" empty="Nothing has happened yet."
      head=${["time", "volume or pool", "what"]}
      rows=${events.toReversed().map(event => [numbers.time(event.time_seconds), event.volume ?? "server", event.text])} />`;
}
