"use strict";

// Light, dark, or the system's theme.
(() => {
  const root = document.documentElement;
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    dispatchEvent(new Event("themechange"));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("themechange")));
})();

// A line on every plot that shows the values under the pointer.
document.querySelectorAll(".plot[data-at]").forEach((plot) => {
  const at = JSON.parse(plot.dataset.at), names = JSON.parse(plot.dataset.names), series = JSON.parse(plot.dataset.series);
  const canvas = plot.querySelector(".canvas"), cross = plot.querySelector(".cross"), readout = plot.querySelector(".readout");
  const show = (event) => {
    const box = canvas.getBoundingClientRect();
    const x = 1000 * (event.clientX - box.left) / box.width;
    let best = 0;
    at.forEach((value, index) => { if (Math.abs(value - x) < Math.abs(at[best] - x)) best = index; });
    const left = at[best] / 10;
    cross.style.left = left + "%";
    cross.style.opacity = 0.45;
    readout.replaceChildren(names[best]);
    for (const [label, css, values] of [...series].reverse()) {
      const row = document.createElement("div"), swatch = document.createElement("span"), number = document.createElement("b");
      swatch.className = "swatch " + css;
      swatch.style.setProperty("--c", "var(--m)");
      number.textContent = (100 * values[best]).toFixed(1) + " %";
      row.append(swatch, label, number);
      readout.append(row);
    }
    readout.hidden = false;
    // Beside the line, but within the plot: a narrow screen would scroll sideways.
    const line = left * box.width / 100, wide = readout.offsetWidth;
    readout.style.left = Math.max(0, Math.min(left < 50 ? line + 12 : line - 12 - wide, box.width - wide)) + "px";
  };
  canvas.addEventListener("pointermove", show);
  canvas.addEventListener("pointerleave", () => { cross.style.opacity = 0; readout.hidden = true; });
});

// The per-class table: sort by any column, find by name.
(() => {
  const table = document.getElementById("class-table"), body = table.tBodies[0], rows = [...body.rows];
  const heads = [...table.tHead.rows[0].cells], shown = document.getElementById("shown");
  const value = (row, column, text) => text ? row.cells[column].dataset.v : parseFloat(row.cells[column].dataset.v);
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const text = head.dataset.kind === "text";
    const down = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : !text;
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const sign = down ? -1 : 1;
    rows.sort((first, second) => {
      const a = value(first, column, text), b = value(second, column, text);
      if (text) return sign * a.localeCompare(b);
      if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
      return sign * (a - b);
    });
    body.append(...rows);
  }));
  // With more than two models one figure is shown at a time: all would not fit.
  const choices = [...document.querySelectorAll("[data-show]")];
  const choose = (kind) => {
    table.dataset.only = kind;
    choices.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.show === kind)));
  };
  choices.forEach((button) => button.addEventListener("click", () => choose(button.dataset.show)));
  if (choices.length) choose(choices[0].dataset.show);
  const filter = document.getElementById("filter");
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/);
    let count = 0;
    for (const row of rows) {
      const name = row.cells[0].dataset.v.toLowerCase();
      row.hidden = !words.every((word) => name.includes(word));
      count += !row.hidden;
    }
    shown.textContent = filter.value ? `${count} of ${rows.length}` : "";
  });
})();

// The map: points or pictures, one legend and one pointer for all models.
(() => {
  const holder = document.getElementById("map-data");
  if (!holder) return;
  const data = JSON.parse(holder.textContent);
  const canvases = [...document.querySelectorAll(".maps canvas")], tip = document.getElementById("tip");
  const tipPicture = tip.querySelector("span"), tipName = tip.querySelector("b"), tipPath = tip.querySelector("small");
  let pictures = false, only = null, active = null, sprite = null;
  if (data.sprite) {
    sprite = new Image();
    sprite.addEventListener("load", draw);
    sprite.src = data.sprite;
  }

  function draw() {
    const style = getComputedStyle(document.documentElement), ink = style.getPropertyValue("--ink");
    for (const canvas of canvases) {
      const size = canvas.clientWidth, ratio = Math.max(2, devicePixelRatio || 1), model = +canvas.dataset.model;
      if (!size) continue;
      canvas.width = canvas.height = size * ratio;
      const context = canvas.getContext("2d");
      context.scale(ratio, ratio);
      const radius = Math.max(1.6, Math.min(5, size / (2.6 * Math.sqrt(data.paths.length) + 40)));
      const side = Math.max(12, Math.min(30, 0.75 * size / Math.sqrt(data.paths.length)));
      const place = (index) => data.at[index][model].map((value, axis) => 14 + (axis ? 1 - value : value) * (size - 28));
      const one = (index, faded) => {
        const [x, y] = place(index);
        context.globalAlpha = faded ? 0.1 : 0.9;
        context.fillStyle = data.colours[data.coarse[index]];
        if (pictures && sprite && sprite.complete) {
          context.beginPath();
          context.roundRect(x - side / 2 - 1.5, y - side / 2 - 1.5, side + 3, side + 3, 4);
          context.fill();
          context.drawImage(sprite, (index % data.columns) * data.cell, Math.floor(index / data.columns) * data.cell, data.cell, data.cell, x - side / 2, y - side / 2, side, side);
        } else {
          context.beginPath();
          context.arc(x, y, radius, 0, 2 * Math.PI);
          context.fill();
        }
      };
      const isFaded = (index) => only !== null && data.coarse[index] !== only;
      data.paths.forEach((_, index) => { if (isFaded(index)) one(index, true); });
      data.paths.forEach((_, index) => { if (!isFaded(index)) one(index, false); });
      if (active !== null) {
        const [x, y] = place(active);
        one(active, false);
        context.globalAlpha = 1;
        context.lineWidth = 2;
        context.strokeStyle = ink;
        context.beginPath();
        context.arc(x, y, (pictures ? side * 0.8 : radius + 3), 0, 2 * Math.PI);
        context.stroke();
      }
    }
  }

  function point(event, canvas) {
    const box = canvas.getBoundingClientRect(), model = +canvas.dataset.model, size = box.width;
    let best = null, nearest = 18 * 18;
    data.paths.forEach((_, index) => {
      if (only !== null && data.coarse[index] !== only) return;
      const [u, v] = data.at[index][model];
      const dx = 14 + u * (size - 28) - (event.clientX - box.left), dy = 14 + (1 - v) * (size - 28) - (event.clientY - box.top);
      const distance = dx * dx + dy * dy;
      if (distance < nearest) { nearest = distance; best = index; }
    });
    if (best !== active) { active = best; draw(); }
    tip.hidden = best === null;
    if (best === null) return;
    const parts = data.paths[best];
    tipName.textContent = parts[parts.length - 1];
    tipPath.textContent = parts.slice(0, -1).join(" › ");
    tipPicture.hidden = !data.sprite;
    if (data.sprite) {
      tipPicture.style.width = tipPicture.style.height = data.cell + "px";
      tipPicture.style.backgroundImage = `url("${data.sprite}")`;
      tipPicture.style.backgroundPosition = `${-(best % data.columns) * data.cell}px ${-Math.floor(best / data.columns) * data.cell}px`;
    }
    tip.style.left = Math.min(event.clientX + 16, innerWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8) + "px";
  }

  for (const canvas of canvases) {
    canvas.addEventListener("pointermove", (event) => point(event, canvas));
    canvas.addEventListener("pointerdown", (event) => point(event, canvas));
    canvas.addEventListener("pointerleave", () => { active = null; tip.hidden = true; draw(); });
  }
  document.querySelectorAll("[data-coarse]").forEach((button) => button.addEventListener("click", () => {
    const mine = +button.dataset.coarse;
    only = only === mine ? null : mine;
    document.querySelectorAll("[data-coarse]").forEach((other) => other.setAttribute("aria-pressed", String(+other.dataset.coarse === only)));
    draw();
  }));
  document.querySelectorAll("[data-draw]").forEach((button) => button.addEventListener("click", () => {
    pictures = button.dataset.draw === "pictures";
    document.querySelectorAll("[data-draw]").forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
    draw();
  }));
  addEventListener("resize", draw);
  addEventListener("themechange", draw);
  addEventListener("beforeprint", draw);
  draw();
})();
