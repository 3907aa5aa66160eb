// The page: reads the address and shows the view that it names.

import * as api from "./api.js";
import { byId, el } from "./dom.js";
import { failure } from "./failure.js";
import { listenToKeys } from "./keys.js";
import * as places from "./place.js";
import { showSearch } from "./search.js";
import { mark, startTree } from "./tree.js";
import { takeImages } from "./uploads.js";

// The first result should not wait for the code of the other views.
const VIEWS = {
  search: () => showSearch,
  mistakes: async () => (await import("./mistakes.js")).showMistakes,
  class: async () => (await import("./classes.js")).showClass,
  suspects: async () => (await import("./suspects.js")).showSuspects,
  map: async () => (await import("./map.js")).showMap,
};
const main = byId("main");
let info = null;
let running = new AbortController();
let shownView = "";

async function show({ scroll = 0, back = false } = {}) {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  const place = places.read();
  for (const anchor of document.querySelectorAll("nav a[data-view]")) {
    if (anchor.dataset.view === place.view) anchor.setAttribute("aria-current", "page"); else anchor.removeAttribute("aria-current");
  }
  closeSide();
  mark(place.view === "class" ? place.path : place.within);
  const moved = shownView !== "" && !(scroll && !back);
  shownView = place.view;
  if (!back && scroll === 0) scrollTo(0, 0);
  if (moved && !back && document.activeElement?.closest("main, dialog")) main.focus({ preventScroll: true });
  try {
    const view = await api.reached(VIEWS[place.view]);
    if (signal.aborted) return;
    await places.drawing(() => view(main, place, { info, signal }));
  } catch (error) {
    if (error.name === "AbortError" || signal.aborted) return;
    main.replaceChildren(failure(error));
  }
  if (signal.aborted) return;
  document.title = `${main.querySelector("h1")?.textContent ?? "Search"} · ${info.title} · happier`;
  if (scroll) requestAnimationFrame(() => scrollTo(0, scroll));
}

// Links within the page do not reload it.
document.addEventListener("click", (event) => {
  const anchor = event.target.closest("a[data-link]");
  if (!anchor || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  places.go(anchor.pathname + anchor.search);
});

function chooseBranch(path) {
  const place = places.read();
  if (place.view === "class") places.go(places.link({ ...place, path, shown: 0 }));
  else places.go(places.link({ ...place, within: path, shown: 0, area: "", at: "" }));
}

function openSide() {
  document.body.classList.add("side-open");
  byId("open-tree").setAttribute("aria-expanded", "true");
}

function closeSide() {
  document.body.classList.remove("side-open");
  byId("open-tree").setAttribute("aria-expanded", "false");
}

// The bar wraps where the window is narrow or the font is wide; the tree is below it.
const bar = document.querySelector(".bar");
new ResizeObserver(() => {
  // As a rule the style sheet is right: to say so again would style the whole page again.
  if (Math.abs(parseFloat(getComputedStyle(byId("side")).top) - bar.offsetHeight) < 1) return;
  document.documentElement.style.setProperty("--bar", `${bar.offsetHeight}px`);
}).observe(bar);
byId("open-tree").addEventListener("click", () => (document.body.classList.contains("side-open") ? closeSide() : openSide()));
byId("help-button").addEventListener("click", () => byId("help").showModal());
for (const dialog of document.querySelectorAll("dialog")) {
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
}

const listed = (names) => `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;

async function start() {
  main.replaceChildren(el("p", { class: "hint" }, "Opening the catalogue …"));
  try {
    info = await api.info();
  } catch (error) {
    main.replaceChildren(failure(error));
    return;
  }
  byId("catalogue").textContent = info.sides.length > 1 ? `${info.title}: ${listed(info.sides.map((side) => side.name))}` : info.title;
  places.watch(show);
  takeImages(info, main, { stop: () => running.abort(), back: () => show() });
  listenToKeys(main, { openSide, closeSide });
  const scroll = history.state?.scroll ?? 0;
  await Promise.all([startTree(info, chooseBranch), show({ scroll, back: scroll > 0 })]);
}

start();
