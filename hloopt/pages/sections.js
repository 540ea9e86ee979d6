// The sections of the page, and the panel about one instruction.

const kernelColumns = (whole) => [
  { head: "kernel", kind: "wide main", cell: (row) => [linkTo(row.at), row.equal ? h("small", {}, ` and ${plural(row.equal, "equal one")}`) : ""], sort: (row) => program.names[row.at], find: (row) => program.names[row.at] },
  { head: "computes", kind: "opt wide", text: (row) => computes(row.at), sort: (row) => computes(row.at) },
  { head: "from", kind: "opt wide", cell: (row) => h("span", {}, lineLink(row.lines[0] ?? ""), row.lines.length > 1 ? ` and ${row.lines.length - 1} more` : ""), sort: (row) => row.lines[0] ?? "", find: (row) => row.lines.join(" ") },
  { head: "bound by", kind: "opt", text: (row) => row.bound + (row.coalesced ? "" : ", uncoalesced"), sort: (row) => row.bound },
  { head: "launches", kind: "num opt2", text: (row) => row.launches, sort: (row) => row.counted },
  { head: "bytes", kind: "num opt", text: (row) => bytesText(row.read + row.written), sort: (row) => row.read + row.written },
  { head: "one", kind: "num opt", text: (row) => timeText(row.one), sort: (row) => row.one },
  { head: "all", kind: "num", text: (row) => timeText(row.seconds), sort: (row) => row.seconds },
  { head: "share", kind: "num share", cell: (row) => [shareText(row.seconds / whole), bar(row.seconds / whole)], sort: (row) => row.seconds },
];

// Equal kernels as one row, with the time and the launches of all: those whose code is the same.
async function together(rows) {
  const { first } = hasPart("code") ? await part("code") : { first: {} };
  const groups = new Map();
  for (const row of rows) {
    const key = first[row.at] ?? row.at, group = groups.get(key);
    if (!group) { groups.set(key, { ...row, equal: 0 }); continue; }
    group.seconds += row.seconds; group.counted += row.counted; group.equal += 1;
    const bounds = group.launches + row.launches;
    group.launches = `${bounds.includes("<=") ? "<=" : ""}${group.counted.toLocaleString("en")}${bounds.includes("+") ? "+" : ""}`;
  }
  return [...groups.values()].sort((a, b) => b.seconds - a.seconds);
}

// What a fusion computes: its ops by number, the most frequent first.
function computes(number) {
  const body = program.calls[number];
  if (body === undefined) return program.opcodes[number];
  const [from, to] = program.first[body] ?? [0, 0], counts = {};
  for (let at = from; at < to; at += 1) {
    const op = program.opcodes[at];
    if (!["parameter", "constant", "tuple", "bitcast"].includes(op)) counts[op] = (counts[op] ?? 0) + 1;
  }
  const names = Object.entries(counts).sort((a, b) => b[1] - a[1]);
  const text = names.slice(0, 4).map(([op, count]) => (count > 1 ? `${count} ${op}` : op)).join(", ");
  return names.length > 4 ? `${text}, ${names.length - 4} more` : text;
}

const figure = (value, words, more) => h("div", { class: "figure" }, h("b", {}, value), h("span", {}, words), more ? h("small", {}, more) : "");
const gain = (before, after) => (before && after && before !== after ? `${timeText(before)} as given` : "");

function overviewSection() {
  const { seconds, given, counts, bounds } = overview;
  const shares = Object.entries(bounds).filter(([, spent]) => spent > 0);
  const spent = [h("div", { class: "split", "aria-hidden": "true" }, shares.map(([bound, one]) => h("span", { class: bound, style: { flexGrow: (100 * one) / seconds } }))),
    h("p", { class: "key" }, shares.map(([bound, one]) => h("span", {}, h("i", { class: bound }), `${bound} ${shareText(one / seconds)}`)))];
  return h("div", {},
    h("div", { class: "figures" },
      figure(timeText(seconds), `predicted on ${overview.target.title}`, gain(given.seconds, seconds)),
      figure(counts.kernels.toLocaleString("en"), "kernels", `${given.kernels.toLocaleString("en")} as given`),
      figure(counts.launches.toLocaleString("en"), "launches a run", given.launches !== counts.launches ? `${given.launches.toLocaleString("en")} as given` : ""),
      figure(bytesText(counts.bytes), "read and written", `${bytesText(given.bytes)} as given`),
      figure(bytesText(counts.peak), "of memory", "as XLA assigns it"),
      figure(counts.instructions.toLocaleString("en"), "instructions, bodies of fusions included", `${given.instructions.toLocaleString("en")} as given`)),
    seconds ? h("section", {}, h("h3", {}, "What the time is bound by"), spent) : "",
    later(overviewTables));
}

// What needs data that is not unpacked yet comes below what is there, which does not move.
function later(make) {
  const box = h("div", { "aria-busy": "true" });
  make().then((made) => fill(box, made), (error) => fill(box, h("p", { class: "problem" }, `This part cannot be shown: ${error.message}`)))
    .finally(() => box.removeAttribute("aria-busy"));
  return box;
}

async function overviewTables() {
  const rows = await part("kernels"), groups = await together(rows);
  await instructions();
  return [findings(overview.findings),
    h("h3", {}, "What costs most"),
    table(kernelColumns(overview.seconds), groups.slice(0, 10), { open: (row) => inspect(row.at), empty: "no kernel runs" }),
    rows.length > 10 ? h("p", {}, h("a", { href: "#kernels" }, `all ${plural(rows.length, "kernel")}`)) : "",
    overview.notes.length ? h("section", {}, h("h3", {}, "Notes"), h("ul", { class: "soft" }, overview.notes.map((one) => h("li", {}, one)))) : ""];
}

function findings(rows) {
  const gained = ({ gain }) => {
    const text = { time: timeText, memory: bytesText, "compile time": countText }[gain.measure] ?? ((value) => value.toPrecision(2));
    return `${gain.measure}: ${text(gain.before)} → ${text(gain.after)}${gain.part ? ` for the part around it, ${plural(gain.part, "instruction")}` : ""}, ${gain.how}; results: ${gain.verdict}`;
  };
  const card = (row) => h("li", {}, h("b", {}, row.title), " ", named(row.computation, row.instruction), row.others.length ? ` and ${row.others.length.toLocaleString("en")} more ` : " ", row.lines.slice(0, 2).flatMap((one) => [lineLink(one), " "]),
    h("p", {}, row.why), h("ul", {}, row.remedies.map((one) => h("li", {}, h("small", {}, `${{ model: "in the program", flag: "by a flag of XLA", hloopt: "by hloopt" }[one.way]}: `), one.text))), h("small", {}, gained(row)));
  return h("section", {}, h("h3", {}, "What would help"), rows.length ? h("ol", { class: "cards" }, rows.map(card)) : note("No change that hloopt tried gains anything."));
}

let equalTogether = true;
async function kernelsSection() {
  const rows = await part("kernels"), groups = await together(rows);
  await instructions();
  const choose = h("select", { "aria-label": "rows", onchange: (event) => { equalTogether = event.target.value === "equal"; show("kernels"); } },
    h("option", { value: "equal", selected: equalTogether }, "equal kernels together"), h("option", { value: "each", selected: !equalTogether }, "each kernel by itself"));
  const shown = equalTogether ? groups : rows;
  return h("div", {}, groups.length < rows.length ? h("div", { class: "tools" }, choose) : "",
    table(kernelColumns(overview.seconds), shown, { open: (row) => inspect(row.at), filter: true, empty: "no kernel runs" }));
}

const microText = (value) => (value === null ? "" : timeText(value * 1e-6));
// What had this name before fusion is within a kernel now.
const placeOf = (computation, name) => program.places.get(`${computation}/${name}`) ?? program.inside.get(name);
const named = (computation, name) => {
  const number = placeOf(computation, name);
  return number === undefined ? parted(name) : linkTo(number, name);
};

async function decisionsSection() {
  const found = await part("decisions");
  await instructions();
  const prices = [
    { head: "apart", kind: "num opt2", text: (row) => microText(row.apart), sort: (row) => row.apart ?? -1 },
    { head: "together", kind: "num opt2", text: (row) => microText(row.together), sort: (row) => row.together ?? -1 },
  ];
  const pair = [
    { head: "producer", kind: "wide", cell: (row) => named(row.computation, row.producer), sort: (row) => row.producer, find: (row) => row.producer },
    { head: "consumer", kind: "wide", cell: (row) => [named(row.computation, row.consumer), row.others ? ` and ${row.others} more` : ""], sort: (row) => row.consumer, find: (row) => row.consumer },
  ];
  return h("div", {}, h("h3", {}, "Kept apart, although by the model one kernel would be faster"),
    table([...pair,
      { head: "why", kind: "wide why", cell: (row) => [h("code", {}, row.code), ` ${row.reason}`], find: (row) => `${row.code} ${row.reason}` },
      { head: "what would allow it", kind: "opt wide", text: (row) => row.options.join(" or ") || (row.advisable ? "a rule or a lock file" : "nothing") },
      ...prices, { head: "lost", kind: "num", text: (row) => microText(row.lost), sort: (row) => row.lost },
    ], found.refused, { filter: true, empty: "No refusal costs time by the model." }),
    h("h3", {}, "Fused, in order"),
    table([...pair,
      { head: "into", kind: "wide opt2", cell: (row) => named(row.computation, row.fusion), sort: (row) => row.fusion, find: (row) => row.fusion },
      { head: "by", kind: "opt", text: (row) => row.pass + (row.duplicated ? ", a copy" : "") + (row.multi_output ? ", more results" : ""), sort: (row) => row.pass },
      ...prices,
    ], found.joined, { filter: true, empty: "Nothing was fused." }),
    found.joined_count > found.joined.length ? note(`and ${found.joined_count - found.joined.length} more`) : "");
}

async function passesSection() {
  const found = await part("passes");
  const changed = found.runs.filter((run) => run.changed);
  const pane = h("div", { class: "pane" });
  const show = (run, button) => {
    for (const one of list.querySelectorAll("[aria-current]")) one.removeAttribute("aria-current");
    button.setAttribute("aria-current", "true");
    const hits = run.hits.map(([rule, count]) => h("li", {}, h("code", {}, rule), count > 1 ? ` ${count} times` : ""));
    fill(pane, h("h3", {}, run.title), hits.length ? h("ul", { class: "hits" }, hits) : "",
      run.diff.map((block) => h("section", {}, h("h4", {}, block.computation), h("pre", { class: "diff", tabindex: 0 }, block.lines.map((row) =>
        h("span", { class: row[0] === "+" ? "plus" : "minus" }, `${row}\n`))))),
      run.more ? note(`and ${plural(run.more, "line")} more`) : "");
  };
  const list = h("div", { class: "runs", role: "list" }, changed.map((run) => {
    const made = run.diff.reduce((sum, block) => sum + block.lines.filter((row) => row[0] === "+").length, 0);
    const button = h("button", { onclick: () => show(run, button) }, h("span", {}, `${run.number} ${run.name}`), h("small", {}, `${run.instructions.toLocaleString("en")} instructions, +${made} lines, ${timeText(run.seconds)}`));
    return button;
  }));
  if (!changed.length) return note("No pass changed anything.");
  show(changed[0], list.firstChild);
  return h("div", {}, note(`${plural(changed.length, "run")} of ${found.runs.length} changed the module; the others are left out. An instruction is compared with the text it had.`), h("div", { class: "panes" }, list, pane));
}

async function memorySection() {
  const found = await part("memory"), { assigned } = found;
  await instructions();
  return h("div", {}, h("p", {}, h("b", {}, bytesText(assigned.bytes)), ` are needed as XLA assigns buffers: ${[["parameter", "parameters"], ["result", "results"], ["temporary", "temporaries"]].map(([kind, name]) => `${bytesText(assigned[kind])} of ${name}`).join(", ")}.`),
    h("p", {}, h("b", {}, bytesText(found.peak)), " are alive at most", ", while ", linkTo(found.at), " runs."),
    memoryChart(found, inspect), h("h3", {}, "Alive at the peak"),
    table([
      { head: "buffer", kind: "wide", cell: (row) => [linkTo(row.at), row.index.length ? `{${row.index}}` : ""], sort: (row) => program.names[row.at], find: (row) => program.names[row.at] },
      { head: "shape", kind: "opt wide", text: (row) => program.shapes[row.at], sort: (row) => program.shapes[row.at] },
      { head: "kind", text: (row) => row.kind, sort: (row) => row.kind },
      { head: "from", kind: "opt wide", cell: (row) => lineLink(program.lines[row.at][0] ?? "") },
      { head: "until", kind: "opt wide", cell: (row) => linkTo(row.end) },
      { head: "size", kind: "num", text: (row) => bytesText(row.bytes), sort: (row) => row.bytes },
      { head: "share", kind: "num share", cell: (row) => [shareText(row.bytes / found.peak), bar(row.bytes / found.peak)] },
    ], found.buffers, { filter: true, empty: "no buffer" }), found.others ? note(`and ${plural(found.others, "smaller buffer")}`) : "");
}

async function rooflineSection() {
  const rows = await together(await part("kernels"));
  await instructions();
  return h("div", {}, note("Each circle is a kernel, equal ones are one; it is placed by its flops per byte and by the rate of its predicted time; its area is the time of all its launches. Kernels to the left of the knee can be no faster than the memory, those to the right of it no faster than the arithmetic units."), rooflineChart(rows, overview.target, inspect));
}
