"""Work by blocks gives what the interpreter gives, whatever the blocks and the threads."""

from __future__ import annotations

import random
import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.backends.numpy import block_limits, block_plan, blocks
from hloopt.backends.numpy.block_limits import BlockLimits
from hloopt.backends.numpy.program import NumpyProgram
from hloopt.runtime.inputs import generate
from hloopt.runtime.program import NumpyOptions
from tests.helpers.rarely import examples

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a few elements, of arrays of a few dozen, by all threads."""
    monkeypatch.setattr(block_plan, "_FEWEST", 6)
    monkeypatch.setattr(block_plan, "_MOST", 11)
    monkeypatch.setattr(blocks, "_SHARED", 0)
    monkeypatch.setattr(block_limits, "DEFAULT", BlockLimits(least=12, row=30))


def parse(body: str, *regions: str) -> hloopt.ir.Module:
    module = hloopt.parse("HloModule m\n" + "\n".join(regions) + "\nENTRY e {\n" + body + "\n}\n")
    hloopt.verify(module)
    return module


def region(opcode: str, kind: str = "f32") -> str:
    return (
        f"{opcode}_{kind} {{\n a = {kind}[] parameter(0)\n b = {kind}[] parameter(1)\n"
        f" ROOT r = {kind}[] {opcode}(a, b)\n}}"
    )


def same(got: list[Array], wanted: list[Array], rtol: float = 0.0) -> None:
    assert len(got) == len(wanted)
    for left, right in zip(got, wanted, strict=True):
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        if rtol and left.dtype.kind == "f":
            np.testing.assert_allclose(left, right, rtol=rtol)
        else:
            assert left.tobytes() == right.tobytes()


def check(
    module: hloopt.ir.Module, regions: int | None = None, rtol: float = 0.0, seed: int = 3
) -> None:
    """By one thread and by three: the interpreter's bits; ``regions`` of it are run by blocks."""
    inputs = generate(module, seed)
    before = [array.tobytes() for array in inputs]
    wanted = hloopt.evaluate(module, inputs)
    for threads in (1, 3):
        compiled = NumpyProgram(module, NumpyOptions(exact=True, threads=threads))
        if regions is not None:
            assert compiled._compiler.regions == regions
        for _ in range(2):
            same(compiled.run(inputs), wanted, rtol)
        assert [array.tobytes() for array in inputs] == before


def test_a_chain_is_one_region() -> None:
    check(
        parse(
            " x = f32[7,5] parameter(0)\n y = f32[5] parameter(1)\n c = f32[] constant(2)\n"
            " b = f32[7,5] broadcast(y), dimensions={1}\n k = f32[7,5] broadcast(c), dimensions={}\n"
            " s = f32[7,5] add(x, b)\n m = f32[7,5] multiply(s, k)\n t = f32[7,5] tanh(m)\n"
            " ROOT r = (f32[7,5], f32[7,5]) tuple(t, s)"
        ),
        1,
    )


@pytest.mark.parametrize(
    "shape", ["9,7", "4,3,7", "3,1,5,4", "2,5,1,6", "1,29", "1,1,1,13", "29,1"]
)
def test_softmax_is_one_region(shape: str) -> None:
    """Two reduces and what follows from them, row by row."""
    dims = shape.split(",")
    rows, last = ",".join(dims[:-1]), len(dims) - 1
    kept = ",".join(map(str, range(last)))
    check(
        parse(
            f" x = f32[{shape}] parameter(0)\n low = f32[] constant(-inf)\n z = f32[] constant(0)\n"
            f" m = f32[{rows}] reduce(x, low), dimensions={{{last}}}, to_apply=maximum_f32\n"
            f" mb = f32[{shape}] broadcast(m), dimensions={{{kept}}}\n"
            f" d = f32[{shape}] subtract(x, mb)\n e = f32[{shape}] exponential(d)\n"
            f" s = f32[{rows}] reduce(e, z), dimensions={{{last}}}, to_apply=add_f32\n"
            f" l = f32[{rows}] log(s)\n"
            f" sb = f32[{shape}] broadcast(s), dimensions={{{kept}}}\n"
            f" q = f32[{shape}] divide(e, sb)\n"
            f" ROOT r = (f32[{shape}], f32[{rows}]) tuple(q, l)",
            region("maximum"),
            region("add"),
        ),
        1,
    )


def test_a_reduce_over_the_first_dimension_ends_a_region() -> None:
    """What depends on it is another one."""
    check(
        parse(
            " x = f32[9,7] parameter(0)\n z = f32[] constant(3)\n e = f32[9,7] exponential(x)\n"
            " s = f32[7] reduce(e, z), dimensions={0}, to_apply=add_f32\n"
            " b = f32[9,7] broadcast(s), dimensions={1}\n q = f32[9,7] divide(e, b)\n"
            " t = f32[9,7] negate(q)\n"
            " a = f32[] reduce(t, z), dimensions={0,1}, to_apply=minimum_f32\n"
            " ROOT r = (f32[9,7], f32[7], f32[]) tuple(t, s, a)",
            region("add"),
            region("minimum"),
        ),
        2,
    )


@pytest.mark.every_value
@pytest.mark.parametrize("dims", ["0", "1", "2", "0,1", "0,2", "1,2", "0,1,2"])
@pytest.mark.parametrize(
    ("opcode", "kind", "start"),
    [
        ("add", "f32", "1"),
        ("add", "bf16", "-0"),
        ("add", "s32", "5"),
        ("maximum", "f32", "-0"),
        ("minimum", "f16", "inf"),
        ("maximum", "u8", "0"),
        ("and", "pred", "true"),
        ("or", "u32", "0"),
        ("xor", "s64", "-1"),
        ("multiply", "s32", "3"),
    ],
)
def test_reduces_of_every_kind(opcode: str, kind: str, start: str, dims: str) -> None:
    kept = [size for axis, size in enumerate((5, 4, 6)) if str(axis) not in dims]
    result = f"{kind}[{','.join(map(str, kept))}]"
    check(
        parse(
            f" x = {kind}[5,4,6] parameter(0)\n y = {kind}[5,4,6] parameter(1)\n"
            f" i = {kind}[] constant({start})\n p = pred[5,4,6] compare(x, y), direction=LT\n"
            f" m = {kind}[5,4,6] select(p, y, x)\n"
            f" ROOT r = {result} reduce(m, i), dimensions={{{dims}}}, to_apply={opcode}_{kind}",
            region(opcode, kind),
        ),
        1,
    )


def test_sums_in_double_precision_agree_for_any_number_of_threads() -> None:
    module = parse(
        " x = f64[40,7] parameter(0)\n z = f64[] constant(0)\n e = f64[40,7] exponential(x)\n"
        " s = f64[7] reduce(e, z), dimensions={0}, to_apply=add_f64\n"
        " a = f64[] reduce(e, z), dimensions={0,1}, to_apply=add_f64\n"
        " ROOT r = (f64[7], f64[]) tuple(s, a)",
        region("add", "f64"),
    )
    check(module, 1, rtol=1e-14)
    inputs = generate(module, 5)
    same(
        NumpyProgram(module, NumpyOptions(threads=3)).run(inputs),
        NumpyProgram(module, NumpyOptions(threads=1)).run(inputs),
    )


def test_the_initial_value_may_be_computed() -> None:
    check(
        parse(
            " x = f32[9,7] parameter(0)\n i = f32[] parameter(1)\n j = f32[] negate(i)\n"
            " e = f32[9,7] negate(x)\n"
            " s = f32[9] reduce(e, j), dimensions={1}, to_apply=add_f32\n"
            " c = f32[7] reduce(e, j), dimensions={0}, to_apply=maximum_f32\n"
            " ROOT r = (f32[9], f32[7]) tuple(s, c)",
            region("add"),
            region("maximum"),
        ),
        1,
    )


def test_zeros_have_the_sign_of_the_interpreter() -> None:
    module = parse(
        " x = f32[6,4] parameter(0)\n y = f32[6,4] parameter(1)\n i = f32[] constant(-inf)\n"
        " m = f32[6,4] multiply(x, y)\n"
        " s = f32[6] reduce(m, i), dimensions={1}, to_apply=maximum_f32\n"
        " c = f32[4] reduce(m, i), dimensions={0}, to_apply=maximum_f32\n"
        " ROOT r = (f32[6], f32[4]) tuple(s, c)",
        region("maximum"),
    )
    generator = np.random.default_rng(0)
    values = np.array([0.0, -0.0, -1.0, np.nan], np.float32)
    one = np.ones((6, 4), np.float32)
    for _ in range(20):
        inputs = [generator.choice(values[: generator.integers(2, 5)], (6, 4)), one]
        same(
            NumpyProgram(module, NumpyOptions(threads=2)).run(inputs),
            hloopt.evaluate(module, inputs),
        )


def test_a_step_that_needs_a_region_is_not_in_it() -> None:
    """A product of what a region makes, which another member would need."""
    check(
        parse(
            " x = f32[6,6] parameter(0)\n e = f32[6,6] negate(x)\n f = f32[6,6] abs(e)\n"
            " d = f32[6,6] dot(e, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
            " g = f32[6,6] add(f, d)\n h = f32[6,6] multiply(g, e)\n"
            " ROOT r = (f32[6,6], f32[6,6]) tuple(h, f)"
        ),
        2,
        rtol=1e-6,
    )


def test_strided_operands_and_constants() -> None:
    check(
        parse(
            " x = f32[5,9] parameter(0)\n y = f32[9,12] parameter(1)\n"
            " t = f32[9,5] transpose(x), dimensions={1,0}\n v = f32[9,5] reverse(t), dimensions={0,1}\n"
            " s = f32[9,5] slice(y), slice={[0:9], [1:11:2]}\n i = f32[9,5] iota(), iota_dimension=0\n"
            " a = f32[9,5] add(v, s)\n m = f32[9,5] multiply(a, i)\n b = f32[9,5] add(m, t)\n"
            " ROOT u = f32[5,9] transpose(b), dimensions={1,0}"
        ),
        1,
    )


def test_narrow_floats_are_rounded_by_every_op() -> None:
    check(
        parse(
            " x = bf16[9,5] parameter(0)\n y = f8e4m3fn[9,5] parameter(1)\n"
            " w = bf16[9,5] convert(y)\n a = bf16[9,5] add(x, w)\n m = bf16[9,5] multiply(a, a)\n"
            " f = f32[9,5] convert(m)\n g = f32[9,5] exponential(f)\n h = f8e5m2[9,5] convert(g)\n"
            " s = bf16[9,5] clamp(x, m, a)\n"
            " ROOT r = (f8e5m2[9,5], bf16[9,5]) tuple(h, s)"
        ),
        1,
    )


def test_a_region_writes_into_what_nobody_needs_any_more() -> None:
    module = parse(
        " x = f32[6,6] parameter(0)\n"
        " d = f32[6,6] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        " e = f32[6,6] negate(d)\n ROOT r = f32[6,6] add(e, x)"
    )
    check(module, 1)
    owned = []
    real = blocks.Blocks.writing

    def writing(self: Any, own: frozenset[int]) -> Any:
        owned.append(own)
        return real(self, own)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks.Blocks, "writing", writing)
        NumpyProgram(module)
    assert owned[-1] == {0}


def test_regions_in_loops_and_branches() -> None:
    check(
        parse(
            " x = f32[6,5] parameter(0)\n n = s32[] constant(0)\n"
            " t = (s32[], f32[6,5]) tuple(n, x)\n"
            " w = (s32[], f32[6,5]) while(t), condition=cond, body=body\n"
            " ROOT r = f32[6,5] get-tuple-element(w), index=1",
            "cond {\n t = (s32[], f32[6,5]) parameter(0)\n i = s32[] get-tuple-element(t), index=0\n"
            " k = s32[] constant(3)\n ROOT r = pred[] compare(i, k), direction=LT\n}",
            "body {\n t = (s32[], f32[6,5]) parameter(0)\n i = s32[] get-tuple-element(t), index=0\n"
            " x = f32[6,5] get-tuple-element(t), index=1\n o = s32[] constant(1)\n"
            " j = s32[] add(i, o)\n y = f32[6,5] negate(x)\n z = f32[6,5] tanh(y)\n"
            " a = f32[6,5] add(z, x)\n ROOT r = (s32[], f32[6,5]) tuple(j, a)\n}",
        ),
        1,
    )


def test_small_arrays_stay_as_they_are() -> None:
    module = parse(" x = f32[11] parameter(0)\n a = f32[11] negate(x)\n ROOT r = f32[11] tanh(a)")
    check(module, 0)


def test_what_sizes_decide_stays_outside() -> None:
    """Arrays of dynamic sizes, whose ops are evaluated one by one."""
    module = parse(
        " x = f32[<=20] parameter(0)\n a = f32[<=20] negate(x)\n b = f32[<=20] tanh(a)\n"
        " ROOT r = f32[<=20] add(a, b)"
    )
    compiled = NumpyProgram(module, NumpyOptions(exact=True))
    assert compiled._compiler.regions == 0
    inputs = [np.arange(13, dtype=np.float32)]
    same(compiled.run(inputs), hloopt.evaluate(module, inputs))


def test_memory_is_that_of_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a region makes on the way is the size of a block."""
    monkeypatch.undo()
    count = 1 << 20
    kind = f"f32[{count}]"
    lines = [f" v0 = {kind} parameter(0)"]
    lines += [f" n{at} = {kind} negate(v{at})\n v{at + 1} = {kind} tanh(n{at})" for at in range(6)]
    every = [f"n{at}" for at in range(6)]
    for at, name in enumerate(every):
        lines.append(f" t{at} = {kind} add({f't{at - 1}' if at else 'v6'}, {name})")
    lines.append(f" ROOT r = {kind} negate(t5)")
    module = parse("\n".join(lines))
    inputs = generate(module, 1)
    compiled = NumpyProgram(module, NumpyOptions(threads=2))
    compiled.run(inputs)
    tracemalloc.start()
    try:
        compiled.run(inputs)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert compiled._compiler.regions == 1
    assert peak < 4 * count + 4 * (2 << 20)


# ---- random modules ---------------------------------------------------------------------------------

SHAPES = ("6,5", "3,4,2", "13", "2,3,1,5", "1,17", "19,1")


def random_body(chooser: random.Random) -> tuple[str, list[str]]:
    """Elementwise ops, reduces and broadcasts of their results over one or two spaces."""
    shape = chooser.choice(SHAPES)
    dims = shape.split(",")
    lines = [f" p{n} = f32[{shape}] parameter({n})" for n in range(2)]
    lines += [" z = f32[] constant(0)", " low = f32[] constant(-inf)"]
    values, small = ["p0", "p1"], []
    results = []
    for number in range(chooser.randint(3, 14)):
        name = f"v{number}"
        x, y = chooser.choice(values), chooser.choice(values)
        kind = chooser.choice(["unary", "pair", "pair", "select", "fold", "spread", "turn", "dot"])
        if kind == "spread" and small:
            value, axes = chooser.choice(small)
            places = ",".join(map(str, axes))
            lines.append(f" {name} = f32[{shape}] broadcast({value}), dimensions={{{places}}}")
            values.append(name)
        elif kind == "fold":
            count = chooser.randint(1, len(dims))
            axes = sorted(chooser.sample(range(len(dims)), count))
            kept = [axis for axis in range(len(dims)) if axis not in axes]
            opcode, start = chooser.choice([("add", "z"), ("maximum", "low")])
            left = ",".join(dims[axis] for axis in kept)
            reduced = ",".join(map(str, axes))
            lines.append(
                f" {name} = f32[{left}] reduce({x}, {start}), dimensions={{{reduced}}},"
                f" to_apply={opcode}_f32"
            )
            lines.append(f" n{number} = f32[{left}] tanh({name})")
            small.append((f"n{number}", kept))
            if chooser.random() < 0.3:
                results.append((name, f"f32[{left}]"))
        elif kind == "select":
            lines.append(f" c{number} = pred[{shape}] compare({x}, {y}), direction=LT")
            lines.append(f" {name} = f32[{shape}] select(c{number}, {y}, {x})")
            values.append(name)
        elif kind == "turn":
            axis = chooser.randrange(len(dims))
            lines.append(f" {name} = f32[{shape}] reverse({x}), dimensions={{{axis}}}")
            values.append(name)
        elif kind == "dot":
            flat = int(np.prod([int(size) for size in dims]))
            lines.append(f" f{number} = f32[{flat}] reshape({x})")
            lines.append(f" g{number} = f32[{flat}] negate(f{number})")
            lines.append(f" {name} = f32[{shape}] reshape(g{number})")
            values.append(name)
        else:
            unary = kind == "unary"
            opcode = chooser.choice(
                ["negate", "tanh", "abs"] if unary else ["add", "multiply", "maximum", "subtract"]
            )
            lines.append(f" {name} = f32[{shape}] {opcode}({x if unary else f'{x}, {y}'})")
            values.append(name)
    results += [(value, f"f32[{shape}]") for value in {values[-1], chooser.choice(values)}]
    shapes = ", ".join(kind for _, kind in results)
    names = ", ".join(value for value, _ in results)
    lines.append(f" ROOT r = ({shapes}) tuple({names})")
    return "\n".join(lines), ["maximum", "add"]


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_modules_agree_bit_for_bit(seed: int) -> None:
    body, opcodes = random_body(random.Random(seed))
    module = parse(body, *map(region, opcodes))
    # Both add in double precision, one by blocks: a sum is rounded alike but once in 1e7 times.
    check(module, seed=seed % 1000)


# ---- threads ----------------------------------------------------------------------------------------


def test_an_error_in_a_block_stops_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    module = parse(
        " x = f32[40,9] parameter(0)\n a = f32[40,9] negate(x)\n ROOT r = f32[40,9] tanh(a)"
    )
    compiled = NumpyProgram(module, NumpyOptions(threads=3))
    ran: list[int] = []

    def of(self: Any, size: int) -> Any:
        ran.append(size)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(blocks._Scratches, "of", of)
        with pytest.raises(KeyboardInterrupt):
            compiled.run(generate(module, 1))
    assert len(ran) <= 3
    same(
        compiled.run(generate(module, 1)),
        NumpyProgram(module, NumpyOptions(threads=1)).run(generate(module, 1)),
    )


def test_several_threads_work(monkeypatch: pytest.MonkeyPatch) -> None:
    module = parse(
        " x = f32[40,9] parameter(0)\n a = f32[40,9] negate(x)\n ROOT r = f32[40,9] tanh(a)"
    )
    inputs = generate(module, 1)
    (wanted,) = NumpyProgram(module, NumpyOptions(threads=1)).run(inputs)
    compiled = NumpyProgram(module, NumpyOptions(threads=2))
    real = blocks._Scratches.of
    met = threading.Barrier(2, timeout=20)
    waited = threading.local()

    def of(self: Any, size: int) -> Any:
        if not getattr(waited, "done", False):
            waited.done = True
            met.wait()
        return real(self, size)

    monkeypatch.setattr(blocks._Scratches, "of", of)
    same(compiled.run(inputs), [wanted])
