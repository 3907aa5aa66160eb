// Suspects: labels that are probably wrong, one at a time, to be judged with a key.

import * as api from "./api.js";
import { colourOf, className, joined, levelName, message, picture, preview } from "./cards.js";
import { debounce, el, number, percent, say } from "./dom.js";
import { choice } from "./controls.js";
import { failure } from "./failure.js";
import { go, link } from "./place.js";

const KINDS = {
  "": ["All", "Labels that are probably wrong; those that are furthest off in the tree first."],
  label: ["Labels", "Images whose neighbours agree on another class."],
  duplicate: ["Copies", "The same image under two labels."],
  alike: ["Alike", "Two classes whose images cannot be told apart."],
  divided: ["Divided", "Classes whose images fall into two groups."],
};
const PAGE = 50;

export async function showSuspects(main, place, { info, signal }) {
  const kind = KINDS[place.kind] ? place.kind : "";
  const box = el("section", { class: "suspect-box", "aria-busy": "true", "aria-live": "polite" }, el("p", { class: "hint" }, "Every image is compared with its neighbours …"));
  main.replaceChildren(
    el("h1", {}, "Suspects"), el("p", { class: "lead" }, KINDS[kind][1]),
    el("div", { class: "controls" }, choice("Kind", Object.entries(KINDS).map(([name, [text]]) => [name, text]), kind, (name) => go(link({ view: "suspects", kind: name })))),
    box);
  const state = { list: [], total: 0, decided: 0, at: 0, writable: false };

  async function load() {
    for (;;) {
      const answer = await api.suspects({ kind, offset: state.list.length, limit: PAGE }, signal);
      if (answer.ready) {
        state.list.push(...answer.suspects);
        Object.assign(state, { total: answer.total, decided: answer.decided, writable: answer.writable });
        return;
      }
      await new Promise((resolve) => setTimeout(resolve, 700));
    }
  }

  async function move(to) {
    while (to >= state.list.length && state.list.length < state.total) await load();
    state.at = Math.max(0, Math.min(to, state.total));
    draw();
  }

  // The next one that is open; of decided ones a person sees those that she goes back to.
  async function next() {
    let to = state.at + 1;
    while (to < state.total) {
      if (to >= state.list.length) await load();
      if (!state.list[to]?.decision) break;
      to++;
    }
    await move(to);
  }

  async function decide(decision, classPath = "") {
    const suspect = state.list[state.at];
    if (!suspect || !state.writable) return;
    if (decision === "wrong" && !classPath) return;
    try {
      await api.decide({ id: suspect.item?.id ?? "", label: suspect.label, decision, class_path: classPath });
    } catch (error) {
      box.querySelector(".suspect-error")?.remove();
      box.append(el("p", { class: "suspect-error", role: "alert" }, error.message));
      return;
    }
    if (!suspect.decision) state.decided++;
    Object.assign(suspect, { decision, decided_class: classPath });
    say(decision === "wrong" ? `It is ${classPath}` : decision);
    await next();
  }

  function draw() {
    box.removeAttribute("aria-busy");
    const suspect = state.list[state.at];
    if (!state.total) return box.replaceChildren(message("empty", "No suspects here", "The neighbours of every image agree with its label."));
    if (!suspect) return box.replaceChildren(message("empty", "That was the last one", `${number(state.decided)} of ${number(state.total)} are decided.`,
      el("div", { class: "row" }, el("button", { class: "button quiet", type: "button", onclick: () => move(state.total - 1) }, "Back"))));
    box.replaceChildren(judged(suspect, state, info, { decide, move, next }));
  }

  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") || event.target.closest("input, textarea, select, [role=tree]")) return;
    const suspect = state.list[state.at];
    const actions = {
      r: () => decide("right"), w: () => decide("wrong", suspect?.proposed), k: () => decide("skip"),
      o: () => box.querySelector("input")?.focus(), ArrowLeft: () => move(state.at - 1), ArrowRight: () => move(state.at + 1),
    };
    if (actions[event.key]) { event.preventDefault(); actions[event.key](); }
  }, { signal });

  try {
    await load();
    const open = state.list.findIndex((one) => !one.decision);
    state.at = open < 0 ? 0 : open;
    draw();
  } catch (error) {
    if (error.name !== "AbortError") box.replaceChildren(failure(error));
  }
}

function judged(suspect, state, info, { decide, move }) {
  const level = suspect.proposed ? Math.max(0, suspect.names.length - suspect.severity) : suspect.names.length;
  const disabled = !state.writable;
  const isClass = !suspect.item;
  const button = (key, text, action, extra = "quiet") => el("button", { type: "button", class: `button ${extra}`, disabled, "aria-keyshortcuts": key, onclick: action }, text, " ", el("kbd", { "aria-hidden": "true" }, key));
  return el("article", { class: "suspect", "data-id": suspect.item?.id ?? suspect.label },
    el("p", { class: "facts" }, el("span", {}, `${number(state.at + 1)} of ${number(state.total)}`), el("span", {}, `${number(state.decided)} decided`),
      suspect.decision ? el("span", { class: "note only" }, suspect.decision === "wrong" ? `wrong: ${suspect.decided_class}` : suspect.decision) : null),
    el("div", { class: "suspect-pair" },
      el("div", {}, el("h2", {}, "Labelled"), suspect.item ? shot(suspect.item, info, "var(--query)") : el("div", { class: "grid" }, suspect.evidence.slice(0, 1).map((one) => shot(one, info, "var(--query)"))),
        el("div", { class: "caption" }, className(suspect.names))),
      el("div", {}, el("h2", {}, heading(suspect)),
        el("div", { class: "grid" }, (isClass ? suspect.evidence.slice(1) : suspect.evidence).map((one) => el("div", {}, shot(one, info, colourOf(level)), el("small", {}, one.names.at(-1) ?? "unknown")))),
        suspect.proposed ? el("div", { class: "caption" }, className(suspect.proposed_names)) : null)),
    el("p", { class: "facts" }, el("span", {}, suspect.proposed ? levelName(level, info.levels) : "one class"), el("span", {}, `${percent(suspect.confidence)} sure`)),
    el("div", { class: "row" },
      button("r", "Right", () => decide("right")),
      suspect.proposed ? button("w", isClass ? "Merge into it" : "Wrong: it is this", () => decide("wrong", suspect.proposed), "") : null,
      button("k", "Skip", () => decide("skip")),
      el("button", { type: "button", class: "button quiet", disabled: state.at === 0, onclick: () => move(state.at - 1) }, "Back ", el("kbd", { "aria-hidden": "true" }, "←"))),
    disabled ? el("p", { class: "hint" }, "This server only reads. Start it with ", el("code", {}, "--corrections FILE"), " to decide.") : another(decide));
}

function heading(suspect) {
  if (suspect.kind === "divided") return "These are both in it";
  if (suspect.kind === "duplicate") return "The same image is also";
  return suspect.kind === "alike" ? "Looks the same as" : "Its neighbours are";
}

function shot(item, info, colour) {
  return el("button", { type: "button", class: "shot", colour, "aria-label": `Enlarge ${item.names.join(", ") || "unknown class"}`, onclick: () => preview(item, info.levels) }, picture(item, { lazy: false }));
}

// Another class than the proposed one: found by typing a part of its name.
function another(decide) {
  const found = el("ul", { class: "class-list" });
  const input = el("input", { type: "search", "aria-label": "It is another class", placeholder: "It is another class (o)", autocomplete: "off", spellcheck: "false" });
  const look = debounce(async () => {
    const text = input.value.trim();
    const { classes } = text ? await api.classes(text, 8).catch(() => ({ classes: [] })) : { classes: [] };
    found.replaceChildren(...classes.map((one) => el("li", {}, el("button", { type: "button", class: "plain", onclick: () => decide("wrong", joined(one.names)) }, one.names.join(" › ")))));
  }, 150);
  input.addEventListener("input", look);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") found.querySelector("button")?.click();
    if (event.key === "Escape") { event.stopPropagation(); input.value = ""; found.replaceChildren(); input.blur(); }
  });
  return el("div", { class: "finder" }, input, found);
}
