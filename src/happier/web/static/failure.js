// What went wrong, and what to do next.

import { message } from "./cards.js";
import { el } from "./dom.js";
import { go } from "./place.js";

export function failure(error) {
  return message("error", error.status === 404 ? "Not found" : "That did not work", error.message,
    el("div", { class: "row" },
      error.status === 404 ? null : el("button", { class: "button", type: "button", onclick: () => go(location.pathname + location.search, { replace: true }) }, "Try again"),
      el("a", { class: error.status === 404 ? "button" : "button quiet", href: location.pathname, "data-link": true }, "Start over")));
}
