// The whole state is in the address: every view can be linked to, and the back button works.

import { debounce } from "./dom.js";

const NAMES = ["view", "id", "upload", "more", "less", "less_upload", "label", "each", "k", "shown", "within", "path", "sort", "side", "kind", "at", "area"];
const LISTS = new Set(["id", "upload", "more", "less", "less_upload"]);
const VIEWS = ["mistakes", "class", "suspects", "map"];
export const DEFAULT_K = 24;
export const MAX_IMAGES = 16;

export function read() {
  const query = new URLSearchParams(location.search);
  const place = {};
  for (const name of NAMES) place[name] = LISTS.has(name) ? query.getAll(name).filter(Boolean).slice(0, MAX_IMAGES) : query.get(name) ?? "";
  place.k = Math.min(200, Math.max(1, Number.parseInt(place.k, 10) || DEFAULT_K));
  place.shown = Math.max(0, Number.parseInt(place.shown, 10) || 0);
  if (!VIEWS.includes(place.view)) place.view = "search";
  return place;
}

export function link(values) {
  const query = new URLSearchParams();
  for (const name of NAMES) {
    const value = values[name];
    if (value === undefined || value === null || value === "" || value === 0) continue;
    if (name === "k" && Number(value) === DEFAULT_K) continue;
    if (name === "view" && value === "search") continue;
    for (const one of [value].flat()) query.append(name, one);
  }
  const text = query.toString();
  return text ? `${location.pathname}?${text}` : location.pathname;
}

// The images of a search, as the API takes them.
export const queryOf = (place) => ({ id: place.id, upload: place.upload, more: place.more, less: place.less, less_upload: place.less_upload, label: place.id.length ? "" : place.label });

let onChange = () => {};

export function watch(action) {
  onChange = action;
  history.scrollRestoration = "manual";
  addEventListener("popstate", (event) => onChange({ scroll: event.state?.scroll ?? 0, back: true }));
  // For a reload: the browser keeps the state of the history, not the scroll position of a page that is drawn later.
  addEventListener("scroll", debounce(remember, 120), { passive: true });
  addEventListener("pagehide", remember);
}

let drawn = 0;
const remember = () => { if (!drawn) history.replaceState({ ...history.state, scroll: scrollY }, ""); };

// While a page is drawn again it is short for a moment: that is no place to remember.
export async function drawing(work) {
  drawn++;
  try { return await work(); } finally { drawn--; }
}

export function go(to, { replace = false } = {}) {
  if (to === location.pathname + location.search) replace = true;
  if (!replace) {
    // Remember the scroll position for going back.
    remember();
    history.pushState({}, "", to);
  } else {
    history.replaceState(history.state, "", to);
  }
  onChange({ scroll: replace ? scrollY : 0, back: false });
}

// Change the address without drawing the page again.
export function keep(values) {
  history.replaceState(history.state, "", link({ ...read(), ...values }));
}
