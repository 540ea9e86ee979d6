// Two instructions that the user marks, in the graph or beside an instruction: what one plan has as two kernels is
// fused in the other, what is within one kernel is parted. The bar below the page has the price and the lock file.

const marks = [];
let boxesShown = new Map();  // boxes of the graph's view by the numbers of their instructions

function mark(number) {
  const at = marks.indexOf(number);
  if (at >= 0) marks.splice(at, 1); else marks.push(number);
  if (marks.length > 2) marks.shift();
  return showMarks();
}
function showBoxes(boxes) {
  boxesShown = boxes;
  for (const [number, box] of boxes) box.setAttribute("aria-pressed", marks.includes(number));
}
async function showMarks() {
  showBoxes(boxesShown);
  const button = panel.querySelector(".mark");
  if (button) button.textContent = marks.includes(shownNumber) ? "unmark" : "mark";
  const bar = $("marks"), each = marks.map((one) => linkTo(one));
  bar.hidden = !marks.length;
  document.body.classList.toggle("marking", marks.length > 0);
  const clear = h("button", { onclick: () => { marks.length = 0; showMarks(); } }, "clear");
  if (marks.length < 2) fill(bar, h("p", {}, each, " is marked. Mark what it could be fused with, or parted from."), clear);
  else { const said = await pairSaid(...marks); fill(bar, h("div", {}, said), clear); }
}

const bodyOf = (number) => program.first[program.calls[number]];
const rangeOf = (number) => { const [from, to] = bodyOf(number) ?? [number, number + 1]; return program.names.slice(from, to); };
// The fusion whose body an instruction is in.
function kernelAround(number) {
  const found = Object.entries(program.calls).find(([, body]) => body === program.homes[number]);
  return found && Number(found[0]);
}

// By which names a lock file means a result of `from` that `to` reads: kernels have them from before fusion.
function edgeBetween(from, to) {
  const [start, end] = bodyOf(to) ?? [];
  for (const [place, operand] of program.operands[to].entries()) {
    const result = program.opcodes[operand] === "get-tuple-element" ? program.operands[operand][0] : operand;
    if (result !== from) continue;
    const inside = (at) => at >= start && at < end && program.texts[at].includes(`parameter(${place})`);
    const parameter = start === undefined ? -1 : program.homes.findIndex((_, at) => inside(at));
    const reader = parameter < 0 ? to : program.users[parameter][0];
    return { producer: program.names[resultOf(from, operand)], consumer: program.names[reader] };
  }
}
function resultOf(from, read) {
  const [start, end] = bodyOf(from) ?? [];
  if (start === undefined) return from;
  const root = program.texts.findIndex((text, at) => at >= start && at < end && text.startsWith("ROOT "));
  const index = /index=(\d+)/.exec(program.texts[read]);
  return program.opcodes[root] === "tuple" && index ? program.operands[root][index[1]] : root;
}

// What the marks ask for: a row that is priced, a pair, or why they are none.
function pairOf(one, other, rows = []) {
  const around = [kernelAround(one), kernelAround(other)];
  const within = around[0] !== undefined && around[0] === around[1];
  const [a, b] = within ? [one, other] : [around[0] ?? one, around[1] ?? other];
  if (a === b) return { problem: "One of them is within the other." };
  if (program.homes[a] !== program.homes[b]) return { problem: "They are in different computations, and never one kernel." };
  const computation = program.homes[within ? around[0] : a], orders = [[a, b], [b, a]];
  const means = ([x, y], { fuse, ...pair }) => fuse !== within && pair.computation === computation && rangeOf(x).includes(pair.producer) && rangeOf(y).includes(pair.consumer);
  const row = rows.find(({ pairs }) => pairs.length === 1 && orders.some((order) => means(order, pairs[0])));
  if (row) return { row };
  const edge = orders.map((order) => edgeBetween(...order)).find(Boolean);
  if (!edge) return { problem: `Neither reads the other: a producer is ${within ? "parted from" : "fused with"} what reads it.` };
  const pair = { fuse: !within, ...edge, computation };
  return { row: { pairs: [pair], lock: lockOf(pair), seconds: null } };
}

const quoted = (text) => JSON.stringify(text).replace(/\x7f/g, "\\u007f");
const lockOf = ({ fuse, ...keys }) => ["", `[[${fuse ? "fuse" : "nofuse"}]]`, ...["computation", "producer", "consumer"].map((key) => `${key} = ${quoted(keys[key])}`), ""].join("\n");

async function pairSaid(one, other) {
  if (!hasPart("whatif")) return h("p", {}, "These passes decide nothing about fusion.");
  const found = await part("whatif");
  let { row, problem } = pairOf(one, other, found.rows);
  if (problem) return h("p", {}, linkTo(one), " and ", linkTo(other), ` are marked. ${problem}`);
  const box = h("div");
  async function price() {
    fill(box, h("p", {}, "The plan is made again …"));
    const answer = await ask({ pairs: row.pairs.map((pair) => ({ ...pair, what: pair.fuse ? "fuse" : "part" })) });
    if (answer.error) { fill(box, h("p", { class: "problem" }, answer.error)); return; }
    row = answer;
    found.rows.unshift(row);
    write();
  }
  function write() {
    const [{ producer, consumer, computation, fuse }] = row.pairs;
    const tick = h("input", { type: "checkbox", checked: chosen.has(row.lock), onchange: ({ target }) => {
      if (!target.checked) chosen.delete(row.lock); else { chosen.set(row.lock, row); if (!found.rows.includes(row)) found.rows.push(row); }
    } });
    const unpriced = overview.live ? h("button", { onclick: price }, "price it") : ["not priced in this page; ", h("code", {}, `hloopt report ${overview.file} --serve`), " prices any pair"];
    fill(box, h("p", {}, h("b", {}, fuse ? "Fuse " : "Part "), named(computation, producer), fuse ? " into " : " from ", named(computation, consumer), ": ", row.seconds === null ? unpriced : changeCell(row, found)),
      h("p", {}, h("label", {}, tick, " into "), h("a", { href: "#whatif" }, "the lock file")));
  }
  write();
  return box;
}
