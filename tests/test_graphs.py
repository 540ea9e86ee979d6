"""The comparison of graphs sees every kind of difference, and names its place."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hloopt.ir import Module, build, edit
from hloopt.text.parser import parse_module
from hloopt.types import Text, array, scalar
from tests.helpers.graphs import graph_difference

TEXT = """HloModule m, is_scheduled=true

FileNames
1 "a.py"

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}, execution_thread="host"

ENTRY %main (x: f32[4]) -> f32[] {
  %x = f32[4]{0} parameter(0)
  %zero = f32[] constant(0)
  %left.out = f32[9]{0} constant({...})
  %y = f32[4]{0} negate(%x), metadata={op_name="y"}
  %z = f32[4]{0} cosine(%x), control-predecessors={%y}
  ROOT %r = f32[] reduce(%y, %zero), dimensions={0}, to_apply=%sum
}
"""


def test_a_module_equals_itself_read_again() -> None:
    """Two readings of a text, and a copy, do not differ; elided values count as equal."""
    module = parse_module(TEXT)
    assert graph_difference(module, parse_module(TEXT)) == ""
    assert graph_difference(module, build.clone_module(module)) == ""
    assert graph_difference(module, parse_module(module.to_text())) == ""


def rename(module: Module) -> None:
    edit.rename(module.entry.by_name["y"], "q")


def move(module: Module) -> None:
    edit.move_before(module.entry.by_name["x"], module.entry.by_name["zero"])


def operand(module: Module) -> None:
    edit.set_operand(module.entry.by_name["y"], 0, module.entry.by_name["left.out"])


def literal(module: Module) -> None:
    constant = module.entry.by_name["zero"]
    edit.set_attribute(constant, "literal", scalar("f32", -0.0))


def metadata(module: Module) -> None:
    module.entry.by_name["y"].metadata = None


def control(module: Module) -> None:
    edit.add_control_edge(module.entry.by_name["zero"], module.entry.by_name["z"])


def root(module: Module) -> None:
    edit.set_root(module.entry, module.entry.by_name["zero"])


def word(module: Module) -> None:
    edit.set_attribute(module.entry.by_name["y"], "note", "a")


def table(module: Module) -> None:
    module.stack_tables.file_names[1] = "b.py"


def header(module: Module) -> None:
    module.attributes["is_scheduled"] = False


def thread(module: Module) -> None:
    module.computations["sum"].execution_thread = None


def shape(module: Module) -> None:
    edit.set_shape(module.entry.by_name["y"], array("f32", (5,)))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (rename, "main: instructions: "),
        (move, "main: instructions: "),
        (operand, "main: x: users: "),
        (literal, "main: zero: literal: "),
        (metadata, 'main: y: metadata: {op_name="y"}, not None'),
        (control, "main: zero: control_successors: "),
        (root, "main: root: r, not zero"),
        (word, "main: y: attributes: "),
        (table, "module: file_names: "),
        (header, "module: is_scheduled: "),
        (thread, "sum: thread: host, not None"),
        (shape, "main: y: shape: f32[4]{0}, not f32[5]{0}"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_difference_is_seen(change: Callable[[Module], None], expected: str) -> None:
    """The first difference comes with its computation, instruction and what differs."""
    changed = parse_module(TEXT)
    change(changed)
    assert graph_difference(parse_module(TEXT), changed).startswith(expected)


def test_a_word_is_not_a_string() -> None:
    """Values of different types differ even where Python takes them as equal."""
    modules = [parse_module(TEXT), parse_module(TEXT)]
    for module, value in zip(modules, ("a", Text("a")), strict=True):
        edit.set_attribute(module.entry.by_name["y"], "note", value)
    assert "note" in graph_difference(*modules)
