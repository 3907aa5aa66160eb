// A class: what is in it, how well its images are found, what they are confused with.

import * as api from "./api.js";
import { card, colourOf, crumbs, dots, joined, message, skeletons } from "./cards.js";
import { el, fill, number, percent, say } from "./dom.js";
import { choice } from "./controls.js";
import { endless } from "./endless.js";
import { failure } from "./failure.js";
import { go, link } from "./place.js";
import { actions } from "./share.js";

const PAGE = 36;
const FULL_BAR = 0.1; // a bar that is full should not stand for a thousandth

// In a large catalogue a share may be far below what one decimal shows; it is not nothing.
const smallPercent = (share) => (share > 0 && share < 0.0005 ? "< 0.1 %" : percent(share));

export async function showClass(main, place, { info, signal }) {
  const side = info.sides.some((one) => one.side === place.side) ? place.side : "a";
  const head = el("div", {});
  const below = el("section", { "aria-label": "Classes below" });
  const confused = el("section", { "aria-label": "Taken for" });
  const images = el("section", { "aria-label": "Images" }, skeletons(12));
  main.replaceChildren(head, confused, below, images);
  const pictures = showImages();
  try {
    const answer = await api.oneClass({ path: place.path, side }, signal);
    draw(answer);
    await pictures;
    if (!answer.ready) poll();
  } catch (error) {
    if (error.name !== "AbortError") main.replaceChildren(failure(error));
    return;
  }

  async function poll() {
    for (let waits = 0; waits < 600; waits++) {
      await new Promise((resolve) => setTimeout(resolve, 700));
      const answer = await api.oneClass({ path: place.path, side }, signal).catch(() => null);
      if (signal.aborted) return;
      if (answer?.ready) return draw(answer);
    }
  }

  function draw({ node, ready, confusions }) {
    const level = node.level ? info.levels[node.level - 1] : "";
    fill(head,
      node.level > 1 ? crumbs(node.names.slice(0, -1), (names) => link({ view: "class", path: joined(names), side: place.side })) : el("p", { class: "kicker" }, node.level ? level : `${info.levels.length} levels: ${info.levels.join(", ")}`),
      el("h1", {}, node.name || "All classes"),
      el("dl", { class: "stats" },
        fact("images", number(node.count)), node.classes ? fact(plural(info.levels[node.level], node.classes), number(node.classes)) : null,
        fact("mean H-AP", ready ? percent(node.h_ap) : "…", "Mean over the images of this class as queries")),
      info.sides.length > 1 ? choice("Model", info.sides.map((one) => [one.side, one.name]), side, (name) => go(link({ ...place, side: name }))) : null,
      el("p", { class: "links" },
        node.level ? el("a", { href: link({ within: node.path }), "data-link": true }, "its images") : null,
        el("a", { href: link({ view: "mistakes", within: node.path, side: place.side }), "data-link": true }, node.level ? "its worst mistakes" : "the worst mistakes")));
    fill(confused, node.level ? [
      el("h2", {}, "Taken for"),
      el("p", { class: "hint" }, `Other classes of the level “${level}” among the first ten results of its images, and their share.`),
      !ready ? el("p", { class: "hint wait" }, "Every image is being tried as a query; this takes a moment the first time.")
        : confusions.length ? el("ul", { class: "bars" }, confusions.map((one) =>
          el("li", { colour: colourOf(one.level) },
            el("a", { href: link({ view: "class", path: one.path, side: place.side }), "data-link": true }, one.names.at(-1) ?? "unknown"),
            dots(one.level, info.levels.length), el("span", { class: "meter", share: one.share / Math.max(FULL_BAR, confusions[0].share), "aria-hidden": "true" }), el("span", { class: "n" }, smallPercent(one.share)))))
          : el("p", { class: "hint" }, "Nothing else turns up among the first ten results of its images."),
    ] : null);
    fill(below, node.children.length ? [
      el("h2", {}, node.level ? `In ${node.name}` : "The coarsest classes"),
      el("p", { class: "hint" }, "Images of each, and their mean H-AP."),
      el("ul", { class: "class-list" }, [...node.children].map((child) =>
        el("li", {}, el("a", { href: link({ view: "class", path: child.path, side: place.side }), "data-link": true }, child.name),
          el("span", { class: "n" }, number(child.count)), child.h_ap !== null ? el("span", { class: "n" }, percent(child.h_ap)) : null))),
      node.more ? el("p", { class: "hint" }, `and ${number(node.more)} more; find them by name on the side.`) : null,
    ] : null);
    say(`${node.name || "All classes"}, ${number(node.count)} images`);
  }

  async function showImages() {
    if (!place.path) { images.replaceChildren(); return; }
    try {
      const box = el("div", {});
      const load = (offset, limit) => api.items({ within: place.path, side, offset, limit }, signal);
      const { list } = await endless(box, { load, draw: (item) => card(item, { levels: info.levels, place: { view: "class" } }), signal, page: PAGE, shown: place.shown });
      images.replaceChildren(el("h2", {}, "Images"), list.length ? actions(() => list, info.levels) : message("empty", "No images", ""), box);
    } catch (error) {
      if (error.name !== "AbortError") images.replaceChildren(failure(error));
    }
  }
}

const plural = (word, count) => (count === 1 ? word : word.endsWith("s") ? `${word}es` : /[^aeiou]y$/.test(word) ? `${word.slice(0, -1)}ies` : `${word}s`);

function fact(label, value, hint) {
  return el("div", { class: "stat", title: hint }, el("dt", {}, label), el("dd", {}, value));
}
