"""Products natively: small ones with what stands around them, large ones by blocks, the rest by BLAS."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import hloopt
from hloopt.backends.native.compile import CompiledNative, compile_native
from hloopt.kernels.plan import KernelStep, walk_steps
from hloopt.kernels.spec import Launch
from hloopt.runtime.inputs import generate
from hloopt.runtime.judge import judged
from hloopt.runtime.program import NativeOptions
from tests.helpers.joined_modules import joined

pytestmark = pytest.mark.usefixtures("quickly_compiled")


def _dot(
    left: str,
    right: str,
    result: str,
    contracting: tuple[str, str],
    batch: tuple[str, str] = ("", ""),
) -> str:
    batches = f", lhs_batch_dims={{{batch[0]}}}, rhs_batch_dims={{{batch[1]}}}" if batch[0] else ""
    return f"""HloModule m
ENTRY e {{
  x = {left} parameter(0)
  y = {right} parameter(1)
  ROOT r = {result} dot(x, y){batches}, lhs_contracting_dims={{{contracting[0]}}}, rhs_contracting_dims={{{contracting[1]}}}
}}
"""


SMALL = {
    "f32": _dot("f32[13,7]", "f32[7,37]", "f32[13,37]", ("1", "0")),
    "f64": _dot("f64[9,5]", "f64[5,70]", "f64[9,70]", ("1", "0")),
    "bf16": _dot("bf16[4,40]", "bf16[40,33]", "bf16[4,33]", ("1", "0")),
    "f16": _dot("f16[3,21]", "f16[21,17]", "f16[3,17]", ("1", "0")),
    "bf16 in f32": _dot("bf16[6,12]", "bf16[12,19]", "f32[6,19]", ("1", "0")),
    "f8e4m3fn": _dot("f8e4m3fn[5,6]", "f8e4m3fn[6,8]", "f32[5,8]", ("1", "0")),
    "s8 in s32": _dot("s8[11,40]", "s8[40,20]", "s32[11,20]", ("1", "0")),
    "u8": _dot("u8[5,9]", "u8[9,6]", "u8[5,6]", ("1", "0")),
    "s64": _dot("s64[5,9]", "s64[9,6]", "s64[5,6]", ("1", "0")),
    "transposed": _dot("f32[7,13]", "f32[37,7]", "f32[13,37]", ("0", "1")),
    "batches": _dot("f32[3,2,5,6]", "f32[2,6,3,9]", "f32[3,2,5,9]", ("3", "1"), ("0,1", "2,0")),
    "two contracted": _dot("f32[4,5,6]", "f32[6,4,7]", "f32[5,7]", ("0,2", "1,0")),
    "two free": _dot("f32[4,5,6]", "f32[6,2,3]", "f32[4,5,2,3]", ("2", "0")),
    "vector by matrix": _dot("f32[40]", "f32[40,30]", "f32[30]", ("0", "0")),
    "matrix by vector": _dot("f32[40,30]", "f32[30]", "f32[40]", ("1", "0")),
    "scalar": _dot("f32[9]", "f32[9]", "f32[]", ("0", "0")),
    "outer": _dot("f32[9]", "f32[8]", "f32[9,8]", ("", "")),
    "of one": _dot("f32[1,1]", "f32[1,1]", "f32[1,1]", ("1", "0")),
}

FUSED = """HloModule m
f {
  x = f32[12,10] parameter(0)
  y = f32[10,18] parameter(1)
  b = f32[18] parameter(2)
  n = f32[12,10] negate(x)
  p = f32[12,18] dot(n, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  across = f32[12,18] broadcast(b), dimensions={1}
  s = f32[12,18] add(p, across)
  ROOT t = f32[18,12] transpose(s), dimensions={1,0}
}
ENTRY e {
  x = f32[12,10] parameter(0)
  y = f32[10,18] parameter(1)
  b = f32[18] parameter(2)
  ROOT r = f32[18,12] fusion(x, y, b), kind=kLoop, calls=f
}
"""

CONVOLUTION = """HloModule m
ENTRY e {
  x = f32[2,7,6,3] parameter(0)
  w = f32[3,3,3,5] parameter(1)
  ROOT r = f32[2,4,6,5] convolution(x, w), window={size=3x3 stride=2x1 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
}
"""


def _convolution(source: str, kernel: str, result: str, rest: str) -> str:
    return f"""HloModule m
ENTRY e {{
  x = {source} parameter(0)
  w = {kernel} parameter(1)
  ROOT r = {result} convolution(x, w), {rest}
}}
"""


SAME = "window={size=3x3 pad=1_1x1_1}"
CONVOLUTIONS = {
    "rows of several tasks": _convolution(
        "f32[3,31,29,8]", "f32[3,3,8,16]", "f32[3,31,29,16]", f"{SAME}, dim_labels=b01f_01io->b01f"
    ),
    "channels first": _convolution(
        "f32[2,8,20,20]", "f32[12,8,3,3]", "f32[2,12,20,20]", f"{SAME}, dim_labels=bf01_oi01->bf01"
    ),
    "groups": _convolution(
        "f32[1,9,9,8]",
        "f32[3,3,2,8]",
        "f32[1,9,9,8]",
        f"{SAME}, dim_labels=b01f_01io->b01f, feature_group_count=4",
    ),
    "of each channel": _convolution(
        "f32[1,9,9,6]",
        "f32[3,3,1,6]",
        "f32[1,9,9,6]",
        f"{SAME}, dim_labels=b01f_01io->b01f, feature_group_count=6",
    ),
    "holes": _convolution(
        "bf16[2,9,9,3]",
        "bf16[3,3,3,5]",
        "bf16[2,14,3,5]",
        "window={size=3x3 stride=1x2 pad=1_0x0_1 lhs_dilate=2x1 rhs_dilate=2x2 rhs_reversal=1x0}, "
        "dim_labels=b01f_01io->b01f",
    ),
}

LARGE = {
    "f32": _dot("f32[131,70]", "f32[70,67]", "f32[131,67]", ("1", "0")),
    "f64": _dot("f64[60,77]", "f64[77,61]", "f64[60,61]", ("1", "0")),
    "more than a block": _dot("f32[200,400]", "f32[400,530]", "f32[200,530]", ("1", "0")),
    "transposed": _dot("f32[70,131]", "f32[67,70]", "f32[131,67]", ("0", "1")),
    "batches": _dot(
        "f32[3,2,60,65]", "f32[2,65,3,70]", "f32[3,2,60,70]", ("3", "1"), ("0,1", "2,0")
    ),
    "rows to spare": _dot("f32[769,64]", "f32[64,40]", "f32[769,40]", ("1", "0")),
    "few columns": _dot("f32[301,500]", "f32[500,20]", "f32[301,20]", ("1", "0")),
    "few columns, transposed": _dot("f64[71,400]", "f64[19,400]", "f64[71,19]", ("1", "1")),
    "few columns of both": _dot("f32[900,29]", "f32[900,13]", "f32[29,13]", ("0", "0")),
    "matrix by vector": _dot("f32[203,1100]", "f32[1100]", "f32[203]", ("1", "0")),
    "vector by matrix": _dot("f64[700]", "f64[700,1205]", "f64[1205]", ("0", "0")),
    "transposed by vector": _dot("f32[1100,203]", "f32[1100]", "f32[203]", ("0", "0")),
    "matrices by vectors": _dot(
        "f32[600,3,210]", "f32[600,3]", "f32[3,210]", ("0", "0"), ("1", "1")
    ),
    "columns far apart": _dot(
        "f32[190,3,205,2]", "f32[3,190,2]", "f32[3,2,205]", ("0", "1"), ("1,3", "0,2")
    ),
    "vector by vector": _dot("f32[150000]", "f32[150000]", "f32[]", ("0", "0")),
}


def _checked(texts: dict[str, str]) -> CompiledNative:
    """All texts in one program, with several inputs; its results are the interpreter's."""
    modules = [hloopt.parse(text) for text in texts.values()]
    program = compile_native(joined(modules))
    for seed in range(2):
        inputs = [generate(module, seed) for module in modules]
        if seed:
            # What is not a number, and what is too large, goes where it went.
            for given in inputs:
                if given[0].dtype.kind == "f" and given[0].size > 3:
                    given[0].reshape(-1)[:3] = np.inf, np.nan, -0.0
        got = iter(program.run([array for given in inputs for array in given]))
        for name, module, given in zip(texts, modules, inputs, strict=True):
            wanted = hloopt.evaluate(module, given)
            found = judged(module, given, [next(got) for _ in wanted], wanted)
            assert all(one.passed for one in found), (name, seed, found)
    return program


def _kernels(program: CompiledNative) -> Counter[str]:
    return Counter(
        step.spec.kernel for step in walk_steps(program.plan.steps) if isinstance(step, KernelStep)
    )


def test_small_products() -> None:
    """Of all types and forms, with what stands around them; each is one kernel."""
    found = _kernels(_checked({**SMALL, "fused": FUSED, "convolution": CONVOLUTION}))
    assert found["native-dot"] == len(SMALL) + 2
    assert not found.keys() & {"native-call", "native-gemm"}


def test_convolutions() -> None:
    """Patches become rows; of many rows each task makes some."""
    program = _checked(CONVOLUTIONS)
    found = _kernels(program)
    assert found["native-dot"] == len(CONVOLUTIONS)
    assert "native-call" not in found
    launches = [
        step.spec.steps[0]
        for step in walk_steps(program.plan.steps)
        if isinstance(step, KernelStep) and step.spec.kernel == "native-dot"
    ]
    assert any(isinstance(one, Launch) and one.grid[0] > 2 for one in launches)


def test_large_products() -> None:
    """Blocks with rows and columns to spare, and factors that lie in other orders."""
    found = _kernels(_checked(LARGE))
    assert found["native-gemm"] == len(LARGE)
    assert "native-call" not in found


@pytest.mark.parametrize(("left", "contracted"), [("f32[150,800]", 1), ("f32[800,150]", 0)])
def test_few_columns_have_the_bits_of_many(left: str, contracted: int) -> None:
    """What is read where it lies is summed in the order of what is packed first, blocks of it apart."""
    few = _dot(left, "f32[800,13]", "f32[150,13]", (str(contracted), "0"))
    many = _dot(left, "f32[800,130]", "f32[150,130]", (str(contracted), "0"))
    program = compile_native(joined([hloopt.parse(few), hloopt.parse(many)]))
    x, y = generate(hloopt.parse(many), 0)
    some, every = program.run([x, np.ascontiguousarray(y[:, :13]), x, y])
    assert some.tobytes() == every[:, :13].tobytes()


@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        (_dot("f32[600,700]", "f32[700,3]", "f32[600,3]", ("1", "0")), "native-call"),
        (_dot("c64[5,6]", "c64[6,7]", "c64[5,7]", ("1", "0")), "native-loop"),
        (_dot("c64[50,60]", "c64[60,70]", "c64[50,70]", ("1", "0")), "native-call"),
        (_dot("f32[0,3]", "f32[3,4]", "f32[0,4]", ("1", "0")), None),
        (_dot("f32[2,0]", "f32[0,4]", "f32[2,4]", ("1", "0")), "native-loop"),
    ],
    ids=["few columns", "complex", "large complex", "empty", "nothing to sum"],
)
def test_what_others_make(text: str, kernel: str | None) -> None:
    """BLAS, or a plain loop; what has no elements is made by nobody."""
    module = hloopt.parse(text)
    program = compile_native(module)
    assert set(_kernels(program)) == ({kernel} if kernel else set())
    given = generate(module, 0)
    assert all(
        one.passed
        for one in judged(module, given, program.run(given), hloopt.evaluate(module, given))
    )


def test_rows_of_a_task() -> None:
    """However many rows a task has, the bits are the same; more than there are is an error."""
    module = hloopt.parse(LARGE["more than a block"])
    given = generate(module, 0)
    wanted = compile_native(module, NativeOptions(threads=1)).run(given)[0]
    from hloopt.kernels.selection import KernelSelection

    for rows in (1, 100, 200):
        wish = KernelSelection(device="native", kernel=(f"op:dot=native-gemm{{rows={rows}}}",))
        assert (
            compile_native(module, NativeOptions(threads=2, selection=wish)).run(given)[0] == wanted
        ).all()
    wish = KernelSelection(device="native", kernel=("op:dot=native-gemm{rows=201}",))
    with pytest.raises(hloopt.UsageError, match="rows=201; the product has 200"):
        compile_native(module, NativeOptions(selection=wish))


@pytest.mark.parametrize(("batch", "is_shared"), [(5, False), (4096, True)])
def test_few_products_are_one_threads(batch: int, is_shared: bool) -> None:
    """A batch of small matrices, whose products are made before another thread has begun."""
    text = _dot(
        f"f32[{batch},3,4]", f"f32[{batch},4,6]", f"f32[{batch},3,6]", ("2", "1"), ("0", "0")
    )
    module = hloopt.parse(text)
    program = compile_native(module)
    assert ("hloopt::share<" in program.source) == is_shared
    given = generate(module, 0)
    (found,) = judged(module, given, program.run(given), hloopt.evaluate(module, given))
    assert found.passed
