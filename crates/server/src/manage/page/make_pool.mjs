// Makes a pool of disks: which ones, and what cache it has.
import { html, Act } from "./parts.mjs";
import { Mode } from "./pool.mjs";
import * as numbers from "./numbers.mjs";

/** What a disk is, for who chooses. */
const told = disk => `${numbers.bytes(disk.size_bytes)}${disk.model ? `, ${disk.model}` : ""}${disk.refused ? `: ${disk.refused}` : ""}`;

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
    const given = { flash: text("flash"), "flash-size": text("flash-size"), ram: text("ram"), "write-mode": form.get("mode") };
    const settings = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== ""));
    const body = { name, disks: chosen, wipe: form.get("wipe") === "on" ? chosen : [], settings };
    change({ title: "Make the pool", what: "pool", name, method: "POST", path: "/v1/pools", body, done: `The pool ${name} is served. Make a logical disk of it in its own view.` });
  };
  const free = disks.filter(disk => !disk.refused || disk.can_be_wiped);
  return html`<form class="wizard" onSubmit=${review} aria-labelledby="make-pool">
    <h3 id="make-pool">Make a pool</h3>
    <div class="field"><label for="pool-name">1. Name</label>
      <input id="pool-name" name="name" required maxlength="64" pattern="[a-z0-9.\\-]+" autocomplete="off" aria-describedby="pool-name-note" />
      <small id="pool-name-note">Lower-case letters, digits, - and .</small></div>
    <fieldset><legend>2. Disks</legend>
      ${free.length === 0 && html`<p>No device of this machine is free.</p>`}
      ${free.map(disk => html`<label><input type="checkbox" name="disk" value=${disk.path} /> ${disk.path} <small>${told(disk)}</small></label>`)}
      <div class="field"><label for="pool-others">Files, one a line</label>
        <textarea id="pool-others" name="others" rows="2" spellcheck=${false} aria-describedby="pool-others-note"></textarea>
        <small id="pool-others-note">By their whole paths; they are there already.</small></div>
      <label><input type="checkbox" name="wipe" /> What they hold may be lost</label></fieldset>
    <fieldset><legend>3. Cache</legend>
      <div class="field"><label for="pool-flash">Flash: a block device or a file</label>
        <input id="pool-flash" name="flash" list="free-flash" autocomplete="off" spellcheck=${false} aria-describedby="pool-flash-note" />
        <datalist id="free-flash">${disks.filter(disk => !disk.refused).map(disk => html`<option value=${disk.path}>${told(disk)}</option>`)}</datalist>
        <small id="pool-flash-note">By its whole path. Without, the cache is in RAM alone.</small></div>
      <div class="field"><label for="pool-flash-size">How much of the flash</label>
        <input id="pool-flash-size" name="flash-size" placeholder="all of it" autocomplete="off" aria-describedby="pool-flash-size-note" />
        <small id="pool-flash-size-note">Such as 100GiB; a file that is not there yet needs it.</small></div>
      <div class="field"><label for="pool-ram">RAM</label>
        <input id="pool-ram" name="ram" placeholder="128MiB" autocomplete="off" aria-describedby="pool-ram-note" />
        <small id="pool-ram-note">Such as 1GiB.</small></div>
    </fieldset>
    <${Mode} id="pool-mode" label="4. Mode" mode="write-back" stricter=${false} />
    <p class="buttons"><${Act} submit=${true} text="Review the pool" /></p>
  </form>`;
}
