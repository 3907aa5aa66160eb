// The whole state is in the address: every view can be linked to, and the back button works.

const NAMES = ["view", "id", "upload", "label", "k", "within", "path", "sort", "side", "kind"];
export const DEFAULT_K = 24;

export function read() {
  const query = new URLSearchParams(location.search);
  const place = {};
  for (const name of NAMES) place[name] = query.get(name) ?? "";
  place.k = Math.min(200, Math.max(1, Number.parseInt(place.k, 10) || DEFAULT_K));
  if (!["mistakes", "class", "suspects"].includes(place.view)) place.view = "search";
  return place;
}

export function link(values) {
  const query = new URLSearchParams();
  for (const name of NAMES) {
    const value = values[name];
    if (value === undefined || value === null || value === "") continue;
    if (name === "k" && Number(value) === DEFAULT_K) continue;
    if (name === "view" && value === "search") continue;
    query.set(name, value);
  }
  const text = query.toString();
  return text ? `${location.pathname}?${text}` : location.pathname;
}

let onChange = () => {};

export function watch(action) {
  onChange = action;
  history.scrollRestoration = "manual";
  addEventListener("popstate", (event) => onChange({ scroll: event.state?.scroll ?? 0, back: true }));
}

export function go(to, { replace = false } = {}) {
  if (to === location.pathname + location.search) replace = true;
  if (!replace) {
    // Remember the scroll position for going back.
    history.replaceState({ ...history.state, scroll: scrollY }, "");
    history.pushState({}, "", to);
  } else {
    history.replaceState(history.state, "", to);
  }
  onChange({ scroll: replace ? scrollY : 0, back: false });
}
