"""XLA itself computes what the statements of structural ops say: many instructions in one module.

Integers alone, so that nothing rounds; no windows and dimensions that XLA's own passes take for granted.
"""

from __future__ import annotations

import random
import re
from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

import hloopt
from tests.helpers.rarely import examples
from tests.oracle.oracle import ask, available
from tests.semantics.combiners import binary
from tests.semantics.elements import values
from tests.semantics.places import gather_text, places, scatter_text, start_indices
from tests.semantics.slides import reduce_window_text, slides

pytestmark = [
    pytest.mark.xla,
    pytest.mark.skipif(not available(), reason="no jaxlib: install the extra xla"),
    pytest.mark.timeout(600),
]

COUNT = 25
REGIONS = [binary(op, "s32") for op in ("add", "maximum", "minimum", "and", "or")]


def one_module(texts):
    """The texts of modules of one instruction each as one module of a tuple of their results."""
    regions, lines, roots, shapes, base = [], [], [], [], 0
    for number, text in enumerate(texts):
        before, body = text.split("ENTRY entry {\n")
        region = before.partition("\n")[2].strip()
        regions.append(region.replace("combine {", f"combine{number} {{"))
        count = 0
        for line in body.splitlines()[:-1]:
            line = re.sub(r"\bp(\d+)\b", lambda m, b=base: f"p{int(m[1]) + b}", line)
            line = re.sub(
                r"parameter\((\d+)\)", lambda m, b=base: f"parameter({int(m[1]) + b})", line
            )
            line = line.replace("to_apply=combine", f"to_apply=combine{number}")
            count += " parameter(" in line
            lines.append(line.replace("ROOT r =", f"r{number} ="))
        roots.append(f"r{number}")
        shapes.append(body.rpartition("ROOT r = ")[2].split(" ")[0])
        base += count
    root = f"  ROOT all = ({', '.join(shapes)}) tuple({', '.join(roots)})"
    return "\n".join(["HloModule all", *regions, "ENTRY entry {", *lines, root, "}"])


def agrees(cases, folder: Path):
    """Hold XLA's results against the interpreter's."""
    text = one_module([text for text, _ in cases])
    arrays = [x for _, inputs in cases for x in inputs]
    path = folder / "all.hlo"
    path.write_text(text)
    np.savez(folder / "in.npz", **{f"in_{at}": x for at, x in enumerate(arrays)})
    ask("run", str(path), str(folder / "in.npz"), str(folder / "out.npz"))
    module = hloopt.parse(text, "all")
    hloopt.verify(module)
    with np.load(folder / "out.npz") as results:
        for at, want in enumerate(hloopt.evaluate(module, arrays)):
            np.testing.assert_array_equal(want, results[f"out_{at}"], err_msg=cases[at][0])


def full(case):
    """Whether nothing is empty."""
    return prod(case.dims) and prod(case.indices) and prod(case.result) and prod(case.sizes)


def drawn(strategy, keep):
    """Cases of a strategy, the same ones on every run."""
    found = []

    @given(strategy)
    @settings(max_examples=examples(20) * COUNT, derandomize=True, database=None, deadline=None)
    def collect(case):
        if keep(case):
            found.append(case)

    collect()
    assert len(found) >= COUNT
    return random.Random(0).sample(found, COUNT)


def test_gathers(tmp_path):
    """Collapsed, batching and offset dimensions, starts outside, an index vector anywhere."""
    made = []
    for number, case in enumerate(drawn(places(smallest=1), full)):
        chooser, kind = random.Random(number), ("s32", "u8", "s64")[number % 3]
        inputs = [values("s32", case.dims, chooser), start_indices(kind, case.indices, chooser)]
        made.append((gather_text(case, "s32", kind), inputs))
    agrees(made, tmp_path)


def test_scatters(tmp_path):
    """Windows outside are left out; updates of one place are combined."""
    made = []
    for number, case in enumerate(drawn(places(smallest=1), full)):
        chooser, combiner = random.Random(number), REGIONS[number % len(REGIONS)]
        indices = start_indices("s32", case.indices, chooser)
        x, updates = values("s32", case.dims, chooser), values("s32", case.result, chooser)
        made.append((scatter_text(case, combiner, "s32"), [x, indices, updates]))
    agrees(made, tmp_path)


def met(case):
    """Whether there is a window, and a place for it."""
    return case and prod(slide.output for slide in case)


def test_windows(tmp_path):
    """Strides, padding of either sign and both dilations, from the identity of the computation."""
    made = []
    identity = {"add": 0, "maximum": -(2**31), "minimum": 2**31 - 1, "and": -1, "or": 0}
    for number, slide in enumerate(drawn(slides(smallest=1, most=2), met)):
        chooser, combiner = random.Random(number), REGIONS[number % len(REGIONS)]
        x = values("s32", [part.size for part in slide], chooser)
        init = np.array(identity[combiner.name.partition("(")[0]], np.int32)
        made.append((reduce_window_text(slide, combiner), [x, init]))
    agrees(made, tmp_path)
