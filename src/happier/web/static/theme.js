"use strict";

// Before the first paint: the reader's own choice, if there is one.
(() => {
  const root = document.documentElement;
  const stored = (() => { try { return localStorage.getItem("happier-theme"); } catch { return null; } })();
  if (stored === "light" || stored === "dark") root.dataset.theme = stored;
  addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme")?.addEventListener("click", () => {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      try { localStorage.setItem("happier-theme", root.dataset.theme); } catch { /* private windows refuse */ }
    });
  });
})();
