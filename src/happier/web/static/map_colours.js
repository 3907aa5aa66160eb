// Colours of the map, as the canvas needs them: from the style sheet, for the theme that is shown.

const GROUPS = 14;
let known = null, theme = "";

export function colours() {
  const now = `${document.documentElement.dataset.theme ?? ""} ${matchMedia("(prefers-color-scheme: dark)").matches} ${matchMedia("print").matches}`;
  if (known && theme === now) return known;
  theme = now;
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  known = {
    groups: Array.from({ length: GROUPS }, (_, at) => value(`--map-${at}`)), other: value("--map-other"), outside: value("--line"),
    page: value("--page"), ink: value("--ink"), accent: value("--accent"), query: value("--query"), font: getComputedStyle(document.body).fontFamily,
    resolve: (colour) => (colour.startsWith("var(") ? value(colour.slice(4, -1)) : colour),
  };
  return known;
}

export const groupColour = (at) => `var(--map-${at < GROUPS ? at : "other"})`;
