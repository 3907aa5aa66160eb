// Images that the reader brings: chosen, dropped or pasted, one or several.

import * as api from "./api.js";
import { message } from "./cards.js";
import { byId, el, say } from "./dom.js";
import * as places from "./place.js";

const AT_ONCE = 3; // uploads under way

// `stop` ends what the page is doing; `back` shows it again.
export function takeImages(info, main, { stop, back }) {
  function complain(title, text) {
    stop();
    main.replaceChildren(message("error", title, text, el("div", { class: "row" },
      el("button", { class: "button", type: "button", onclick: () => byId("file").click() }, "Choose another"),
      el("button", { class: "button quiet", type: "button", onclick: back }, "Back"))));
    say(`${title}. ${text}`);
  }

  async function searchWith(files) {
    if (!info.sides.every((side) => side.embeds)) return complain("This index keeps no model", "It can be searched with its own images only.");
    const wrong = files.map((file) => problem(file, info)).find(Boolean);
    if (wrong) return complain(...wrong);
    if (files.length > places.MAX_IMAGES) return complain("Those are too many images", `Bring at most ${places.MAX_IMAGES} at once; these are ${files.length}.`);
    stop();
    const addresses = files.map((file) => URL.createObjectURL(file));
    const text = files.length > 1 ? `Searching with your ${files.length} images …` : "Searching with your image …";
    main.replaceChildren(el("section", { class: "busy", "aria-busy": "true" },
      el("div", { class: "row centre" }, addresses.map((src) => el("img", { src, alt: "Your image" }))), el("p", {}, text)));
    say(text);
    scrollTo(0, 0);
    try {
      const keys = await uploadAll(files);
      const place = places.read();
      places.go(places.link({ upload: keys, each: keys.length > 1 ? 1 : "", k: place.k, within: place.view === "search" ? place.within : "" }));
    } catch (error) {
      complain("The image could not be used", error.message);
    } finally {
      addresses.forEach((address) => URL.revokeObjectURL(address));
    }
  }

  byId("file").addEventListener("change", (event) => {
    const files = [...event.target.files];
    event.target.value = "";
    if (files.length) searchWith(files);
  });
  listenToDrops(searchWith);
}

function problem(file, info) {
  if (!file.type.startsWith("image/")) return ["That is not an image", `${file.name || "What you brought"} is ${file.type || "of an unknown kind"}.`];
  if (file.size > info.max_upload_bytes) return ["That image is too large", `${file.name}: at most ${Math.round(info.max_upload_bytes / 2 ** 20)} MiB are accepted.`];
  return null;
}

async function uploadAll(files) {
  const keys = [], waiting = [...files.keys()];
  const work = async () => {
    for (let at = waiting.shift(); at !== undefined; at = waiting.shift()) {
      try {
        keys[at] = (await api.upload(files[at])).upload;
      } catch (error) {
        throw files.length > 1 ? new Error(`${files[at].name}: ${error.message}`) : error;
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return keys;
}

function listenToDrops(searchWith) {
  const veil = byId("drop");
  let dragged = 0;
  addEventListener("dragenter", (event) => { if ([...event.dataTransfer.types].includes("Files")) { dragged++; veil.hidden = false; } });
  addEventListener("dragleave", () => { dragged = Math.max(0, dragged - 1); if (!dragged) veil.hidden = true; });
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    dragged = 0;
    veil.hidden = true;
    const files = [...event.dataTransfer.files];
    if (files.length) searchWith(files);
  });
  addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])].filter((one) => one.type.startsWith("image/"));
    if (files.length) { event.preventDefault(); searchWith(files); }
  });
}
