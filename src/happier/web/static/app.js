// The page: reads the address, shows the view it names, and takes image uploads.

import * as api from "./api.js";
import { message } from "./cards.js";
import { showClass } from "./classes.js";
import { byId, el, say } from "./dom.js";
import { showMistakes } from "./mistakes.js";
import * as places from "./place.js";
import { failure, showSearch } from "./search.js";
import { showSuspects } from "./suspects.js";
import { mark, startTree } from "./tree.js";

const VIEWS = { search: showSearch, mistakes: showMistakes, class: showClass, suspects: showSuspects };
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
    await VIEWS[place.view](main, place, { info, signal });
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
  if (place.view === "class") places.go(places.link({ ...place, path }));
  else places.go(places.link({ ...place, within: path }));
}

// Adding images: choose, drop, paste.
async function searchWith(file) {
  if (!info.sides.every((side) => side.embeds)) return complain("This index keeps no model", "It can be searched with its own images only.");
  if (!file.type.startsWith("image/")) return complain("That is not an image", `${file.name || "What you brought"} is ${file.type || "of an unknown kind"}.`);
  if (file.size > info.max_upload_bytes) return complain("That image is too large", `At most ${Math.round(info.max_upload_bytes / 2 ** 20)} MiB are accepted.`);
  running.abort();
  const local = URL.createObjectURL(file);
  main.replaceChildren(el("section", { class: "busy", "aria-busy": "true" }, el("img", { src: local, alt: "Your image" }), el("p", {}, "Searching with your image …")));
  say("Searching with your image");
  scrollTo(0, 0);
  try {
    const { upload } = await api.upload(file);
    const place = places.read();
    places.go(places.link({ upload, k: place.k, within: place.view === "search" ? place.within : "" }));
  } catch (error) {
    complain("The image could not be used", error.message);
  } finally {
    URL.revokeObjectURL(local);
  }
}

function complain(title, text) {
  running.abort();
  main.replaceChildren(message("error", title, text, el("div", { class: "row" },
    el("button", { class: "button", type: "button", onclick: () => byId("file").click() }, "Choose another"),
    el("button", { class: "button quiet", type: "button", onclick: () => show() }, "Back"))));
  say(`${title}. ${text}`);
}

byId("file").addEventListener("change", (event) => {
  const [file] = event.target.files;
  event.target.value = "";
  if (file) searchWith(file);
});

let dragged = 0;
addEventListener("dragenter", (event) => { if ([...event.dataTransfer.types].includes("Files")) { dragged++; byId("drop").hidden = false; } });
addEventListener("dragleave", () => { dragged = Math.max(0, dragged - 1); if (!dragged) byId("drop").hidden = true; });
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  dragged = 0;
  byId("drop").hidden = true;
  const file = event.dataTransfer.files[0];
  if (file) searchWith(file);
});
addEventListener("paste", (event) => {
  const file = [...(event.clipboardData?.files ?? [])].find((one) => one.type.startsWith("image/"));
  if (file) { event.preventDefault(); searchWith(file); }
});

// Keys.
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.closest("input, textarea, select, [role=tree]")) return;
  const place = places.read();
  const actions = {
    "/": () => { openSide(); byId("find-class").focus(); },
    "?": () => byId("help").showModal(),
    u: () => byId("file").click(),
    s: () => places.go(location.pathname),
    m: () => places.go(places.link({ view: "mistakes" })),
    c: () => places.go(places.link({ view: "class" })),
    Escape: () => { if (place.within) places.go(places.link({ ...place, within: "" })); else closeSide(); },
  };
  const cards = [...main.querySelectorAll("[data-card]")];
  const at = cards.indexOf(document.activeElement);
  if (event.key.startsWith("Arrow") && cards.length) {
    const next = at < 0 ? (["ArrowDown", "ArrowRight"].includes(event.key) && !event.target.closest("button, a") ? cards[0] : null) : neighbour(cards, at, event.key);
    if (next) { event.preventDefault(); next.focus(); next.scrollIntoView({ block: "nearest" }); }
  } else if (event.key === " " && at >= 0) {
    event.preventDefault();
    cards[at].closest("article").querySelector(".zoom")?.click();
  } else if (actions[event.key]) {
    event.preventDefault();
    actions[event.key]();
  }
});

function neighbour(cards, at, key) {
  if (key === "ArrowRight") return cards[at + 1];
  if (key === "ArrowLeft") return cards[at - 1];
  const here = cards[at].getBoundingClientRect();
  const down = key === "ArrowDown";
  // The nearest card in the next row, by its middle.
  let best = null, distance = Infinity;
  for (const card of cards) {
    const box = card.getBoundingClientRect();
    const rows = down ? box.top - here.top : here.top - box.top;
    if (rows <= here.height / 2) continue;
    const far = rows * 10 + Math.abs(box.left + box.width / 2 - here.left - here.width / 2);
    if (far < distance) { best = card; distance = far; }
  }
  return best;
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
new ResizeObserver(() => document.documentElement.style.setProperty("--bar", `${bar.offsetHeight}px`)).observe(bar);
byId("open-tree").addEventListener("click", () => (document.body.classList.contains("side-open") ? closeSide() : openSide()));
byId("help-button").addEventListener("click", () => byId("help").showModal());
for (const dialog of document.querySelectorAll("dialog")) {
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
}

async function start() {
  main.replaceChildren(el("p", { class: "hint" }, "Opening the catalogue …"));
  try {
    info = await api.info();
  } catch (error) {
    main.replaceChildren(failure(error));
    return;
  }
  byId("catalogue").textContent = info.sides.length > 1 ? `${info.title}: ${info.sides.map((side) => side.name).join(" and ")}` : info.title;
  places.watch(show);
  await Promise.all([startTree(info, chooseBranch), show()]);
}

start();
