// Up to four rankings side by side, with what differs between them.

import { levelName } from "./cards.js";
import { el, percent } from "./dom.js";
import { failure } from "./failure.js";

// `worked` has an answer per model, null where it failed; `draw(answer, marks)` makes a ranking.
export function columns(worked, answers, info, draw) {
  return el("div", { class: `compare of-${info.sides.length}` }, info.sides.map((side, at) => {
    const mine = worked[at];
    const heading = el("h2", { class: `who model-${at}` }, side.name, mine ? effect(mine) : null);
    if (!mine) return el("section", { class: "column", "aria-label": side.name }, heading, failure(answers[at].reason));
    return el("section", { class: "column", "aria-label": side.name }, heading, shares(mine, info), draw(mine, marksOf(worked, at, info)));
  }));
}

// Every model is compared with the first, and the first with the second.
function marksOf(worked, at, info) {
  const beside = at === 0 ? 1 : 0;
  if (!worked[beside]) return null;
  const ranks = new Map(worked[beside].hits.map((hit) => [hit.id, hit.rank]));
  const others = new Set(worked.filter((one, other) => one && other !== at).flatMap((one) => one.hits.map((hit) => hit.id)));
  const name = info.sides.length > 2 ? info.sides[beside].name : "the other ranking";
  return (hit) => difference(hit.rank, ranks.get(hit.id), others.has(hit.id), name);
}

function difference(mine, other, elsewhere, name) {
  if (!elsewhere) return { kind: "only", text: "only here", said: "only in this ranking" };
  if (other === undefined || other === mine) return null;
  const places = Math.abs(other - mine);
  return mine < other
    ? { kind: "up", text: `▲ ${places}`, said: `${places} places higher than in ${name}` }
    : { kind: "down", text: `▼ ${places}`, said: `${places} places lower than in ${name}` };
}

// What the other images of a query changed, where the class is known.
export function effect(answer) {
  if (!answer.alone || answer.alone.h_ap === null || answer.metrics?.h_ap === null) return null;
  const change = answer.metrics.h_ap - answer.alone.h_ap;
  const sign = change < 0 ? "−" : "+";
  return el("span", { class: `effect ${change < 0 ? "worse" : "better"}`, title: "H-AP of the first image alone, then of all of them; neither ranks the images of the query" },
    `H-AP ${percent(answer.alone.h_ap)} → ${percent(answer.metrics.h_ap)} (${sign}${(100 * Math.abs(change)).toFixed(1)})`);
}

// How much of the ranking shares what, as one bar.
function shares(answer, info) {
  const known = answer.hits.filter((hit) => hit.level !== null);
  if (!known.length) return null;
  const parts = info.levels.map((_, at) => info.levels.length - at).concat(0)
    .map((level) => [level, known.filter((hit) => hit.level === level).length]).filter(([, count]) => count);
  const said = parts.map(([level, count]) => `${count} ${levelName(level, info.levels)}`).join(", ");
  return el("div", { class: "stack", role: "img", "aria-label": said, title: said }, parts.map(([level, count]) => {
    const part = el("span", { colour: `var(--level-${level})` }, String(count));
    part.style.flexGrow = count;
    part.style.color = `var(--level-${level}-ink)`;
    return part;
  }));
}
