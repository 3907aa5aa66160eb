// What stands above a list: how many results, and within which branch.

import { split } from "./cards.js";
import { debounce, el } from "./dom.js";
import { go, link } from "./place.js";

export function controls(place, ...more) {
  const output = el("output", { for: "k" }, String(place.k));
  const slider = el("input", { type: "range", id: "k", min: 1, max: 100, value: Math.min(100, place.k), "aria-label": "Number of results" });
  const apply = debounce(() => go(link({ ...place, k: slider.value, shown: 0 }), { replace: true }), 200);
  slider.addEventListener("input", () => { output.textContent = slider.value; apply(); });
  return el("div", { class: "controls" },
    el("label", { class: "slider", for: "k" }, "Results", slider, output),
    filter(place), ...more);
}

export function filter(place) {
  if (!place.within) return el("span", { class: "hint" }, "all classes");
  return el("span", { class: "filter" }, "within ", el("b", {}, split(place.within).join(" › ")),
    el("button", { type: "button", class: "clear", "aria-label": "Search all classes", title: "Search all classes (Esc)", onclick: () => go(link({ ...place, within: "", shown: 0 })) }, "×"));
}

export function choice(label, options, current, action) {
  return el("div", { class: "switch", role: "group", "aria-label": label }, options.map(([value, text]) =>
    el("button", { type: "button", "aria-pressed": String(value === current), onclick: () => action(value) }, text)));
}
