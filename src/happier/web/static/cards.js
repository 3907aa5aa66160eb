// Images with their frames, paths and scores; legends that put the colours into words.

import { byId, el, fixed, number, percent } from "./dom.js";
import { link } from "./place.js";

export function levelName(level, levels) {
  return level === 0 ? "nothing shared" : `same ${levels[level - 1]}`;
}

export function dots(level, depth) {
  return el("span", { class: "dots", "aria-hidden": "true" },
    Array.from({ length: depth }, (_, at) => el("i", { class: at < level ? "on" : null })));
}

export const colourOf = (level) => (level === null || level === undefined ? "var(--line)" : `var(--level-${level})`);

export function className(names) {
  if (!names.length) return [el("b", {}, "unknown class")];
  const above = names.slice(0, -1).join(" › ");
  return [el("b", {}, names.at(-1)), above ? el("small", {}, above) : null];
}

export function picture(item, { lazy = true, large = false } = {}) {
  const image = el("img", { src: large ? item.image : item.thumbnail, alt: "", loading: lazy ? "lazy" : null, decoding: "async" });
  image.addEventListener("error", () => image.replaceWith(el("span", { class: "broken" }, "image not available")), { once: true });
  return image;
}

// One image of a grid. `hit` has rank, score and level where it is a result.
export function card(item, { levels, place, note = null, votes = null } = {}) {
  const hit = item.rank !== undefined ? item : null;
  const level = hit ? hit.level : null;
  const said = [
    hit ? `${hit.rank}.` : "", item.names.join(", ") || "unknown class",
    hit ? `score ${fixed(hit.score)}` : "", level !== null ? levelName(level, levels) : "", note ? note.said : "",
  ].filter(Boolean).join(", ");
  return el("article", { class: level === null ? "card" : "card graded", colour: colourOf(level), "data-level": level, "data-id": item.id },
    el("a", { class: "frame", href: link({ id: item.id, k: place.k, within: place.view === "search" ? place.within : "" }), "data-link": true, "data-card": true,
      "aria-keyshortcuts": votes ? "+ -" : null, "aria-label": `${said}. Search with this image` }, picture(item)),
    el("div", { class: "caption", "aria-hidden": "true" },
      hit ? el("span", { class: "facts" }, el("span", { class: "rank" }, String(hit.rank)), level !== null ? dots(level, levels.length) : null,
        el("span", { class: "score" }, fixed(hit.score))) : null,
      className(item.names),
      note ? el("span", { class: `note ${note.kind}` }, note.text) : null),
    votes,
    el("button", { class: "zoom", type: "button", "aria-label": "Enlarge", title: "Enlarge (Space)", onclick: () => preview(item, levels) }, "⤢"));
}

export function skeletons(count) {
  return el("div", { class: "grid", "aria-hidden": "true" },
    Array.from({ length: Math.min(count, 24) }, () => el("div", { class: "card skeleton" }, el("div", { class: "frame" }), el("div", { class: "caption" }))));
}

export function message(kind, title, text, action = null) {
  return el("div", { class: `message ${kind}`, role: kind === "error" ? "alert" : null }, el("h2", {}, title), text ? el("p", {}, text) : null, action);
}

export function legend(levels, counts = null) {
  return el("ul", { class: "legend", "aria-label": "What the frames mean" },
    levels.map((_, at) => levels.length - at).concat(0).map((level) =>
      el("li", {}, el("span", { class: "swatch", colour: colourOf(level) }), levelName(level, levels), dots(level, levels.length),
        counts ? el("small", {}, number(counts[level])) : null)));
}

export function preview(item, levels) {
  const dialog = byId("preview");
  const rows = [
    ["class", item.names.join(" › ") || "unknown"],
    ["id", item.id],
    item.score !== undefined ? ["score", fixed(item.score, 4)] : null,
    item.level !== undefined && item.level !== null ? ["shares", levelName(item.level, levels)] : null,
  ].filter(Boolean);
  const close = () => dialog.close();
  dialog.replaceChildren(
    el("div", { class: "large", colour: colourOf(item.level) }, picture(item, { lazy: false, large: true })),
    el("dl", { class: "details" }, rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    el("div", { class: "row" },
      el("a", { class: "button", href: link({ id: item.id }), "data-link": true, onclick: close }, "Search with it"),
      item.class_path ? el("a", { class: "button quiet", href: link({ view: "class", path: item.class_path }), "data-link": true, onclick: close }, "Its class") : null,
      el("button", { class: "button quiet", type: "button", onclick: close }, "Close")));
  dialog.showModal();
}

// How good whole rankings are: a list of figures, or a table with one row per model.
export function metrics(rows, levels) {
  const columns = [
    ["H-AP", "Hierarchical average precision of the whole ranking: 100 % puts nearer classes first, all the way", (one) => percent(one.h_ap)],
    ["severity@1", "Levels between the query and the first result: 0 is the same class", (one) => fixed(one.severity["1"], 0)],
    ["severity@10", "Mean number of levels between the query and the first ten results", (one) => fixed(one.severity["10"], 1)],
    ...levels.map((level) => [`AP ${level}`, `Average precision where “same ${level}” counts as right`, (one) => percent(one.average_precision[level])]),
  ];
  const said = "How good the ranking is";
  if (rows.length === 1) {
    return el("div", { role: "group", "aria-label": said }, el("dl", { class: "metrics stats" },
      columns.map(([name, hint, text]) => el("div", { class: "stat", title: hint }, el("dt", {}, name), el("dd", {}, text(rows[0].values))))));
  }
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": said }, el("table", { class: "metrics" },
    el("thead", {}, el("tr", {}, el("td"), columns.map(([name, hint]) => el("th", { scope: "col", title: hint }, name)))),
    el("tbody", {}, rows.map(({ name, at, values }) => el("tr", {}, el("th", { scope: "row", class: `who model-${at}`, title: name }, name),
      columns.map(([, , text]) => el("td", {}, text(values))))))));
}

export function crumbs(names, pathOf) {
  return el("nav", { class: "crumbs", "aria-label": "Branch" }, el("ol", {}, names.map((name, at) =>
    el("li", {}, el("a", { href: pathOf(names.slice(0, at + 1)), "data-link": true }, name)))));
}

export const joined = (names) => names.map((name) => name.replaceAll("/", "\\/")).join("/");
export const split = (path) => path.replaceAll("\\/", "\0").split("/").filter(Boolean).map((name) => name.replaceAll("\0", "/"));
