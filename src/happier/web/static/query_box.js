// What is searched with: one image, or several that the results should be like or should not be like.

import * as api from "./api.js";
import { className, metrics, picture, preview } from "./cards.js";
import { effect } from "./compare.js";
import { debounce, el, number } from "./dom.js";
import { go, link, MAX_IMAGES } from "./place.js";

export function fillQuery(box, first, worked, place, info) {
  const { query } = first;
  const several = first.positive.length + first.negative.length > 1;
  const measured = worked.map((answer, at) => (answer?.metrics ? { name: info.sides[at].name, at, values: answer.metrics } : null)).filter(Boolean);
  const image = asImage(query);
  box.classList.toggle("several", several);
  box.replaceChildren(
    several ? images(first, place, info)
      : el("button", { class: "query-image", type: "button", title: "Enlarge", "aria-label": "Enlarge the query", onclick: () => preview(image, info.levels) }, picture(image, { lazy: false })),
    el("div", { class: "query-text" },
      el("p", { class: "kicker" }, kicker(first, several)),
      el("div", { class: "query-class" }, query.names.length ? className(query.names) : el("b", {}, query.upload ? query.name : "unknown class")),
      several && info.sides.length === 1 ? effect(first) : null,
      el("p", { class: "links" },
        query.names.length ? el("a", { href: link({ view: "class", path: query.class_path }), "data-link": true }, "its class") : null,
        el("a", { href: link({ ...place, view: "map", shown: 0, each: "" }), "data-link": true }, "on the map"),
        several ? el("a", { href: link({ ...place, more: [], less: [], less_upload: [], shown: 0, id: place.id.slice(0, 1), upload: place.id.length ? [] : place.upload.slice(0, 1) }), "data-link": true }, "the first image alone") : null),
      query.upload ? labelPicker(place, query) : null),
    el("div", { class: "query-numbers" }, measured.length ? metrics(measured, info.levels) : null));
}

const asImage = (query) => ({ ...query, id: query.item?.id ?? query.name });

function kicker({ query, positive, negative }, several) {
  if (!several) return query.upload ? "Your image" : "Query";
  return [`like ${positive.length === 1 ? "one image" : `${positive.length} images`}`, negative.length ? `not like ${negative.length === 1 ? "another" : `${negative.length} others`}` : ""].filter(Boolean).join(", ");
}

function images({ positive, negative }, place, info) {
  const one = (query, sign, names) => {
    const key = query.upload ?? query.item.id;
    const what = query.names.at(-1) ?? query.name;
    const name = names.find((list) => place[list].includes(key));
    const without = promoted({ ...place, shown: 0, [name]: place[name].filter((other) => other !== key) });
    const last = sign === "+" && positive.length === 1;
    return el("li", { class: sign === "+" ? "wanted" : "unwanted" },
      el("button", { class: "query-image", type: "button", "aria-label": `${sign === "+" ? "Like" : "Not like"} ${what}. Enlarge`, title: "Enlarge", onclick: () => preview(asImage(query), info.levels) }, picture(asImage(query), { lazy: false })),
      el("span", { class: "sign", "aria-hidden": "true" }, sign === "+" ? "+" : "−"),
      last ? null : el("a", { class: "remove", href: link(without), "data-link": true, "aria-label": `Leave ${what} away`, title: "Leave it away" }, "×"));
  };
  return el("ul", { class: "query-images", "aria-label": "Images of the query" },
    positive.map((query) => one(query, "+", ["id", "upload", "more"])), negative.map((query) => one(query, "−", ["less", "less_upload"])));
}

// A query needs an image of its own: without one, the first that was added takes its place.
function promoted(place) {
  if (place.id.length || place.upload.length || !place.more.length) return place;
  return { ...place, id: place.more.slice(0, 1), more: place.more.slice(1) };
}

// Links of a result that add it to the query; none where the query is full.
export function votes(item, place) {
  const plus = place.more.length < MAX_IMAGES ? link({ ...place, shown: 0, each: "", more: [...place.more, item.id] }) : null;
  const minus = place.less.length < MAX_IMAGES ? link({ ...place, shown: 0, each: "", less: [...place.less, item.id] }) : null;
  const vote = (kind, href, sign, text) => (href ? el("a", { class: `vote ${kind}`, href, "data-link": true, tabindex: "-1", "aria-label": `${text}: ${item.names.at(-1) ?? item.id}`, title: `${text} (${sign})` }, sign) : null);
  return el("div", { class: "votes" }, vote("less", minus, "−", "Less like this"), vote("more", plus, "+", "More like this"));
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
