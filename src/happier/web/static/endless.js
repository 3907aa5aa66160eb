// Lists that grow as the reader nears their end. How far is in the address: back and reload find the same place.

import { el, number, say } from "./dom.js";
import { keep } from "./place.js";

const LARGEST = 200; // of one request
const AHEAD = 700; // pixels before the end
const FIRST = 8; // on the screen before the others are drawn

// Until what was drawn is on the screen. Nothing is, in a tab that the reader has not looked at.
const frame = () => new Promise((done) => (document.hidden ? done() : requestAnimationFrame(() => setTimeout(done))));

// `load(offset, limit)` gives { items, total }; `draw(item)` an element; `first` are items that are there already.
export async function endless(box, { load, draw, signal, page, shown = 0, first = null, className = "grid" }) {
  const grid = el("div", { class: className, "data-grid": true, "aria-busy": "true" });
  const button = el("button", { class: "button quiet", type: "button", onclick: () => next() });
  const end = el("div", { class: "row centre list-end" }, button);
  const list = [];
  let total = Infinity, busy = false;

  async function add(answer) {
    const atOnce = list.length ? answer.items.length : FIRST;
    grid.append(...answer.items.slice(0, atOnce).map(draw));
    if (!list.length) {
      box.replaceChildren(grid);
      await frame();
      if (signal.aborted) return;
    }
    grid.append(...answer.items.slice(atOnce).map(draw));
    list.push(...answer.items);
    total = answer.items.length ? answer.total : list.length;
  }

  async function grow(count) {
    busy = true;
    try {
      while (list.length < Math.min(count, total)) {
        const answer = await load(list.length, Math.min(LARGEST, count - list.length));
        if (signal.aborted) return;
        await add(answer);
        if (signal.aborted) return;
      }
      button.textContent = `Show more of ${number(total)}`;
    } finally {
      busy = false;
      end.hidden = list.length >= total;
    }
  }

  async function next() {
    if (busy || list.length >= total) return;
    try {
      await grow(list.length + page);
    } catch (error) {
      if (error.name !== "AbortError") button.textContent = `${error.message} Try again`;
      return;
    }
    if (signal.aborted) return;
    keep({ shown: list.length });
    say(`${number(list.length)} of ${number(total)}`);
  }

  if (first) await add(first);
  if (signal.aborted) return { list, total };
  await grow(Math.max(page, shown));
  if (signal.aborted) return { list, total };
  grid.removeAttribute("aria-busy");
  box.append(end);
  // Only a reader who scrolls wants more; the button is for those who do not. A page that is too short to scroll has a wheel only.
  const near = () => { if (!end.hidden && end.getBoundingClientRect().top < innerHeight + AHEAD) next(); };
  for (const event of ["scroll", "wheel"]) addEventListener(event, near, { passive: true, signal });
  return { list, total };
}
