// How the page talks to the server: the routes of docs/api.md, and nothing else.

/** What went wrong, with the server's own words. */
export class Failure extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/**
 * Asks one route.
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body] sent as JSON
 * @param {string} [match] the tag of what is to be changed, as it was seen
 * @returns {Promise<any>} the JSON of the answer, or null where there is none
 */
export async function ask(method, path, body, match) {
  return (await askTagged(method, path, body, match)).json;
}

/**
 * As ask, with the tag of what the answer is about.
 * @returns {Promise<{json: any, tag: ?string}>}
 */
export async function askTagged(method, path, body, match) {
  let answer;
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (match) headers["If-Match"] = match;
  try {
    answer = await fetch(path, {
      method,
      credentials: "same-origin",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Failure(0, "The server does not answer.");
  }
  const text = await answer.text();
  const json = text && answer.headers.get("content-type")?.startsWith("application/json") ? JSON.parse(text) : null;
  if (!answer.ok) throw new Failure(answer.status, json?.error ?? `The server answered ${answer.status}.`);
  return { json, tag: answer.headers.get("etag") };
}

/** The rights of the token. */
export const session = { mayChange: true };

/** The path of a pool. @param {string} name */
export const pathOfPool = name => `/v1/pools/${encodeURIComponent(name)}`;

/** The path of a volume. @param {string} name */
export const pathOf = name => `/v1/volumes/${encodeURIComponent(name)}`;

/**
 * Follows the server: its status each second, and what happens.
 * @param {{ status(status: any): void, happened(event: any): void, lost(): void }} to
 * @returns {() => void} stops it
 */
export function follow(to) {
  let source = null;
  const open = () => {
    source = new EventSource("/v1/events");
    source.addEventListener("status", event => to.status(JSON.parse(event.data)));
    source.addEventListener("happened", event => to.happened(JSON.parse(event.data)));
    source.addEventListener("error", () => to.lost());
  };
  // A browser has few connections to a server, for all of its tabs: a hidden tab closes its own.
  const seen = () => {
    source?.close();
    source = null;
    if (!document.hidden) open();
  };
  seen();
  document.addEventListener("visibilitychange", seen);
  return () => {
    document.removeEventListener("visibilitychange", seen);
    source?.close();
  };
}
