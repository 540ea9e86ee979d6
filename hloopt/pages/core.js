"use strict";
// Elements, figures, data of the page, tables. Text of the module only ever becomes text of the page.

const $ = (id) => document.getElementById(id);

function h(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else if (name === "style") Object.assign(made.style, value);
    else if (value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  fill(made, ...children);
  return made;
}
function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((one) => one !== undefined && one !== null && one !== ""));
}

function s(tag, properties = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}
const SVG = document.createElement("template").content.appendChild(
  Object.assign(document.createElement("div"), { innerHTML: "<svg></svg>" })
).firstChild.namespaceURI;

const three = (value) => (value >= 999.5 || value === 0 ? value.toFixed(0) : String(+value.toPrecision(3)));
function scaled(value, units, step) {
  let at = 0;
  while (Math.abs(value) >= step && at < units.length - 1) { value /= step; at += 1; }
  return `${three(value)} ${units[at]}`.trim();
}
const bytesText = (value) => scaled(value, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
const countText = (value) => scaled(value, ["", "k", "M", "G", "T", "P"], 1000);
function timeText(seconds) {
  if (!seconds) return "0";
  const sign = seconds < 0 ? "-" : "";
  const size = Math.abs(seconds);
  for (const [unit, scale] of [["s", 1], ["ms", 1e-3], ["us", 1e-6]])
    if (size >= 0.9995 * scale) return `${sign}${three(size / scale)} ${unit}`;
  return `${sign}${three(size / 1e-9)} ns`;
}
const shareText = (value) => (value >= 0.0005 ? `${(100 * value).toFixed(1)} %` : value > 0 ? "<0.1 %" : "");
const plural = (count, word, words = `${word}s`) => `${count.toLocaleString("en")} ${count === 1 ? word : words}`;
const changeText = (seconds) => (seconds > 0 ? "+" : "") + timeText(seconds);
// A long name breaks after its parts.
const parted = (text) => String(text).split(/(?<=[_/,-])(?=[^_/,-])|(?<=\.)(?=[A-Za-z])/).flatMap((one, at) => (at ? [h("wbr"), one] : [one]));
const shortLine = (line) => line.split("/").slice(-2).join("/");

const loaded = new Map();
const overview = JSON.parse($("overview").textContent);
const hasPart = (name) => Boolean($(`part-${name}`));
// A part of the data, decompressed when it is first needed.
function part(name) {
  if (!loaded.has(name)) {
    loaded.set(name, (async () => {
      const packed = Uint8Array.from(atob($(`part-${name}`).textContent), (char) => char.charCodeAt(0));
      const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
      return JSON.parse(await new Response(stream).text());
    })());
  }
  return loaded.get(name);
}

let program;
// The instructions with what is looked up in them: places by name, readers, the computation of each.
async function instructions() {
  if (program) return program;
  const found = await part("instructions");
  found.homes = found.computations.flatMap(([name, count]) => Array(count).fill(name));
  found.first = {};
  let at = 0;
  for (const [name, count] of found.computations) { found.first[name] = [at, at + count]; at += count; }
  found.users = found.names.map(() => []);
  found.operands.forEach((operands, user) => new Set(operands).forEach((one) => found.users[one].push(user)));
  found.places = new Map(found.names.map((name, number) => [`${found.homes[number]}/${name}`, number]));
  const bodies = new Set(Object.values(found.calls));
  found.inside = new Map();
  found.homes.forEach((home, number) => { if (bodies.has(home) && !found.inside.has(found.names[number])) found.inside.set(found.names[number], number); });
  found.key = (number) => `${found.homes[number]}/${found.names[number]}`;
  program = found;
  return program;
}

const hashOf = (section, key) => `#${section}${key === undefined ? "" : `/${encodeURIComponent(key)}`}`;
function linkTo(number, text) {
  const key = program.key(number);
  return h("a", { href: hashOf("i", key), title: program.texts[number].slice(0, 600), class: "name" },
    parted(text ?? program.names[number]));
}
const lineLink = (line) => (line ? h("a", { href: hashOf("source", line), title: line }, shortLine(line)) : "");
const bar = (share) => h("span", { class: "bar" }, h("i", { style: { width: `${Math.min(100, 100 * share)}%` } }));
const note = (...said) => h("p", { class: "soft" }, said);
function code(text, name = "") {
  const body = h("pre", { tabindex: 0, "aria-label": name || "code" }, text);
  const copied = () => navigator.clipboard.writeText(text).then(() => { button.textContent = "copied"; },
    () => getSelection().selectAllChildren(body));
  const button = h("button", { class: "copy", onclick: copied }, "copy");
  return h("div", { class: "code" }, button, body);
}

const FIRST = 60, MORE = 200;
// A table whose rows are made while they are scrolled to. A column has head, text or cell, and kind:
// "num" is right-aligned, "opt" and "opt2" are left out where there is little room, "wide" may break.
function table(columns, rows, { open, empty = "nothing", filter = false } = {}) {
  if (!rows.length) return note(empty);
  let shown = rows, sorted = null, at = 0;
  const body = h("tbody"), end = h("div", { class: "end" });
  const kindOf = (column) => column.kind ?? "";
  function more(count) {
    for (const row of shown.slice(at, at + count)) {
      const cells = columns.map((column) =>
        h("td", { class: kindOf(column) }, column.cell ? column.cell(row) : kindOf(column).includes("wide") ? parted(column.text(row)) : column.text(row)));
      const act = open && ((event) => { if (!event.target.closest("a,button")) open(row); });
      body.append(h("tr", { tabindex: open ? 0 : undefined, ...(act ? { onclick: act } : {}) }, cells));
    }
    at += count;
    end.textContent = at < shown.length ? `and ${(shown.length - at).toLocaleString("en")} more` : "";
  }
  function again() { body.replaceChildren(); at = 0; more(FIRST); }
  function sort(column, head) {
    const down = sorted?.column === column ? -sorted.down : 1;
    sorted = { column, down };
    const value = column.sort;
    shown = [...shown].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      return (typeof x === "number" ? y - x : String(x).localeCompare(String(y))) * down;
    });
    for (const one of head.parentNode.children) one.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", (typeof value(shown[0]) === "number") === (down === 1) ? "descending" : "ascending");
    again();
  }
  const heads = columns.map((column) => {
    const head = h("th", { class: kindOf(column), scope: "col" });
    head.append(column.sort ? h("button", { onclick: () => sort(column, head) }, column.head) : column.head);
    return head;
  });
  new IntersectionObserver((seen) => { if (seen[0].isIntersecting && at < shown.length) more(MORE); },
    { rootMargin: "400px" }).observe(end);
  more(FIRST);
  const made = h("div", { class: "table" }, h("table", {}, h("thead", {}, h("tr", {}, heads)), body), end);
  if (!filter || rows.length < 12) return made;
  const words = (row) => columns.map((column) => column.find?.(row) ?? column.text?.(row) ?? "").join(" ").toLowerCase();
  const narrow = (event) => {
    const wanted = event.target.value.toLowerCase().split(/\s+/);
    shown = rows.filter((row) => wanted.every((word) => words(row).includes(word)));
    again();
  };
  return h("div", {}, h("input", { class: "filter", type: "search", placeholder: "filter rows", "aria-label": "filter rows", oninput: narrow }), made);
}
