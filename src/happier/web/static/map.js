// The map of the catalogue: alike images are near each other. Zoom from branches to images, lasso some, see a query's results from above.

import * as api from "./api.js";
import { card, colourOf, joined, message, preview, split } from "./cards.js";
import { choice, filter } from "./controls.js";
import { debounce, el, number, say } from "./dom.js";
import { endless } from "./endless.js";
import { failure } from "./failure.js";
import { MapCanvas } from "./map_canvas.js";
import { colours, groupColour } from "./map_colours.js";
import { listen } from "./map_gestures.js";
import { Pictures } from "./map_pictures.js";
import { areaOf, areaText, Points } from "./map_points.js";
import { go, keep, link, queryOf } from "./place.js";
import { actions } from "./share.js";

const PAGE = 48;

export async function showMap(main, place, { info, signal }) {
  const side = info.sides.some((one) => one.side === place.side) ? place.side : "a";
  const box = el("div", { "aria-busy": "true" }, el("p", { class: "hint wait" }, "The map is being laid out; this takes a moment the first time."));
  main.replaceChildren(el("h1", {}, "Map"), el("p", { class: "lead" }, `Alike images are near each other, as the model sees them. ${matchMedia("(hover: none)").matches ? "Tap one to look at it; spread two fingers to zoom in." : "Click one to look at it; scroll to zoom in."}`), box);
  let answer;
  for (;;) {
    answer = await api.map({ side }, signal);
    if (answer.ready) break;
    await new Promise((resolve) => setTimeout(resolve, 700));
  }
  const buffer = await api.mapPoints({ side, version: answer.version }, signal);
  if (signal.aborted) return;
  box.removeAttribute("aria-busy");
  await drawMap(box, new Points(buffer, answer.classes, split), { answer, side, place, info, signal });
}

async function drawMap(box, points, { answer, side, place, info, signal }) {
  const canvas = el("canvas", { class: "map-canvas", tabindex: "0", role: "application", "aria-roledescription": "map",
    "aria-label": `Map of ${number(points.count)} images. Arrow keys move, plus and minus zoom, zero shows all, Enter lists the images in view` });
  const tip = el("div", { class: "map-tip", hidden: true, "aria-hidden": "true" });
  const below = el("section", { class: "map-list", "aria-label": "Images of the map" });
  const pictures = new Pictures(side, answer.version, signal, () => map.draw());
  const map = new MapCanvas(canvas, points, { colours, pictureOf: (row) => pictures.image(row) });
  map.branch = split(place.within);
  map.colouring = points.colouring(map.branch);
  const list = (rows, title) => listRows(below, rows, title, { pictures, info, signal, place });
  const listView = () => { keep({ area: "" }); map.lasso = null; map.draw(); list(map.visible, "in view"); };
  const bar = tools(map, place, side, info, listView);
  const moved = debounce(() => keep({ at: cameraText(map.camera) }), 250);
  const tell = debounce(async (row, [x, y]) => {
    const [item] = await pictures.some([row]).catch(() => []);
    if (!item || map.hovered !== row) return;
    tip.replaceChildren(el("img", { src: item.thumbnail, alt: "" }), el("span", {}, item.names.join(" › ") || "unknown class"));
    tip.style.left = `${Math.min(x + 14, map.width - 190)}px`;
    tip.style.top = `${y > map.height / 2 ? y - 96 : y + 14}px`;
    tip.hidden = false;
  }, 60);
  listen(map, {
    moved, listView,
    hovered: (row, at) => { if (row === map.hovered) return; map.hovered = row; tip.hidden = true; map.draw(); if (row >= 0) tell(row, at); },
    chosen: async (row) => { const [item] = await pictures.some([row]).catch(() => []); if (item) preview(item, info.levels); },
    lassoing: () => bar.querySelector("#lasso").getAttribute("aria-pressed") === "true",
    lassoed: (polygon) => { const area = areaText(polygon); keep({ area }); map.lasso = areaOf(area); map.draw(); list(points.inside(map.lasso), "in the area"); },
  }, signal);
  box.replaceChildren(bar, el("div", { class: "map-box" }, canvas, tip), groupList(map.colouring.groups, place), below);
  const sized = new ResizeObserver(() => map.resize());
  sized.observe(canvas);
  signal.addEventListener("abort", () => sized.disconnect());
  for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", () => map.draw(), { signal });
  new MutationObserver(() => map.draw()).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  map.resize();
  if (place.within) {
    const rows = [...map.colouring.group.keys()].filter((row) => map.colouring.group[row] >= 0);
    if (rows.length) map.fit(points.bounds(rows));
    map.branchZoom = map.camera.zoom;
  }
  const camera = place.at.split("_").map(Number);
  if (camera.length === 3 && camera.every(Number.isFinite)) map.look({ x: camera[0] / 1000, y: camera[1] / 1000, zoom: camera[2] });
  map.lasso = place.area ? areaOf(place.area) : null;
  canvas.map = map;
  say(`Map of ${number(points.count)} images`);
  if (place.id.length + place.upload.length) await results(map, below, { answer, side, place, info, signal });
  if (map.lasso) await list(points.inside(map.lasso), "in the area");
}

const cameraText = ({ x, y, zoom }) => (zoom === 1 ? "" : `${Math.round(1000 * x)}_${Math.round(1000 * y)}_${zoom.toFixed(2)}`);

function tools(map, place, side, info, listView) {
  const zoom = (factor) => () => { map.zoomAt(map.width / 2, map.height / 2, factor); keep({ at: cameraText(map.camera) }); };
  const button = (text, label, action) => el("button", { class: "button quiet", type: "button", "aria-label": label, title: label, onclick: action }, text);
  const lasso = el("button", { class: "button quiet", type: "button", id: "lasso", "aria-pressed": "false", title: "Draw around images to list them; or hold Shift",
    onclick: () => { const on = lasso.getAttribute("aria-pressed") !== "true"; lasso.setAttribute("aria-pressed", String(on)); map.canvas.classList.toggle("lassoing", on); } }, "Lasso");
  return el("div", { class: "controls map-tools" },
    el("div", { class: "row" }, button("+", "Zoom in", zoom(1.6)), button("−", "Zoom out", zoom(1 / 1.6)), button("All", "All of the map", () => { map.look(map.home()); keep({ at: "" }); }),
      lasso, button("List these", "List these images", listView)),
    info.sides.length > 1 ? choice("Model", info.sides.map((one) => [one.side, one.name]), side, (name) => go(link({ ...place, side: name, area: "", at: "" }))) : null,
    filter(place));
}

// What the colours mean; each is a link into its branch.
function groupList(groups, place) {
  const here = split(place.within);
  const shown = groups.filter(({ name }) => name).slice(0, 14);
  if (!shown.length) return null;
  return el("ul", { class: "legend map-legend", "aria-label": "Branches" }, shown.map(({ name, count }, at) =>
    el("li", {}, el("span", { class: "swatch full", colour: groupColour(at) }),
      el("a", { href: link({ ...place, within: joined([...here, name]), at: "", area: "" }), "data-link": true }, name), el("small", {}, number(count)))),
    groups.length > shown.length ? el("li", {}, el("span", { class: "swatch full", colour: groupColour(99) }), `${number(groups.length - shown.length)} more`) : null);
}

async function results(map, below, { answer, side, place, info, signal }) {
  let found;
  try {
    found = await api.search({ ...queryOf(place), k: place.k, side, metrics: false }, signal);
  } catch (error) {
    if (error.name !== "AbortError") below.replaceChildren(failure(error));
    return;
  }
  if (found.version !== answer.version) { below.replaceChildren(message("empty", "The index has just changed", "Load the page again to see this query on the map.")); return; }
  map.marks = found.hits.map((hit) => ({ row: hit.row, colour: hit.level === null ? "var(--ink)" : colourOf(hit.level) }));
  const rows = found.query.item ? [found.query.item.row] : found.hits.slice(0, 5).map((hit) => hit.row);
  if (rows.length) map.query = map.points.middle(rows);
  map.draw();
  const grid = el("div", { class: "grid", "data-grid": true }, found.hits.map((hit) => card(hit, { levels: info.levels, place })));
  // Looking at a result shows where it is.
  const point = (event) => { const id = event.target.closest("article")?.dataset.id; map.hovered = found.hits.find((hit) => hit.id === id)?.row ?? -1; map.draw(); };
  grid.addEventListener("pointerover", point);
  grid.addEventListener("focusin", point);
  below.replaceChildren(el("h2", {}, `${found.hits.length} results, ringed on the map`),
    el("p", { class: "links" }, el("a", { href: link({ ...place, view: "search", at: "", area: "" }), "data-link": true }, "the results alone")), grid);
  say(`${found.hits.length} results on the map`);
}

async function listRows(below, rows, title, { pictures, info, signal, place }) {
  const body = el("div", {});
  const shown = [];
  const head = el("h2", { tabindex: "-1" }, rows.length === 1 ? `1 image ${title}` : `${number(rows.length)} images ${title}`);
  below.replaceChildren(head, rows.length ? actions(() => shown, info.levels) : "", body);
  say(head.textContent);
  if (!rows.length) return;
  const load = async (offset, limit) => {
    const items = await pictures.some(rows.slice(offset, offset + limit));
    shown.push(...items);
    return { items, total: rows.length };
  };
  await endless(body, { load, draw: (item) => card(item, { levels: info.levels, place: { ...place, view: "map" } }), signal, page: PAGE, shown: place.shown });
}
