// Search: the query, what the frames mean, and one ranking, or two side by side.

import * as api from "./api.js";
import { card, className, legend, levelName, message, metrics, picture, preview, skeletons, split } from "./cards.js";
import { byId, debounce, el, number, percent, say } from "./dom.js";
import { nameOf } from "./identify.js";
import { go, link } from "./place.js";

export async function showSearch(main, place, { info, signal }) {
  if (!place.id && !place.upload) return showStart(main, place, { info, signal });
  const results = el("div", { class: "results", "aria-busy": "true" }, skeletons(place.k));
  const queryBox = el("section", { class: "query-box", "aria-label": "The query" }, el("div", { class: "query-image skeleton" }));
  main.replaceChildren(el("h1", { class: "visually-hidden" }, "Search results"), queryBox, controls(place, info), results);
  const values = { id: place.id, upload: place.upload, label: place.upload ? place.label : "", k: place.k, within: place.within };
  const answers = await Promise.allSettled(info.sides.map((side) => api.search({ ...values, side: side.side }, signal)));
  if (signal.aborted) return;
  const worked = answers.map((answer) => (answer.status === "fulfilled" ? answer.value : null));
  const first = worked.find(Boolean);
  results.removeAttribute("aria-busy");
  if (!first) {
    queryBox.remove();
    main.querySelector(".controls").remove();
    results.replaceChildren(failure(answers[0].reason));
    say(answers[0].reason.message);
    return;
  }
  fillQuery(queryBox, first.query, worked, place, info);
  if (first.query.upload) queryBox.after(nameOf(place, info, signal));
  const known = first.hits.some((hit) => hit.level !== null);
  const counts = worked.find((answer) => answer?.metrics)?.metrics.counts ?? null;
  results.replaceChildren(
    known ? legend(info.levels, counts) : el("p", { class: "hint" }, first.query.upload
      ? "Say its class, and the frames show what each result shares with it."
      : "The class of this image is unknown, so the frames stay plain."),
    info.sides.length > 1
      ? el("div", { class: "compare" }, info.sides.map((side, at) => column(side, worked, at, answers[at], place, info)))
      : ranking(first, null, place, info));
  const quality = first.metrics ? `, H-AP ${percent(first.metrics.h_ap)}` : "";
  say(`${first.hits.length} results${quality}`);
}

function ranking(answer, marks, place, info) {
  if (!answer.hits.length) return message("empty", "Nothing here", "This branch holds no other image.");
  return el("div", { class: "grid", "data-grid": true }, answer.hits.map((hit) => card(hit, { levels: info.levels, place, note: marks?.(hit) })));
}

function column(side, worked, at, answer, place, info) {
  const mine = worked[at], other = worked[1 - at];
  const heading = el("h2", { class: `who model-${at}` }, side.name);
  if (!mine) return el("section", { class: "column" }, heading, failure(answer.reason));
  const ranks = new Map((other?.hits ?? []).map((hit) => [hit.id, hit.rank]));
  const marks = other ? (hit) => difference(hit.rank, ranks.get(hit.id)) : null;
  return el("section", { class: "column", "aria-label": side.name }, heading, shares(mine, info), ranking(mine, marks, place, info));
}

function difference(mine, other) {
  if (other === undefined) return { kind: "only", text: "only here", said: "only in this ranking" };
  if (other === mine) return null;
  const places = Math.abs(other - mine);
  return mine < other
    ? { kind: "up", text: `▲ ${places}`, said: `${places} places higher than in the other ranking` }
    : { kind: "down", text: `▼ ${places}`, said: `${places} places lower than in the other ranking` };
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

function fillQuery(box, query, worked, place, info) {
  const image = { ...query, id: query.item?.id ?? query.name, thumbnail: query.thumbnail, image: query.image };
  const measured = worked.map((answer, at) => (answer?.metrics ? { name: info.sides[at].name, at, values: answer.metrics } : null)).filter(Boolean);
  box.replaceChildren(
    el("button", { class: "query-image", type: "button", title: "Enlarge", "aria-label": "Enlarge the query", onclick: () => preview(image, info.levels) }, picture(image, { lazy: false })),
    el("div", { class: "query-text" },
      el("p", { class: "kicker" }, query.upload ? "Your image" : "Query"),
      el("div", { class: "query-class" }, query.names.length ? className(query.names) : el("b", {}, query.upload ? query.name : "unknown class")),
      query.names.length ? el("p", { class: "links" }, el("a", { href: link({ view: "class", path: query.class_path }), "data-link": true }, "its class")) : null,
      query.upload ? labelPicker(place, query) : null),
    el("div", { class: "query-numbers" }, measured.length ? metrics(measured, info.levels) : null));
}

function labelPicker(place, query) {
  const list = el("datalist", { id: "label-choices" });
  const input = el("input", { type: "text", list: "label-choices", value: query.class_path, placeholder: "its class, if you know it", "aria-label": "Class of your image", autocomplete: "off", spellcheck: "false" });
  const suggest = debounce(async () => {
    if (!input.value.trim()) return;
    const found = await api.classes(input.value.trim().split("/").at(-1)).catch(() => ({ classes: [] }));
    list.replaceChildren(...found.classes.map((one) => el("option", { value: one.path }, `${number(one.count)} images`)));
  }, 150);
  input.addEventListener("input", suggest);
  input.addEventListener("change", () => go(link({ ...place, label: input.value.trim() })));
  return el("div", { class: "label-picker" }, input, list);
}

export function controls(place, info) {
  const output = el("output", { for: "k" }, String(place.k));
  const slider = el("input", { type: "range", id: "k", min: 1, max: 100, value: Math.min(100, place.k), "aria-label": "Number of results" });
  const apply = debounce(() => go(link({ ...place, k: slider.value }), { replace: true }), 200);
  slider.addEventListener("input", () => { output.textContent = slider.value; apply(); });
  return el("div", { class: "controls" },
    el("label", { class: "slider", for: "k" }, "Results", slider, output),
    filter(place));
}

export function filter(place) {
  if (!place.within) return el("span", { class: "hint" }, "all classes");
  return el("span", { class: "filter" }, "within ", el("b", {}, split(place.within).join(" › ")),
    el("button", { type: "button", class: "clear", "aria-label": "Search all classes", title: "Search all classes (Esc)", onclick: () => go(link({ ...place, within: "" })) }, "×"));
}

export function failure(error) {
  return message("error", error.status === 404 ? "Not found" : "That did not work", error.message,
    el("div", { class: "row" },
      error.status === 404 ? null : el("button", { class: "button", type: "button", onclick: () => go(location.pathname + location.search, { replace: true }) }, "Try again"),
      el("a", { class: error.status === 404 ? "button" : "button quiet", href: location.pathname, "data-link": true }, "Start over")));
}

// No query yet: upload an image, or pick one.
async function showStart(main, place, { info, signal }) {
  const side = info.sides[0];
  const grid = el("div", {}, skeletons(24));
  const more = el("div", { class: "row centre" });
  const title = place.within ? split(place.within).at(-1) : "Search by image";
  main.replaceChildren(
    el("section", { class: place.within ? "start small" : "start" },
      el("h1", {}, title),
      place.within
        ? el("p", { class: "links" }, filter(place), " ", el("a", { href: link({ view: "class", path: place.within }), "data-link": true }, "how well is this class found?"))
        : el("p", { class: "lead" }, `${number(side.images)} images in ${number(side.classes)} classes of ${info.levels.length} levels: ${info.levels.join(", ")}. Bring an image, or start from one below.`),
      info.sides.every((one) => one.embeds) ? el("button", { class: "dropzone", type: "button", onclick: () => byId("file").click() },
        el("strong", {}, "Choose an image"), el("span", {}, "or drop it anywhere, or paste it")) : el("p", { class: "hint" }, "This index keeps no model, so it can be searched with its own images only.")),
    grid, more);
  const shown = [];
  // Unfiltered, the first images would all be of one class: take some from all over the catalogue.
  const load = () => api.items(place.within ? { within: place.within, offset: shown.length, limit: 48 } : { spread: true, limit: 36 }, signal);
  try {
    const answer = await load();
    if (signal.aborted) return;
    shown.push(...answer.items);
    draw(answer.total);
    say(`${number(answer.total)} images`);
  } catch (error) {
    if (error.name === "AbortError") return;
    grid.replaceChildren(failure(error));
  }

  function draw(total) {
    grid.replaceChildren(shown.length ? el("div", { class: "grid", "data-grid": true }, shown.map((item) => card(item, { levels: info.levels, place }))) : message("empty", "No images", "This branch is empty."));
    more.replaceChildren();
    if (place.within && shown.length < total) {
      more.append(el("button", { class: "button quiet", type: "button", onclick: async () => {
        const answer = await load();
        shown.push(...answer.items);
        draw(answer.total);
      } }, `Show more of ${number(total)}`));
    }
  }
}
