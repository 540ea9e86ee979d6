"""Matrix operations of a warp and asynchronous copies on the emulator: what PTX says of each, and misuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hloopt.errors import EvaluationError
from hloopt.kernel_ir.expressions import TRUE, Array, Expr
from hloopt.kernel_ir.matrix_steps import MATRIX_STEPS
from hloopt.kernel_ir.scope import Scope
from hloopt.kernel_ir.statements import Commit, Copy, LoadMatrices, MultiplyMatrices, Wait
from hloopt.kernel_ir.types import FLOAT, UINT, USHORT
from hloopt.runtime.device import PointerArgument
from tests.backends.emulator.conftest import Bench
from tests.helpers.warp_kernels import NUMPY, THREAD, fragments, multiply_kernel, program

MakeBench = Callable[..., Bench]
Matrix = np.ndarray[Any, Any]


def run(bench: Bench, given: PointerArgument, size: int) -> None:
    """Launch a kernel of an operand and a result of so many bytes, and wait for it."""
    result = bench.blank(size)
    bench.launch("k", 1, 32, [given, result])
    bench.read(result, np.uint8)


def pack(matrix: Matrix, places: list[list[Any]]) -> Matrix:
    """The registers of all lanes, as bytes."""
    return np.array([[[matrix[at] for at in one] for one in lane] for lane in places]).ravel()


def product(bench: MakeBench, name: str, a: Matrix, b: Matrix, c: Matrix, **options: Any) -> Matrix:
    left, right, sums = fragments(name)
    made = bench(multiply_kernel(MATRIX_STEPS[name]), **options)
    total = made.buffer(pack(c, sums), "update")
    made.launch("k", 1, 32, [made.buffer(pack(a, left)), made.buffer(pack(b, right)), total])
    found = np.zeros_like(c)
    for value, place in zip(made.read(total, c.dtype), np.reshape(sums, (-1, 2)), strict=True):
        found[tuple(place)] = value
    return found


def operands(name: str, seed: int) -> tuple[Matrix, Matrix, Matrix]:
    step, draw = MATRIX_STEPS[name], np.random.default_rng(seed)
    if step.dtype == "s8":
        return (
            draw.integers(-128, 128, (step.m, step.k)).astype(np.int8),
            draw.integers(-128, 128, (step.k, step.n)).astype(np.int8),
            draw.integers(-(2**31), 2**31, (step.m, step.n)).astype(np.int32),
        )
    kind = NUMPY[step.dtype]
    wide = np.float64 if kind == np.float64 else np.float32
    scale = np.exp2(draw.integers(-9, 9, (step.m, step.k)))
    return (
        (draw.standard_normal((step.m, step.k)) * scale).astype(kind),
        draw.standard_normal((step.k, step.n)).astype(kind),
        draw.standard_normal((step.m, step.n)).astype(wide),
    )


@pytest.mark.parametrize("mode", ["check", "fast"])
@pytest.mark.parametrize("name", MATRIX_STEPS)
def test_a_step_is_a_product(bench: MakeBench, name: str, mode: str) -> None:
    """Each step against NumPy: integers exactly, floats within the error of the hardware's sums."""
    a, b, c = operands(name, 1)
    got = product(bench, name, a, b, c, mode=mode)
    if name.endswith("s8"):
        with np.errstate(over="ignore"):
            want = a.astype(np.int32) @ b.astype(np.int32) + c
        assert np.array_equal(got, want)
        return
    x, y = a.astype(np.float64), b.astype(np.float64)
    if name.endswith("tf32"):
        x, y = (
            (one.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
            for one in (a, b)
        )
    size = abs(x) @ abs(y) + abs(c)
    unit = 2.0**-53 if name.endswith("f64") else 2.0**-24
    assert np.all(abs(got - (x @ y + c)) <= 2 * (1 + x.shape[1] // 4) * unit * size)
    assert np.any(got != c)


def test_sums_are_cut_below_the_largest_term(bench: MakeBench) -> None:
    """A term 25 bits below the largest is lost, one 24 bits below is not; eight are added at once."""
    a, b, c = (np.zeros(one.shape, one.dtype) for one in operands("m16n8k16.f16", 0))
    b[:, 0] = 1
    a[:, 0], a[:, 1] = 1, 2.0**-24
    c[0, 0] = -1
    a[1, 1], c[1, 0] = -(2.0**-23), 2
    a[2, 1], c[2, 0] = 2.0**-23, 2**25
    a[3, 1], a[3, 8], c[3, 0] = 0, 2.0**-14, -1
    got = product(bench, "m16n8k16.f16", a, b, c)
    assert list(got[:4, 0]) == [2.0**-24, 3 - 2.0**-22, 2.0**25, 2.0**-14]


def test_special_values(bench: MakeBench) -> None:
    """NaN and infinities go through; infinite terms of both signs are NaN; sums that overflow are infinite."""
    a, b, c = (np.zeros(one.shape, one.dtype) for one in operands("m16n8k16.bf16", 0))
    b[:, 0] = 1
    a[0, 3], a[1, 3], a[2, 3], a[2, 4] = np.nan, np.inf, np.inf, -np.inf
    a[3, 0], c[3, 0] = 3e38, 3e38
    a[4, 0] = 1e-40
    got = product(bench, "m16n8k16.bf16", a, b, c)
    assert np.isnan(got[0, 0])
    assert got[1, 0] == got[3, 0] == np.inf
    assert np.isnan(got[2, 0])
    assert got[4, 0] == np.float32(a[4, 0])


def loading(count: int, *, transposed: bool, skip: int = 8) -> Callable[..., None]:
    def write(scope: Scope, memory: dict[str, Array]) -> None:
        tile = scope.array(USHORT, (256,), "tile", space="shared", align=16)
        for at in range(8):
            scope.set(tile[THREAD + 32 * at], memory["given"][THREAD + 32 * at])
        scope.barrier()
        registers = [scope.variable(UINT, "r") for _ in range(count)]
        source = tile.address((THREAD * skip) % 256)
        scope.add(LoadMatrices(tuple(registers), source, transposed))
        for at, register in enumerate(registers):
            scope.set(memory["result"][THREAD * count + at], register)

    return write


def arrays(count: int) -> dict[str, Any]:
    return {"given": (USHORT, 256, True), "result": (UINT, 32 * count, False)}


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrices_are_loaded(bench: MakeBench, count: int, transposed: bool) -> None:
    """Lane l gets two neighbours of row l / 4 of each matrix, or of its transpose."""
    given = np.random.default_rng(0).integers(0, 2**16, 256).astype(np.uint16)
    made = bench(program(arrays(count), loading(count, transposed=transposed)), mode="check")
    result = made.blank(128 * count)
    made.launch("k", 1, 32, [made.buffer(given), result])
    got = made.read(result, np.uint16).reshape(32, count, 2)
    rows = given.reshape(4, 8, 8)
    for lane in range(32):
        for at in range(count):
            matrix = rows[at].T if transposed else rows[at]
            assert list(got[lane, at]) == list(matrix[lane // 4, lane % 4 * 2 :][:2])


def test_rows_that_are_not_aligned_are_found(bench: MakeBench) -> None:
    """An address that is no multiple of 16 bytes."""
    made = bench(program(arrays(4), loading(4, transposed=False, skip=4)), mode="check")
    with pytest.raises(EvaluationError, match="of the shared array 'tile', which is not aligned"):
        run(made, made.buffer(np.zeros(256, np.uint16)), 512)


def test_fragments_of_rows_in_shared_memory(bench: MakeBench) -> None:
    """A product of 16 by 16 and 16 by 8: the left operand by rows; the right one by columns, and by rows transposed."""
    a, b, _ = operands("m16n8k16.bf16", 3)

    def write(scope: Scope, memory: dict[str, Array]) -> None:
        tiles = {}
        for name in ("left", "rows", "columns"):
            size = memory[name].dims[0]
            tiles[name] = tile = scope.array(USHORT, (size,), name, space="shared", align=16)
            for at in range(size // 32):
                scope.set(tile[THREAD + 32 * at], memory[name][THREAD + 32 * at])
        scope.barrier()
        held = scope.array(UINT, (4,), "held")
        left = tuple(held[at] for at in range(4))
        place = THREAD % 16 * 16 + THREAD / 16 * 8
        scope.add(LoadMatrices(left, tiles["left"].address(place)))
        for number, (name, place) in enumerate(
            (("rows", THREAD % 16 * 8), ("columns", THREAD % 8 * 16 + THREAD / 8 % 2 * 8))
        ):
            right = tuple(scope.variable(UINT, "b") for _ in range(2))
            scope.add(LoadMatrices(right, tiles[name].address(place), name == "rows"))
            own = scope.array(FLOAT, (4,), "sums", [0])
            sums = tuple(own[at] for at in range(4))
            scope.add(MultiplyMatrices("m16n8k16.bf16", sums, left, right))
            for at, total in enumerate(sums):
                scope.set(memory["result"][128 * number + THREAD * 4 + at], total)

    made = bench(
        program(
            {
                "left": (USHORT, 256, True),
                "rows": (USHORT, 128, True),
                "columns": (USHORT, 128, True),
                "result": (FLOAT, 256, False),
            },
            write,
        ),
        mode="check",
    )
    result = made.blank(1024)
    given = [np.ascontiguousarray(one).view(np.uint16).ravel() for one in (a, b, b.T)]
    made.launch("k", 1, 32, [*map(made.buffer, given), result])
    got = made.read(result, np.float32).reshape(2, 32, 4)
    want = a.astype(np.float64) @ b.astype(np.float64)
    size = abs(a.astype(np.float64)) @ abs(b.astype(np.float64))
    for lane in range(32):
        for at in range(4):
            place = (lane // 4 + at // 2 * 8, lane % 4 * 2 + at % 2)
            assert got[0, lane, at] == got[1, lane, at]
            assert abs(got[0, lane, at] - want[place]) <= 8 * 2.0**-24 * size[place]


def copying(
    *, waits: int | None = 0, barrier: bool = True, commit: bool = True, test: Expr = TRUE
) -> Callable[..., None]:
    """Two groups of copies, a tile each; what the thread across has copied is written to the result."""

    def write(scope: Scope, memory: dict[str, Array]) -> None:
        tile = scope.array(FLOAT, (256,), "tile", space="shared", align=16)
        for group in range(2):
            place = THREAD * 4 + group * 128
            scope.add(Copy(tile.address(place), memory["given"].address(place), 16, test))
            if commit:
                scope.add(Commit())
        if waits is not None:
            scope.add(Wait(waits))
        if barrier:
            scope.barrier()
        for at in range(4):
            scope.set(memory["result"][THREAD * 4 + at], tile[(31 - THREAD) * 4 + at])
        scope.add(Wait(0))

    return write


COPIED = {"given": (FLOAT, 256, True), "result": (FLOAT, 128, False)}
GIVEN = np.arange(1, 257, dtype=np.float32)


@pytest.mark.parametrize("mode", ["check", "fast"])
@pytest.mark.parametrize("waits", [0, 1])
def test_copies_are_there_when_waited_for(bench: MakeBench, mode: str, waits: int) -> None:
    """The first group is there when all but one are waited for; where the test fails there are zeros."""
    made = bench(program(COPIED, copying(waits=waits, test=THREAD < 30)), mode=mode)
    result = made.blank(512)
    made.launch("k", 1, 32, [made.buffer(GIVEN), result])
    want = GIVEN[:128].copy()
    want[120:] = 0
    assert np.array_equal(made.read(result, np.float32).reshape(32, 4), want.reshape(32, 4)[::-1])


@pytest.mark.parametrize(
    ("mistake", "finding"),
    [
        ({"waits": None}, "while an asynchronous copy to it is under way"),
        ({"waits": 2}, "while an asynchronous copy to it is under way"),
        ({"barrier": False}, "writes with no barrier between|no thread has written yet"),
        ({"commit": False, "barrier": True}, "while an asynchronous copy to it is under way"),
    ],
)
def test_a_copy_that_is_not_there_is_found(
    bench: MakeBench, mistake: dict[str, Any], finding: str
) -> None:
    """No wait, one that leaves too many groups, no barrier behind it, no group to wait for."""
    made = bench(program(COPIED, copying(**mistake), checked=False), mode="check")
    with pytest.raises(EvaluationError, match=finding):
        run(made, made.buffer(GIVEN), 512)


def test_a_missing_wait_changes_results_without_checks(bench: MakeBench) -> None:
    """Where accesses are not checked, NaN stands where a copy is under way."""
    made = bench(program(COPIED, copying(waits=None), checked=False), mode="fast")
    result = made.blank(512)
    made.launch("k", 1, 32, [made.buffer(GIVEN), result])
    assert np.any(np.isnan(made.read(result, np.float32)))


def test_copies_stay_in_their_arrays(bench: MakeBench) -> None:
    """A source outside, one that is not aligned, and a copy that is never waited for."""

    def write(first: int, *, waits: bool) -> Callable[..., None]:
        def body(scope: Scope, memory: dict[str, Array]) -> None:
            tile = scope.array(FLOAT, (128,), "tile", space="shared", align=16)
            at = THREAD * 4
            scope.add(Copy(tile.address(at), memory["given"].address(at + first), 16))
            scope.add(Commit())
            if waits:
                scope.add(Wait(0))
            scope.set(memory["result"][THREAD], 0)

        return body

    for first, waits, finding in (
        (132, True, "of 'given', which has 1024 bytes"),
        (1, True, "not aligned to 16 bytes"),
        (0, False, "never waits for"),
    ):
        made = bench(program(COPIED, write(first, waits=waits), checked=False), mode="check")
        with pytest.raises(EvaluationError, match=finding):
            run(made, made.buffer(GIVEN), 128)


def test_all_lanes_take_part(bench: MakeBench) -> None:
    """A lane that has ended is missing."""
    step = MATRIX_STEPS["m8n8k4.f64"]

    def write(scope: Scope, memory: dict[str, Array]) -> None:
        inner = scope.when(THREAD < 31)
        own = inner.array(step.sum, (2,), "own", [0])
        factor = memory["given"][THREAD]
        inner.add(MultiplyMatrices(step.name, (own[0], own[1]), (factor,), (factor,)))
        inner.set(memory["result"][THREAD], own[0] + own[1])

    sizes = {"given": (step.register, 32, True), "result": (step.sum, 32, False)}
    made = bench(program(sizes, write, checked=False))
    with pytest.raises(EvaluationError, match="without lane 31 of its warp: all 32 take part"):
        run(made, made.buffer(np.ones(32)), 256)
