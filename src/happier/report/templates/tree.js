"use strict";

(() => {
  const root = document.documentElement;
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  const tree = document.getElementById("tree"), found = document.getElementById("found");
  const items = [...tree.querySelectorAll("li")], branches = [...tree.querySelectorAll("details")];
  const start = branches.map((one) => one.open);
  document.getElementById("open").addEventListener("click", () => branches.forEach((one) => { one.open = true; }));
  document.getElementById("close").addEventListener("click", () => branches.forEach((one) => { one.open = false; }));

  // A class stays in view where its name, one above it or one below it has the text.
  document.getElementById("find").addEventListener("input", (event) => {
    const text = event.target.value.trim().toLowerCase();
    const hits = text ? items.filter((item) => item.dataset.name.includes(text)) : items;
    const shown = new Set(hits);
    for (const hit of hits) {
      for (let above = hit.parentElement.closest("li"); above && !shown.has(above); above = above.parentElement.closest("li")) shown.add(above);
      hit.querySelectorAll("li").forEach((below) => shown.add(below));
    }
    items.forEach((item) => { item.hidden = !shown.has(item); });
    const opened = new Set(hits.map((hit) => hit.parentElement.closest("details")));
    branches.forEach((one, at) => { one.open = text ? opened.has(one) || [...opened].some((inner) => inner && one.contains(inner)) : start[at]; });
    found.textContent = text ? `${hits.length.toLocaleString("en")} found` : "";
  });
})();
