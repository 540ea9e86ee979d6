"""What is remembered of a computation is forgotten by every edit that may change it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import hloopt
from hloopt.analysis.effects import Effects
from hloopt.ir import Computation, Module, build, edit
from hloopt.ir.walk import callees, has_opcode, of_opcode

TEXT = """HloModule m
f { a = f32[4] parameter(0)
  ROOT n = f32[4] negate(a) }
g { a = f32[4] parameter(0)
  ROOT n = f32[4] abs(a) }
ENTRY e { x = f32[4] parameter(0)
  t = f32[4] sine(x)
  y = f32[4] call(x), to_apply=f
  z = f32[4] call(y), to_apply=g
  ROOT r = f32[4] add(y, z) }
"""


def _told(computation: Computation) -> None:
    token = build.make(computation.root, "after-all")
    build.make(computation.root, "outfeed", (computation.parameters[0], token), {})


def _gone(module: Module) -> None:
    edit.replace_uses(module["z"], module["x"])
    edit.remove(module["z"])


def _reversed(module: Module) -> None:
    edit.set_operands(module["z"], (module["x"],))
    edit.put_in_order(module.entry, [module.entry[name] for name in ("x", "t", "z", "y", "r")])


def _moved(module: Module) -> None:
    edit.set_operands(module["z"], (module["x"],))
    edit.move_before(module["y"], module["z"])


def _spliced(module: Module) -> None:
    inner = module.computations["f"]
    build.make(inner.root, "call", (inner.parameters[0],), {"to_apply": module.computations["g"]})
    edit.splice(module["y"], inner, {inner.parameters[0]: module["x"]})
    edit.replace_uses(module["y"], inner.root)
    edit.remove(module["y"])
    edit.remove_computation(inner)


EDITS: dict[str, Callable[[Module], None]] = {
    "append": lambda module: _told(module.computations["f"]),
    "remove": _gone,
    "set_attribute": lambda module: edit.set_attribute(
        module["y"], "to_apply", module.computations["g"]
    ),
    "put_in_order": _reversed,
    "move_before": _moved,
    "splice": _spliced,
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_seen(name: str) -> None:
    """Callees in the order of the instructions, and side effects, as a copy of the module has them."""
    module = hloopt.parse(TEXT)
    before = [callees(one) for one in module]
    Effects(module)
    assert of_opcode(module.entry, "call") is of_opcode(module.entry, "call")
    EDITS[name](module)
    copy = build.clone_module(module)
    for mine, other in ((one, copy.computations[one.name]) for one in module):
        assert [one.name for one in callees(mine)] == [one.name for one in callees(other)]
        for opcode in {one.opcode for one in other}:
            named = [[one.name for one in of_opcode(side, opcode)] for side in (mine, other)]
            assert named[0] == named[1]
        assert not has_opcode(mine, ["while"])
        assert has_opcode(mine, ["while", mine.root.opcode])
        effects, fresh = Effects(module), Effects(copy)
        assert [effects.has(one) for one in mine] == [fresh.has(one) for one in other]
    assert name == "append" or [callees(one) for one in module] != before
