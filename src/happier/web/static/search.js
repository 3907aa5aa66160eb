// Search: the query, what the frames mean, and one ranking, or several side by side.

import * as api from "./api.js";
import { card, legend, message, skeletons } from "./cards.js";
import { columns } from "./compare.js";
import { choice, controls } from "./controls.js";
import { el, percent, say } from "./dom.js";
import { endless } from "./endless.js";
import { failure } from "./failure.js";
import { go, link, queryOf } from "./place.js";
import { fillQuery, votes } from "./query_box.js";
import { actions } from "./share.js";
import { showStart } from "./start.js";

const MOST = 1000; // results that the server ranks for one query

export async function showSearch(main, place, { info, signal }) {
  const count = place.id.length + place.upload.length;
  if (!count) return showStart(main, place, { info, signal });
  if (place.each && count > 1) {
    const { showEach } = await api.reached(() => import("./each.js"));
    return signal.aborted ? undefined : showEach(main, place, { info, signal });
  }
  const results = el("div", { class: "results", "aria-busy": "true" }, skeletons(place.k));
  const queryBox = el("section", { class: "query-box", "aria-label": "The query" }, el("div", { class: "query-image skeleton" }));
  const apart = count > 1 && !place.more.length && !place.less.length && !place.less_upload.length;
  const bar = controls(place, apart ? choice("Several images", [["each", "One by one"], ["together", "Together"]], "together", () => go(link({ ...place, each: 1, shown: 0 }))) : "");
  main.replaceChildren(el("h1", { class: "visually-hidden" }, "Search results"), queryBox, bar, results);
  const values = { ...queryOf(place), within: place.within };
  const answers = await Promise.allSettled(info.sides.map((side) => api.search({ ...values, k: place.k, side: side.side }, signal)));
  if (signal.aborted) return;
  const worked = answers.map((answer) => (answer.status === "fulfilled" ? answer.value : null));
  const first = worked.find(Boolean);
  results.removeAttribute("aria-busy");
  if (!first) {
    queryBox.remove();
    bar.remove();
    results.replaceChildren(failure(answers[0].reason));
    say(answers[0].reason.message);
    return;
  }
  fillQuery(queryBox, first, worked, place, info);
  let name = null;
  if (first.query.upload && first.positive.length + first.negative.length === 1) {
    const { nameOf } = await api.reached(() => import("./identify.js"));
    if (signal.aborted) return;
    name = nameOf(place, info, signal);
  }
  if (name) queryBox.after(name.box);
  const body = el("div", {});
  results.replaceChildren(explained(first, worked, place, info), body);
  const draw = (hit, note) => card(hit, { levels: info.levels, place, note, votes: votes(hit, place) });
  let listed = () => first.hits;
  if (info.sides.length > 1) {
    body.append(columns(worked, answers, info, (answer, marks) => grid(answer.hits.map((hit) => draw(hit, marks?.(hit))))));
    listed = () => worked.filter(Boolean).flatMap((answer) => answer.hits.map((hit) => ({ ...hit, model: info.sides.find((side) => side.side === answer.side).name })));
  } else if (!first.hits.length) {
    body.append(grid([]));
  } else {
    const more = async (offset, limit) => {
      const answer = await api.search({ ...values, k: limit, offset, metrics: false }, signal);
      return page(answer);
    };
    const { list } = await endless(body, { load: more, draw: (hit) => draw(hit), signal, page: place.k, shown: Math.min(MOST, place.shown), first: page(first) });
    listed = () => list;
  }
  bar.append(actions(listed, info.levels));
  say(`${first.hits.length} results${first.metrics ? `, H-AP ${percent(first.metrics.h_ap)}` : ""}`);
  await name?.filled;
}

const page = (answer) => ({ items: answer.hits, total: Math.min(MOST, answer.total) });

function explained(first, worked, place, info) {
  const known = first.hits.some((hit) => hit.level !== null);
  // They are of the whole index: beside the results of a branch they would promise what is not there.
  const counts = place.within ? null : worked.find((answer) => answer?.metrics)?.metrics.counts ?? null;
  if (known) return legend(info.levels, counts);
  return el("p", { class: "hint" }, first.query.upload
    ? "Say its class, and the frames show what each result shares with it."
    : "The class of this image is unknown, so the frames stay plain.");
}

function grid(cards) {
  if (!cards.length) return message("empty", "Nothing here", "This branch holds no other image.");
  return el("div", { class: "grid", "data-grid": true }, cards);
}
