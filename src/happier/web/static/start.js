// No query yet: bring an image, or pick one.

import * as api from "./api.js";
import { card, message, skeletons, split } from "./cards.js";
import { filter } from "./controls.js";
import { byId, el, number, say } from "./dom.js";
import { endless } from "./endless.js";
import { failure } from "./failure.js";
import { link } from "./place.js";
import { actions } from "./share.js";

const PAGE = 48;

export async function showStart(main, place, { info, signal }) {
  const side = info.sides[0];
  const box = el("div", {}, skeletons(24));
  const head = el("section", { class: place.within ? "start small" : "start" },
    el("h1", {}, place.within ? split(place.within).at(-1) : "Search by image"),
    place.within
      ? el("p", { class: "links" }, filter(place), " ", el("a", { href: link({ view: "class", path: place.within }), "data-link": true }, "how well is this class found?"))
      : el("p", { class: "lead" }, `${number(side.images)} images in ${number(side.classes)} classes of ${info.levels.length} levels: ${info.levels.join(", ")}. Bring an image or several, or start from one below.`),
    info.sides.every((one) => one.embeds) ? el("button", { class: "dropzone", type: "button", onclick: () => byId("file").click() },
      el("strong", {}, "Choose images"), el("span", {}, "or drop them anywhere, or paste one")) : el("p", { class: "hint" }, "This index keeps no model, so it can be searched with its own images only."));
  main.replaceChildren(head, box);
  const draw = (item) => card(item, { levels: info.levels, place });
  // Unfiltered, the first images would all be of one class: take some from all over the catalogue.
  const load = (offset, limit) => (place.within ? api.items({ within: place.within, offset, limit }, signal) : api.items({ spread: true, limit: 36 }, signal).then(({ items }) => ({ items, total: items.length })));
  try {
    const { list, total } = await endless(box, { load, draw, signal, page: PAGE, shown: place.shown });
    if (signal.aborted) return;
    if (!list.length) box.replaceChildren(message("empty", "No images", "This branch is empty."));
    else if (place.within) head.append(actions(() => list, info.levels));
    say(`${number(place.within ? total : side.images)} images`);
  } catch (error) {
    if (error.name !== "AbortError") box.replaceChildren(failure(error));
  }
}
