// What if two instructions were fused or parted: priced before, or by the server; and XLA's plan.

const chosen = new Map();  // the rows that the lock file has, by their tables
// By how much a row changes the plan, coloured; ≈ says that the plan was not made again.
function changeCell(row, found) {
  if (row.seconds === null) return "not priced";
  const change = row.seconds - found.seconds;
  const text = change ? (row.planned ? "" : "≈ ") + changeText(change) : row.made ? "none" : "no other plan";
  return [h("b", { class: change < 0 ? "better" : change > 0 ? "worse" : "" }, text), row.reason ? h("small", {}, ` ${row.reason}`) : ""];
}
const whatifColumns = (found, changed) => {
  const planned = (row, text) => (row.seconds === null ? "" : text(row));
  const each = (row, cell) => row.pairs.map((pair, at) => [at ? h("br") : "", cell(pair)]);
  const side = (name) => ({ head: name, kind: "wide", cell: (row) => each(row, (pair) => named(pair.computation || program.entry, pair[name])), find: (row) => row.pairs.map((pair) => pair[name]).join(" "), sort: (row) => row.pairs[0][name] });
  const tick = (row) => h("input", { type: "checkbox", checked: chosen.has(row.lock), "aria-label": "into the lock file",
    onchange: (event) => { if (event.target.checked) chosen.set(row.lock, row); else chosen.delete(row.lock); changed(); } });
  return [{ head: "", cell: tick }, { head: "what", cell: (row) => each(row, (pair) => (pair.fuse ? "fuse" : "part")), sort: (row) => String(row.pairs[0].fuse) }, side("producer"), side("consumer"),
    { head: "kernels", kind: "num opt", text: (row) => (row.planned ? row.kernels.toLocaleString("en") : ""), sort: (row) => row.kernels ?? 0 },
    { head: "plan", kind: "num opt2", text: (row) => planned(row, () => (row.planned ? "" : "≈ ") + timeText(row.seconds)), sort: (row) => row.seconds ?? 0 },
    { head: "change", kind: "num wide", cell: (row) => changeCell(row, found), sort: (row) => (row.seconds === null ? -Infinity : found.seconds - row.seconds) }];
};

async function whatifSection() {
  const found = await part("whatif");
  await instructions();
  if (!found.rows.length && !overview.live) return note("No pair of instructions is fused or refused by a price.");
  const said = h("output", { class: "soft" }), lock = h("div"), rows = h("div");
  const refresh = () => {
    const several = chosen.size > 1;
    const together = several && overview.live ? h("button", { onclick: () => price([...chosen.values()].flatMap((row) => row.pairs)) }, "price them together") : "";
    fill(lock, chosen.size ? [h("h3", {}, "Lock file"), code(found.head + [...chosen.keys()].join(""), "lock file"), h("p", {}, together),
      note(`hloopt optimize ${overview.file} --lock mine.toml takes it.${several ? " Each row was priced by itself." : ""}`)] : []);
  };
  const columns = whatifColumns(found, refresh);
  const again = () => fill(rows, table(columns, found.rows, { empty: "No pair was tried." }));
  async function price(pairs) {
    said.textContent = "pricing …";
    const question = { pairs: pairs.map((pair) => ({ ...pair, what: pair.what ?? (pair.fuse ? "fuse" : "part") })) };
    const row = await ask(question);
    said.textContent = row.error ?? "";
    if (!row.error) { found.rows.unshift(row); again(); }
  }
  const planned = found.rows.filter((row) => row.planned).length, estimated = found.rows.some((row) => !row.planned && row.seconds !== null);
  const how = [planned ? "Each row is the whole plan made again with one pair decided differently." : "Each row decides one pair differently.",
    estimated ? "Rows with ≈ were not planned again: their change is what the cost model says of the two kernels alone." : ""].join(" ");
  again(); refresh();
  return h("div", {}, h("p", {}, `After the passes the module takes ${timeText(found.seconds)}, before it is made ready for a device. ${how}`),
    overview.live ? pairForm(price) : note(found.left ? `${plural(found.left, "pair")} more. ` : "", h("code", {}, `hloopt report ${overview.file} --serve`), " prices any pair, and several together."),
    said, rows, lock);
}

// The answer of the server that the page came from; `error` says why there is none.
async function ask(question) {
  const asked = { method: "POST", headers: { "X-Token": overview.live }, body: JSON.stringify(question) };
  return fetch("ask", asked).then((answer) => answer.json()).catch((error) => ({ error: `The server does not answer: ${error.message}` }));
}
function pairForm(price) {
  const field = (name) => h("input", { name, required: true, placeholder: name, "aria-label": name });
  const send = (event) => { event.preventDefault(); price([Object.fromEntries(new FormData(event.target))]); };
  return h("form", { class: "tools", onsubmit: send }, h("select", { name: "what", "aria-label": "what" }, h("option", {}, "fuse"), h("option", {}, "part")), field("producer"), field("consumer"), h("button", {}, "price it"));
}

// What the plan would cost with an instruction, or one within its kernel, fused or parted otherwise.
async function whatifOf(number) {
  const found = await part("whatif");
  const [from, to] = program.first[program.calls[number]] ?? [number, number + 1];
  const names = new Set([program.names[number], ...program.names.slice(from, to)]);
  const rows = found.rows.filter((row) => row.pairs.some((pair) => names.has(pair.producer) || names.has(pair.consumer)));
  return rows.length ? h("section", {}, h("h4", {}, "what if"), table(whatifColumns(found, () => {}), rows), note(h("a", { href: "#whatif" }, "The lock file"), " has what is marked.")) : "";
}

const statusText = { came: "ours alone", went: "XLA's alone" };
async function xlaSection() {
  const found = await part("xla");
  await instructions();
  const ours = (row) => row.after.map(({ key }) => program.places.get(key));
  const change = ({ seconds }) => seconds[1] - seconds[0];
  const several = (cells) => cells.flatMap((one, at) => [at ? ", " : "", one]);
  const what = (texts) => h("small", {}, parted([...new Set(texts)].join("; ")));
  const columns = [
    { head: "", kind: "opt", text: (row) => statusText[row.status] ?? row.status, sort: (row) => row.status },
    { head: "XLA's kernels", kind: "wide", cell: (row) => [several(row.before.map((one) => parted(one.name))), what(row.before.map((one) => one.computes))], sort: (row) => row.before[0]?.name ?? "", find: (row) => row.before.map((one) => `${one.name} ${one.lines.join(" ")}`).join(" ") },
    { head: "ours", kind: "wide", cell: (row) => [several(ours(row).map((one) => linkTo(one))), what(ours(row).map(computes))], sort: (row) => program.names[ours(row)[0]] ?? "", find: (row) => ours(row).map((one) => program.names[one]).join(" ") },
    { head: "XLA's", kind: "num opt2", text: (row) => timeText(row.seconds[0]), sort: (row) => row.seconds[0] },
    { head: "ours", kind: "num opt2", text: (row) => timeText(row.seconds[1]), sort: (row) => row.seconds[1] },
    { head: "change", kind: "num", cell: (row) => { const by = change(row); return h("b", { class: by < -1e-12 ? "better" : by > 1e-12 ? "worse" : "" }, by ? changeText(by) : ""); }, sort: (row) => Math.abs(change(row)) },
  ];
  const { before, after } = found.totals;
  return h("div", {}, h("div", { class: "figures" }, figure(timeText(before.seconds), "XLA's plan", `${before.kernels} kernels, ${bytesText(before.bytes)}`), figure(timeText(after.seconds), "ours", `${after.kernels} kernels, ${bytesText(after.bytes)}`)),
    note(`The dump's ${found.stage}; both are priced for ${overview.target.name} by ${overview.cost_model}.`),
    found.elsewhere ? h("p", { class: "problem" }, `XLA made this plan for a ${found.elsewhere}, where it chooses other kernels: compare with --target ${found.elsewhere === "CPU" ? "host" : "h200"}, or the like.`) : "",
    table(columns, found.groups, { filter: true, empty: "The plans are equal.", open: besidePanel }));
}

// The kernels of a group, XLA's and ours.
function besidePanel(row) {
  const theirs = row.before.map((one) => h("section", {}, h("h4", {}, one.name), h("p", {}, `${timeText(one.seconds)}, launched ${one.launches}, computes ${one.computes} `, one.lines.flatMap((line) => [lineLink(line), " "])),
    one.text ? code(one.text, "HLO") : ""));
  const ours = row.after.map(({ key }) => program.places.get(key)).map((one) => h("section", {}, h("h4", {}, linkTo(one)), code(hloOf(one), "HLO")));
  openPanel(statusText[row.status] ?? row.status, [h("h3", {}, `XLA's, ${timeText(row.seconds[0])}`), theirs.length ? theirs : note("none"), h("h3", {}, `ours, ${timeText(row.seconds[1])}`), ours.length ? ours : note("none")]);
}
