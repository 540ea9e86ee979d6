// The graph: one view at a time, drawn before; drag and wheel move it, boxes open.

let graphColours = "kind";
async function graphSection(key, box) {
  const [views, found] = [await part("graph"), await instructions()];
  const view = views[key] ?? views[found.entry] ?? Object.values(views)[0];
  const shown = views[key] ? key : found.entry;
  const trail = [];
  for (let at = shown; at; at = views[at].above) trail.unshift(at);
  const crumbs = h("nav", { class: "crumbs", "aria-label": "path" }, trail.flatMap((one, at) =>
    [at ? " / " : "", one === shown ? h("b", {}, views[one].title) : h("a", { href: hashOf("graph", one) }, views[one].title)]));
  const stage = h("div", { class: "stage", tabindex: 0, "aria-label": "graph: arrows move, plus and minus zoom" });
  stage.innerHTML = view.svg;  // written by hloopt, where names of the module are text
  const svg = stage.firstElementChild;
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  svg.removeAttribute("width"); svg.removeAttribute("height");
  const moved = movable(stage, svg, width, height);
  colour(svg, found, shown);
  const place = new Map([...svg.querySelectorAll("g[data-key]")].map((one) => [one.dataset.key, one]));
  const numberOf = (name) => found.places.get(`${homeOf(shown, found)}/${name}`);
  function pick(one, opens) {
    const name = one.dataset.key;
    const number = numberOf(name);
    if (view.opens[name] && (opens || number === undefined)) location.hash = hashOf("graph", view.opens[name]);
    else if (number !== undefined) inspect(number);
  }
  const numbered = new Map();
  for (const one of place.values()) {
    const number = numberOf(one.dataset.key);
    if (number !== undefined) numbered.set(number, one);
    one.setAttribute("tabindex", 0);
    one.setAttribute("role", "button");
    if (view.opens[one.dataset.key]) one.classList.add("opens");
    one.addEventListener("click", (event) => { if (moved.dragged()) return; if (event.shiftKey && number !== undefined) mark(number); else pick(one, false); });
    one.addEventListener("dblclick", (event) => { if (!event.shiftKey) pick(one, true); });
    one.addEventListener("keydown", (event) => {
      if (event.key === "Enter") pick(one, event.shiftKey);
      else if (event.key === "m" && number !== undefined) { mark(number); event.stopPropagation(); }
    });
    for (const [kind, on] of [["pointerenter", true], ["pointerleave", false], ["focus", true], ["blur", false]])
      one.addEventListener(kind, () => edgesOf(svg, one.dataset.key, on));
  }
  const choose = h("select", { "aria-label": "colours", onchange: (event) => { graphColours = event.target.value; colour(svg, found, shown); } },
    h("option", { value: "kind" }, "colours: kind of op"), h("option", { value: "time" }, "colours: time"));
  choose.value = graphColours;
  const buttons = [["−", () => moved.zoom(1.25)], ["+", () => moved.zoom(0.8)], ["fit", () => moved.fit()]].map(([text, act]) => h("button", { onclick: act }, text));
  showBoxes(numbered);
  if (box) {
    const sought = place.get(box);
    if (sought) { sought.classList.add("sought"); queueMicrotask(() => moved.centre(sought)); }
  }
  return h("div", { class: "graph" }, h("div", { class: "tools" }, crumbs, h("span", { class: "grow" }), choose, buttons), stage,
    note("A click shows an instruction, or opens a group. Boxes with a thick edge open, too: by a double click, or Shift and Enter. Dashed boxes are in another view. Shift and a click, or m, marks two instructions to fuse or to part."));
}

const homeOf = (key, found) => found.computations.map(([name]) => name).filter((name) => key === name || key.startsWith(`${name}/`))
  .reduce((best, name) => (name.length > best.length ? name : best), "");

function edgesOf(svg, key, on) {
  for (const edge of svg.querySelectorAll("path[data-from]"))
    if (edge.dataset.from === key || edge.dataset.to === key) edge.classList.toggle("lit", on);
}

function colour(svg, found, key) {
  const home = homeOf(key, found), boxes = [...svg.querySelectorAll("g[data-key]")];
  const spent = boxes.map((one) => found.seconds[found.places.get(`${home}/${one.dataset.key}`)] ?? Number(one.dataset.seconds ?? 0));
  const most = Math.max(...spent, 1e-12);
  svg.classList.toggle("by-time", graphColours === "time");
  boxes.forEach((one, at) => {
    const share = graphColours === "time" ? Math.round(100 * Math.sqrt(spent[at] / most)) : 0;
    one.firstElementChild.nextElementSibling?.style.setProperty("--heat", `${share}%`);
  });
}

// Moving and zooming by the view box; returns what buttons call.
function movable(stage, svg, width, height) {
  let view = { x: -8, y: -8, w: width, h: height }, drag = false;
  const pointers = new Map();
  const apply = () => svg.setAttribute("viewBox", `${view.x} ${view.y} ${view.w} ${view.h}`);
  const ratio = () => view.w / (stage.clientWidth || 1);
  function fit(most = Infinity) {
    const across = stage.clientWidth || 800, down = stage.clientHeight || 500;
    const scale = Math.min(Math.max(width / across, Math.min(height / down, 1.4), 0.75), most);
    view = { w: across * scale, h: down * scale, x: (width - across * scale) / 2 - 8, y: -8 };
    if (height < down * scale) view.y = (height - down * scale) / 2;
    apply();
  }
  function zoom(by, at) {
    const size = Math.min(Math.max(view.w * by, 120), 40000) / view.w;
    const [px, py] = at ?? [0.5, 0.5];
    view = { x: view.x + view.w * px * (1 - size), y: view.y + view.h * py * (1 - size), w: view.w * size, h: view.h * size };
    apply();
  }
  const inside = (event) => { const box = stage.getBoundingClientRect(); return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height]; };
  stage.addEventListener("wheel", (event) => { event.preventDefault(); zoom(Math.exp(Math.sign(event.deltaY) * Math.min(Math.abs(event.deltaY), 60) * 0.004), inside(event)); }, { passive: false });
  stage.addEventListener("pointerdown", (event) => { pointers.set(event.pointerId, event); drag = false; });
  stage.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return;
    const others = [...pointers.values()].filter((one) => one.pointerId !== event.pointerId);
    const far = (one, other) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY) || 1;
    if (others.length) zoom(far(before, others[0]) / far(event, others[0]), inside(event));
    else if (drag || far(before, event) > 3) {
      if (!drag) stage.setPointerCapture(event.pointerId);
      drag = true;
      view.x -= (event.clientX - before.clientX) * ratio(); view.y -= (event.clientY - before.clientY) * ratio();
      apply();
    } else return;
    pointers.set(event.pointerId, event);
  });
  for (const kind of ["pointerup", "pointercancel", "pointerleave"]) stage.addEventListener(kind, (event) => pointers.delete(event.pointerId));
  stage.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (step) { view.x += step[0] * view.w * 0.1; view.y += step[1] * view.h * 0.1; apply(); event.preventDefault(); }
    else if (event.key === "+" || event.key === "=") zoom(0.8);
    else if (event.key === "-") zoom(1.25);
    else if (event.key === "0") fit();
  });
  const centre = (box) => {
    const { x, y, width: w, height: tall } = box.getBBox();
    const scale = Math.min(1, ratio());
    view = { w: stage.clientWidth * scale, h: stage.clientHeight * scale, x: 0, y: 0 };
    view.x = x + w / 2 - view.w / 2; view.y = y + tall / 2 - view.h / 2;
    apply();
  };
  // A stage of another size shows more or less, as large as before.
  let [across, down] = [0, 0];
  new ResizeObserver(() => {
    const [wide, tall] = [stage.clientWidth, stage.clientHeight];
    if (!wide) return;
    if (!across) { if (!svg.querySelector(".sought")) fit(1.7); }
    else if (wide !== across || tall !== down) {
      const [w, h] = [view.w * wide / across, view.h * tall / down];
      view = { w, h, x: view.x + (view.w - w) / 2, y: view.y };
      apply();
    }
    [across, down] = [wide, tall];
  }).observe(stage);
  return { fit, zoom, centre, dragged: () => drag };
}
