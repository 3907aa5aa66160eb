// The JSON API: one function per endpoint, errors as readable text.

export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

// What comes from the server, or a readable error where it is gone.
export async function reached(load) {
  try {
    return await load();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The server does not answer. Is `happier serve` still running?");
  }
}

// Answers that the page came with, by address: what it asks first need not be fetched.
const given = new Map(Object.entries(JSON.parse(document.getElementById("answers")?.textContent ?? "{}")));

async function ask(path, options = {}, read = (answer) => answer.json()) {
  let answer = given.get(path);
  if (given.delete(path)) return answer;
  for (let attempt = 0; ; attempt++) {
    answer = await reached(() => fetch(path, options));
    // The server is busy: wait a little, then retry.
    if (answer.status !== 429 || attempt >= 3) break;
    await new Promise((resolve) => setTimeout(resolve, 400 * 2 ** attempt));
  }
  if (answer.ok) return read(answer);
  const body = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, body.detail || `The server answered ${answer.status}.`);
}

function address(path, values) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const one of [value].flat()) if (one !== undefined && one !== null && one !== "") query.append(name, one);
  }
  return `${path}?${query}`;
}

export const info = () => ask("api/info");
export const tree = (path, offset = 0) => ask(address("api/tree", { path, offset }));
export const classes = (text, limit = 20) => ask(address("api/classes", { text, limit }));
export const items = (values, signal) => ask(address("api/items", values), { signal });
export const search = (values, signal) => ask(address("api/search", values), { signal });
export const identify = (values, signal) => ask(address("api/identify", values), { signal });
export const mistakes = (values, signal) => ask(address("api/mistakes", values), { signal });
export const suspects = (values, signal) => ask(address("api/suspects", values), { signal });
export const decide = (decision) => ask("api/suspects", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(decision) });
export const oneClass = (values, signal) => ask(address("api/class", values), { signal });
export const map = (values, signal) => ask(address("api/map", values), { signal });
export const mapPoints = (values, signal) => ask(address("api/map/points", values), { signal }, (answer) => answer.arrayBuffer());
export const mapItems = (values, signal) => ask(address("api/map/items", values), { signal });

export function upload(file) {
  const body = new FormData();
  body.append("file", file, file.name || "clipboard.png");
  return ask("api/uploads", { method: "POST", body });
}
