// The page: signs in, follows the server, and shows the view that the address names.
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { html, Message } from "./parts.mjs";
import { ask, follow, session as right } from "./server.mjs";
import { Overview } from "./overview.mjs";
import { Volume } from "./volume.mjs";
import { Disks } from "./disks.mjs";
import { Pool } from "./pool.mjs";
import { Clients } from "./clients.mjs";
import { Events } from "./events.mjs";

const EVENTS_MAX = 1000;
const POOLS_PERIOD_MS = 5000;
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
  if (!session.token_needed) return html`<main id="main"><h1>flashwise</h1><p>Run <code>flashwise page</code> and open the address that it prints.</p></main>`;
  return html`<main id="main"><h1>flashwise</h1>
    <form onSubmit=${submit}>
      <p><label>Token of the management API <input type="password" name="token" autocomplete="current-password" required /></label></p>
      ${failed && html`<${Message} text=${failed} bad=${true} />`}
      <p class="buttons"><button type="submit" class="act">Sign in</button></p>
    </form>
  </main>`;
}

function Shown({ view, status, recent, events, pools }) {
  const [name, which] = view;
  if (name === "volume") {
    const volume = status.volumes.find(volume => volume.name === which);
    return volume ? html`<${Volume} volume=${volume} />` : html`<h2 id="view-title" tabindex="-1">No such volume</h2><p>There is no volume ${which}.</p>`;
  }
  if (name === "pool") return html`<${Pool} name=${which} />`;
  if (name === "disks") return html`<${Disks} pools=${pools} status=${status} />`;
  if (name === "clients") return html`<${Clients} status=${status} />`;
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
  useEffect(() => {
    if (!signedIn) return undefined;
    const loadPools = () => ask("GET", "/v1/pools").then(setPools, () => {});
    loadPools();
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
  useEffect(() => {
    document.title = `${view[1] ?? view[0] ?? ""} ${view[0] ? "- " : ""}flashwise`.trim();
  }, [key]);
  if (session && !signedIn) return html`<${SignIn} done=${open} session=${session} />`;
  if (!status) return html`<main id="main"><h1>flashwise</h1>${lost ? html`<${Message} bad=${true} text="The server does not answer." />` : html`<p>Loading.</p>`}</main>`;
  const item = (path, text) => html`<a href=${`#/${path.map(encodeURIComponent).join("/")}`} aria-label=${path[0] === "pool" ? `Pool ${text}` : undefined} aria-current=${path.join("/") === (key || "overview") ? "page" : undefined}>${text}</a>`;
  const signOut = () => ask("DELETE", "/v1/session").then(() => location.reload());
  return html`<a class="skip" href="#main" onClick=${event => {
      event.preventDefault();
      document.getElementById("view-title")?.focus();
    }}>Skip to the contents</a>
    <header><h1>flashwise</h1>
      <nav aria-label="Views">
        ${item(["overview"], "Overview")}
        ${pools.map(pool => item(["pool", pool.name], pool.name))}
        ${status.volumes.filter(volume => !pools.some(pool => pool.name === volume.name)).map(volume => item(["volume", volume.name], volume.name))}
        ${item(["disks"], "Disks")}
        ${item(["clients"], "Clients")}
        ${item(["events"], "Events")}
      </nav>
      ${session?.signed_in && !session.may_change && html`<span>may look only</span>`}
      ${session?.signed_in && html`<button type="button" onClick=${signOut}>Sign out</button>`}
    </header>
    <main id="main">
      ${lost && html`<${Message} bad=${true} text="The server does not answer. What is shown is old." />`}
      <${Shown} key=${key} view=${view} status=${status} recent=${recent} events=${events} pools=${pools} />
    </main>`;
}

render(html`<${App} />`, document.getElementById("app"));
