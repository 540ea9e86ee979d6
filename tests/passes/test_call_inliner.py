"""Which calls are inlined, and why the others are not."""

from __future__ import annotations

import random

import pytest

import hloopt
import proof
from hloopt.errors import UsageError
from hloopt.passes.call_inliner import CallInliner
from hloopt.rewrite import PassLog
from random_modules import module_text

TEXT = """HloModule m
once { a = f32[4] parameter(0)
  ROOT r = f32[4] negate(a) }
twice { a = f32[4] parameter(0)
  b = f32[4] sine(a)
  ROOT r = f32[4] negate(b) }
named { a = f32[4] parameter(0)
  ROOT r = f32[4] cosine(a) }
ENTRY e { x = f32[4] parameter(0)
  p = f32[4] call(x), to_apply=once
  q = f32[4] call(p), to_apply=twice
  s = f32[4] call(q), to_apply=twice
  ROOT t = f32[4] call(s), to_apply=named, is_composite=true, frontend_attributes={composite.name="a.b",composite.attributes={},composite.version="1"} }
"""


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, 0),
        ({"single_call_site": True}, 2),
        ({"composites": False}, 1),
        ({"only": ("once",)}, 3),
        ({"only": ("twice", "named")}, 1),
        ({"largest": 2}, 2),
        ({"largest": 3}, 0),
    ],
)
def test_options_choose_calls(options: dict[str, int], left: int) -> None:
    """By the number of calls, by size, by name, and composites."""
    module, log = proof.check(TEXT, CallInliner(**options))
    calls = [entry for entry in module.entry if entry.opcode == "call"]
    assert len(calls) == left
    assert log.hits["inline a call"] == 4 - left


@pytest.mark.parametrize(
    ("mark", "reason"),
    [
        ('frontend_attributes={inlineable="false"}', "its frontend_attributes say so"),
        ("backend_config={a}", "it has backend_config"),
        ("output_to_operand_aliasing={{}: (0, {})}", "it has output_to_operand_aliasing"),
    ],
)
def test_what_speaks_against_a_call_is_told(mark: str, reason: str) -> None:
    """Marks of a call keep it, and the missed remark names them."""
    text = f"""HloModule m
f {{ a = f32[4] parameter(0)
  ROOT r = f32[4] negate(a) }}
ENTRY e {{ x = f32[4] parameter(0)
  ROOT t = f32[4] call(x), to_apply=f, {mark} }}
"""
    log = PassLog(kinds=frozenset({"missed"}))
    assert not CallInliner().run(hloopt.parse(text), log)
    assert [remark.reason for remark in log.remarks] == [reason]


def test_a_limit_is_not_negative() -> None:
    """Sizes count instructions."""
    with pytest.raises(UsageError, match="largest counts instructions and is not negative"):
        CallInliner(largest=-1)


@pytest.mark.parametrize("seed", range(25))
def test_random_modules_keep_their_results(seed: int) -> None:
    """Calls in loops, branches and calls."""
    proof.check(module_text(random.Random(seed)), CallInliner(), draws=1, changes=None)
