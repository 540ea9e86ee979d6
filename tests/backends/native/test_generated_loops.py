"""Native loops: the form of the nests, and results of every movement, type and size around tasks and tiles."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import hloopt
from hloopt.backends.host_compiler import find_compiler, machine_flags
from hloopt.backends.native.compile import compile_native
from hloopt.backends.native.toolchain import INCLUDED, language_flags
from hloopt.kernel_ir.expressions import Array, Binary, Select
from hloopt.kernel_ir.statements import Declare, If
from tests.backends.native.natively import check_native_kernels
from tests.codegen.reducing import fusions
from tests.helpers.kernel_code import KernelCode

pytestmark = pytest.mark.usefixtures("quickly_compiled")


def _module(lines: str) -> str:
    """A module of fusions that each hold one line of ``lines``: ``SHAPE OP``, operands written as shapes."""
    bodies, calls, shapes, parameters = [], [], [], []
    for number, line in enumerate(filter(None, map(str.strip, lines.splitlines()))):
        shape, _, rest = line.partition(" ")
        inner: list[str] = []
        given: list[str] = []

        def operand(
            found: re.Match[str], inner: list[str] = inner, given: list[str] = given
        ) -> str:
            name = f"x{len(given)}"
            inner.append(f"  {name} = {found[0]} parameter({len(given)})")
            given.append(f"p{len(parameters)}")
            parameters.append(f"  p{len(parameters)} = {found[0]} parameter({len(parameters)})")
            return name

        head, separator, attributes = rest.partition(")")
        text = re.sub(r"\b[a-z]\w*\[[\d,]*\]", operand, head) + separator + attributes
        bodies.append("\n".join([f"body{number} {{", *inner, f"  ROOT r = {shape} {text}", "}"]))
        call = f"fusion({', '.join(given)}), kind=kLoop, calls=body{number}"
        calls.append(f"  fused{number} = {shape} {call}")
        shapes.append(shape)
    root = ", ".join(f"fused{number}" for number in range(len(shapes)))
    entry = [*parameters, *calls, f"  ROOT all = ({', '.join(shapes)}) tuple({root})"]
    return "\n\n".join(["HloModule m", *bodies, "\n".join(["ENTRY main {", *entry, "}"])]) + "\n"


MOVEMENTS = """
f32[3,70,33] broadcast(f32[70]), dimensions={1}
f32[3,70,33] broadcast(f32[3,33]), dimensions={0,2}
f32[50,9] reshape(f32[3,15,10])
f32[7,9,4] slice(f32[20,9,30]), slice={[3:17:2], [0:9], [5:21:4]}
f32[20,33] reverse(f32[20,33]), dimensions={0,1}
f32[30,41] pad(f32[20,33], f32[]), padding=3_7x1_7
f32[18,20] pad(f32[20,33], f32[]), padding=-1_-1x-6_-7
f32[30,41] pad(f32[10,20], f32[]), padding=1_1_2x0_2_1
s32[10,45] concatenate(s32[10,20], s32[10,1], s32[10,24]), dimensions={1}
s8[64,40] concatenate(s8[33,40], s8[31,40]), dimensions={0}
f32[70,100] transpose(f32[100,70]), dimensions={1,0}
f64[33,64] transpose(f64[64,33]), dimensions={1,0}
bf16[129,40] transpose(bf16[40,129]), dimensions={1,0}
pred[65,3,5,33] transpose(pred[5,33,3,65]), dimensions={3,2,0,1}
c64[40,33] transpose(c64[33,40]), dimensions={1,0}
f32[40,3,50] transpose(f32[40,50,3]), dimensions={0,2,1}
s4[33,7] transpose(s4[7,33]), dimensions={1,0}
u4[45] convert(s32[45])
s32[45] convert(u4[45])
s32[4,5,6] iota(), iota_dimension=1
f32[5,33] dynamic-slice(f32[20,33], s32[], s32[]), dynamic_slice_sizes={5,33}
f32[20,33] dynamic-update-slice(f32[20,33], f32[4,30], s32[], s32[])
f32[9,33] gather(f32[20,33], s32[9,1]), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,33}
u16[6,5,2] bitcast-convert(f32[6,5])
f32[100,300] add(f32[100,300], f32[100,300])
f16[20000] exponential(f16[20000])
f32[3,20000] broadcast(f32[3]), dimensions={0}
f32[] negate(f32[])
f32[1,1,5] negate(f32[1,1,5])
f32[0,5] negate(f32[0,5])
"""


def test_movements() -> None:
    """Sizes around tasks and tiles, types of every width, packed ones, steps, negative padding, nothing."""
    check_native_kernels(_module(MOVEMENTS), "native-loop", "native-update")


def test_crossing_after_work() -> None:
    """What is read across is copied in its own type; packed elements are taken out of their bytes one by one."""
    body = """
        x: {kind}[40,70]
        y: f32[70,40]
        t = {kind}[70,40] transpose(x), dimensions={{1,0}}
        w = f32[70,40] {opcode}(t)
        ROOT r = f32[70,40] add(w, y)
    """
    kinds = [("s4", "convert"), ("bf16", "convert"), ("pred", "convert"), ("c64", "real")]
    bodies = [body.format(kind=kind, opcode=opcode) for kind, opcode in kinds]
    code = check_native_kernels(fusions(bodies), "native-loop")
    assert [one.align for one in code.statements(Declare) if isinstance(one.target, Array)] == [
        64
    ] * 3


def test_large_arrays_are_shared_out() -> None:
    """Rows that fill no task, rows that fill several, and tiles: every task has its own part."""
    lines = """
    f32[7,30011] broadcast(f32[7]), dimensions={0}
    f32[300,257] broadcast(f32[257]), dimensions={1}
    f32[40,100,33] broadcast(f32[40,33]), dimensions={0,2}
    f32[513,400] transpose(f32[400,513]), dimensions={1,0}
    f32[50,33,64] transpose(f32[64,50,33]), dimensions={1,2,0}
    s4[70001] convert(s32[70001])
    """
    check_native_kernels(_module(lines), "native-loop")


ELEMENTWISE = """\
  let first: int = (int)(begin * 16200)
  let last: int = (int)(end * 16200 < 30000 ? end * 16200 : 30000)
  for i: int from first to last simd
    let x0: float = p0[i]
    let x1: float = p1[i]
    let r: float = x0 + x1
    store result[i] = r
"""

BROADCAST = """\
  for i: int from 0 to 3
    for i_1: int from 0 to 70
      for i_2: int from 0 to 33 simd
        let x0: float = p0[i_1]
        store result[i * 2310 + i_1 * 33 + i_2] = x0
"""

MERGED = """\
  for i: int from 0 to 6
    for i_1: int from 0 to 35 simd
      let x0: float = p0[i_1]
      store result[i * 35 + i_1] = x0
"""

TILES = """\
  for u: int from 0 to 3
    let row: int = u * 32
    let stop: int = row + 32 < 70 ? row + 32 : 70
    for column: int from 0 to 64 += 32
      let stop_1: int = column + 32
      array local p0_tile: float[1056] align 64
      for i_1: int from column to stop_1
        for i: int from row to stop simd
          store p0_tile[(i_1 - column) * 33 + (i - row)] = p0[i_1 * 70 + i]
      for i: int from row to stop
        for i_1: int from column to stop_1 simd
          store result[i * 64 + i_1] = p0_tile[(i_1 - column) * 33 + (i - row)]
"""


@pytest.mark.parametrize(
    ("line", "form"),
    [
        ("f32[100,300] add(f32[100,300], f32[100,300])", ELEMENTWISE),
        ("f32[3,70,33] broadcast(f32[70]), dimensions={1}", BROADCAST),
        ("f32[2,3,5,7] broadcast(f32[5,7]), dimensions={2,3}", MERGED),
        ("f32[70,64] transpose(f32[64,70]), dimensions={1,0}", TILES),
    ],
    ids=["elementwise", "broadcast", "merged", "tiles"],
)
def test_forms(line: str, form: str) -> None:
    """One flat loop, a loop for each dimension an operand lacks, merged neighbours, tiles."""
    code = check_native_kernels(_module(line), "native-loop")
    assert code.text("hlo_fused0") == form


def test_long_rows_are_cut() -> None:
    """A row longer than a task is gone over in pieces; the value a row has one of is outside of its loop."""
    code = check_native_kernels(
        _module("f32[7,30011] broadcast(f32[7]), dimensions={0}"), "native-loop"
    )
    rows, elements = code.loops()
    assert elements.is_simd
    assert elements in rows.body
    assert not [one for one in code.expressions(Binary) if one.sign == "%"]


SHORT_ROWS = """
x: {kind}[{rows},{columns}]
y: {kind}[{rows}]
z: {kind}[{columns}]
w: {kind}[{columns},{rows}]
v: {kind}[{rows},9]
a = {kind}[{rows},{columns}] broadcast(y), dimensions={{0}}
b = {kind}[{rows},{columns}] broadcast(z), dimensions={{1}}
c = {kind}[{rows},{columns}] transpose(w), dimensions={{1,0}}
d = {kind}[{rows},{columns}] slice(v), slice={{[0:{rows}], [1:{end}]}}
e = {kind}[{rows},{columns}] reverse(x), dimensions={{1}}
f = {kind}[{rows},{columns}] maximum(x, a)
g = {kind}[{rows},{columns}] multiply(f, b)
h = {kind}[{rows},{columns}] add(c, d)
i = {kind}[{rows},{columns}] subtract(h, e)
ROOT r = ({kind}[{rows},{columns}], {kind}[{rows},{columns}]) tuple(g, i)
"""

CURVE = """
x: f32[{rows},{columns}]
z: f32[{columns}]
b = f32[{rows},{columns}] broadcast(z), dimensions={{1}}
c = f32[{rows},{columns}] add(x, b)
ROOT d = f32[{rows},{columns}] tanh(c)
"""

GATES = """
x: f32[{rows},{columns}]
y: f32[{rows}]
a = f32[{rows},{columns}] broadcast(y), dimensions={{0}}
b = f32[{rows},{columns}] logistic(x)
ROOT c = f32[{rows},{columns}] multiply(a, b)
"""


def test_rows_that_fill_no_vector() -> None:
    """Elements of few columns are computed one after the other, those of rows side by side, to the last row."""
    bodies = [
        SHORT_ROWS.format(kind=kind, rows=rows, columns=columns, end=columns + 1)
        for kind, rows, columns in (
            ("f32", 5000, 3),
            ("f64", 77, 2),
            ("bf16", 64, 4),
            ("s8", 70, 3),
            ("u16", 33, 7),
        )
    ]
    bodies += [
        CURVE.format(rows=rows, columns=columns) for rows, columns in ((9000, 3), (40, 5), (7, 3))
    ]
    bodies += [GATES.format(rows=61, columns=columns) for columns in (4, 6)]
    code = check_native_kernels(fusions(bodies), "native-loop")
    simd = {
        one.name: [loop.is_simd for loop in KernelCode((one,)).loops()] for one in code.functions
    }
    # Rows of 6 beside something that they share, and what is too short either way, are loops over columns.
    assert simd["hlo_fusion5"] == simd["hlo_fusion6"] == simd["hlo_fusion8"] == [True]
    assert simd["hlo_fusion7"] == simd["hlo_fusion9"] == [False, True]


def test_rows_that_fill_no_vector_are_vectors(tmp_path: Path) -> None:
    """GCC makes vectors of rows, with functions that are called for each column, and of what reduces them."""
    compiler = find_compiler("the device 'native'")
    if not compiler.is_gnu:
        pytest.skip("tells of vectors in other words")
    softmax = """
        x: f32[9000,3]
        low = f32[] constant(-inf)
        zero = f32[] constant(0)
        most = f32[9000] reduce(x, low), dimensions={1}, to_apply=maximum_f32
        across = f32[9000,3] broadcast(most), dimensions={0}
        less = f32[9000,3] subtract(x, across)
        power = f32[9000,3] exponential(less)
        sum = f32[9000] reduce(power, zero), dimensions={1}, to_apply=add_f32
        wide = f32[9000,3] broadcast(sum), dimensions={0}
        ROOT share = f32[9000,3] divide(power, wide)
    """
    bodies = [
        GATES.format(rows=9000, columns=3),
        CURVE.format(rows=9000, columns=5),
        softmax,
    ]
    source = compile_native(hloopt.parse(fusions(bodies))).source
    unit = tmp_path / "unit.cpp"
    unit.write_text(source)
    flags = [*language_flags(compiler), *machine_flags(), *INCLUDED]
    command = [
        *compiler.command,
        *flags,
        "-fopt-info-vec",
        "-c",
        str(unit),
        "-o",
        str(tmp_path / "a.o"),
    ]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    vectors = {int(line) for line in re.findall(r"unit\.cpp:(\d+):.*loop vectorized", told)}
    assert len(vectors) == len(bodies), told


STACKED = """
x: f32[3,{n}]
y: f32[1,{n}]
a = f32[1,{n}] slice(x), slice={{[0:1], [0:{n}]}}
b = f32[1,{n}] slice(x), slice={{[1:2], [0:{n}]}}
s = f32[1,{n}] sine(a)
t = f32[1,{n}] multiply(s, b)
ROOT r = f32[4,{n}] concatenate(t, s, y, b), dimensions={{0}}
"""

APART = """
x: f32[40,{n}]
y: f32[20,{n}]
z: f32[60]
a = f32[60,{n}] concatenate(x, y), dimensions={{0}}
b = f32[60,{n}] broadcast(z), dimensions={{0}}
ROOT r = f32[60,{n}] add(a, b)
"""

BESIDE = """
x: f32[{n},40]
y: f32[{n},21]
z: f32[61]
a = f32[{n},61] concatenate(x, y), dimensions={{1}}
b = f32[{n},61] broadcast(z), dimensions={{1}}
ROOT r = f32[{n},61] add(a, b)
"""

PAIRS = """
x: f32[{n},1]
y: f32[{n},2]
ROOT r = f32[{n},3] concatenate(x, y), dimensions={{1}}
"""

ENDS = """
x: f32[{n}]
y: f32[7]
n = f32[{n}] negate(x)
e = f32[7] exponential(y)
ROOT r = f32[{more}] concatenate(e, n, y), dimensions={{0}}
"""


@pytest.mark.parametrize("n", [1, 5, 700, 9001])
def test_concatenates_in_parts(n: int) -> None:
    """No element asks which part it is in, whether parts are rows, columns or stretches of a task."""
    bodies = [text.format(n=n, more=n + 14) for text in (STACKED, APART, BESIDE, PAIRS, ENDS)]
    code = check_native_kernels(fusions(bodies), "native-loop")
    assert not any(one.otherwise for one in code.statements(If))
    if n > 1:
        assert len(code.calls("sinf")) == 1


def test_parts_of_parts() -> None:
    """A concatenate in a part of another one, and parts of both dimensions."""
    body = """
        x: s32[3,5]
        y: s32[3,40]
        z: s32[30,45]
        w: s32[33,45]
        a = s32[3,45] concatenate(x, y), dimensions={1}
        b = s32[33,45] concatenate(a, z), dimensions={0}
        ROOT r = s32[33,45] subtract(b, w)
    """
    check_native_kernels(fusions([body]), "native-loop")


def test_rows_at_once_are_shared_out() -> None:
    """Rows that are computed together in tasks that end within a row, and with results written in place."""
    body = """
        x: f32[2,50,331]
        y: f32[2,50,331]
        a = f32[1,50,331] slice(x), slice={[1:2], [0:50], [0:331]}
        b = f32[1,50,331] exponential(a)
        c = f32[1,50,331] negate(b)
        d = f32[2,50,331] concatenate(b, c), dimensions={0}
        ROOT r = f32[2,50,331] add(d, y)
    """
    code = check_native_kernels(fusions([body]), "native-loop")
    assert len(code.calls("expf")) == 1


@pytest.mark.parametrize("kind", ["s8", "u8", "s16", "u32", "s32", "u64", "s64"])
def test_shifts_by_any_amount(kind: str) -> None:
    """Amounts of nothing, below and above the width and negative ones, without a condition."""
    body = f"""
        x: {kind}[60]
        y: {kind}[60]
        a = {kind}[60] shift-left(x, y)
        b = {kind}[60] shift-right-logical(x, y)
        ROOT r = {kind}[60] xor(a, b)
    """
    width = int(kind[1:])
    amounts = [0, 1, width - 1, width, width + 1, 2 * width, 100]
    x = np.arange(1, 61).astype(f"{'u' * (kind[0] == 'u')}int{width}") * 37
    y = np.resize(np.array([*amounts, *(-amount for amount in amounts)]), 60).astype(x.dtype)
    code = check_native_kernels(fusions([body]), "native-loop", inputs=[x, y], exact=True)
    assert not list(code.expressions(Select))
