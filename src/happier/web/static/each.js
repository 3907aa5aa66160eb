// Several images, one list each; or together, as one query.

import * as api from "./api.js";
import { card, className, legend, picture } from "./cards.js";
import { choice, controls } from "./controls.js";
import { el, percent, say } from "./dom.js";
import { failure } from "./failure.js";
import { go, link } from "./place.js";
import { actions } from "./share.js";

const AT_ONCE = 3; // searches under way

export async function showEach(main, place, { info, signal }) {
  const images = [...place.id.map((id) => ({ id: [id] })), ...place.upload.map((upload) => ({ upload: [upload] }))];
  const found = [];
  const bar = controls(place, choice("Several images", [["each", "One by one"], ["together", "Together"]], "each", () => go(link({ ...place, each: "", shown: 0 }))),
    actions(() => found.filter(Boolean).flatMap((answer) => answer.hits.map((hit) => ({ ...hit, query: answer.query.name }))), info.levels));
  const parts = images.map((_, at) => el("section", { class: "each", "aria-label": `Image ${at + 1} of ${images.length}`, "aria-busy": "true" }, el("div", { class: "query-image skeleton" })));
  main.replaceChildren(el("h1", { class: "visually-hidden" }, `Results of ${images.length} images`), bar, place.id.length ? legend(info.levels) : "", ...parts);
  const waiting = images.map((image, at) => [image, at]);
  const work = async () => {
    for (let next = waiting.shift(); next && !signal.aborted; next = waiting.shift()) {
      const [image, at] = next;
      try {
        found[at] = await api.search({ ...image, k: place.k, within: place.within }, signal);
        fillPart(parts[at], found[at], image, place, info);
      } catch (error) {
        if (error.name === "AbortError") return;
        parts[at].replaceChildren(failure(error));
      }
      parts[at].removeAttribute("aria-busy");
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  if (!signal.aborted) say(`Results of ${images.length} images`);
}

function fillPart(part, answer, image, place, info) {
  const { query } = answer;
  part.replaceChildren(
    el("div", { class: "each-head" },
      el("a", { class: "query-image", href: link({ ...image, k: place.k, within: place.within }), "data-link": true, "aria-label": `All results of ${query.name}` }, picture({ ...query }, { lazy: false })),
      el("div", { class: "caption" }, query.names.length ? className(query.names) : el("b", {}, query.name),
        answer.metrics ? el("span", { class: "hint" }, `H-AP ${percent(answer.metrics.h_ap)}`) : null)),
    el("div", { class: "strip", tabindex: "0", role: "group", "aria-label": `Results of ${query.name}` }, answer.hits.map((hit) => card(hit, { levels: info.levels, place }))));
}
