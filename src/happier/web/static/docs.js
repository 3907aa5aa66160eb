// The API's documentation from its own OpenAPI description, without third-party code.

import { byId, el } from "./dom.js";

const kind = (schema = {}) => schema.$ref?.split("/").at(-1) ?? schema.enum?.join(" | ") ?? schema.const
  ?? (schema.anyOf ? schema.anyOf.map(kind).join(" or ") : schema.type === "array" ? `${kind(schema.items)}[]` : schema.type ?? "");

const limits = (schema = {}) => [
  schema.minimum !== undefined ? `from ${schema.minimum}` : "", schema.maximum !== undefined ? `to ${schema.maximum}` : "",
  schema.default !== undefined && schema.default !== "" ? `default ${schema.default}` : "",
].filter(Boolean).join(", ");

function table(rows) {
  return rows.length ? el("table", {}, el("tbody", {}, rows.map((cells) => el("tr", {}, el("th", {}, el("code", {}, cells[0])), cells.slice(1).map((cell) => el("td", {}, cell)))))) : null;
}

function operation(path, verb, value) {
  const parameters = (value.parameters ?? []).map((one) => [one.name, kind(one.schema), [one.description, limits(one.schema), one.required ? "required" : ""].filter(Boolean).join("; ")]);
  const answers = Object.entries(value.responses).map(([status, one]) => {
    const content = Object.entries(one.content ?? {})[0];
    return [status, content ? kind(content[1].schema) || content[0] : "", one.description];
  });
  const body = value.requestBody ? el("p", {}, "Body: ", el("code", {}, Object.keys(value.requestBody.content)[0]), " with the image as ", el("code", {}, "file"), ".") : null;
  return el("section", {}, el("h3", {}, el("span", { class: "verb" }, verb.toUpperCase()), el("code", {}, path)), el("p", {}, value.description ?? value.summary), body, table(parameters), el("details", {}, el("summary", {}, "Answers"), table(answers)));
}

function shape([name, schema]) {
  const required = new Set(schema.required ?? []);
  return el("section", {}, el("h3", {}, el("code", {}, name)), el("p", {}, schema.description ?? ""),
    table(Object.entries(schema.properties ?? {}).map(([field, one]) => [field, kind(one), [one.description, required.has(field) ? "" : "optional"].filter(Boolean).join("; ")])));
}

const spec = await (await fetch("api/openapi.json")).json();
byId("main").replaceChildren(
  el("h1", {}, spec.info.title), el("p", { class: "lead" }, spec.info.description),
  Object.entries(spec.paths).flatMap(([path, verbs]) => Object.entries(verbs).map(([verb, value]) => operation(path, verb, value))).reduce((all, one) => { all.append(one); return all; }, el("div")),
  el("h2", {}, "Shapes"), el("div", {}, Object.entries(spec.components?.schemas ?? {}).map(shape)));
