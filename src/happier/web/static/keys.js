// Keys of the whole page; a view may have its own.

import { byId } from "./dom.js";
import * as places from "./place.js";

export function listenToKeys(main, { openSide, closeSide }) {
  addEventListener("keydown", (event) => onKey(event, main, { openSide, closeSide }));
}

function onKey(event, main, { openSide, closeSide }) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") || event.defaultPrevented) return;
  if (event.target.closest("input, textarea, select, [role=tree]")) return;
  const place = places.read();
  const actions = {
    "/": () => { openSide(); byId("find-class").focus(); },
    "?": () => byId("help").showModal(),
    u: () => byId("file").click(),
    s: () => places.go(location.pathname),
    m: () => places.go(places.link({ view: "mistakes" })),
    c: () => places.go(places.link({ view: "class" })),
    p: () => places.go(places.link({ view: "map" })),
    Escape: () => { if (place.within) places.go(places.link({ ...place, within: "", shown: 0 })); else closeSide(); },
  };
  const cards = [...main.querySelectorAll("[data-card]")];
  const at = cards.indexOf(document.activeElement);
  if (event.key.startsWith("Arrow") && cards.length) {
    const next = at < 0 ? (["ArrowDown", "ArrowRight"].includes(event.key) && !event.target.closest("button, a") ? cards[0] : null) : neighbour(cards, at, event.key);
    if (next) { event.preventDefault(); next.focus(); next.scrollIntoView({ block: "nearest" }); }
  } else if (event.key === " " && at >= 0) {
    event.preventDefault();
    cards[at].closest("article").querySelector(".zoom")?.click();
  } else if ((event.key === "+" || event.key === "-") && at >= 0) {
    event.preventDefault();
    cards[at].closest("article").querySelector(event.key === "+" ? ".vote.more" : ".vote.less")?.click();
  } else if (actions[event.key]) {
    event.preventDefault();
    actions[event.key]();
  }
}

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
