"""What is computed element by element: every op alone and in the middle of a fusion, on the emulator."""

from __future__ import annotations

import re
from contextlib import closing

import numpy as np
import pytest

import hloopt
from hloopt.backends import check_device
from hloopt.backends.device_compile import prepare
from hloopt.backends.emulator import EmulatorDevice
from hloopt.backends.kernel_check import CheckedProgram
from hloopt.backends.nvrtc import compile_cuda
from hloopt.errors import DeviceError
from hloopt.kernel_ir.statements import Declare
from hloopt.runtime.inputs import generate
from hloopt.runtime.judge import judged
from hloopt.types import DTYPES
from tests.codegen.harness import check_kernel
from tests.helpers.kernel_code import KernelCode
from tests.helpers.rarely import one_in

VECTORS = {"unroll": 4, "vector": 4}
_LINE = re.compile(r"(?:ROOT )?(\w+) = (\(.*?\)|\S+) ([\w-]+)\((.*?)\)(.*)")


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    try:
        check_device("emulator")
    except DeviceError as error:
        pytest.skip(str(error))


def module(body: str, computations: str = "", fused: bool = False) -> str:
    """A module whose results are all values of the entry that begin with r.

    With ``fused`` each of them is computed in a fusion out of its operands' negatives, and negated, where
    those are of a type that can be.
    """
    lines = [line.strip() for line in body.strip().splitlines() if line.strip()]
    shapes, results, written, fusions = {}, [], [], []
    for line in lines:
        match = _LINE.fullmatch(line)
        assert match, line
        name, shape, opcode, operands, rest = match.groups()
        shapes[name] = shape
        if name.startswith("r"):
            results.append(name)
        if fused and name.startswith("r") and not shape.startswith("("):
            given = [one for one in operands.split(", ") if one in shapes]
            inner, used = [], {}
            for number, one in enumerate(dict.fromkeys(given)):
                inner.append(f"p{number} = {shapes[one]} parameter({number})")
                used[one] = f"p{number}"
                if _is_signed(shapes[one]):
                    used[one] = f"n{number}"
                    inner.append(f"n{number} = {shapes[one]} negate(p{number})")
            named = ", ".join(used.get(one, one) for one in operands.split(", "))
            inner.append(f"v = {shape} {opcode}({named}){rest}")
            inner.append(f"ROOT w = {shape} {'negate' if _is_signed(shape) else 'copy'}(v)")
            fusions.append(f"fused_{name} {{\n  " + "\n  ".join(inner) + "\n}\n")
            line = f"{name} = {shape} fusion({', '.join(dict.fromkeys(given))}), kind=kLoop, calls=fused_{name}"
        written.append(line)
    together = ", ".join(shapes[name] for name in results)
    written.append(f"ROOT results = ({together}) tuple({', '.join(results)})")
    return (
        f"HloModule m\n{computations}\n{''.join(fusions)}\nENTRY main {{\n  "
        + "\n  ".join(written)
        + "\n}\n"
    )


def _is_signed(shape: str) -> bool:
    return bool(re.match(r"(f32|f64|bf16|f16|s8|s16|s64|c64)\[", shape))


def run_prepared(text: str, inputs: list[np.ndarray] | None = None) -> None:
    """As ``hloopt run --device emulator`` does: each kernel beside the interpreter, then all results."""
    given = hloopt.parse(text)
    hloopt.verify(given)
    prepared = prepare(given)
    arrays = generate(given) if inputs is None else inputs
    device = EmulatorDevice(mode="check", seed=1)
    with closing(
        CheckedProgram(prepared.module, prepared.plan, device, prepared.program)
    ) as program:
        results = program.run(arrays)
    assert not program.findings, str(program.findings[0])
    for comparison in judged(given, arrays, results, hloopt.evaluate(given, arrays)):
        assert comparison.passed, comparison


REGIONS = """
add { aa = f32[] parameter(0)
  ab = f32[] parameter(1)
  ROOT ar = f32[] add(aa, ab) }
sub { ma = f32[] parameter(0)
  mb = f32[] parameter(1)
  ROOT mr = f32[] subtract(ma, mb) }
max { xa = f32[] parameter(0)
  xb = f32[] parameter(1)
  ROOT xr = f32[] maximum(xa, xb) }
ge { ga = f32[] parameter(0)
  gb = f32[] parameter(1)
  ROOT gr = pred[] compare(ga, gb), direction=GE }
best { ba = f32[] parameter(0)
  bi = s32[] parameter(1)
  bb = f32[] parameter(2)
  bj = s32[] parameter(3)
  bl = pred[] compare(ba, bb), direction=GT
  be = pred[] compare(ba, bb), direction=EQ
  bs = pred[] compare(bi, bj), direction=LT
  bt = pred[] and(be, bs)
  bo = pred[] or(bl, bt)
  bv = f32[] select(bl, ba, bb)
  bp = s32[] select(bo, bi, bj)
  ROOT br = (f32[], s32[]) tuple(bv, bp) }
"""

MOVED = """
x = {t}[6,5,7] parameter(0)
y = {t}[5] parameter(1)
z = {t}[] parameter(2)
o = {t}[6,1,7] parameter(3)
e = {t}[6,0,7] parameter(4)
r0 = {t}[3,5,4] broadcast(y), dimensions={{1}}
r1 = {t}[13] broadcast(z), dimensions={{}}
r2 = {t}[7,6,5] reshape(x)
r3 = {t}[2,3,1,35] reshape(x)
r4 = {t}[210] reshape(x)
r5 = {t}[7,6,5] transpose(x), dimensions={{2,0,1}}
r6 = {t}[6,7,5] transpose(x), dimensions={{0,2,1}}
r7 = {t}[2,5,2] slice(x), slice={{[1:6:3], [0:5], [2:7:4]}}
r8 = {t}[6,5,7] reverse(x), dimensions={{0,2}}
r9 = {t}[4,9,22] pad(x, z), padding=-1_-1x1_3x2_1_2
r10 = {t}[5,5,8] pad(x, z), padding=2_-3x0_0x-2_-3_1
r11 = {t}[6,12,7] concatenate(x, o, e, x, o), dimensions={{1}}
r12 = {t}[6,5,22] concatenate(x, x, r13, o1), dimensions={{2}}
r14 = {t}[0,4] slice(q), slice={{[3:3], [0:4]}}
r15 = {t}[1,1,1] slice(x), slice={{[5:6], [4:5], [6:7]}}
"""


def moved(kind: str) -> str:
    """Every op that moves elements, of one type."""
    text = MOVED.format(t=kind)
    text = text.replace("r12 =", f"q = {kind}[5,4] broadcast(z), dimensions={{}}\n"
                        f"o1 = {kind}[6,5,1] broadcast(y), dimensions={{1}}\n"
                        f"r13 = {kind}[6,5,7] negate(x)\nr12 =")  # fmt: skip
    return text if kind not in ("pred", "u8") else text.replace("negate", "not")


@pytest.mark.parametrize(
    ("kind", "fused", "tile"),
    one_in(
        2,
        [
            ("f32", True, VECTORS),
            ("bf16", False, VECTORS),
            ("s8", True, None),
            ("pred", True, VECTORS),
            ("s64", False, {"unroll": 3}),
            ("c64", True, {"unroll": 2, "vector": 2}),
        ],
    ),
)
def test_elements_move(kind: str, fused: bool, tile: dict[str, int] | None) -> None:
    """Views, slices, pads and concatenates put every element where the interpreter does."""
    whole = kind in ("f32", "s8")
    text = module(moved(kind), fused=fused)
    check_kernel(text, "loop", tile, exact=True, twice=whole, everywhere=whole)


def test_iota_counts_in_all_types() -> None:
    """Iota counts in every type there is, and wraps or rounds where the type is narrow."""
    kinds = [
        name
        for name, kind in DTYPES.items()
        if kind.is_array and not kind.is_pred and kind.bits != 6
    ]
    lines = [
        f"r{at} = {name}[3,19] iota(), iota_dimension={at % 2}" for at, name in enumerate(kinds)
    ]
    check_kernel(module("\n".join(lines)), "loop", exact=True)


INDEXED = """
x = {t}[6,5,7] parameter(0)
u = {t}[2,5,3] parameter(1)
i = s32[] parameter(2)
j = s8[] parameter(3)
k = u64[] parameter(4)
l = u8[] parameter(5)
m = s64[] parameter(6)
n = u32[] parameter(7)
n1 = s32[4,2] parameter(8)
n2 = s64[3,6] parameter(9)
n3 = u8[4,3] parameter(10)
w = {t}[] parameter(11)
{slices}
r4 = {t}[4,2,7] gather(x, n1), offset_dims={{1,2}}, collapsed_slice_dims={{1}}, start_index_map={{1,0}}, index_vector_dim=1, slice_sizes={{2,1,7}}
r5 = {t}[2,4,3,5] gather(x, n1), offset_dims={{0,2,3}}, collapsed_slice_dims={{}}, start_index_map={{2,0}}, index_vector_dim=1, slice_sizes={{2,3,5}}
r6 = {t}[3,6,7] gather(x, n2), offset_dims={{2}}, collapsed_slice_dims={{1}}, operand_batching_dims={{0}}, start_indices_batching_dims={{1}}, start_index_map={{1}}, index_vector_dim=2, slice_sizes={{1,1,7}}
r7 = {t}[4] gather(x, n3), offset_dims={{}}, collapsed_slice_dims={{0,1,2}}, start_index_map={{0,1,2}}, index_vector_dim=1, slice_sizes={{1,1,1}}
r8 = {t}[6,5,2,4] gather(x, n3b), offset_dims={{0,1,2}}, collapsed_slice_dims={{}}, start_index_map={{2}}, index_vector_dim=0, slice_sizes={{6,5,2}}
"""
SLICES = """
r_{i} = {{t}}[2,5,3] dynamic-slice(x, {i}, {i}, {i}), dynamic_slice_sizes={{{{2,5,3}}}}
q_{i} = {{t}}[6,5,7] dynamic-update-slice(x, u, {i}, {i}, {i})
"""
INDEXED = INDEXED.replace(
    "{slices}", "".join(SLICES.format(i=i) for i in "ijklmn").replace("q_", "ru_")
)


def starts(spread: int) -> list[np.ndarray]:
    """Indices for INDEXED, far out of range with a large spread."""
    rng = np.random.default_rng(spread)
    made: list[np.ndarray] = []
    for kind, dims in (("s32", ()), ("s8", ()), ("u64", ()), ("u8", ()), ("s64", ()), ("u32", ()),
                       ("s32", (4, 2)), ("s64", (3, 6)), ("u8", (4, 3))):  # fmt: skip
        numpy = DTYPES[kind].numpy
        info = np.iinfo(numpy)
        low, high = max(-spread, info.min), min(spread, info.max)
        made.append(np.array(rng.integers(low, high, dims, endpoint=True), numpy))
    return made


@pytest.mark.parametrize(
    ("kind", "fused", "tile", "spread"),
    one_in(3, [("f32", False, VECTORS, 3), ("s8", True, VECTORS, 1 << 40), ("f64", True, None, 2)]),
)
def test_starts_are_clamped(
    kind: str, fused: bool, tile: dict[str, int] | None, spread: int
) -> None:
    """Slices and gathers clamp starts of every integer type, however far out they are."""
    text = INDEXED.format(t=kind).replace(
        "r8 =", "n3b = u8[1,4] slice(n3c), slice={[0:1], [0:4]}\nr8 ="
    )
    text = text.replace("n3b = u8", "n3c = u8[3,4] reshape(n3)\nn3b = u8")
    rng = np.random.default_rng(0)
    given = [np.array(rng.integers(-99, 99, dims), DTYPES[kind].numpy)
             for dims in ((6, 5, 7), (2, 5, 3))]  # fmt: skip
    inputs = [*given, *starts(spread), np.array(7, DTYPES[kind].numpy)]
    check_kernel(module(text, fused=fused), "loop", tile, inputs=inputs, exact=True)


def test_bits_are_read_as_other_types() -> None:
    """Bitcast-convert keeps, joins and splits elements; bitcast reads dimensions anew."""
    text = """
    a = f32[5,4] parameter(0)
    b = s16[3,4] parameter(1)
    c = u8[2,8] parameter(2)
    d = f64[3] parameter(3)
    e = s4[6,2] parameter(4)
    f = bf16[3,2] parameter(5)
    g = c64[5] parameter(6)
    r0 = s32[5,4] bitcast-convert(a)
    r1 = u8[5,4,4] bitcast-convert(a)
    r2 = u16[5,4,2] bitcast-convert(a)
    r3 = f64[5,2] bitcast-convert(a2)
    r4 = s64[3] bitcast-convert(b)
    r5 = f16[3,4] bitcast-convert(b)
    r6 = s64[2] bitcast-convert(c)
    r7 = bf16[2,4] bitcast-convert(c2)
    r8 = f32[3,2] bitcast-convert(d)
    r9 = s8[3,8] bitcast-convert(d)
    r10 = u8[6] bitcast-convert(e)
    r11 = u4[3,4,4] bitcast-convert(b)
    r12 = f32[3] bitcast-convert(f)
    r13 = f8e4m3fn[2,8] bitcast-convert(c)
    r14 = s4[2,8,2] bitcast-convert(c)
    r15 = u2[2,8,4] bitcast-convert(c)
    r16 = f32[20] bitcast(a)
    r17 = f32[2,10] bitcast(a)
    """
    text = text.replace("r3 =", "a2 = f32[5,2,2] reshape(a)\n r3 =")
    text = text.replace("r7 =", "c2 = u8[2,4,2] reshape(c)\n r7 =")
    for fused in (False, True):
        check_kernel(
            module(text, fused=fused),
            "loop,copy",
            exact=True,
            used=False,
            twice=fused,
            everywhere=fused,
        )


def test_numbers_are_drawn() -> None:
    """The generators' three algorithms give the interpreter's bits for every width and state."""
    lines: list[str] = []
    states = (("rng_philox", 3), ("rng_philox", 2), ("rng_three_fry", 2), ("rng_default", 3),
              ("rng_default", 2))  # fmt: skip
    for number, (name, words) in enumerate(states):
        lines.append(f"k{number} = u64[{words}] parameter({number})")
        for kind in ("u8", "u16", "u32", "s64"):
            draw = f"rng-bit-generator(k{number}), algorithm={name}"
            lines.append(f"r{len(lines)} = (u64[{words}], {kind}[3,7]) {draw}")
    check_kernel(module("\n".join(lines)), "loop", exact=True)


REDUCED = """
x = f32[4,5,6] parameter(0)
k = s32[4,5,6] iota(), iota_dimension=1
z = f32[] parameter(1)
o = f32[] constant(1.5)
l = f32[] constant(-inf)
n = s32[] constant(0)
s = f32[2,2,3] parameter(2)
w = f32[3,2,6,4] parameter(3)
y = f32[4,6,3] parameter(4)
v = f32[2,2,4,6] parameter(5)
r0 = f32[4,6] reduce(x, z), dimensions={1}, to_apply=add
r1 = f32[5] reduce(x, o), dimensions={0,2}, to_apply=add
r2 = f32[] reduce(x, l), dimensions={0,1,2}, to_apply=max
r3 = (f32[4,6], s32[4,6]) reduce(x, k, l, n), dimensions={1}, to_apply=best
r4 = f32[5,6] reduce(x, z), dimensions={0}, to_apply=sub
r5 = f32[3,5,3] reduce-window(x, l), window={size=2x3x2 stride=1x1x2 pad=0_0x1_1x0_0}, to_apply=max
r6 = f32[4,9,2] reduce-window(x, o), window={size=1x3x2 stride=1x1x2 pad=0_0x1_1x-1_0 lhs_dilate=1x2x1 rhs_dilate=1x1x2}, to_apply=add
r7 = (f32[2,5,6], s32[2,5,6]) reduce-window(x, k, l, n), window={size=3x1x1}, to_apply=best
r8 = f32[4,5,6] select-and-scatter(x, s, o), window={size=3x3x2 stride=1x2x2}, select=ge, scatter=add
r9 = f32[4,5,6] select-and-scatter(k2, s2, z), window={size=1x2x2 stride=1x1x2 pad=0_0x1_0x0_0}, select=ge, scatter=add
r10 = f32[4,5,3] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}
r11 = f32[5,4,5] dot(x, x), lhs_contracting_dims={2,0}, rhs_contracting_dims={2,0}
r12 = f32[4,5,6] map(x, x), dimensions={0,1,2}, to_apply=sub
r13 = f32[2,3,5,4] convolution(v, w), window={size=3x2 pad=2_2x0_0 stride=1x1 lhs_dilate=1x1 rhs_dilate=2x2 rhs_reversal=1x0}, dim_labels=bf01_01io->b01f
"""


def reduced() -> str:
    """Every op that folds elements, ties and inits that are no identities among them."""
    text = REDUCED.replace(
        "r9 =", "f = f32[4,5,6] convert(k)\n h = f32[4,5,3] broadcast(o), dimensions={}\n r9 ="
    )
    text = text.replace("k2, s2", "f, h").replace("r11 = f32[5,4,5] dot", "r11 = f32[5,5] dot")
    lines = text.split("\n")
    shape = "w = f32[3,2,2,4] parameter(3)"
    lines = [shape if line.startswith("w = ") else line for line in lines]
    return "\n".join(lines).replace("r13 = f32[2,3,5,4]", "r13 = f32[2,4,4,4]")


@pytest.mark.parametrize(("fused", "tile"), [(False, VECTORS), (True, None)])
def test_elements_are_folded(fused: bool, tile: dict[str, int] | None) -> None:
    """Reduces, windows, products and convolutions agree with the interpreter in a thread an element."""
    text = module(reduced(), REGIONS, fused=fused)
    check_kernel(text, "loop", tile, twice=fused, everywhere=fused)


PACKED = """
x = {t}[{n}] parameter(0)
y = {t}[{n}] parameter(1)
z = {t}[] parameter(2)
p = pred[{n}] parameter(3)
r0 = {t}[{n}] copy(x)
r1 = {t}[{n}] reverse(x), dimensions={{0}}
r2 = {t}[{n}] select(p, x, y)
r3 = {t}[{m}] concatenate(x, y), dimensions={{0}}
r4 = {t}[3] slice(x), slice={{[2:5]}}
r5 = f32[{n}] convert(x)
r6 = {t}[{n}] convert(r5)
r7 = {t}[3,{n}] broadcast(x), dimensions={{1}}
r8 = pred[{n}] compare(x, y), direction=LE
"""


@pytest.mark.parametrize("kind", ["s4", "u4", "s2", "f4e2m1fn"])
def test_packed_elements_share_bytes(kind: str) -> None:
    """Elements of less than a byte are read and written whole bytes at a time, odd numbers of them too."""
    size, whole = (13, True) if kind == "s4" else (9, False)
    text = module(PACKED.format(t=kind, n=size, m=2 * size))
    check_kernel(
        text,
        "loop,copy",
        exact=True,
        used=False,
        twice=whole,
        everywhere=kind in ("s4", "f4e2m1fn"),
    )


EVERY_SIZE = """
x = f32[{n}] parameter(0)
y = f32[{n}] parameter(1)
r0 = f32[{n}] add(x, y)
r1 = f32[{n}] reverse(x), dimensions={{0}}
r2 = pred[{n}] compare(x, y), direction=GT
r3 = f64[{n}] convert(x)
r4 = f32[2,{n}] broadcast(x), dimensions={{1}}
r5 = f32[] reduce(x, c), dimensions={{0}}, to_apply=add
"""


@pytest.mark.parametrize("tile", one_in(3, [VECTORS, None, {"unroll": 2, "vector": 2}]))
def test_sizes_that_do_not_divide(tile: dict[str, int] | None) -> None:
    """No element, one, and numbers around those of a vector and a block."""
    lines = ["c = f32[] constant(0.5)"]
    number = 0
    for size in (0, 1, 3, 4, 5, 127, 129, 514):
        text = EVERY_SIZE.format(n=size).replace("parameter(0)", f"parameter({number})")
        text = text.replace("parameter(1)", f"parameter({number + 1})")
        lines.append(re.sub(r"\b([xyr]\d?)\b(?!\()", rf"\1_{size}", text))
        number += 2
    whole = tile == VECTORS
    check_kernel(module("\n".join(lines), REGIONS), "loop", tile, twice=whole, everywhere=whole)


LAYOUTS = """
HloModule m, entry_computation_layout={(f32[6,5,7]{0,2,1}, s8[4,9]{0,1}, f32[7,8]{0,1})->(f32[7,5,6]{1,0,2}, s8[9,4]{0,1}, f32[6,5,8]{0,1,2}, f32[6,5,7]{1,2,0})}

inner { a = f32[6,5,7]{0,2,1} parameter(0)
  n = f32[6,5,7]{0,2,1} negate(a)
  ROOT e = f32[6,5,7]{0,2,1} exponential(n) }
outer { a = f32[6,5,7]{0,2,1} parameter(0)
  f = f32[6,5,7]{0,2,1} fusion(a), kind=kLoop, calls=inner
  ROOT s = f32[6,5,7]{0,2,1} subtract(f, a) }
called { a = f32[6,5,7]{0,2,1} parameter(0)
  t = (f32[6,5,7]{0,2,1}, f32[6,5,7]{0,2,1}) tuple(a, a)
  g = f32[6,5,7]{0,2,1} get-tuple-element(t), index=1
  ROOT n = f32[6,5,7]{0,2,1} negate(g) }

ENTRY main {
  x = f32[6,5,7]{0,2,1} parameter(0)
  y = s8[4,9]{0,1} parameter(1)
  w = f32[7,8]{0,1} parameter(2)
  f = f32[6,5,7]{0,2,1} fusion(x), kind=kLoop, calls=outer
  c = f32[6,5,7]{0,2,1} call(f), to_apply=called
  t = f32[7,5,6]{1,0,2} transpose(c), dimensions={2,1,0}
  u = s8[9,4]{0,1} transpose(y), dimensions={1,0}
  d = f32[6,5,8]{0,1,2} dot(x, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  k = f32[6,5,7]{1,2,0} copy(f)
  ROOT r = (f32[7,5,6]{1,0,2}, s8[9,4]{0,1}, f32[6,5,8]{0,1,2}, f32[6,5,7]{1,2,0}) tuple(t, u, d, k)
}
"""


def test_layouts_nested_fusions_and_calls() -> None:
    """Arrays of any layout come in and go out; fusions in fusions and calls are computed."""
    run_prepared(LAYOUTS)


def test_tables_lie_in_memory_once() -> None:
    """Constants of a fusion are not written by each thread; those with infinities are, for want of literals."""
    kinds = {"f32": "0.5,1,2,-3", "bf16": "1,2,3,4", "s64": "1,-2,3,-9223372036854775808"}
    kinds |= {
        "c64": "(1,2),(3,4),(5,6),(-7,8)",
        "pred": "true,false,true,true",
        "f64": "1,inf,nan,-2",
    }
    bodies, lines = [], []
    for at, (kind, values) in enumerate(kinds.items()):
        operation = "select(x, x, b)" if kind == "pred" else "add(x, b)"
        bodies.append(
            f"f{at}x {{ x = {kind}[9,100] parameter(0)\n  c = {kind}[100] constant({{{','.join([values] * 25)}}})\n"
            f"  b = {kind}[9,100] broadcast(c), dimensions={{1}}\n  ROOT r = {kind}[9,100] {operation} }}"
        )
        lines.append(f"  x{at} = {kind}[9,100] parameter({at})")
        lines.append(f"  r{at} = {kind}[9,100] fusion(x{at}), kind=kLoop, calls=f{at}x")
    names = ", ".join(f"r{at}" for at in range(len(kinds)))
    shapes = ", ".join(f"{kind}[9,100]" for kind in kinds)
    entry = "\n".join([*lines, f"  ROOT out = ({shapes}) tuple({names})"])
    program = check_kernel(
        "HloModule m\n" + "\n".join(bodies) + f"\nENTRY e {{\n{entry}\n}}\n", exact=True
    )
    tables = [one for one in KernelCode.of(program).statements(Declare) if one.is_static]
    assert len(tables) == len(kinds) - 1
    source = program.text
    try:
        compiled = compile_cuda(source, "sm_90")
    except DeviceError as error:
        pytest.skip(str(error))
    stacks = {name: found.stack for name, found in compiled.resources.items()}
    assert sorted(stacks.values())[:-1] == [0] * (len(kinds) - 1)
