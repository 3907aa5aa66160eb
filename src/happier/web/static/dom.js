// Elements from values. Text stays text: nothing here ever parses HTML.

export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name === "colour") element.style.setProperty("--c", value);
    else if (name === "share") element.style.setProperty("--share", value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const byId = (id) => document.getElementById(id);

export function say(text) {
  byId("status").textContent = text;
}

// A count, as toLocaleString("en") writes it; that one loads the rules of all languages first, which takes 10 to 20 ms.
export const number = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, ",");
export const fixed = (value, digits = 3) => (value === null || value === undefined ? "–" : value.toFixed(digits));
// Fill an element with children; null entries are left out.
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
}

export const percent = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)} %`);

export function debounce(action, milliseconds) {
  let timer;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), milliseconds);
  };
}
