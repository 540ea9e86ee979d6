"""Which calls are inlined, and why the others are not."""

from __future__ import annotations

import random

import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.ir.build import clone_module
from hloopt.passes import call_inliner
from hloopt.passes.call_inliner import CallInliner
from hloopt.rewrite import PassLog
from hloopt.rewrite.naming import op_name_of
from tests.helpers.growing import SHAPES
from tests.helpers.rarely import one_in
from tests.passes import proof
from tests.properties.random_modules import module_text

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
    with pytest.raises(UsageError, match="largest must be non-negative, got"):
        CallInliner(largest=-1)


@pytest.mark.parametrize("seed", one_in(3, range(25)))
def test_random_modules_keep_their_results(seed: int) -> None:
    """Calls in loops, branches and calls."""
    proof.check(module_text(random.Random(seed)), CallInliner(), draws=1, changes=None)


def doubled(levels: int) -> str:
    """Computations each of which calls the one before twice."""
    lines = ["HloModule m", "f.0 { a = f32[4] parameter(0) ROOT r = f32[4] sine(a) }"]
    for level in range(1, levels):
        below = f"to_apply=f.{level - 1}"
        lines.append(
            f"f.{level} {{ a = f32[4] parameter(0) b = f32[4] call(a), {below} "
            f"ROOT r = f32[4] call(b), {below} }}"
        )
    lines.append(
        f"ENTRY e {{ x = f32[4] parameter(0) ROOT r = f32[4] call(x), to_apply=f.{levels - 1} }}"
    )
    return "\n".join(lines)


def test_copies_have_a_budget_that_later_runs_keep() -> None:
    """Two to the power of 40 instructions are not written: calls stay, and the log says why."""
    module = hloopt.parse(doubled(41))
    log = PassLog(kinds=frozenset({"missed"}))
    assert CallInliner().run(module, log)
    hloopt.verify(module)
    limit = 100 * 124
    assert 5_000 < module.instruction_count() <= limit
    assert any(entry.opcode == "call" for entry in module.entry)
    assert f"the module would have more than {limit} instructions" in log.remarks[0].reason
    assert log.notes == [
        f"some calls stay: with their copies, the module would have more than {limit} instructions"
    ]
    assert not CallInliner().run(clone_module(module), PassLog())


ONCE = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
fused { a = f32[4] parameter(0) b = f32[4] sine(a) ROOT r = f32[4] add(b, b) }
inner { a = f32[4] parameter(0) z = f32[] constant(0) unused = f32[4] cosine(a) b = f32[4] fusion(a), kind=kLoop, calls=fused
  ROOT r = f32[] reduce(b, z), dimensions={0}, to_apply=sum }
outer { a = f32[4] parameter(0) b = f32[] call(a), to_apply=inner, sharding={replicated}
  ROOT r = f32[4] broadcast(b), dimensions={}, metadata={op_name="own"} }
same { a = f32[4] parameter(0) ROOT r = f32[4] parameter(1) }
ENTRY e { a = f32[4] parameter(0) z = f32[] constant(1)
  p = f32[4] call(a), to_apply=outer, metadata={op_name="call"}
  q = f32[4] call(p, a), to_apply=same
  b = f32[] reduce(p, z), dimensions={0}, to_apply=sum
  s = f32[4] broadcast(b), dimensions={}
  ROOT r = f32[4] atan2(s, q) }
"""


@pytest.mark.parametrize(
    "text", [ONCE, *(SHAPES[name](9) for name in ("calls", "deep_calls", "reduces", "fusions"))]
)
def test_what_is_moved_is_what_a_copy_would_be(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the order of users and callers, which later passes may follow."""
    moved, copied = hloopt.parse(text), hloopt.parse(text)
    CallInliner().run(moved, PassLog())
    monkeypatch.setattr(call_inliner, "_is_sole_use", lambda *_: False)
    CallInliner().run(copied, PassLog())
    assert _links(moved) == _links(copied)
    hloopt.verify(moved)


def _links(module: hloopt.Module) -> list[tuple[object, ...]]:
    return [
        (
            computation.name,
            [caller.name for caller in computation.callers],
            [str(instruction) for instruction in computation],
            [[user.name for user in instruction.users] for instruction in computation],
            [instruction.metadata for instruction in computation],
            list(computation.by_name),
            len(computation),
        )
        for computation in module.computations.values()
    ]


def test_many_calls_of_a_large_computation_are_inlined() -> None:
    """What a hundred layers of a network need is within the budget."""
    body = "\n".join(f"  x{k} = f32[4] sine({f'x{k - 1}' if k else 'a'})" for k in range(300))
    calls = "\n".join(
        f"  y{k} = f32[4] call({f'y{k - 1}' if k else 'p'}), to_apply=layer" for k in range(90)
    )
    module = hloopt.parse(
        f"HloModule m\nlayer {{\n  a = f32[4] parameter(0)\n{body}\n  ROOT r = f32[4] negate(x299)\n}}\n"
        f"ENTRY e {{\n  p = f32[4] parameter(0)\n{calls}\n  ROOT r = f32[4] negate(y89)\n}}\n"
    )
    log = PassLog()
    CallInliner().run(module, log)
    assert log.hits["inline a call"] == 90
    assert not log.notes
    assert module.instruction_count() == 90 * 301 + 2


NAMED = """HloModule m
helper { a = f32[4] parameter(0)
  b = f32[4] sine(a), metadata={op_name="sin" source_file="h.py" source_line=3}
  c = f32[4] cosine(b), metadata={op_name="jit(step)/jvp(jit(helper))/cos"}
  d = f32[4] exponential(c), metadata={source_file="h.py" source_line=5}
  ROOT e = f32[4] negate(d) }
ENTRY e { a = f32[4] parameter(0)
  p = f32[4] call(a), to_apply=helper, metadata={op_name="jit(step)/jvp(jit(helper))" source_file="s.py" source_line=9}
  ROOT q = f32[4] call(p), to_apply=helper, metadata={source_file="s.py" source_line=10} }
"""


def test_ops_of_a_helper_are_named_by_the_call() -> None:
    """As XLA's inliner does it: its name comes before theirs, once; their lines stay, and a call has to have one."""
    module = hloopt.parse(NAMED)
    CallInliner().run(module, PassLog())
    first, second = [one for one in module.entry if one.opcode == "sine"]
    assert str(first.metadata) == (
        '{op_name="jit(step)/jvp(jit(helper))/sin" source_file="h.py" source_line=3}'
    )
    assert str(second.metadata) == '{op_name="sin" source_file="h.py" source_line=3}'
    named = {one.opcode: op_name_of(one) for one in [*module.entry][:5]}
    assert named["cosine"] == "jit(step)/jvp(jit(helper))/cos"
    assert named["exponential"] == named["negate"] == "jit(step)/jvp(jit(helper))"
    lines = [module.user_line(one.metadata) for one in module.entry if one.opcode == "exponential"]
    assert lines == ["h.py:5", "h.py:5"]


def test_names_do_not_grow_without_end() -> None:
    """However deep the calls are nested: a name of a thousand characters stays."""
    rows = "".join(
        f'h{n + 1} {{ a = f32[] parameter(0) ROOT b = f32[] call(a), to_apply=h{n}, metadata={{op_name="n{n}"}} }}\n'
        for n in range(2_000)
    )
    text = (
        'HloModule m\nh0 { a = f32[] parameter(0) ROOT b = f32[] sine(a), metadata={op_name="sin"} }\n'
        + rows
        + "ENTRY e { a = f32[] parameter(0) ROOT b = f32[] call(a), to_apply=h2000 }"
    )
    module = hloopt.parse(text)
    CallInliner().run(module, PassLog())
    (name,) = [op_name_of(one) for one in module.entry if one.opcode == "sine"]
    assert name.endswith("/n1/n0/sin")
    assert 900 < len(name) <= 1_001
