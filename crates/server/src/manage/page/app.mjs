// The page: signs in, follows the server, and shows the view that the address names.
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { html, Icon, Message, useLatest } from "./parts.mjs";
import { ask, follow, session as right } from "./server.mjs";
import { Overview } from "./overview.mjs";
import { Volume } from "./volume.mjs";
import { Disks } from "./disks.mjs";
import { Pool } from "./pool.mjs";
import { Pools, Volumes } from "./lists.mjs";
import { Connect } from "./connect.mjs";
import { Clients } from "./clients.mjs";
import { Bell, Events } from "./events.mjs";
import * as numbers from "./numbers.mjs";

const EVENTS_MAX = 1000;
const POOLS_PERIOD_MS = 5000;
/** The server sends a status each second: figures older than this are stale. */
const STALE_MS = 5000;
/** Rates are of this time. */
const RATES_MS = 5000;

function useView() {
  const [view, setView] = useState(location.hash);
  useEffect(() => {
    const changed = () => setView(location.hash);
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return view.replace(/^#\/?/, "").split("/").map(part => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
}

function SignIn({ done, session }) {
  const [failed, setFailed] = useState(null);
  const submit = async event => {
    event.preventDefault();
    try {
      await ask("POST", "/v1/session", { token: new FormData(event.target).get("token") });
      done();
    } catch (error) {
      setFailed(error.message);
    }
  };
  if (!session.token_needed) return html`<main id="main" class="sign-in"><h1>flashwise</h1><p>This server has no token. On the server, run <code>flashwise page</code> and open the address that it prints.</p></main>`;
  return html`<main id="main" class="sign-in">
    <form onSubmit=${submit}>
      <h1>flashwise</h1>
      <p>Sign in to manage the flash cache on <strong>${location.hostname}</strong>.</p>
      <input class="hidden" type="text" name="username" autocomplete="username" value="flashwise" tabindex="-1" aria-hidden="true" readonly />
      <p><label for="token">Token</label><input id="token" type="password" name="token" autocomplete="current-password" aria-describedby="token-note" required /></p>
      ${failed && html`<${Message} text=${failed} bad=${true} />`}
      <p><button type="submit" class="act">Sign in</button></p>
      <p id="token-note" class="note">The token is on the server, in the file that <code>token-file</code> in the configuration names. The packages create it at <code>/etc/flashwise/token</code>:</p>
      <pre>sudo cat /etc/flashwise/token</pre>
      <p class="note">Or run <code>flashwise page</code> on the server, which prints an address that signs you in once.</p>
    </form>
  </main>`;
}

/** The entry of the navigation that a view belongs to. */
function kindOfView([name, which], pools) {
  if (name === "volume") return pools.some(pool => pool.name === which) ? "pools" : "volumes";
  return { "": "overview", pool: "pools", connect: "clients" }[name] ?? name;
}

/** Says how old the figures are, once the server has sent none for a while. */
function Freshness({ at, lost }) {
  const [now, setNow] = useState(performance.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(performance.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const old = now - at;
  if (at == null || (old < STALE_MS && !lost)) return null;
  return html`<p class="stale bad" role="alert"><${Icon} kind="bad" /><strong>${lost ? "The server does not answer." : "The server sends nothing."}</strong>
    <span aria-live="off">These figures are ${numbers.duration(Math.max(0, old / 1000))} old.</span></p>`;
}

function Shown({ view, status, recent, events, pools }) {
  const [name, which] = view;
  if (name === "volume") {
    const volume = status.volumes.find(volume => volume.name === which);
    return volume ? html`<${Volume} volume=${volume} pool=${pools.find(pool => pool.name === which)} part=${view[2]} />` : html`<h2 id="view-title" tabindex="-1">No such volume</h2><p>There is no volume ${which}.</p>`;
  }
  if (name === "volumes") return html`<${Volumes} status=${status} recent=${recent} pools=${pools} />`;
  if (name === "pools") return html`<${Pools} status=${status} pools=${pools} />`;
  if (name === "connect") return html`<${Connect} status=${status} name=${which} />`;
  if (name === "pool") return html`<${Pool} name=${which} />`;
  if (name === "disks") return html`<${Disks} pools=${pools} status=${status} />`;
  if (name === "clients") return html`<${Clients} status=${status} recent=${recent} />`;
  if (name === "events") return html`<${Events} events=${events} />`;
  return html`<${Overview} status=${status} recent=${recent} pools=${pools} />`;
}

function App() {
  const [session, setSession] = useState(null);
  const [status, setStatus] = useState(null);
  /** What came last: each status and when. */
  const [recent, setRecent] = useState([]);
  const [events, setEvents] = useState([]);
  const [lost, setLost] = useState(false);
  const [pools, setPools] = useState([]);
  const view = useView();
  const open = () => ask("GET", "/v1/session").then(session => {
    right.mayChange = session.may_change;
    setSession(session);
  }, () => setLost(true));
  useEffect(() => void open(), []);
  const signedIn = session && session.signed_in;
  const loadPools = useLatest(() => ask("GET", "/v1/pools"), setPools, () => {});
  useEffect(() => {
    if (!signedIn) return undefined;
    const timer = setInterval(loadPools, POOLS_PERIOD_MS);
    const stop = follow({
      status: status => {
        setStatus(status);
        const at = performance.now();
        setRecent(recent => [...recent.filter(other => at - other.at < RATES_MS + 500), { at, status }]);
        setLost(false);
      },
      happened: event => setEvents(events => (events.some(other => other.number === event.number) ? events : [...events.slice(1 - EVENTS_MAX), event])),
      lost: () => {
        setLost(true);
        // Perhaps the server knows this session no more.
        open();
      },
    });
    return () => {
      clearInterval(timer);
      stop();
    };
  }, [signedIn]);
  const key = view.join("/");
  // A view that opens shows what is there now.
  useEffect(() => {
    if (signedIn) loadPools();
  }, [signedIn, key]);
  useEffect(() => {
    document.title = `${view[1] ?? view[0] ?? ""} ${view[0] ? "- " : ""}flashwise`.trim();
  }, [key]);
  if (session && !signedIn) return html`<${SignIn} done=${open} session=${session} />`;
  if (!status) return html`<main id="main" class="sign-in"><h1>flashwise</h1>${lost ? html`<${Message} bad=${true} text="The server does not answer." />` : html`<p>Loading.</p>`}</main>`;
  const current = kindOfView(view, pools);
  const item = (kind, text, count) => html`<a href=${`#/${kind}`} aria-current=${kind === current ? (view[1] ? "true" : "page") : undefined}>${text}${count > 0 && html`<span class="count" aria-hidden="true">${count}</span>`}</a>`;
  const signOut = () => ask("DELETE", "/v1/session").then(() => location.reload());
  return html`<a class="skip" href="#main" onClick=${event => {
      event.preventDefault();
      document.getElementById("view-title")?.focus();
    }}>Skip to the contents</a>
    <header><h1>flashwise</h1>
      <nav aria-label="Views">
        ${item("overview", "Overview")}
        ${item("volumes", "Volumes", status.volumes.length - pools.length)}
        ${item("pools", "Pools", pools.length)}
        ${item("disks", "Disks")}
        ${item("clients", "Clients")}
        ${item("events", "Events")}
      </nav>
      <${Bell} events=${events} />
      ${session?.signed_in && !session.may_change && html`<span class="right">read-only</span>`}
      ${session?.signed_in && html`<button type="button" onClick=${signOut}>Sign out</button>`}
    </header>
    <main id="main">
      <${Freshness} at=${recent.length > 0 ? recent[recent.length - 1].at : null} lost=${lost} />
      <${Shown} key=${key} view=${view} status=${status} recent=${recent} events=${events} pools=${pools} />
    </main>`;
}

render(html`<${App} />`, document.getElementById("app"));
