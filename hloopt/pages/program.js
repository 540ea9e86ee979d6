// The user's program: times by source line, computation and name scope.

const programViews = { line: "by source line", computation: "by computation", namespace: "by name scope" };
let programView = "line";
async function sourceSection(wanted) {
  if (wanted) programView = "line";
  const choose = h("select", { "aria-label": "what times are added up by", onchange: (event) => { programView = event.target.value; show("source"); } },
    Object.entries(programViews).map(([name, text]) => h("option", { value: name, selected: name === programView }, text)));
  return h("div", {}, h("div", { class: "tools" }, choose), programView === "line" ? await linesOf(wanted) : await groupsOf(programView));
}

// Kernels by the computation that starts them, or by their op_name without its last part.
async function groupsOf(by) {
  const rows = await part("kernels");
  const { homes, op_names: names } = await instructions();
  const groups = new Map();
  for (const row of rows) {
    const name = by === "computation" ? homes[row.at] : names[row.at].split("/").slice(0, -1).join("/");
    const group = groups.get(name) ?? groups.set(name, { name, seconds: 0, bytes: 0, launches: 0, kernels: [] }).get(name);
    group.seconds += row.seconds; group.launches += row.counted; group.bytes += (row.read + row.written) * row.counted; group.kernels.push(row.at);
  }
  const byNumber = new Map(rows.map((row) => [row.at, row]));
  const cell = (row) => (by === "computation" ? h("a", { href: hashOf("graph", row.name), class: "name" }, parted(row.name)) : row.name ? parted(row.name) : "no name scope");
  return table([
    { head: by === "computation" ? "computation" : "name scope", kind: "wide main", cell, sort: (row) => row.name, find: (row) => row.name },
    { head: "kernels", kind: "wide opt", cell: (row) => kernelsOf(row.kernels, byNumber), sort: (row) => row.kernels.length },
    { head: "launches", kind: "num opt2", text: (row) => row.launches.toLocaleString("en"), sort: (row) => row.launches },
    { head: "bytes", kind: "num opt", text: (row) => bytesText(row.bytes), sort: (row) => row.bytes },
    { head: "time", kind: "num", text: (row) => timeText(row.seconds), sort: (row) => row.seconds },
    { head: "share", kind: "num share", cell: (row) => [shareText(row.seconds / overview.seconds), bar(row.seconds / overview.seconds)] },
  ], [...groups.values()].sort((a, b) => b.seconds - a.seconds), { filter: true, empty: "no kernel runs" });
}

async function linesOf(wanted) {
  const [rows, all] = [await part("source"), await part("kernels")];
  await instructions();
  const byNumber = new Map(all.map((row) => [row.at, row]));
  const texts = hasPart("files") ? await part("files") : {};
  const whole = overview.seconds;
  const files = new Map();
  for (const row of rows) {
    const [file, at] = row.line ? [row.line.replace(/:\d+$/, ""), Number(/:(\d+)$/.exec(row.line)?.[1] ?? 0)] : ["", 0];
    if (!files.has(file)) files.set(file, []);
    files.get(file).push({ ...row, at });
  }
  const spentIn = (lines) => lines.reduce((sum, row) => sum + row.seconds, 0);
  const ordered = [...files].sort((a, b) => spentIn(b[1]) - spentIn(a[1]));
  return h("div", {}, note("The whole time of a kernel is charged to the first of the lines that it computes."),
    ordered.map(([file, lines], number) => {
      const isOpen = number < 3 || lines.some((row) => row.line === wanted);
      const list = () => table([
        { head: "line", kind: "num", text: (row) => String(row.at || ""), sort: (row) => -row.at },
        { head: "program", kind: "wide", cell: (row) => h("code", {}, texts[file]?.[row.at] ?? ""), sort: (row) => row.line },
        { head: "kernels", kind: "wide", cell: (row) => kernelsOf(row.kernels, byNumber) },
        { head: "time", kind: "num", text: (row) => timeText(row.seconds), sort: (row) => row.seconds },
        { head: "share", kind: "num share", cell: (row) => [shareText(row.seconds / whole), bar(row.seconds / whole)] },
      ].filter((column) => column.head !== "program" || texts[file]), wanted ? [...lines].sort((a, b) => (b.line === wanted) - (a.line === wanted)) : lines);
      const box = h("details", { open: isOpen, ontoggle: () => { if (box.open && box.children.length === 1) box.append(list()); } },
        h("summary", {}, h("span", { class: "path", title: file }, file || "no line of the program"), h("span", { class: "soft" }, `${timeText(spentIn(lines))}, ${shareText(spentIn(lines) / whole)}`)));
      if (isOpen) box.append(list());
      return box;
    }));
}

function kernelsOf(numbers, byNumber) {
  const ordered = [...numbers].sort((a, b) => (byNumber.get(b)?.seconds ?? 0) - (byNumber.get(a)?.seconds ?? 0));
  const shown = ordered.slice(0, 4).flatMap((one, at) => [at ? ", " : "", linkTo(one)]);
  return h("span", {}, shown, ordered.length > 4 ? ` and ${ordered.length - 4} more` : "");
}
