// Which section is shown, the panel, search, keys, themes.

const sections = {
  overview: ["Overview", overviewSection], source: ["Program", sourceSection], graph: ["Graph", graphSection, "graph"],
  kernels: ["Kernels", kernelsSection], decisions: ["Decisions", decisionsSection, "decisions"], whatif: ["What if", whatifSection, "whatif"],
  passes: ["Passes", passesSection, "passes"], memory: ["Memory", memorySection], roofline: ["Roofline", rooflineSection], xla: ["XLA's plan", xlaSection, "xla"],
};
const known = Object.keys(sections).filter((name) => !sections[name][2] || hasPart(sections[name][2]));
const view = $("view"), panel = $("panel");
let current = "", wanted = 0, shownNumber;

async function show(name, key, box) {
  const [title, make] = sections[name];
  const turn = ++wanted;
  for (const one of $("sections").children) one.toggleAttribute("aria-current", one.hash === `#${name}`);
  let made;
  try { made = await make(key, box); } catch (error) { made = h("p", { class: "problem" }, `This part cannot be shown: ${error.message}`); }
  if (turn !== wanted) return;
  view.replaceChildren(h("h2", {}, title), made);
  if (overview.problem) view.prepend(h("div", { class: "problem", role: "alert" }, "This is the page as it was, for the file cannot be read:", h("pre", {}, overview.problem)));
  document.title = `${title} · ${overview.module}`;
  if (current !== name) scrollTo(0, 0);
  current = name;
  $("sections").querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function route() {
  const [name, ...rest] = location.hash.slice(1).split("/");
  const key = rest.length ? decodeURIComponent(rest.join("/")) : undefined;
  if (name === "i" && key) {
    instructions().then((found) => {
      const number = found.places.get(key);
      if (number === undefined) return show("overview").then(() => view.prepend(h("p", { class: "problem", role: "alert" }, `No instruction is called ${key} after the passes.`)));
      const first = current ? Promise.resolve() : show("overview");
      return first.then(() => panelOf(number));
    });
    return;
  }
  if (innerWidthIsSmall()) closePanel(false);
  show(known.includes(name) ? name : "overview", key);
}
const innerWidthIsSmall = () => matchMedia("(max-width: 60rem)").matches;
function inspect(number) { location.hash = hashOf("i", program.key(number)); }

async function panelOf(number) {
  const found = await instructions();
  const rows = await part("kernels");
  const row = rows.find((one) => one.at === number);
  const home = found.homes[number], name = found.names[number];
  const pairs = [["opcode", found.opcodes[number]], ["shape", found.shapes[number]], ["in", home], ["op_name", found.op_names[number]]];
  if (found.lines[number].length) pairs.push(["from", h("span", {}, found.lines[number].map((line) => [h("a", { href: hashOf("source", line), title: line }, shortLine(line)), " "]))]);
  if (row) {
    pairs.push(["time", `${timeText(row.seconds)}, ${shareText(row.seconds / overview.seconds)}: ${row.launches} × ${timeText(row.one)}`], ["bound by", row.bound + (row.coalesced ? "" : ", uncoalesced")],
      ["moves", `${bytesText(row.read)} read, ${bytesText(row.written)} written, ${countText(row.flops)}flop`]);
    if (row.kernel !== undefined) pairs.push(["kernel", row.kernel || "none fits"], ["launch", row.launch], ["because", row.reason]);
  } else if (found.seconds[number]) pairs.push(["time", timeText(found.seconds[number])]);
  const many = (numbers) => h("p", { class: "names" }, numbers.slice(0, 40).flatMap((one) => [linkTo(one), " "]), numbers.length > 40 ? `and ${numbers.length - 40} more` : "");
  const blocks = [h("dl", {}, pairs.filter(([, value]) => value).flatMap(([what, value]) => [h("dt", {}, what), h("dd", {}, value)]))];
  const marking = () => mark(number).then(() => { if (innerWidthIsSmall()) closePanel(true); });
  blocks.push(h("p", { class: "tools" }, hasPart("graph") ? h("button", { onclick: () => toGraph(number) }, "show in the graph") : "", hasPart("whatif") ? h("button", { onclick: marking, class: "mark", title: "mark two, to fuse or to part them (m)" }, marks.includes(number) ? "unmark" : "mark") : ""));
  if (found.operands[number].length) blocks.push(h("h4", {}, "reads"), many([...new Set(found.operands[number])]));
  if (found.users[number].length) blocks.push(h("h4", {}, "read by"), many(found.users[number]));
  if (hasPart("files")) blocks.push(...programOf(found.lines[number], await part("files")));
  blocks.push(h("h4", {}, "HLO"), code(hloOf(number), "HLO"));
  if (row && row.kernel === "") blocks.push(note("There is no code: no kernel fits this instruction."));
  else if (row && hasPart("code")) blocks.push(await kernelCode(number));
  if (hasPart("decisions")) blocks.push(await decisionsOf(home, name));
  if (hasPart("whatif")) blocks.push(await whatifOf(number));
  openPanel(name, blocks, number);
}

function openPanel(title, blocks, number) {
  shownNumber = number;
  fill(panel, h("header", {}, h("h3", {}, title), h("button", { "aria-label": "close", onclick: () => closePanel(true) }, "×")), blocks);
  panel.hidden = false;
  panel.scrollTop = 0;
  document.body.classList.add("beside");
}

// The code of a kernel for the page's target, and for the other device; served, what is not in the page is asked for.
async function kernelCode(number) {
  const texts = await part("code"), first = texts.first[number];
  const box = h("div"), { own: language, other: second } = overview.languages;
  const shown = (own, other) => fill(box, own && first !== undefined && first !== number ? note("As written for ", linkTo(first), ", which is equal.") : "",
    own ? [h("h4", {}, language), code(own, language)] : note(texts.why), other ? [h("h4", {}, second), code(other, second)] : "");
  async function write() {
    const found = await ask({ code: program.key(number) });
    if (found.error) fill(box, h("p", { class: "problem" }, found.error)); else shown(found.own, found.other);
  }
  shown(texts.own[first], texts.other[first]);
  if (overview.live && !texts.other[first]) box.append(h("p", {}, h("button", { onclick: write }, `write the ${second}`)));
  return box;
}

// The lines of the program that it comes from, with those around them; lines that are near share a block.
function programOf(lines, files) {
  const blocks = new Map();
  for (const line of lines.slice(0, 8)) {
    const [, file, at] = /^(.*):(\d+)$/.exec(line) ?? [];
    if (!files[file]) continue;
    if (!blocks.has(file)) blocks.set(file, { named: new Set(), shown: new Set() });
    const block = blocks.get(file);
    block.named.add(Number(at));
    for (let near = Number(at) - 2; near <= Number(at) + 2; near += 1) if (files[file][near] !== undefined) block.shown.add(near);
  }
  return [...blocks].flatMap(([file, { named, shown }]) => {
    const numbers = [...shown].sort((a, b) => a - b), width = String(numbers.at(-1)).length;
    return [h("h4", { title: file }, shortLine(file)), h("pre", { class: "program", tabindex: 0 }, numbers.map((at, place) => [
      place && at > numbers[place - 1] + 1 ? h("span", {}, "…\n") : "", h("span", { class: named.has(at) ? "named" : "" }, `${String(at).padStart(width)}  ${files[file][at]}\n`)]))];
  });
}

function hloOf(number) {
  const [from, to] = program.first[program.calls[number]] ?? [0, 0];
  const body = program.texts.slice(from, to).map((text) => `  ${text}`);
  return [program.texts[number], ...(body.length ? ["", `${program.calls[number]} {`, ...body, "}"] : [])].join("\n");
}

async function decisionsOf(home, name) {
  const found = await part("decisions");
  const about = (row) => row.computation === home && [row.producer, row.consumer, row.fusion].includes(name);
  const refused = found.refused.filter(about).slice(0, 12), joined = found.joined.filter(about).slice(0, 12);
  if (!refused.length && !joined.length) return "";
  const prices = (row) => (row.apart === null ? "" : ` (apart ${microText(row.apart)}, together ${microText(row.together)})`);
  return h("section", {}, h("h4", {}, "decisions"), h("ul", { class: "said" },
    refused.map((row) => h("li", {}, named(home, row.producer), " stays apart from ", named(home, row.consumer), `: ${row.reason}${prices(row)}`)),
    joined.map((row) => h("li", {}, `${row.producer} joined ${row.consumer}${prices(row)}`))));
}

async function toGraph(number) {
  const views = await part("graph"), found = await instructions();
  const key = Object.keys(views).find((one) => views[one].members.includes(number));
  if (key === undefined) return;
  if (innerWidthIsSmall()) closePanel(false);
  history.pushState(null, "", hashOf("graph", key));
  show("graph", key, found.names[number]);
}

function closePanel(back) {
  panel.hidden = true;
  document.body.classList.remove("beside");
  if (back && location.hash.startsWith("#i/")) history.replaceState(null, "", `#${current || "overview"}`);
}

// Search: names, ops, names of the frontend and lines of the program, the costliest first.
let hits = [], hitAt = -1;
async function search(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean), box = $("hits");
  if (!words.length) { box.hidden = true; return; }
  const found = await instructions();
  hits = [];
  for (let at = 0; at < found.names.length && hits.length < 2000; at += 1) {
    const place = `${found.names[at]} ${found.opcodes[at]} ${found.op_names[at]} ${found.lines[at].join(" ")}`.toLowerCase();
    if (words.every((word) => place.includes(word))) hits.push(at);
  }
  const exact = (at) => found.names[at].toLowerCase() === words[0];
  hits.sort((a, b) => exact(b) - exact(a) || (found.seconds[b] ?? 0) - (found.seconds[a] ?? 0));
  hits = hits.slice(0, 30); hitAt = hits.length ? 0 : -1;
  box.replaceChildren(...(hits.length ? hits.map((at) => h("a", { href: hashOf("i", found.key(at)), role: "option", onclick: () => { box.hidden = true; } }, h("b", {}, found.names[at]), h("small", {}, ` ${found.opcodes[at]} ${found.shapes[at]} ${shortLine(found.lines[at][0] ?? "")}`))) : [note("nothing is called so")]));
  showHit();
  box.hidden = false;
}
function showHit() { [...$("hits").children].forEach((one, at) => { one.setAttribute("aria-selected", at === hitAt); if (at === hitAt) one.scrollIntoView({ block: "nearest" }); }); }

$("search").addEventListener("input", (event) => search(event.target.value));
$("search").addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && hits.length) { hitAt = (hitAt + step + hits.length) % hits.length; showHit(); event.preventDefault(); }
  else if (event.key === "Enter" && hitAt >= 0) { $("hits").hidden = true; inspect(hits[hitAt]); event.target.blur(); }
  else if (event.key === "Escape") { $("hits").hidden = true; event.target.blur(); }
  event.stopPropagation();
});
document.addEventListener("click", (event) => { if (!event.target.closest("#find")) $("hits").hidden = true; });

const themes = ["auto", "light", "dark"];
function theme(name) {
  document.documentElement.dataset.theme = name;
  $("theme").textContent = `theme: ${name}`;
}
$("theme").addEventListener("click", () => theme(themes[(themes.indexOf(document.documentElement.dataset.theme) + 1) % 3]));
theme("auto");

// Keys: / search, digits sections, j and k rows, Escape closes, ? says so.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
  if (event.key === "/") { $("search").focus(); event.preventDefault(); }
  else if (/^[0-9]$/.test(event.key) && event.key !== "0" && known[event.key - 1]) location.hash = known[event.key - 1];
  else if (event.key === "t") $("theme").click();
  else if (event.key === "?") { const keys = $("keys"); if (keys.open) keys.close(); else keys.showModal(); }
  else if (event.key === "m" && !panel.hidden && shownNumber !== undefined) mark(shownNumber);
  else if (event.key === "Escape" && !panel.hidden) closePanel(true);
  else if (event.key === "j" || event.key === "k") {
    const rows = [...view.querySelectorAll("tbody tr[tabindex]")], at = rows.indexOf(document.activeElement);
    rows[Math.max(0, Math.min(rows.length - 1, at + (event.key === "j" ? 1 : -1)))]?.focus();
  } else if (event.key === "Enter" && event.target.tagName === "TR") event.target.click();
});

// Served, the page is made again when its file changes.
if (overview.live) setInterval(async () => {
  const found = await fetch("state").then((answer) => answer.json()).catch(() => overview);
  if (found.state !== overview.state) location.reload();
}, 2000);

$("sections").append(...known.map((name) => h("a", { href: `#${name}` }, sections[name][0])));
addEventListener("hashchange", route);
addEventListener("popstate", route);
route();
