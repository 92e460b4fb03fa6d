// What the views are made of.
import { h } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import htm from "htm";
import { ask, askTagged, session } from "./server.mjs";

export const html = htm.bind(h);

/** A table with a caption, which scrolls by itself where it is too wide. */
export function Table({ caption, head, rows, empty }) {
  if (rows.length === 0) return html`<p>${empty}</p>`;
  return html`<div class="scroll" role="region" tabindex="0" aria-label=${caption}>
    <table>
      <caption>${caption}</caption>
      <thead><tr>${head.map(text => html`<th scope="col">${text}</th>`)}</tr></thead>
      <tbody>${rows.map(([first, ...rest]) => html`<tr><th scope="row">${first}</th>${rest.map(cell => html`<td>${cell}</td>`)}</tr>`)}</tbody>
    </table>
  </div>`;
}

/** Figures with their names, as a list. */
export function Figures({ of }) {
  return html`<dl class="figures">
    ${of.map(([name, value, note]) => html`<div><dt>${name}</dt><dd>${value}${note && html`<small>${note}</small>`}</dd></div>`)}
  </dl>`;
}

/** A button for what changes something, or leads there; off for those who may only look. */
export function Act({ text, label, act, submit, disabled }) {
  return html`<button type=${submit ? "submit" : "button"} class=${submit ? "act" : ""} aria-label=${label} onClick=${act} disabled=${disabled || !session.mayChange} title=${session.mayChange ? undefined : "You may look and change nothing."}>${text}</button>`;
}

/** A share as a bar, with its text. */
export function Meter({ label, share, text }) {
  return html`<span class="meter"><meter min="0" max="1" value=${share} aria-label=${label}></meter> ${text}</span>`;
}

/**
 * Changes that are shown before they are made. `start` asks the server what a change would do: {title, method, path, body, match, done}, with
 * `what` and `name` of what has to be typed where it destroys, and `sure`: what the real request has besides, {query, body}.
 * `then` is done after it in place of `after`.
 * `shown` is what there is to see of it.
 */
export function useChange(after) {
  const [asked, setAsked] = useState(null);
  const [message, setMessage] = useState(null);
  const latest = useRef(0);
  // What somebody else has changed is looked at again.
  const lookAgain = async error => {
    if (error.status === 412) await after();
  };
  const start = async change => {
    const turn = (latest.current += 1);
    setMessage(null);
    try {
      const { json: plan, tag } = await askTagged(change.method, `${change.path}?dry-run=true`, change.body, change.match);
      // What wipes disks is done to those that the plan is about. No answer that comes late takes the place of another.
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
    setMessage({ text: done });
    await (then ?? after)();
  };
  const shown = html`${message && html`<${Message} ...${message} />`}
    ${asked && html`<${Confirm} title=${asked.change.title} plan=${asked.plan} what=${asked.change.what} name=${asked.change.name} act=${act} close=${() => setAsked(null)} />`}`;
  return { start, shown, setMessage };
}

/** What a volume is in, in words and not in colour alone. */
export function State({ state }) {
  const good = state === "ok";
  return html`<span class=${good ? "state good" : "state bad"}>${good ? "✓" : "!"} ${state}</span>`;
}

/** A message that screen readers say, and that is brought to where it is seen. */
export function Message({ text, bad }) {
  const shown = useRef(null);
  useEffect(() => shown.current.scrollIntoView({ block: "nearest" }), [text]);
  return html`<p ref=${shown} class=${bad ? "message bad" : "message"} role=${bad ? "alert" : "status"}>${text}</p>`;
}

/**
 * What will happen, before it does. Where it cannot be taken back, the name has to be typed.
 * `plan` is asked of the server: {does: string[], destroys: boolean}.
 */
export function Confirm({ title, plan, what = "volume", name, act, close }) {
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
      html`<p><label>To go on, type the name of the ${what}, <strong>${name}</strong>
        <input name="typed" autocomplete="off" value=${typed} onInput=${event => setTyped(event.target.value)} /></label></p>`}
      ${failed && html`<${Message} text=${failed} bad=${true} />`}
      <p class="buttons">
        <button type="button" disabled=${busy} onClick=${() => dialog.current.close()}>Cancel</button>
        <button type="submit" class="act" disabled=${!ready || busy}>${title}</button>
      </p>
    </form>
  </dialog>`;
}
