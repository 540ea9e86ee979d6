// Charts: memory over the program, and the roofline.

const HIGH = 300, EDGE = 56, FOOT = 36;
const wideOf = () => Math.max(300, Math.min(920, $("view").clientWidth - 28));
const axes = (marks) => s("g", { class: "axis" }, ...marks);
function label(x, y, text, anchor = "middle") {
  const made = s("text", { x, y, "text-anchor": anchor });
  made.textContent = text;
  return made;
}
const line = (x1, y1, x2, y2, kind = "grid") => s("line", { x1, y1, x2, y2, class: kind });

// Values that are round in the unit of their sizes, from 0 to the most.
function ticks(most, base) {
  const unit = base ** Math.floor(Math.log(most || 1) / Math.log(base));
  const lead = most / unit;
  const step = unit * ([0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256].find((one) => lead / one <= 4.5) ?? 256);
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, at) => at * step);
}

function memoryChart(found, open) {
  const { moments, peak } = found, WIDE = wideOf();
  const x = (at) => EDGE + ((WIDE - EDGE - 8) * at) / Math.max(1, moments.length - 1);
  const y = (bytes) => HIGH - FOOT - ((HIGH - FOOT - 18) * bytes) / (peak || 1);
  const path = moments.map(([, bytes], at) => `${at ? "" : `M${x(0)} ${y(bytes)}`}H${x(at).toFixed(1)}V${y(bytes).toFixed(1)}`).join("");
  const most = moments.findIndex(([at]) => at === found.at);
  const read = h("output", { class: "soft" });
  const cursor = line(0, 10, 0, HIGH - FOOT, "cursor");
  const nearest = (event) => {
    const box = drawn.getBoundingClientRect();
    const at = Math.round((((event.clientX - box.left) / box.width) * WIDE - EDGE) / (WIDE - EDGE - 8) * (moments.length - 1));
    return Math.max(0, Math.min(moments.length - 1, at));
  };
  const show = (at) => {
    cursor.setAttribute("x1", x(at)); cursor.setAttribute("x2", x(at));
    read.replaceChildren(`${bytesText(moments[at][1])} while `, linkTo(moments[at][0]), " runs");
  };
  const drawn = s("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, class: "chart", role: "img", "aria-label": `bytes alive, at most ${bytesText(peak)}`,
    onpointermove: (event) => show(nearest(event)), onclick: (event) => open(moments[nearest(event)][0]) },
  axes(ticks(peak, 1024).flatMap((bytes) => [line(EDGE, y(bytes), WIDE - 8, y(bytes)), label(EDGE - 6, y(bytes) + 4, bytesText(bytes), "end")])),
  s("path", { d: `${path}V${y(0)}H${x(0)}Z`, class: "area" }), s("path", { d: path, class: "stroke" }),
  ...(most >= 0 ? [s("circle", { cx: x(most), cy: y(moments[most][1]), r: 4, class: "peak" })] : []),
  cursor, label((WIDE + EDGE) / 2, HIGH - 8, "instructions of the entry, in order"));
  show(Math.max(0, most));
  return h("figure", {}, drawn, h("figcaption", {}, read));
}

const LEAST = 1e-3;  // flops per byte
function rooflineChart(rows, target, open) {
  // Kernels that compute next to nothing are at the edge: they would take all the room of the others.
  const points = rows.filter((row) => row.flops && row.read + row.written && row.seconds)
    .map((row) => ({ row, x: row.flops / (row.read + row.written), y: row.flops / row.one })).map((one) => ({ ...one, y: one.y * Math.max(1, LEAST / one.x), x: Math.max(one.x, LEAST), real: one }));
  const roofs = Object.entries(target.peaks).sort((a, b) => b[1] - a[1]).slice(0, 4);
  if (!points.length || !roofs.length) return note("No kernel here has flops to place below a roof.");
  const top = roofs[0][1] * 2, width = target.bandwidth, WIDE = wideOf();
  const low = Math.min(...points.map((one) => one.x), 0.1) / 2, high = Math.max(...points.map((one) => one.x), (top / width) * 2) * 2;
  const bottom = Math.min(...points.map((one) => one.y), width * low) / 2;
  const log = (value, from, to) => Math.log(value / from) / Math.log(to / from);
  const tall = HIGH + 80;
  const x = (value) => EDGE + (WIDE - EDGE - 8) * log(value, low, high);
  const y = (value) => tall - FOOT - (tall - FOOT - 12) * log(value, bottom, top);
  const marks = [];
  const apart = Math.max(1, Math.ceil((Math.log10(high / low) * 46) / (WIDE - EDGE)));  // decades that a label needs
  for (let at = Math.ceil(Math.log10(low) / apart) * apart; 10 ** at <= high; at += apart)
    marks.push(line(x(10 ** at), 12, x(10 ** at), tall - FOOT), label(x(10 ** at), tall - FOOT + 15, countText(10 ** at) === "1" ? "1" : String(+(10 ** at).toPrecision(1))));
  for (let at = Math.ceil(Math.log10(bottom) / 3) * 3; 10 ** at <= top; at += 3)
    marks.push(line(EDGE, y(10 ** at), WIDE - 8, y(10 ** at)), label(EDGE - 6, y(10 ** at) + 4, countText(10 ** at), "end"));
  const most = Math.max(...rows.map((row) => row.seconds));
  const names = [];
  let below = -Infinity;  // labels are to the left of their roofs, where no kernel can be, or else above; lower where that is taken
  const lines = roofs.flatMap(([name, flops]) => {
    const knee = flops / width;
    const start = x(Math.min(knee, high)) - 8, beside = start - EDGE > 190;
    below = Math.max(y(flops) + (beside ? 4 : -5), below + 15);
    names.push(label(beside ? start : WIDE - 12, below, `${name}: ${countText(flops)}flop/s`, "end"));
    return s("path", { d: `M${x(Math.max(low, Math.min(knee, high)))} ${y(flops)}H${WIDE - 8}`, class: "roof" });
  });
  const knee = Math.min(roofs[0][1] / width, high);
  const slope = s("path", { d: `M${x(low)} ${y(width * low)}L${x(knee)} ${y(width * knee)}`, class: "roof" });
  const dots = points.sort((a, b) => b.row.seconds - a.row.seconds).slice(0, 1500).map(({ row, x: at, y: high, real: { x: flops, y: rate } }) => {
    const dot = s("circle", { cx: x(at), cy: y(high), r: 3 + 9 * Math.sqrt(row.seconds / most), class: `dot ${row.bound}`, tabindex: 0,
      onclick: () => open(row.at), onkeydown: (event) => { if (event.key === "Enter") open(row.at); } });
    const title = s("title");
    title.textContent = `${program.names[row.at]}: ${timeText(row.seconds)}, ${flops.toPrecision(3)} flops per byte, ${countText(rate)}flop/s`;
    dot.append(title);
    return dot;
  });
  const drawn = s("svg", { viewBox: `0 0 ${WIDE} ${tall}`, class: "chart", role: "img", "aria-label": "roofline" }, axes(marks), slope, ...lines, ...dots, ...names,
    label((WIDE + EDGE) / 2, tall - 4, "flops per byte"), label(EDGE - 6, 10, "flop/s", "end"));
  const key = ["memory", "compute", "launch", "contention", "link"].map((bound) => h("span", {}, h("i", { class: `dot ${bound}` }), `bound by ${bound}`));
  return h("figure", {}, drawn, h("figcaption", { class: "key" }, key));
}
