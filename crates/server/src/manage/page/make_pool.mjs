// Makes a pool of disks: which ones, and what cache it has.
import { html, Act, NameField } from "./parts.mjs";
import { Mode } from "./pool.mjs";
import * as numbers from "./numbers.mjs";

/** The size and the contents of a disk. */
export const described = disk => `${numbers.bytes(disk.size_bytes)}${disk.model ? `, ${disk.model}` : ""}${disk.refused ? `: ${disk.refused}` : ""}`;

/** Where a cache lies and how large it is; `disks` are those of the machine that are not used. */
export function CacheFields({ id, title, disks }) {
  return html`<fieldset><legend>${title}</legend>
  <div class="field"><label for=${`${id}-flash`}>Flash: a block device or a file</label>
    <input id=${`${id}-flash`} name="flash" list=${`${id}-free`} autocomplete="off" spellcheck=${false} aria-describedby=${`${id}-flash-note`} />
    <datalist id=${`${id}-free`}>${disks.filter(disk => !disk.refused).map(disk => html`<option value=${disk.path}>${described(disk)}</option>`)}</datalist>
    <small id=${`${id}-flash-note`}>An absolute path. Without a flash, the cache is in RAM only.</small></div>
  <div class="field"><label for=${`${id}-flash-size`}>Size on the flash</label>
    <input id=${`${id}-flash-size`} name="flash-size" placeholder="all" autocomplete="off" aria-describedby=${`${id}-flash-size-note`} />
    <small id=${`${id}-flash-size-note`}>For example 100GiB. A new file needs a size.</small></div>
  <div class="field"><label for=${`${id}-ram`}>RAM</label>
    <input id=${`${id}-ram`} name="ram" placeholder="128MiB" autocomplete="off" aria-describedby=${`${id}-ram-note`} />
    <small id=${`${id}-ram-note`}>For example 1GiB.</small></div>
</fieldset>`;
}

/** What a form with such fields says, as keys of the configuration. */
export function settingsOf(form) {
  const given = { flash: form.get("flash"), "flash-size": form.get("flash-size"), ram: form.get("ram"), "write-mode": form.get("mode") };
  return Object.fromEntries(Object.entries(given).map(([key, value]) => [key, value.trim()]).filter(([, value]) => value !== ""));
}

/**
 * The form; `disks` are those of the machine that are not used, `change` shows what making the pool would do.
 * @param {{ disks: any[], change(change: any): void }} props
 */
export function MakePool({ disks, change }) {
  const review = event => {
    event.preventDefault();
    const form = new FormData(event.target);
    const text = name => form.get(name).trim();
    const name = text("name");
    const chosen = [...form.getAll("disk"), ...text("others").split("\n").map(path => path.trim()).filter(Boolean)];
    const body = { name, disks: chosen, wipe: form.get("wipe") === "on" ? chosen : [], settings: settingsOf(form) };
    change({ title: `Make pool ${name}`, action: "Make the pool", what: "pool", name, method: "POST", path: "/v1/pools", body, done: `The pool ${name} is served. Open it to make a logical disk.` });
  };
  const free = disks.filter(disk => !disk.refused || disk.can_be_wiped);
  return html`<form class="wizard" onSubmit=${review} aria-labelledby="make-pool">
    <h3 id="make-pool">Make a pool</h3>
    <${NameField} id="pool-name" label="1. Name" />
    <fieldset><legend>2. Disks</legend>
      ${free.length === 0 && html`<p>No device of this machine is free.</p>`}
      ${free.map(disk => html`<label><input type="checkbox" name="disk" value=${disk.path} /> ${disk.path} <small>${described(disk)}</small></label>`)}
      <div class="field"><label for="pool-others">Files, one per line</label>
        <textarea id="pool-others" name="others" rows="2" spellcheck=${false} aria-describedby="pool-others-note"></textarea>
        <small id="pool-others-note">Absolute paths of existing files.</small></div>
      <label><input type="checkbox" name="wipe" /> Wipe them if they hold data</label></fieldset>
    <${CacheFields} id="pool" title="3. Cache" disks=${disks} />
    <${Mode} id="pool-mode" label="4. Mode" mode="write-back" stricter=${false} />
    <p class="buttons"><${Act} submit=${true} text="Review the pool" /></p>
  </form>`;
}
