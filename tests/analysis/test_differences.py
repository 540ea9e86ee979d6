"""What differs between two modules: each thing by itself is found, named, and nothing else is."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import hloopt
from hloopt.analysis.differences import Difference, differences
from hloopt.ir import Module, edit
from hloopt.ir.canonical import fingerprint
from tests.helpers.support import count_calls

SAMPLES = Path(__file__).parents[2] / "samples"

TEXT = """HloModule m, input_output_alias={ {0}: (0, {}, may-alias) }, entry_computation_layout={(f32[4,8]{1,0}, f32[8,4]{1,0}, s32[3]{0})->(f32[4,4]{1,0}, f32[4]{0}, f32[4,2]{1,0}, s32[3]{0}, pred[4,4]{1,0})}

sum {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT added = f32[] add(x, y)
}

condition {
  state = (s32[], s32[3]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant(5)
  ROOT less = pred[] compare(i, n), direction=LT
}

body {
  state = (s32[], s32[3]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  values = s32[3] get-tuple-element(state), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ones = s32[3] broadcast(one), dimensions={}
  more = s32[3] subtract(values, ones)
  ROOT out = (s32[], s32[3]) tuple(next, more)
}

ENTRY main {
  a = f32[4,8] parameter(0)
  b = f32[8,4] parameter(1)
  s = s32[3] parameter(2)
  zero = f32[] constant(0)
  nothing = s32[] constant(0)
  table = f32[4,4] constant({{1,2,3,4},{5,6,7,8},{9,10,11,12},{13,14,15,16}})
  product = f32[4,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/dot" source_file="/home/u/f.py" source_line=7}
  scaled = f32[4,4] multiply(product, table)
  apart = f32[4,4] subtract(scaled, product)
  total = f32[4] reduce(apart, zero), dimensions={1}, to_apply=sum
  part = f32[4,2] slice(a), slice={[0:4], [2:4]}
  start = (s32[], s32[3]) tuple(nothing, s)
  loop = (s32[], s32[3]) while(start), condition=condition, body=body
  counted = s32[3] get-tuple-element(loop), index=1
  large = pred[4,4] compare(scaled, apart), direction=GT
  ROOT all = (f32[4,4], f32[4], f32[4,2], s32[3], pred[4,4]) tuple(apart, total, part, counted, large)
}
"""


def found(before: str, after: str) -> list[Difference]:
    return differences(hloopt.parse(before, "a"), hloopt.parse(after, "b"))


def told(rows: list[Difference]) -> list[tuple[str, ...]]:
    """What, where, and both sides, by the names of the first module."""
    return [
        (one.what, entry.name if (entry := one.before or one.after) else "", one.old, one.new)
        for one in rows
    ]


CHANGES = [
    ("constant(5)", "constant(6)", [("literal", "n", "5", "6")]),
    ("subtract(scaled, product)", "subtract(product, scaled)",
     [("operands", "apart", "(%scaled, %product)", "(%product, %scaled)")]),
    ("compare(scaled, apart), direction=GT", "compare(scaled, apart), direction=GE",
     [("direction", "large", "GT", "GE")]),
    ("slice={[0:4], [2:4]}", "slice={[0:4], [4:6]}",
     [("slice", "part", "{[0:4], [2:4]}", "{[0:4], [4:6]}")]),
    ("added = f32[] add(x, y)", "added = f32[] maximum(x, y)", [("opcode", "added", "add", "maximum")]),
    ("dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
     "dot(b, a), lhs_contracting_dims={0}, rhs_contracting_dims={1}",
     [("operands", "product", "(%a, %b)", "(%b, %a)"),
      ("lhs_contracting_dims", "product", "{1}", "{0}"),
      ("rhs_contracting_dims", "product", "{0}", "{1}")]),
    ("11,12", "11,-12", [("literal", "table", "12 at [2,3]", "-12; 1 of 16 elements differ")]),
    ("tuple(apart, total", "tuple(scaled, total", [("result 0", "all", "%apart", "%scaled")]),
    ("may-alias", "must-alias",
     [("input_output_alias", "", "{ {0}: (0, {}, may-alias) }", "{ {0}: (0, {}, must-alias) }")]),
    ("(f32[4,8]{1,0}, f32[8,4]{1,0}", "(f32[4,8]{1,0}, f32[8,4]{0,1}",
     [("entry_computation_layout, parameter 1", "", "f32[8,4]{1,0}", "f32[8,4]{0,1}")]),
    ("f32[4,2]{1,0}, s32[3]{0}, pred[4,4]{1,0})}", "f32[4,2]{1,0}, s32[3]{0}, pred[4,4]{0,1})}",
     [("entry_computation_layout, result", "",
       "(f32[4,4]{1,0}, f32[4]{0}, f32[4,2]{1,0}, s32[3]{0}, pred[4,4]{1,0})",
       "(f32[4,4]{1,0}, f32[4]{0}, f32[4,2]{1,0}, s32[3]{0}, pred[4,4]{0,1})")]),
    ("HloModule m, ", "HloModule m, num_partitions=2, ",
     [("num_partitions", "", "", "2")]),
    ("multiply(product, table)", "multiply(product, product)",
     [("operands", "scaled", "(%product, %table)", "(%product, %product)")]),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "expected"), CHANGES, ids=[row[1][:30] for row in CHANGES])
def test_one_change_is_named(old: str, new: str, expected: list[tuple[str, ...]]) -> None:
    """The instruction, what of it differs and both values; nothing that only follows from it."""
    assert TEXT.count(old) == 1
    assert told(found(TEXT, TEXT.replace(old, new)))[: len(expected)] == expected
    rest = told(found(TEXT, TEXT.replace(old, new)))[len(expected) :]
    assert not rest, rest


@pytest.mark.parametrize(("old", "new", "expected"), CHANGES, ids=[row[1][:30] for row in CHANGES])
def test_names_do_not_matter(old: str, new: str, expected: list[tuple[str, ...]]) -> None:
    """The same is found where every name in the second module is another."""
    renamed = hloopt.parse(TEXT.replace(old, new), "b")
    for computation in renamed:
        for number, entry in enumerate(list(computation)):
            edit.rename(entry, f"v{number}")
    rows = differences(hloopt.parse(TEXT, "a"), renamed)
    assert [row[:3] for row in told(rows)] == [row[:3] for row in expected]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("source_line=7", "source_line=8"),
        ("jit(f)/dot", "jit(g)/dot"),
        ("HloModule m", "HloModule another"),
        ("zero = f32[] constant(0)\n  nothing = s32[] constant(0)", "nothing = s32[] constant(0)\n  zero = f32[] constant(0)"),
        ("slice={[0:4], [2:4]}", "slice={[0:4:1],[2:4:1]}"),
    ],
)  # fmt: skip
def test_what_does_not_count(old: str, new: str) -> None:
    """Metadata, the module's name, the order of independent instructions, ways of writing the same."""
    assert TEXT.count(old) == 1
    assert found(TEXT, TEXT.replace(old, new)) == []


def test_parameters_that_changed_places() -> None:
    """They are known by their names where all that differs is their order."""
    text = "HloModule m\nENTRY e {\n  a = f32[8] parameter(0)\n  b = f32[8] parameter(1)\n  ROOT s = f32[8] subtract(a, b)\n}\n"
    after = text.replace("a = f32[8] parameter(0)", "a = f32[8] parameter(1)").replace(
        "b = f32[8] parameter(1)", "b = f32[8] parameter(0)"
    )
    assert told(found(text, text.replace("subtract(a, b)", "subtract(b, a)"))) == [
        ("operands", "s", "(%a, %b)", "(%b, %a)")
    ]
    text = text.replace("subtract(a, b)", "subtract(d, c)").replace(
        "  ROOT", "  c = f32[8] negate(a)\n  d = f32[8] add(a, b)\n  ROOT"
    )
    after = text.replace("a = f32[8] parameter(0)", "a = f32[8] parameter(1)").replace(
        "b = f32[8] parameter(1)", "b = f32[8] parameter(0)"
    )
    assert told(found(text, after)) == [
        ("parameter_number", "a", "0", "1"),
        ("parameter_number", "b", "1", "0"),
    ]


def test_what_only_one_module_has() -> None:
    """A new instruction and the operand that changed for it; and the other way round."""
    after = TEXT.replace(
        "  total = f32[4] reduce(apart",
        "  up = f32[4,4] exponential(apart)\n  total = f32[4] reduce(up",
    )
    assert told(found(TEXT, after)) == [
        ("operands", "total", "(%apart, %zero)", "(%up, %zero)"),
        ("instruction", "up", "", "exponential(%apart)"),
    ]
    assert told(found(after, TEXT))[1] == ("instruction", "up", "exponential(%apart)", "")


def test_two_ops_that_changed_places() -> None:
    """Each is known by its op, though its shape is another one now."""
    text = """HloModule m
ENTRY e {
  p = f32[8] parameter(0)
  s = f32[4] slice(p), slice={[0:4]}
  ROOT n = f32[4] negate(s)
}
"""
    after = text.replace("p), slice", "n), slice").replace(
        "ROOT n = f32[4] negate(s)", "n = f32[8] negate(p)"
    )
    lines = after.splitlines()
    lines[3], lines[4] = lines[4], lines[3].replace("  s", "  ROOT s")
    assert told(found(text, "\n".join(lines))) == [
        ("root", "n", "%n", "%s"),
        ("operands", "s", "(%p)", "(%n)"),
        ("shape", "n", "f32[4]{0}", "f32[8]{0}"),
        ("operands", "n", "(%s)", "(%p)"),
    ]


def test_the_order_of_a_schedule_and_sharing_are_differences() -> None:
    """They are told where nothing else differs."""
    text = "HloModule m, is_scheduled=true\nENTRY e {\n  a = f32[8] parameter(0)\n  b = f32[8] negate(a)\n  c = f32[8] abs(a)\n  ROOT t = (f32[8], f32[8]) tuple(b, c)\n}\n"
    after = text.replace(
        "  b = f32[8] negate(a)\n  c = f32[8] abs(a)\n",
        "  c = f32[8] abs(a)\n  b = f32[8] negate(a)\n",
    )
    assert told(found(text, after)) == [("order", "b", "%b first", "%c first")]
    shared = text.replace("c = f32[8] abs(a)", "c = f32[8] negate(a)")
    (row,) = told(found(shared, shared.replace("tuple(b, c)", "tuple(b, b)")))
    assert row == ("results", "t", "(%b, %c)", "(%b, %b)")


def _mutated(module: Module, draw: random.Random) -> None:
    """One random edit: operands in another order, another operand, a changed number."""
    entries = [entry for entry in module.instructions() if entry.operands]
    draw.shuffle(entries)
    for entry in entries:
        places = list(range(len(entry.operands)))
        draw.shuffle(places)
        operands = tuple(entry.operands[place] for place in places)
        shapes = [operand.shape for operand in entry.operands]
        if operands != entry.operands and [operand.shape for operand in operands] == shapes:
            edit.set_operands(entry, operands)
            return
        for attribute in ("direction", "index", "dimensions"):
            if attribute == "direction" and attribute in entry.attributes:
                entry.attributes[attribute] = "EQ" if entry.attributes[attribute] != "EQ" else "NE"
                return


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.hlo"))[::4], ids=lambda path: path.stem)
def test_no_difference_is_overlooked(path: Path) -> None:
    """Modules have the same fingerprint exactly where nothing differs, and few edits leave few differences."""
    draw = random.Random(path.stem)
    for edits in (1, 2, 3):
        before, after = (hloopt.parse(path.read_text(), path.name) for _ in range(2))
        for _ in range(edits):
            _mutated(after, draw)
        rows = differences(before, after)
        assert bool(rows) == (fingerprint(before) != fingerprint(after))
        assert len(rows) <= 6 * edits
    optimized = hloopt.optimize(hloopt.parse(path.read_text(), path.name), "O1")
    again = hloopt.parse(optimized.to_text(), "again")
    assert differences(optimized, again) == []


def _chain(length: int, last: str) -> Module:
    lines = ["  x0 = f32[8] parameter(0)"]
    lines += [f"  x{n} = f32[8] add(x{n - 1}, x{n // 2})" for n in range(1, length)]
    lines.append(f"  ROOT y = f32[8] {last}(x{length - 1})")
    body = "\n".join(lines)
    return hloopt.parse(f"HloModule m\nENTRY e {{\n{body}\n}}\n", "m")


def test_work_grows_with_the_modules() -> None:
    """Four times the instructions, four times the calls."""
    counted = []
    for length in (200, 800):
        modules = _chain(length, "negate"), _chain(length, "abs")
        counted.append(count_calls(lambda pair=modules: differences(*pair)))
    assert counted[1] < 4.4 * counted[0]
