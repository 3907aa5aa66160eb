// Worst mistakes: which images of the catalogue does the model get most wrong?

import * as api from "./api.js";
import { className, colourOf, dots, levelName, legend, message, picture, skeletons } from "./cards.js";
import { el, fixed, number, percent, say } from "./dom.js";
import { choice, filter } from "./controls.js";
import { endless } from "./endless.js";
import { failure } from "./failure.js";
import { go, link } from "./place.js";

const PAGE = 24;

const SORTS = {
  "severity": ["Furthest off", "The first result shares least with the query, although better was there; the surest of these first."],
  "h-ap": ["Lowest H-AP", "Queries whose whole ranking is worst."],
  "gain": ["Better than the other", "Queries where this model does most better than the other one, by H-AP."],
  "loss": ["Worse than the other", "Queries where this model does most worse than the other one, by H-AP."],
};

export async function showMistakes(main, place, { info, signal }) {
  const sort = SORTS[place.sort] ? place.sort : "severity";
  const side = info.sides.some((one) => one.side === place.side) ? place.side : "a";
  const box = el("div", { "aria-busy": "true" }, skeletons(12));
  const sorts = Object.keys(SORTS).filter((name) => info.sides.length > 1 || !["gain", "loss"].includes(name));
  const another = (values) => go(link({ ...place, ...values, shown: 0 }));
  main.replaceChildren(
    el("h1", {}, "Worst mistakes"),
    el("p", { class: "lead" }, said(sort, side, info)[1]),
    el("div", { class: "controls" },
      choice("Order", sorts.map((name) => [name, said(name, side, info)[0]]), sort, (name) => another({ sort: name })),
      info.sides.length > 1 ? choice("Model", info.sides.map((one) => [one.side, one.name]), side, (name) => another({ side: name })) : null,
      filter(place)),
    legend(info.levels), box);

  async function load(offset, limit) {
    for (let waits = 0; ; waits++) {
      const answer = await api.mistakes({ side, sort, within: place.within, offset, limit }, signal);
      if (answer.ready) return { items: answer.mistakes, total: answer.total };
      if (waits === 0) {
        box.prepend(el("p", { class: "hint wait" }, "Every image is being tried as a query; this takes a moment the first time."));
        say("Computing");
      }
      await new Promise((resolve) => setTimeout(resolve, 700));
    }
  }

  try {
    const { list, total } = await endless(box, { load, draw: (mistake) => pair(mistake, info), signal, page: PAGE, shown: place.shown, className: "mistakes" });
    if (signal.aborted) return;
    box.removeAttribute("aria-busy");
    if (!list.length) box.replaceChildren(message("empty", "No mistakes here", "Every first result is as near to its query as the catalogue allows."));
    say(`${number(total)} mistakes`);
  } catch (error) {
    if (error.name !== "AbortError") box.replaceChildren(failure(error));
  }
}

// With more than two models, each is compared with the first, and the first with the second.
function said(sort, side, info) {
  const [title, text] = SORTS[sort];
  if (info.sides.length < 3) return [title, text];
  const name = info.sides[side === "a" ? 1 : 0].name;
  return [title.replace("the other", name), text.replace("the other one", name)];
}

function pair(mistake, info) {
  const { query, result } = mistake;
  const said = `${query.names.join(", ")} is taken for ${result.names.join(", ")}, ${levelName(result.level, info.levels)}, score ${fixed(result.score)}. Search with the query`;
  return el("article", { class: "mistake", colour: colourOf(result.level), "data-id": query.id },
    el("a", { class: "pair", href: link({ id: query.id }), "data-link": true, "data-card": true, "aria-label": said },
      el("span", { class: "asked" }, picture(query)), el("span", { class: "arrow", "aria-hidden": "true" }, "→"), el("span", { class: "got" }, picture(result))),
    el("div", { class: "captions" },
      el("div", {}, className(query.names)), el("div", {}, className(result.names))),
    el("p", { class: "facts" }, dots(result.level, info.levels.length), el("span", {}, levelName(result.level, info.levels)),
      el("span", { class: "score" }, `H-AP ${percent(mistake.h_ap)}${mistake.other_h_ap !== null ? ` / ${percent(mistake.other_h_ap)}` : ""}`)));
}
