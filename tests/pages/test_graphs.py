"""Graphs: places of boxes, views that unfold, and the forms for other tools."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloopt
from hloopt.pages.formats import dot_text, model_explorer
from hloopt.pages.unfolding import MOST, GraphView, Unfolding
from hloopt.report.layered import lay_out
from hloopt.report.picture import draw
from tests.helpers.support import invoke

LOOP = """HloModule m

body {
  p = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[8] sine(x)
  ROOT r = (s32[], f32[8]) tuple(j, y)
}

condition {
  p = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(10)
  ROOT c = pred[] compare(i, n), direction=LT
}

ENTRY e {
  x = f32[8] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[8]) tuple(zero, x)
  w = (s32[], f32[8]) while(t), condition=condition, body=body, metadata={op_name="jit(f)/while"}
  v = f32[8] get-tuple-element(w), index=1
  ROOT k = f32[8] negate(v), metadata={op_name="jit(f)/neg" source_file="f.py" source_line=3}
}
"""


def chain(count: int, group: int) -> str:
    """A chain of ``count`` instructions in layers of ``group``, some with names that are no XML."""
    rows = ["  x0 = f32[4] parameter(0)"]
    for number in range(1, count):
        name = f"jit(<f>)/layer{number // group}&/sin"
        root = "ROOT " if number == count - 1 else ""
        rows.append(
            f'  {root}x{number} = f32[4] sine(x{number - 1}), metadata={{op_name="{name}"}}'
        )
    return "HloModule m\nENTRY e {\n" + "\n".join(rows) + "\n}\n"


@given(
    st.integers(1, 12).flatmap(
        lambda count: st.tuples(
            st.lists(
                st.tuples(st.integers(1, 90), st.integers(1, 40)), min_size=count, max_size=count
            ),
            st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))),
        )
    )
)
def test_boxes_never_overlap_and_edges_join_them(
    graph: tuple[list[tuple[int, int]], list[tuple[int, int]]],
) -> None:
    """Of any graph, cycles among them: boxes are within the picture, and routes end at them."""
    sizes, given_edges = graph
    edges = [(a, b) for a, b in given_edges if a != b]
    made = lay_out(sizes, edges)
    rows: dict[float, list[tuple[float, float]]] = {}
    for (x, y), (width, height) in zip(made.boxes, sizes, strict=True):
        assert x - width / 2 >= -1e-6
        assert x + width / 2 <= made.width + 1e-6
        assert 0 <= y <= y + height <= made.height + 1e-6
        rows.setdefault(y, []).append((x - width / 2, x + width / 2))
    for row in rows.values():
        assert all(left[1] < right[0] for left, right in pairwise(sorted(row)))
    for (start, end), route in zip(edges, made.routes, strict=True):
        ends = [(made.boxes[one], sizes[one][1]) for one in (start, end)]
        for ((x, y), height), point in zip(ends, (route[0], route[-1]), strict=True):
            assert point[0] == x
            assert point[1] in (y, y + height)


def test_a_graph_without_cycles_leads_down() -> None:
    """Each edge, and a chain is straight."""
    made = lay_out([(10, 10)] * 4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    heights = [y for _, y in made.boxes]
    assert heights == sorted(set(heights))


def views(text: str) -> list[GraphView]:
    """All views of a module."""
    return list(Unfolding(hloopt.parse(text)).every())


def test_a_small_computation_is_one_view() -> None:
    """The loop's box opens its body, the body's view leads back."""
    entry, body, condition = views(LOOP)
    assert [view.key for view in (entry, body, condition)] == ["e", "body", "condition"]
    assert entry.opens == {"w": "body"}
    assert (entry.above, body.above) == ("", "e")
    assert [box.lines[0] for box in entry.graph.boxes] == ["x", "t", "w", "v", "k"]
    # A constant is written into what reads it.
    assert body.graph.boxes[3].lines == ("j", "add 1", "s32[]")


@pytest.mark.parametrize(("count", "group"), [(61, 10), (500, 20), (3000, 3000), (4000, 4)])
def test_large_computations_unfold_by_namespace(count: int, group: int) -> None:
    """Each instruction is in one view; no view is too large; each but the first opens from another."""
    found = views(chain(count, group))
    names = [one.name for view in found for one in view.members]
    assert sorted(names) == sorted(f"x{number}" for number in range(count))
    assert max(len(view.members) + len(view.opens) for view in found) <= MOST
    keys = [view.key for view in found]
    assert len(set(keys)) == len(keys)
    opened = {key for view in found for key in view.opens.values()}
    assert opened == {*keys[1:]}
    assert all(view.above in keys for view in found[1:])


def test_one_namespace_around_all_is_opened() -> None:
    """A first view is not the box of the whole program: what is in it is shown, though in runs."""
    rows = "".join(
        f"  y{number} = f32[4] sine({f'y{number - 1}' if number else 'x'}), "
        f'metadata={{op_name="jit(step)/{"layer/" if number % 3 == 0 else ""}sin"}}\n'
        for number in range(200)
    )
    text = f"HloModule m\n\nENTRY e {{\n  x = f32[4] parameter(0)\n{rows}  ROOT r = f32[4] negate(y199)\n}}\n"
    first = views(text)[0]
    assert "e/jit(step)/layer" in first.opens
    assert len(first.opens) == 6  # the layer, and the 133 ops of the step itself in runs of 30
    assert max(len(view.members) + len(view.opens) for view in views(text)) <= MOST


def test_svg_holds_what_names_say_as_text() -> None:
    """Names of the module are never markup."""
    evil = chain(100, 10)
    for view in views(evil):
        root = ET.fromstring(draw(view.graph))
        assert not [one for one in root.iter() if one.tag.endswith(("script", "f"))]
    assert "layer9&amp;" in draw(views(evil)[0].graph)


def at(tmp_path: Path, text: str = LOOP) -> str:
    """A file with a module."""
    path = tmp_path / "m.hlo"
    path.write_text(text)
    return str(path)


def test_dot(tmp_path: Path) -> None:
    """A cluster a computation, an edge an operand; Graphviz reads it where it is."""
    text = dot_text(hloopt.parse(LOOP))
    assert text.count("subgraph") == 3
    assert text.count(" -> ") == 12
    assert 'label="k\\nnegate\\nf32[8]"' in text
    if shutil.which("dot"):
        done = subprocess.run(
            ["dot", "-Tplain"], check=False, input=text, text=True, capture_output=True
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.count("\nnode ") == 14


def test_model_explorer(tmp_path: Path) -> None:
    """Computations are graphs, which their callers name; edges are by operand."""
    made = model_explorer(hloopt.parse(LOOP))
    graphs = {graph["id"]: graph["nodes"] for graph in made["graphs"]}
    assert list(graphs) == ["e", "body", "condition"]
    loop = next(node for node in graphs["e"] if node["id"] == "w")
    assert loop["subgraphIds"] == ["body", "condition"]
    assert loop["namespace"] == "jit(f)"
    last = graphs["e"][-1]
    assert last["incomingEdges"] == [
        {"sourceNodeId": "v", "sourceNodeOutputId": "0", "targetNodeInputId": "0"}
    ]
    assert {"key": "source", "value": "f.py:3"} in last["attrs"]
    times = tmp_path / "t.json"
    options = ("--format", "model-explorer", "--target", "h200", "--times", str(times))
    done = invoke("graph", at(tmp_path), *options)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["graphs"] == made["graphs"]
    spent: dict[str, Any] = json.loads(times.read_text())
    # Ten iterations with all that they run: of the loop as of its body.
    inside = sum(
        row["value"] for part in ("body", "condition") for row in spent[part]["results"].values()
    )
    assert spent["e"]["results"]["w"]["value"] == pytest.approx(inside, rel=1e-3)


def test_the_timeline_is_what_stats_predicts(tmp_path: Path) -> None:
    """Slices nest, those of the entry come to the whole; our own reader of traces takes it."""
    trace = tmp_path / "trace.json"
    file = at(tmp_path)
    options = ("--format", "perfetto", "--target", "h200", "-o", str(trace))
    assert invoke("graph", file, *options).exit_code == 0
    events = [one for one in json.loads(trace.read_text())["traceEvents"] if one["ph"] == "X"]
    stats = json.loads(invoke("stats", file, "--target", "h200", "--json").stdout)
    predicted = stats["modules"][0]["prediction"]["seconds"] * 1e6
    assert max(one["ts"] + one["dur"] for one in events) == pytest.approx(predicted, rel=1e-3)
    assert "9 more iterations" in [one["name"] for one in events]
    assert events[-1]["args"]["hlo_op"] == "y"
    again = invoke("stats", file, "--profile", str(trace))
    assert "joined to instructions: 100%" in again.stdout


def misplaced(trace: dict[str, Any]) -> list[str]:
    """What breaks the rules of trace events: each has its keys; slices of a row nest, or follow one another."""
    found, rows = list[str](), dict[tuple[int, int], list[tuple[Decimal, Decimal, str]]]()
    for event in trace["traceEvents"]:
        name = event.get("name")
        if not isinstance(name, str) or not isinstance(event.get("pid"), int):
            found.append(f"{event}")
        elif event["ph"] == "M":
            named = name in ("process_name", "thread_name") and isinstance(
                event["args"]["name"], str
            )
            found += [] if named else [f"{event}"]
        elif event["ph"] == "X" and event["ts"] >= 0 and event["dur"] >= 0:
            start, length = Decimal(str(event["ts"])), Decimal(str(event["dur"]))
            rows.setdefault((event["pid"], event["tid"]), []).append((start, start + length, name))
        else:
            found.append(f"{event}")
    for row in rows.values():
        around = list[Decimal]()
        for start, end, name in sorted(row, key=lambda one: (one[0], -one[1])):
            while around and around[-1] <= start:
                around.pop()
            if around and end > around[-1]:
                found.append(f"{name} ends at {end}, after what is around it: {around[-1]}")
            around.append(end)
    return found


@pytest.mark.parametrize(
    "sample", ["kalman_scan.hlo", "while_loop.hlo", "sort.hlo", "cartpole_rollout.hlo"]
)
def test_slices_of_the_timeline_nest(samples: Path, sample: str) -> None:
    """As the format wants it, to the nanosecond; what an instruction calls is within it."""
    done = invoke("graph", str(samples / sample), "--format", "perfetto", "--target", "h200")
    trace = json.loads(done.stdout)
    assert misplaced(trace) == []
    slices = {
        one["args"]["hlo_op"]: one
        for one in trace["traceEvents"]
        if "hlo_op" in one.get("args", {})
    }
    callers = [
        one for one in slices.values() if one["args"]["opcode"] in ("while", "call", "conditional")
    ]
    assert callers
    inner = [one for one in slices.values() if one["args"]["computation"] != slices_home(trace)]
    for one in inner:
        assert any(call["ts"] <= one["ts"] < call["ts"] + call["dur"] for call in callers)
    kernels = [one["args"] for one in slices.values() if "bound by" in one["args"]]
    assert all(one["bytes"] > 0 for one in kernels)


def slices_home(trace: dict[str, Any]) -> str:
    """The computation of the slice that begins first and ends last: the entry's."""
    slices = [one for one in trace["traceEvents"] if "hlo_op" in one.get("args", {})]
    first = min(slices, key=lambda one: (one["ts"], -one["dur"]))
    home: str = first["args"]["computation"]
    return home


def test_a_trace_that_breaks_the_rules_is_seen() -> None:
    """The check itself: a slice that ends a nanosecond after its loop, one without a length."""
    slices = [
        {"ph": "X", "pid": 1, "tid": 1, "ts": 0.0, "dur": 1.0, "name": "loop"},
        {"ph": "X", "pid": 1, "tid": 1, "ts": 0.5, "dur": 0.501, "name": "body"},
    ]
    assert misplaced({"traceEvents": slices}) == [
        "body ends at 1.001, after what is around it: 1.0"
    ]
    assert (
        len(misplaced({"traceEvents": [{"ph": "X", "pid": 1, "ts": 0, "dur": -1, "name": "x"}]}))
        == 1
    )


def test_pictures_of_parts(tmp_path: Path) -> None:
    """A computation by its name, what an instruction calls, what stands around it; times where asked."""
    file = at(tmp_path)
    body = invoke("graph", file, "--at", "body").stdout
    assert (
        body
        == invoke("graph", file, "--at", "%w").stdout
        == invoke("graph", file, "--at", "y").stdout
    )
    assert ">sine<" in body
    timed = invoke("graph", file, "--target", "h200").stdout
    assert re.search(r">[\d.]+ us, [\d.]+%<", timed)
    assert not re.search(r"us, [\d.]+%<", body)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--at", "boddy"), "nothing is called 'boddy'; did you mean 'body'?"),
        (("--at", "e", "--format", "dot"), "--at is for --format svg: dot has the whole module"),
        (("--format", "perfetto"), "--format perfetto needs predicted times: give --target DEVICE"),
        (("--times", "t.json"), "--times is for --format model-explorer, not svg"),
    ],
)
def test_options_that_have_no_effect_are_errors(
    tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    done = invoke("graph", at(tmp_path), *options)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_module_that_is_not_valid(tmp_path: Path) -> None:
    """Is an error with its place."""
    done = invoke("graph", at(tmp_path, LOOP.replace("sine(x)", "sine(q)")))
    assert done.exit_code == 3
    assert "m.hlo:9:19: error: there is no instruction 'q' in 'body'" in done.stderr
