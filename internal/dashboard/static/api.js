// Calls of the HTTP API. Addresses are relative to the page, so a proxy may add any path.

// A Problem is an answer that is not a success.
export class Problem extends Error {
  constructor(status, body) {
    super(body?.detail ? `${body.title}: ${body.detail}` : (body?.title ?? `the server answered ${status}`));
    this.status = status;
    this.type = body?.type ?? "";
  }
}

export const session = { roles: [], queues: null, open: false, readOnly: false, name: "", csrf: "", known: false };

// call sends a request and returns the decoded answer, or null if it is empty.
export async function call(method, path, body, headers = {}) {
  const options = { method, headers: { ...headers }, credentials: "same-origin", cache: "no-store", signal: AbortSignal.timeout(35000) };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = typeof body === "string" ? body : JSON.stringify(body);
  }
  if (session.csrf && method !== "GET") options.headers["X-Csrf-Token"] = session.csrf;
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    throw new Problem(0, { title: error.name === "TimeoutError" ? "the server did not answer in time" : "the server cannot be reached" });
  }
  const text = await answer.text();
  let decoded = null;
  try {
    decoded = text ? parse(text) : null;
  } catch {
    throw new Problem(answer.status, { title: "the server sent an answer that is not JSON" });
  }
  if (!answer.ok && decoded?.type === "urn:jq:csrf") {
    await openSession(); // somebody has signed in again in another tab
    throw new Problem(answer.status, { title: `nothing was changed: this browser is signed in as ${session.name} now. Try again` });
  }
  if (!answer.ok) throw new Problem(answer.status, decoded);
  if (decoded?.now) noteTime(decoded.now);
  return decoded;
}

// asWritten keeps the numbers of documents that JavaScript would round or write in another way. Older browsers round them.
const asWritten = (_, value, context) =>
  typeof value === "number" && context && String(value) !== context.source ? JSON.rawJSON(context.source) : value;

// parse reads JSON. Browsers cannot call a function for the values of a document that is nested very deeply; its numbers are rounded.
function parse(text) {
  try {
    return JSON.parse(text, asWritten);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return JSON.parse(text);
  }
}

export const get = (path, query) => call("GET", path + queryOf(query));

// queryOf writes query parameters. Empty ones are left out, and a list is repeated.
export function queryOf(query = {}) {
  const all = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "") all.append(key, one);
    }
  }
  const text = all.toString();
  return text ? `?${text}` : "";
}

// orNull returns null where the store or the token has not the ability to answer.
export async function orNull(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error instanceof Problem && [403, 404, 501].includes(error.status)) return null;
    throw error;
  }
}

// The store's clock may differ from the browser's.
let offset = 0;

function noteTime(now) {
  const stores = Date.parse(now);
  if (!Number.isNaN(stores)) offset = stores - Date.now();
}

// now returns the time of the store, as far as the page knows it.
export const now = () => Date.now() + offset;

// openSession reads who is looking, and what they may do.
export async function openSession() {
  const answer = await get("v1/session");
  Object.assign(session, {
    roles: answer.roles ?? [],
    queues: answer.queues ?? null,
    open: Boolean(answer.open),
    readOnly: Boolean(answer.read_only),
    name: answer.name ?? "",
    csrf: answer.csrf_token ?? "",
    known: true,
  });
}

export async function login(token) {
  await call("POST", "v1/session", { token });
  await openSession();
}

export async function logout() {
  await call("DELETE", "v1/session");
  Object.assign(session, { roles: [], known: false, csrf: "" });
}

const has = (role) => session.roles.includes(role);

// What the session may do. The server decides; the page only hides what it would refuse.
export const may = {
  read: () => has("viewer") || has("operator"),
  operate: () => has("operator") && !session.readOnly,
  enqueue: () => (has("producer") || has("operator")) && !session.readOnly,
};
