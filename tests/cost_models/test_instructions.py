"""Every elementwise op that kernels can compute has its instructions counted."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.codegen.scalars.table import scalar_problem
from hloopt.cost_models.instructions import NOTHING, UNITS, latencies_of, work_of
from hloopt.ops import OPS
from hloopt.targets import find_target
from hloopt.types import DTYPES

TARGETS = ("v100", "a100", "h200", "b200")
H200 = latencies_of(find_target("h200"))
SAME = [
    (opcode, kind.name)
    for opcode, row in OPS.items()
    if row.is_elementwise and row.arity[0] <= 3
    for kind in DTYPES.values()
    if opcode
    not in ("compare", "convert", "copy", "complex", "real", "imag", "select", "is-finite")
    if opcode not in ("stochastic-convert", "reduce-precision")
    if not scalar_problem(opcode, [kind] * row.arity[0], kind, {})
]


@pytest.mark.parametrize("opcode", sorted({opcode for opcode, _ in SAME}))
def test_every_op_of_every_type_has_instructions(opcode: str) -> None:
    """On every generation; only what changes no bit takes none."""
    count = OPS[opcode].arity[0]
    for target in TARGETS:
        latencies = latencies_of(find_target(target))
        for other, kind in SAME:
            if other != opcode or (opcode == "abs" and DTYPES[kind].is_complex):
                continue
            work = work_of(
                instruction(f"{kind}[] {opcode}({', '.join(['x'] * count)})", kind), latencies
            )
            is_nothing = opcode == "abs" and DTYPES[kind].kind == "unsigned"
            assert (sum(work.units) > 0) != (is_nothing and work == NOTHING), (opcode, kind, target)
            assert work.chain > 0 or is_nothing


def instruction(text: str, kind: str = "f32") -> hloopt.Instruction:
    """One op on a parameter of a type."""
    module = hloopt.parse(f"HloModule m\nENTRY e {{ x = {kind}[] parameter(0) ROOT r = {text} }}")
    return module.entry.root


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("pred[] compare(x, x), direction=LT", "f8e4m3fn"),
        ("pred[] is-finite(x)", "bf16"),
        ("f32[] convert(x)", "f8e5m2"),
        ("f64[] convert(x)", "s8"),
        ("s4[] convert(x)", "s8"),
        ("bf16[] reduce-precision(x), exponent_bits=4, mantissa_bits=3", "bf16"),
        ("c64[] complex(x, x)", "f32"),
        ("f32[] real(x)", "c64"),
        ("f64[] abs(x)", "c128"),
    ],
)
def test_ops_whose_result_has_another_type(text: str, kind: str) -> None:
    """They go by way of wider types where they have no row."""
    assert work_of(instruction(text, kind), H200).chain >= 0


def test_a_rotation_is_one_instruction() -> None:
    """Two shifts by constants that make up the width, and their or; other shifts are one each."""
    text = """HloModule m
    ENTRY e {
      x = u32[] parameter(0)
      left = u32[] constant(13)
      right = u32[] constant(%d)
      high = u32[] shift-left(x, left)
      low = u32[] shift-right-logical(x, right)
      ROOT r = u32[] or(high, low)
    }"""
    for right, instructions in ((19, 1), (18, 3)):
        entry = hloopt.parse(text % right).entry
        ops = [entry.by_name[name] for name in ("high", "low", "r")]
        assert sum(sum(work_of(op, H200).units) for op in ops) == instructions


def test_known_functions_take_what_the_assembler_writes() -> None:
    """An f32 division is a reciprocal, a check of its range and five multiply-adds, on every generation."""
    for target in TARGETS:
        latencies = latencies_of(find_target(target))
        units = dict(zip(UNITS, latencies.works["divide", "f32"].units, strict=True))
        assert (units["fma"], units["xu"]) == (5, 2)
