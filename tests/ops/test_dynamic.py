"""How dynamic dimensions go from operands to results, against what XLA's reader makes of the same texts."""

from __future__ import annotations

from pathlib import Path

import pytest

import hloopt
from hloopt.ir.build import infer_shape
from hloopt.types import without_layout
from tests.ops.one import module_text, shape_messages

LINES = [
    line
    for line in Path(__file__).with_name("dynamic.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


@pytest.mark.parametrize("line", LINES)
def test_the_inferred_shape_has_the_dynamic_dimensions_that_xla_gives_it(line: str) -> None:
    root = hloopt.parse(module_text(line), "one").entry.root
    assert line.startswith(f"{without_layout(infer_shape(root))} ")


@pytest.mark.parametrize("line", LINES)
def test_the_same_shape_is_accepted_when_it_is_written(line: str) -> None:
    assert shape_messages(line) == []
