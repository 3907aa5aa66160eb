// The taxonomy on the side: opens as far as needed, filters on a click, supports arrow keys.

import * as api from "./api.js";
import { split, joined } from "./cards.js";
import { byId, debounce, el, number } from "./dom.js";

const opened = new Set();
const known = new Map();
let current = "";
let choose = () => {};
let levels = [];

export async function startTree(info, onChoose) {
  choose = onChoose;
  levels = info.levels;
  const box = byId("tree");
  box.addEventListener("keydown", move);
  byId("find-class").addEventListener("input", debounce(find, 150));
  byId("find-class").addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") { event.preventDefault(); focusable()[0]?.focus(); }
    if (event.key === "Escape") { event.target.value = ""; find(); event.target.blur(); }
  });
  await draw();
}

export async function mark(path) {
  current = path;
  const names = split(path);
  for (let depth = 1; depth < names.length; depth++) opened.add(joined(names.slice(0, depth)));
  await draw();
}

async function children(path) {
  if (!known.has(path)) {
    const asked = api.tree(path);
    known.set(path, asked); // at once: the tree is drawn again before the answer is there
    asked.catch(() => known.delete(path));
  }
  return known.get(path);
}

async function draw() {
  const box = byId("tree");
  if (byId("find-class").value.trim()) return;
  try {
    const root = await children("");
    const list = await branch(root, 1);
    const focused = document.activeElement?.dataset?.path;
    box.replaceChildren(el("ul", { role: "tree", "aria-label": "Classes" }, all(root), list));
    tabStop(focused);
  } catch (error) {
    box.replaceChildren(el("p", { class: "hint" }, error.message));
  }
}

const all = (root) => el("li", { role: "none" }, leaf({ path: "", name: "All classes", count: root.count, classes: 0, level: 0 }));

async function branch(node, depth) {
  const rows = await Promise.all(node.children.map(async (child) => {
    const isOpen = child.classes > 0 && opened.has(child.path);
    const inner = isOpen ? await branch(await children(child.path).catch(() => ({ children: [], more: 0 })), depth + 1) : null;
    return el("li", { role: "none" }, leaf(child), inner ? el("ul", { role: "group" }, inner) : null);
  }));
  if (node.more) rows.push(el("li", { role: "none", class: "hint" }, `and ${number(node.more)} more`));
  return rows;
}

function leaf(node) {
  const isOpen = opened.has(node.path);
  const item = el("div", { class: "leaf", role: "treeitem", tabindex: "-1", "data-path": node.path, "aria-level": Math.max(1, node.level),
    "aria-selected": String(node.path === current), "aria-expanded": node.classes ? String(isOpen) : null,
    "aria-label": `${node.name}, ${number(node.count)} images`, title: node.level ? levels[node.level - 1] : null },
    el("span", { class: "twist", "aria-hidden": "true", "data-text": node.classes ? "›" : "" }), el("span", { class: "name" }, node.name), el("span", { class: "n", "aria-hidden": "true", "data-text": number(node.count) }));
  item.style.setProperty("--depth", Math.max(0, node.level - 1));
  item.addEventListener("click", (event) => {
    if (node.classes && event.target.classList.contains("twist")) return toggle(node.path, !isOpen);
    if (node.classes && node.path !== current) opened.add(node.path);
    else if (node.classes) opened.delete(node.path);
    choose(node.path);
  });
  return item;
}

async function toggle(path, open) {
  if (open) opened.add(path); else opened.delete(path);
  await draw();
  focusable().find((item) => item.dataset.path === path)?.focus();
}

const focusable = () => [...byId("tree").querySelectorAll('[role="treeitem"]')];

function tabStop(path) {
  const items = focusable();
  const target = items.find((item) => item.dataset.path === path) ?? items.find((item) => item.dataset.path === current) ?? items[0];
  if (!target) return;
  target.tabIndex = 0;
  if (path !== undefined) target.focus({ preventScroll: true });
}

function move(event) {
  const items = focusable(), at = items.indexOf(document.activeElement);
  if (at < 0) return;
  const item = items[at], expanded = item.getAttribute("aria-expanded");
  const steps = { ArrowDown: items[at + 1], ArrowUp: items[at - 1] ?? byId("find-class"), Home: items[0], End: items.at(-1) };
  if (event.key in steps) {
    event.preventDefault();
    const next = steps[event.key];
    if (next) { item.tabIndex = -1; next.tabIndex = 0; next.focus(); }
  } else if (event.key === "ArrowRight" && expanded === "false") {
    event.preventDefault();
    toggle(item.dataset.path, true);
  } else if (event.key === "ArrowLeft") {
    event.preventDefault();
    if (expanded === "true") toggle(item.dataset.path, false);
    else items.find((one) => one.dataset.path === joined(split(item.dataset.path).slice(0, -1)))?.focus();
  } else if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    choose(item.dataset.path);
  }
}

async function find() {
  const text = byId("find-class").value.trim(), box = byId("tree");
  if (!text) return draw();
  try {
    const { classes } = await api.classes(text, 30);
    if (byId("find-class").value.trim() !== text) return;
    box.replaceChildren(classes.length
      ? el("ul", { role: "tree", "aria-label": "Classes found", class: "found" }, classes.map((node) => el("li", { role: "none" }, foundLeaf(node))))
      : el("p", { class: "hint" }, `No class is called “${text}”.`));
    tabStop(undefined);
  } catch (error) {
    box.replaceChildren(el("p", { class: "hint" }, error.message));
  }
}

function foundLeaf(node) {
  const item = leaf({ ...node, classes: 0, level: 1 });
  const above = node.names.slice(0, -1).join(" › ");
  if (above) item.querySelector(".name").append(el("small", {}, above));
  return item;
}
