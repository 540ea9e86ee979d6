"""Scatters, sorts and updates in place: forced kernels beside the interpreter, checked and in two orders."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

import numpy as np
import pytest

import hloopt
from hloopt.backends import check_device
from hloopt.backends.emulator import EmulatorDevice
from hloopt.backends.kernel_check import CheckedProgram
from hloopt.backends.nvrtc import compile_ptx
from hloopt.codegen.program import KernelProgram, kernel_steps, render
from hloopt.errors import DeviceError
from hloopt.kernel_ir.expressions import Binary, Var
from hloopt.kernels.planning import plan_program
from hloopt.runtime.device import Array
from hloopt.runtime.inputs import generate
from hloopt.runtime.judge import judged
from hloopt.types import DTYPES
from tests.codegen.harness import chooser, compile_somewhere, planned
from tests.helpers.kernel_code import KernelCode


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    try:
        check_device("emulator")
    except DeviceError as error:
        pytest.skip(str(error))


def check(
    text: str,
    kernel: str,
    tile: Mapping[str, int] | None = None,
    inputs: list[Array] | None = None,
) -> KernelProgram:
    """As ``harness.check_kernel``, with copies inserted where a buffer would be written too early; returns the program."""
    module = hloopt.parse(text)
    hloopt.verify(module)
    ready = hloopt.optimize(module, "device")
    plan = plan_program(ready, chooser(kernel, tile))
    steps = list(kernel_steps(plan.steps))
    assert any(step.spec.kernel == kernel for step in steps), f"{kernel} fits nowhere"
    program = render(plan)
    source = program.text
    given = generate(module) if inputs is None else inputs
    want = hloopt.evaluate(module, given)
    found = []
    for seed in (1, 2):
        device = EmulatorDevice(mode="check", seed=seed)
        with closing(CheckedProgram(ready, plan, device, source)) as checked:
            found.append(checked.run(given))
        assert not checked.findings, f"{checked.findings[0]}\n{source}"
        for number, comparison in enumerate(judged(module, given, found[-1], want)):
            assert comparison.passed, f"result {number}: {comparison}\n{source}"
    if not any(step.spec.is_atomic for step in steps):
        for one, other in zip(*found, strict=True):
            assert one.tobytes() == other.tobytes(), f"the order of blocks matters\n{source}"
    compile_somewhere(source)
    return program


SCATTERS = """HloModule m
{regions}
ENTRY main {{
  n1 = s32[9,1] parameter(0)
  n2 = s64[3,2,4] parameter(1)
  n3 = u8[4,3] parameter(2)
{lines}
  ROOT results = ({shapes}) tuple({names})
}}
"""
_COMBINERS = {
    "integer": ("add", "multiply", "maximum", "minimum", "and", "or", "xor"),
    "float": ("add", "multiply", "maximum", "minimum"),
    "complex": ("add", "multiply"),
    "pred": ("and", "or", "xor"),
}


def scatters(cases: list[tuple[str, str]], *, windows: bool, extra: str = "") -> str:
    """A scatter for each element type and combiner; with windows one with batching and one with many dims."""
    regions, lines, shapes, names = [], [], [], []
    number = 3
    for at, (kind, opcode) in enumerate(cases):
        last = "ROOT r = {t}[] {o}(a, b)" if opcode != "set" else "ROOT r = {t}[] copy(b)"
        if opcode == "weighted":
            last = "c = {t}[] add(a, b)\n  ROOT r = {t}[] add(c, b)"
        regions.append(f"f{at}x {{ a = {kind}[] parameter(0)\n  b = {kind}[] parameter(1)\n  {last.format(t=kind, o=opcode)} }}")  # fmt: skip
        forms = [("7,3", "9,3", "n1", "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1")]  # fmt: skip
        if windows:
            forms += [
                ("4,6,5", "3,4,2", "n2", "update_window_dims={2}, inserted_window_dims={1}, input_batching_dims={0}, scatter_indices_batching_dims={2}, scatter_dims_to_operand_dims={1,2}, index_vector_dim=1"),
                ("6,5,7", "3,4,2,5", "n4", "update_window_dims={0,2,3}, inserted_window_dims={}, scatter_dims_to_operand_dims={2,0}, index_vector_dim=0"),
            ]  # fmt: skip
        for dims, updates, indices, rest in forms:
            name = f"r{number}"
            lines.append(f"  x{number} = {kind}[{dims}] parameter({number})")
            lines.append(f"  u{number}x = {kind}[{updates}] parameter({number + 1})")
            lines.append(f"  {name} = {kind}[{dims}] scatter(x{number}, {indices}, u{number}x), {rest}{extra}, to_apply=f{at}x")  # fmt: skip
            shapes.append(f"{kind}[{dims}]")
            names.append(name)
            number += 2
    return SCATTERS.format(
        regions="\n".join(regions),
        lines="\n".join(lines),
        shapes=", ".join(shapes),
        names=", ".join(names),
    )


def scattered_inputs(text: str, spread: int = 1) -> list[Array]:
    """Random inputs with indices of which some are outside, negative ones among them."""
    module = hloopt.parse(text)
    given = generate(module)
    rng = np.random.default_rng(spread)
    for number, top in ((0, 7), (1, 6), (2, 7)):
        kind = given[number].dtype
        low = max(-spread, int(np.iinfo(kind).min))
        drawn = rng.integers(low, top + spread, given[number].shape)
        given[number] = np.minimum(drawn, np.iinfo(kind).max).astype(kind)
    return given


@pytest.mark.parametrize("kernel", ["scatter-atomic", "scatter-ordered"])
def test_scatters_combine_in_every_type(kernel: str) -> None:
    """Combiners that CUDA has as one instruction, and those made of compare-and-swap, in all widths."""
    cases = []
    for kind in ("s8", "s16", "s32", "u64", "f16", "bf16", "f32", "f64", "c64", "pred", "f8e4m3fn"):
        row = DTYPES[kind]
        family = "pred" if row.is_pred else "integer" if row.is_integer else "complex" if row.is_complex else "float"  # fmt: skip
        opcodes = (
            _COMBINERS[family] if kind in ("s32", "f32", "pred", "s16") else _COMBINERS[family][:2]
        )
        cases += [(kind, opcode) for opcode in opcodes]
    text = scatters(cases, windows=False)
    check(text, kernel, None, scattered_inputs(text))


def test_narrow_sums_are_one_instruction_where_there_is_one() -> None:
    """sm_90 adds bf16 in memory, older devices add f16 only: bf16 goes by compare-and-swap there."""
    text = scatters([("f16", "add"), ("bf16", "add")], windows=False)
    program = check(text, "scatter-atomic", None, scattered_inputs(text))
    assert KernelCode.of(program).addresses("add_to_*") == ["result", "result"]
    source = program.text
    try:
        newer, older = (compile_ptx(source, name) for name in ("sm_90", "sm_80"))
    except DeviceError as error:
        pytest.skip(str(error))
    assert "red.add.noftz.f16" in newer
    assert "red.add.noftz.bf16" in newer
    assert "atom.cas" not in newer
    assert "red.add.noftz.f16" in older
    assert "red.add.noftz.bf16" not in older


@pytest.mark.parametrize(
    ("kernel", "spread"), [("scatter-ordered", 2), ("scatter-atomic", 1), ("scatter-ordered", 200)]
)
def test_scatters_of_windows(kernel: str, spread: int) -> None:
    """Windows that do not fit are left out whole; batching dimensions pair up; order is kept where asked."""
    cases = [("f32", "weighted"), ("s32", "add")]
    if kernel == "scatter-ordered":
        cases += [("f32", "set"), ("bf16", "set"), ("s8", "subtract")]
    text = scatters(cases, windows=True)
    text = text.replace(
        "  x3 =",
        "  n4t = u8[3,4] reshape(n3)\n  n4 = u8[2,4] slice(n4t), slice={[0:2], [0:4]}\n  x3 =",
    )
    check(text, kernel, {"threads": 64}, scattered_inputs(text, spread))


def test_unique_scatters_store() -> None:
    """A scatter whose indices are unique needs no atomics, outside ones are left out."""
    text = scatters([("f32", "set"), ("s8", "add"), ("c128", "multiply")], windows=False, extra=", unique_indices=true")  # fmt: skip
    inputs = scattered_inputs(text)
    inputs[0] = np.array([[6], [-1], [3], [0], [9], [2], [1 << 30], [5], [-(1 << 31)]], np.int32)
    check(text, "scatter", None, inputs)


def sorts(cases: list[tuple[str, str, int, str]]) -> str:
    """A sort each: element type, dimensions, the sorted one, and how pairs are compared."""
    regions, lines, shapes, names = [], [], [], []
    for at, (kind, dims, axis, how) in enumerate(cases):
        types = [kind] if how == "plain" else [kind, "s32"]
        sides = "\n  ".join(
            f"{side}{number}x = {one}[] parameter({2 * number + offset})"
            for number, one in enumerate(types)
            for offset, side in enumerate("ab")
        )
        body = {
            "plain": "ROOT r = pred[] compare(a0x, b0x), direction=LT",
            "descending": "ROOT r = pred[] compare(a0x, b0x), direction=GT",
            "total": "ROOT r = pred[] compare(a0x, b0x), direction=LT, type=TOTALORDER",
            "second": "ROOT r = pred[] compare(b1x, a1x), direction=LT",
            "coarse": f"c = {kind}[] constant(2)\n  d = {kind}[] divide(a0x, c)\n  e = {kind}[] divide(b0x, c)\n"
            "  ROOT r = pred[] compare(d, e), direction=LT",
        }[how]
        regions.append(f"f{at}x {{ {sides}\n  {body} }}")
        shape = [f"{one}[{dims}]" for one in types]
        lines.append(f"  x{at} = {kind}[{dims}] parameter({at})")
        operands = f"x{at}"
        if len(types) > 1:
            lines.append(f"  i{at} = s32[{dims}] iota(), iota_dimension={axis}")
            operands += f", i{at}"
        result = shape[0] if len(types) == 1 else f"({', '.join(shape)})"
        stable = ", is_stable=true"
        lines.append(
            f"  r{at} = {result} sort({operands}), dimensions={{{axis}}}{stable}, to_apply=f{at}x"
        )
        shapes.append(result)
        names.append(f"r{at}")
    joined = "\n".join(lines)
    return (
        "HloModule m\n" + "\n".join(regions) + f"\nENTRY main {{\n{joined}\n"
        f"  ROOT results = ({', '.join(shapes)}) tuple({', '.join(names)})\n}}\n"
    )


SORTS = [
    ("f32", "3,37", 1, "total"),
    ("f32", "37,3", 0, "descending"),
    ("s8", "2,33,3", 1, "plain"),
    ("u64", "65", 0, "plain"),
    ("s32", "2,100", 1, "coarse"),
    ("bf16", "5,17", 1, "total"),
    ("s32", "4,29", 1, "second"),
    ("pred", "2,19", 1, "descending"),
    ("f64", "1,1", 1, "total"),
    ("s16", "3,2", 1, "descending"),
]


@pytest.mark.parametrize(
    ("kernel", "tile"),
    [
        ("block-sort", None),
        ("bitonic-sort", {"tile": 8, "threads": 32}),
    ],
)
def test_sorts_are_stable(kernel: str, tile: dict[str, int] | None) -> None:
    """Rows along any dimension, of any length, in every order a comparator makes, equal ones as they were."""
    text = sorts(SORTS)
    given = generate(hloopt.parse(text))
    for number in (0, 5):
        given[number].flat[::5] = np.nan
        given[number].flat[1::7] = -0.0
        given[number].flat[2::7] = 0.0
        given[number].flat[3::11] = -np.inf
    given[1][:] = np.round(given[1])
    check(text, kernel, tile, given)


def test_places_of_a_network_are_found_without_dividing() -> None:
    """Sizes are powers of two that only the run knows: a division by one takes longer than the comparison."""
    for kernel in ("block-sort", "bitonic-sort"):
        code = KernelCode.of(planned(sorts([SORTS[0]]), kernel)[2])
        dividing = [one.right for one in code.expressions(Binary) if one.sign in ("/", "%")]
        assert any(one.name == "half" for one in code.expressions(Var))
        assert not any(isinstance(one, Var) for one in dividing)


UPDATES = """HloModule m
negated { p = f32[9,6] parameter(0)
  u = f32[3,4] parameter(1)
  i = {t}[] parameter(2)
  n = f32[3,4] negate(u)
  ROOT r = f32[9,6] dynamic-update-slice(p, n, i, i) }
added { p = s8[9,6] parameter(0)
  u = s8[3,4] parameter(1)
  i = {t}[] parameter(2)
  s = s8[3,4] dynamic-slice(p, i, i), dynamic_slice_sizes={{3,4}}
  a = s8[3,4] add(s, u)
  ROOT r = s8[9,6] dynamic-update-slice(p, a, i, i) }
ENTRY main {
  x = f32[9,6] parameter(0)
  u = f32[3,4] parameter(1)
  i = {t}[] parameter(2)
  y = s8[9,6] parameter(3)
  v = s8[3,4] parameter(4)
  z = f32[9,6] negate(x)
  a = f32[9,6] fusion(z, u, i), kind=kLoop, calls=negated
  b = s8[9,6] fusion(y, v, i), kind=kLoop, calls=added
  c = f32[9,6] dynamic-update-slice(x, u, i, i)
  ROOT r = (f32[9,6], s8[9,6], f32[9,6]) tuple(a, b, c)
}
"""


@pytest.mark.parametrize(
    ("kind", "start"), [("s32", -5), ("u8", 255), ("s64", 4), ("u64", 1 << 63)]
)
def test_updates_in_place(kind: str, start: int) -> None:
    """Only the update's elements are written, at starts that are clamped, in a buffer that is read as well."""
    text = UPDATES.replace("{t}", kind).replace("{{", "{").replace("}}", "}")
    given = generate(hloopt.parse(text))
    given[2] = np.array(start, DTYPES[kind].numpy)
    check(text, "in-place-update", None, given)
