// What if two instructions were fused or parted: priced before, or by the server; and XLA's plan.

async function whatifSection() {
  const found = await part("whatif");
  await instructions();
  const chosen = new Set();
  const lock = h("div");
  const text = () => found.head + [...chosen].map((row) => row.lock).join("");
  const refresh = () => lock.replaceChildren(...(chosen.size ? [h("h3", {}, "Lock file"), code(text(), "lock file"),
    note(`hloopt optimize ${overview.file} --lock mine.toml takes it.${chosen.size > 1 ? " Each was priced by itself." : ""}`)] : []));
  const change = (row) => row.seconds - found.seconds;
  const columns = [
    { head: "", cell: (row) => h("input", { type: "checkbox", "aria-label": "into the lock file", onchange: (event) => { if (event.target.checked) chosen.add(row); else chosen.delete(row); refresh(); } }) },
    { head: "what", text: (row) => (row.fuse ? "fuse" : "part"), sort: (row) => String(row.fuse) },
    { head: "producer", kind: "wide", cell: (row) => named(row.computation, row.producer), find: (row) => row.producer },
    { head: "consumer", kind: "wide", cell: (row) => named(row.computation, row.consumer), find: (row) => row.consumer },
    { head: "kernels", kind: "num opt", text: (row) => (row.planned ? String(row.kernels) : ""), sort: (row) => row.kernels },
    { head: "plan", kind: "num opt2", text: (row) => (row.planned ? "" : "≈ ") + timeText(row.seconds), sort: (row) => row.seconds },
    { head: "change", kind: "num", cell: (row) => h("b", { class: change(row) < 0 ? "better" : change(row) > 0 ? "worse" : "" }, change(row) ? (row.planned ? "" : "≈ ") + timeText(change(row)) : row.made ? "none" : "not possible"), sort: (row) => -change(row) },
  ];
  const rows = h("div", {}, table(columns, found.rows, { empty: "No pair was tried." }));
  if (!found.rows.length && !overview.live) return note("No pair of instructions is fused or refused by a price.");
  const planned = found.rows.filter((row) => row.planned).length;
  const how = [planned ? "Each row is all of it planned again, with one pair decided otherwise." : "Each row decides one pair otherwise.",
    planned < found.rows.length ? "Where it says ≈, a module of this size was not planned again: the change is what the cost model says of the two kernels alone." : ""].join(" ");
  return h("div", {}, h("p", {}, `After the passes the module takes ${timeText(found.seconds)}, before it is made ready for a device. ${how}`),
    found.left ? note(`${plural(found.left, "pair")} more: hloopt report --serve prices any of them.`) : "", overview.live ? ask(found, rows, columns) : "", rows, lock);
}

// Asks the server about any pair.
function ask(found, rows, columns) {
  const field = (name) => h("input", { name, required: true, placeholder: name, "aria-label": name });
  const said = h("output", { class: "soft" });
  async function send(event) {
    event.preventDefault();
    said.textContent = "pricing …";
    const given = Object.fromEntries(new FormData(event.target));
    const answer = await fetch("whatif", { method: "POST", headers: { "X-Token": overview.live }, body: JSON.stringify(given) });
    const row = await answer.json();
    said.textContent = row.error ?? "";
    if (!row.error) { found.rows.unshift(row); rows.replaceChildren(table(columns, found.rows)); }
  }
  return h("form", { class: "tools", onsubmit: send }, h("select", { name: "what", "aria-label": "what" }, h("option", {}, "fuse"), h("option", {}, "part")), field("producer"), field("consumer"), h("button", {}, "price it"), said);
}

async function xlaSection() {
  const found = await part("xla");
  await instructions();
  const names = (rows) => rows.map((row) => row.name).join(", ");
  const sum = (rows) => rows.reduce((all, row) => all + (row.seconds ?? 0), 0);
  const columns = [
    { head: "what", text: (row) => row.status, sort: (row) => row.status },
    { head: "XLA's kernels", kind: "wide", text: (row) => names(row.before), sort: (row) => names(row.before) },
    { head: "ours", kind: "wide", cell: (row) => row.after.flatMap((one, at) => [at ? ", " : "", h("a", { href: hashOf("i", one.key) }, one.name)]), find: (row) => names(row.after) },
    { head: "time", kind: "num", text: (row) => timeText(sum(row.before)), sort: (row) => sum(row.before) },
    { head: "ours", kind: "num", text: (row) => timeText(sum(row.after)), sort: (row) => sum(row.after) },
    { head: "change", kind: "num", cell: (row) => { const by = sum(row.after) - sum(row.before); return h("b", { class: by < -1e-12 ? "better" : by > 1e-12 ? "worse" : "" }, by ? timeText(by) : ""); }, sort: (row) => Math.abs(sum(row.after) - sum(row.before)) },
  ];
  const { before, after } = found.totals;
  return h("div", {}, h("div", { class: "figures" }, figure(timeText(before.seconds), "XLA's plan", `${before.kernels} kernels, ${bytesText(before.bytes)}`), figure(timeText(after.seconds), "ours", `${after.kernels} kernels, ${bytesText(after.bytes)}`)),
    note(`Of the dump's ${found.stage}; both are priced by ${overview.cost_model}.`), table(columns, found.groups, { filter: true, empty: "The plans are equal." }));
}
