// The name of an uploaded image: a bar for each level, how sure to be, and the images that voted.

import * as api from "./api.js";
import { card } from "./cards.js";
import { el, percent } from "./dom.js";

const SHOWN = 8;

export function nameOf(place, info, signal) {
  const box = el("section", { class: "identify", "aria-label": "What it is", "aria-busy": "true" });
  return { box, filled: fillName(box, place, info, signal) };
}

async function fillName(box, place, info, signal) {
  let found;
  try {
    found = await api.identify({ upload: place.upload[0], within: place.within }, signal);
  } catch (error) {
    if (error.name !== "AbortError") box.replaceChildren(el("p", { class: "hint" }, error.message));
    box.removeAttribute("aria-busy");
    return;
  }
  const said = el("p", { class: "identified", role: "status" });
  const beside = el("p", { class: "hint" });
  const bars = found.steps.slice(1).map((step) => ({ step, row: el("li", {},
    el("span", {}, el("small", {}, `${info.levels[step.level - 1]} `), step.names.at(-1)),
    el("span", { class: "meter", share: step.probability }),
    el("span", { class: "n" }, percent(step.probability))) }));
  const output = el("output", { for: "sure" });
  const slider = el("input", { type: "range", id: "sure", min: 50, max: 99, value: Math.round(100 * found.sure), "aria-label": "How sure, in percent" });
  // Every probability is here already: another threshold needs no other request.
  const apply = () => {
    const sure = slider.value / 100;
    output.textContent = `${slider.value} %`;
    const step = found.steps.findLast((one) => one.probability >= sure) ?? found.steps[0];
    const name = step.names.join(" › ");
    if (step.new >= sure) said.textContent = name ? `new below ${name}` : "of no class that is known";
    else said.textContent = name || "not sure of any class";
    const rest = [...step.alternatives.map((one) => [one.names.at(-1), one.probability]), ["new", step.new]]
      .filter(([, value]) => value >= 0.005).sort((a, b) => b[1] - a[1]).slice(0, 4);
    beside.textContent = rest.map(([what, value]) => `${what} ${percent(value)}`).join(", ");
    for (const { step: own, row } of bars) row.classList.toggle("unsure", own.probability < sure);
  };
  slider.addEventListener("input", apply);
  apply();
  box.removeAttribute("aria-busy");
  box.replaceChildren(
    el("div", { class: "identify-head" }, said, el("label", { class: "slider", for: "sure" }, "Sure", slider, output)),
    beside,
    el("ul", { class: "bars" }, bars.map(({ row }) => row)),
    found.rough ? el("p", { class: "hint" }, "Too few images to calibrate well: the probabilities are rough.") : "",
    el("details", {}, el("summary", {}, found.neighbours.length > SHOWN ? `The first ${SHOWN} of ${found.neighbours.length} images that voted` : "The images that voted"),
      el("div", { class: "grid" }, found.neighbours.slice(0, SHOWN).map((hit) => card(hit, { levels: info.levels, place })))));
}
