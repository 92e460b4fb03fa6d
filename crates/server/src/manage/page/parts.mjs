// What the views are made of.
import { h } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import htm from "htm";
import { ask, askTagged, session } from "./server.mjs";
import * as numbers from "./numbers.mjs";

export const html = htm.bind(h);

/**
 * A table with a caption, which scrolls by itself where it is too wide. `numbers` are the columns that are aligned to the right.
 * `isTitled` is true if a heading above the table says the caption. On narrow screens, the rows of a table with `isStacked` are lists.
 * A row header that is plain text, or a link of such, can be focused by its text, see focusRow.
 */
export function Table({ caption, head, rows, empty, numbers = [], isTitled, isStacked = head.length > 4 }) {
  if (rows.length === 0) return html`<p>${empty}</p>`;
  // A row keeps its buttons, and with them the focus, while others come and go.
  const names = rows.map(([first]) => [first, first?.props?.children].find(text => typeof text === "string"));
  const keyOf = at => (names.indexOf(names[at]) === at ? names[at] : undefined);
  const side = at => (numbers.includes(at) ? "number" : undefined);
  return html`<div class="scroll" role="region" tabindex="0" aria-label=${caption}>
    <table class=${isStacked ? "stacked" : undefined}>
      <caption class=${isTitled ? "hidden" : undefined}>${caption}</caption>
      <thead><tr>${head.map((text, at) => html`<th scope="col" class=${side(at)}>${text}</th>`)}</tr></thead>
      <tbody>${rows.map(([first, ...rest], at) => html`<tr key=${keyOf(at)}><th scope="row" tabindex="-1" data-row=${names[at]}>${first}</th>${rest.map((cell, at) => html`<td class=${side(at + 1)} data-label=${head[at + 1]}>${cell}</td>`)}</tr>`)}</tbody>
    </table>
  </div>`;
}

/**
 * Loads something again and again. An answer that comes after that to a later question is dropped, as it shows what was before.
 * @returns {() => Promise<void>} loads it once
 */
export function useLatest(get, then, failed) {
  const asked = useRef(0);
  const shown = useRef(0);
  return async () => {
    const turn = (asked.current += 1);
    const isLate = () => turn < shown.current;
    try {
      const found = await get();
      if (isLate()) return;
      shown.current = turn;
      then(found);
    } catch (error) {
      if (!isLate()) failed(error);
    }
  };
}

/** Fewer rows than this need no filter. */
const FILTER_MIN = 8;

/**
 * Rows whose words contain a text, and its field, which shows `example` while it is empty.
 * @param {(row: any) => string} words
 */
export function useFilter(rows, label, example, words) {
  const [text, setText] = useState("");
  const kept = rows.filter(row => words(row).toLowerCase().includes(text.trim().toLowerCase()));
  const field = rows.length < FILTER_MIN ? null : html`<p class="filter"><label>${label} <input type="search" autocomplete="off" spellcheck=${false} placeholder=${example} value=${text} onInput=${event => setText(event.target.value)} /></label> <small role="status">${numbers.count(kept.length)} of ${numbers.count(rows.length)}</small></p>`;
  return { kept, field };
}

const ROW_LOOKS = 20;
const ROW_LOOK_MS = 100;

/** Puts the focus on the row of this name. Without one, the title of the view has it, until a row of this name appears soon. */
export function focusRow(name, looks = ROW_LOOKS) {
  const row = [...document.querySelectorAll("[data-row]")].find(row => row.dataset.row === name);
  const title = document.getElementById("view-title");
  (row ?? title)?.focus({ preventScroll: true });
  (row ?? title)?.scrollIntoView({ block: "nearest" });
  if (!row && name && looks > 0) setTimeout(() => document.activeElement === title && focusRow(name, looks - 1), ROW_LOOK_MS);
}

/** Figures with their names, as a list. */
export function Figures({ of }) {
  return html`<dl class="figures">
    ${of.map(([name, value, note]) => html`<div><dt>${name}</dt><dd>${value}${note && html`<small>${note}</small>`}</dd></div>`)}
  </dl>`;
}

/** A button that changes something, or leads there; disabled for read-only users. Destructive ones look different. */
export function Act({ text, label, act, submit, disabled, destroys }) {
  return html`<button type=${submit ? "submit" : "button"} class=${submit ? "act" : destroys ? "destroys" : ""} aria-label=${label} onClick=${act} disabled=${disabled || !session.mayChange} title=${session.mayChange ? undefined : "Your token is read-only."}>${text}</button>`;
}

/** A share as a bar, with its text. */
export function Meter({ label, share, text }) {
  return html`<span class="meter"><meter min="0" max="1" value=${share} aria-label=${label}></meter> ${text}</span>`;
}

/**
 * What is open below a table, as {what, ...}, or null. `what` is the id of its heading. The heading gets the focus at once: later, it could
 * take the focus from where the reader has gone meanwhile.
 */
export function useOpen() {
  const [open, setOpen] = useState(null);
  useLayoutEffect(() => {
    if (open) document.getElementById(open.what)?.focus();
  }, [open]);
  return [open, setOpen];
}

/**
 * Changes that are shown before they are made. `start` asks the server for the plan of a change: {title, action, method, path, body, match, done}.
 * `title` heads the dialog and contains the name; `action` is the text of its button. `what` and `name` are typed to confirm a destructive change,
 * and `sure` is what the real request has besides, {query, body}. `row` is the name of the row that gets the focus, `name` by default, unless that is deleted.
 * `then` runs after the change in place of `after`.
 * `shown` is the dialog, or the message after the change.
 */
export function useChange(after) {
  const [asked, setAsked] = useState(null);
  const [message, setMessage] = useState(null);
  const latest = useRef(0);
  const isMade = useRef(false);
  // Somebody else changed it meanwhile: load it again.
  const lookAgain = async error => {
    if (error.status === 412) await after();
  };
  const start = async change => {
    const turn = (latest.current += 1);
    isMade.current = false;
    setMessage(null);
    try {
      const { json: plan, tag } = await askTagged(change.method, `${change.path}?dry-run=true`, change.body, change.match);
      // The tag names the disks of the plan, so that no other disk is wiped. A late answer does not replace a newer one.
      if (turn === latest.current) setAsked({ change: { ...change, match: tag ?? change.match }, plan });
    } catch (error) {
      await lookAgain(error);
      setMessage({ text: error.message, bad: true });
    }
  };
  const act = async () => {
    const { method, path, body, match, sure, done, then } = asked.change;
    try {
      await ask(method, path + (sure?.query ?? ""), sure?.body ?? body, match);
    } catch (error) {
      await lookAgain(error);
      throw error;
    }
    isMade.current = true;
    setMessage(done ? { text: done } : null);
    await (then ?? after)();
  };
  const close = () => {
    const { row, name, method } = asked.change;
    setAsked(null);
    // The button that opened the dialog may be gone with its form or its row, or goes soon.
    const isGone = isMade.current && method === "DELETE" && !row;
    setTimeout(() => (isGone || document.activeElement === document.body) && focusRow(isGone ? null : row ?? name));
  };
  const shown = html`${message && html`<${Message} ...${message} />`}
    ${asked && html`<${Confirm} title=${asked.change.title} action=${asked.change.action} plan=${asked.plan} what=${asked.change.what} name=${asked.change.name} act=${act} close=${close} />`}`;
  return { start, shown, setMessage };
}

const SHAPES = {
  good: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1Zm-3.2 7.2 2.3 2.3 4.2-4.6",
  planned: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1Zm0 3.2V8l2.6 1.8",
  warning: "M8 1.6 15 14.2H1L8 1.6Zm0 4.6v3.6m0 1.9v.6",
  bell: "M8 1.5a4.3 4.3 0 0 0-4.3 4.3c0 3.8-1.4 4.9-1.4 6h11.4c0-1.1-1.4-2.2-1.4-6A4.3 4.3 0 0 0 8 1.5ZM6.6 14.2a1.6 1.6 0 0 0 2.8 0",
  bad: "M5.2 1h5.6L15 5.2v5.6L10.8 15H5.2L1 10.8V5.2L5.2 1ZM8 4.2v4.6m0 2.2v.7",
};

/** A small picture of how things are: good, planned, warning or bad. The text beside it says the same. */
export function Icon({ kind }) {
  return html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path d=${SHAPES[kind]} /></svg>`;
}

/** States of work that an operator requested. */
const PLANNED = ["detaching", "detached", "leaving"];

/** How a state is: good, planned or bad. */
export const kindOf = state => (state === "ok" ? "good" : PLANNED.includes(state) ? "planned" : "bad");

/** The state of a volume, a pool or a disk, in words and not in colour alone. */
export function State({ state }) {
  const kind = kindOf(state);
  return html`<span class=${`state ${kind}`}><${Icon} kind=${kind} />${state.replace("-", " ")}</span>`;
}

/** Why a name is refused, by the rules of the server; null if it is not. */
function nameProblem(name) {
  if (name === "") return "Enter a name.";
  const wrong = name.match(/[^a-z0-9.-]/u)?.[0];
  if (wrong) return `The name contains ${wrong.trim() ? `\u201c${wrong}\u201d` : "a space"}. Use lower-case letters, digits, hyphens and dots.`;
  if (/^\.+$/.test(name)) return "The name has only dots. Add a letter or a digit.";
  return null;
}

/** A field for a new name, which says at once why a name is refused. */
export function NameField({ id, label, note }) {
  const [problem, setProblem] = useState(null);
  const check = event => {
    const found = nameProblem(event.target.value);
    event.target.setCustomValidity(found ?? "");
    setProblem(found);
  };
  return html`<div class="field"><label for=${id}>${label}</label>
    <input id=${id} name="name" required maxlength="64" autocomplete="off" spellcheck=${false} aria-describedby=${`${id}-note`} aria-invalid=${problem ? "true" : undefined} onInput=${check}
      onInvalid=${event => {
        event.preventDefault();
        check(event);
        event.target.focus();
      }} />
    <small id=${`${id}-note`} class=${problem ? "bad" : ""} role="status">${problem ?? `Lower-case letters, digits, hyphens and dots. ${note ?? ""}`}</small></div>`;
}

/** A message that screen readers announce. It stays in sight while the page scrolls. */
export function Message({ text, bad }) {
  const shown = useRef(null);
  useEffect(() => shown.current.scrollIntoView({ block: "nearest" }), [text]);
  return html`<p ref=${shown} class=${bad ? "message bad" : "message"} role=${bad ? "alert" : "status"}>${text}</p>`;
}

/**
 * Shows what a change does before it is made. If it cannot be undone, the name has to be typed.
 * `plan` comes from the server: {does: string[], destroys: boolean}.
 */
export function Confirm({ title, action, plan, what = "volume", name, act, close }) {
  const dialog = useRef(null);
  const [typed, setTyped] = useState("");
  const [failed, setFailed] = useState(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    dialog.current.showModal();
  }, []);
  const submit = async event => {
    event.preventDefault();
    setBusy(true);
    try {
      await act();
      dialog.current.close();
    } catch (error) {
      setFailed(error.message);
      setBusy(false);
    }
  };
  const ready = !plan.destroys || typed === name;
  return html`<dialog ref=${dialog} aria-labelledby="confirm-title" onClose=${close} onCancel=${event => busy && event.preventDefault()}>
    <form onSubmit=${submit}>
      <h2 id="confirm-title">${title}</h2>
      <ul>${plan.does.map(text => html`<li>${text}</li>`)}</ul>
      ${plan.destroys &&
      html`<p><label>To continue, type the name of the ${what}, <strong>${name}</strong>
        <input name="typed" autocomplete="off" value=${typed} onInput=${event => setTyped(event.target.value)} /></label></p>`}
      ${failed && html`<${Message} text=${failed} bad=${true} />`}
      <p class="buttons">
        <button type="button" disabled=${busy} onClick=${() => dialog.current.close()}>Cancel</button>
        <button type="submit" class=${plan.destroys ? "act destroys" : "act"} disabled=${!ready || busy}>${action}</button>
      </p>
    </form>
  </dialog>`;
}
