// What can be taken away: a list as CSV, the link, a printed page.

import { el, say } from "./dom.js";

// `items()` gives what is listed at that moment.
export function actions(items, levels) {
  const done = el("span", { class: "hint", role: "status" });
  const copied = (what) => async (text) => {
    done.textContent = (await copy(text)) ? `${what} copied` : "The browser did not let the page copy";
  };
  return el("div", { class: "actions" },
    el("button", { class: "plain", type: "button", onclick: () => copied("CSV")(csv(items(), levels)) }, "Copy as CSV"),
    el("button", { class: "plain", type: "button", onclick: () => copied("Link")(location.href) }, "Copy link"),
    el("button", { class: "plain", type: "button", onclick: print }, "Print"),
    done);
}

// One row per image: place in the list, id, one column per level, score and shared level where it is a result.
export function csv(items, levels) {
  const given = (name) => items.some((item) => item[name] !== undefined);
  const columns = [
    ...["query", "model", "rank"].filter(given).map((name) => [name, (item) => item[name]]),
    ["id", (item) => item.id],
    ...levels.map((level, at) => [level, (item) => item.names[at] ?? ""]),
    ...(given("score") ? [["score", (item) => item.score], ["shared_levels", (item) => item.level ?? ""]] : []),
  ];
  const rows = [columns.map(([name]) => name), ...items.map((item) => columns.map(([, value]) => value(item)))];
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

function cell(value) {
  const text = String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without TLS a page has no clipboard of its own: the old way still works there.
    const field = el("textarea", { class: "visually-hidden", "aria-hidden": "true", tabindex: "-1" });
    field.value = text;
    document.body.append(field);
    field.select();
    const worked = document.execCommand("copy");
    field.remove();
    return worked;
  }
}

async function print() {
  say("Preparing the page to print");
  const images = [...document.querySelectorAll("main img")];
  for (const image of images) image.loading = "eager";
  await Promise.allSettled(images.map((image) => image.decode()));
  window.print();
}

// On paper, where the page came from.
addEventListener("beforeprint", () => { document.getElementById("printed").textContent = location.href; });
