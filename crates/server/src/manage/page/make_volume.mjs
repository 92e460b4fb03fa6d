// Makes a volume: which disk it is, and what cache it has.
import { html, Act, NameField } from "./parts.mjs";
import { Mode } from "./pool.mjs";
import { CacheFields, described, settingsOf } from "./make_pool.mjs";

/**
 * The form; `disks` are those of the machine that are not used, `change` shows what making the volume would do.
 * @param {{ disks: any[], change(change: any): void }} props
 */
export function MakeVolume({ disks, change }) {
  const review = event => {
    event.preventDefault();
    const form = new FormData(event.target);
    const name = form.get("name").trim();
    const body = { name, backend: form.get("backend").trim(), settings: settingsOf(form) };
    change({ title: `Make volume ${name}`, action: "Make the volume", name, method: "POST", path: "/v1/volumes", body, done: `The volume ${name} is served.` });
  };
  // A disk of a pool, one that holds a cache and one that the machine uses are refused.
  const free = disks.filter(disk => ["spare", "foreign"].includes(disk.role));
  return html`<form class="wizard" onSubmit=${review} aria-labelledby="make-volume">
    <h3 id="make-volume">Make a volume</h3>
    <${NameField} id="volume-name" label="1. Name" note="Clients open it by this name." />
    <div class="field"><label for="volume-backend">2. Disk: a block device or a file</label>
      <input id="volume-backend" name="backend" required list="volume-backends" autocomplete="off" spellcheck=${false} aria-describedby="volume-backend-note" />
      <datalist id="volume-backends">${free.map(disk => html`<option value=${disk.path}>${described(disk)}</option>`)}</datalist>
      <small id="volume-backend-note">An absolute path. The disk keeps its data.</small></div>
    <${CacheFields} id="volume" title="3. Cache" disks=${disks} />
    <${Mode} id="volume-mode" label="4. Mode" mode="write-back" stricter=${false} />
    <p class="buttons"><${Act} submit=${true} text="Review the volume" /></p>
  </form>`;
}
