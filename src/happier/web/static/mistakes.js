// Worst mistakes: which images of the catalogue does the model get most wrong?

import * as api from "./api.js";
import { className, colourOf, dots, levelName, legend, message, picture, skeletons } from "./cards.js";
import { el, fixed, number, percent, say } from "./dom.js";
import { filter, failure } from "./search.js";
import { go, link } from "./place.js";

const SORTS = {
  "severity": ["Furthest off", "The first result shares least with the query, although better was there; the surest of these first."],
  "h-ap": ["Lowest H-AP", "Queries whose whole ranking is worst."],
  "gain": ["Better than the other", "Queries where this model does most better than the other one, by H-AP."],
  "loss": ["Worse than the other", "Queries where this model does most worse than the other one, by H-AP."],
};

export async function showMistakes(main, place, { info, signal }) {
  const sort = SORTS[place.sort] ? place.sort : "severity";
  const side = info.sides.some((one) => one.side === place.side) ? place.side : "a";
  const list = el("div", { "aria-busy": "true" }, skeletons(12));
  const more = el("div", { class: "row centre" });
  const sorts = Object.keys(SORTS).filter((name) => info.sides.length > 1 || !["gain", "loss"].includes(name));
  main.replaceChildren(
    el("h1", {}, "Worst mistakes"),
    el("p", { class: "lead" }, SORTS[sort][1]),
    el("div", { class: "controls" },
      choice("Order", sorts.map((name) => [name, SORTS[name][0]]), sort, (name) => go(link({ ...place, sort: name }))),
      info.sides.length > 1 ? choice("Model", info.sides.map((one) => [one.side, one.name]), side, (name) => go(link({ ...place, side: name }))) : null,
      filter(place)),
    legend(info.levels), list, more);
  const shown = [];

  async function load() {
    let answer;
    for (let waits = 0; ; waits++) {
      answer = await api.mistakes({ side, sort, within: place.within, offset: shown.length }, signal);
      if (answer.ready) break;
      if (waits === 0) {
        list.prepend(el("p", { class: "hint wait" }, "Every image is being tried as a query; this takes a moment the first time."));
        say("Computing");
      }
      await new Promise((resolve) => setTimeout(resolve, 700));
    }
    shown.push(...answer.mistakes);
    list.removeAttribute("aria-busy");
    list.replaceChildren(shown.length
      ? el("div", { class: "mistakes", "data-grid": true }, shown.map((mistake) => pair(mistake, info, place)))
      : message("empty", "No mistakes here", "Every first result is as near to its query as the catalogue allows."));
    more.replaceChildren(shown.length < answer.total ? el("button", { class: "button quiet", type: "button", onclick: load }, `Show more of ${number(answer.total)}`) : "");
    say(`${number(answer.total)} mistakes`);
  }

  try {
    await load();
  } catch (error) {
    if (error.name !== "AbortError") list.replaceChildren(failure(error));
  }
}

function pair(mistake, info, place) {
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

export function choice(label, options, current, action) {
  return el("div", { class: "switch", role: "group", "aria-label": label }, options.map(([value, text]) =>
    el("button", { type: "button", "aria-pressed": String(value === current), onclick: () => action(value) }, text)));
}
