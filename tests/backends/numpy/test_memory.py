"""What the NumPy executor shares and writes over is never seen by anybody else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.backends.numpy import plan, sharing
from hloopt.backends.numpy.program import NumpyProgram
from hloopt.backends.numpy.source import compile_line
from hloopt.runtime.inputs import generate
from tests.helpers.rarely import examples


@pytest.fixture(scope="module", autouse=True)
def small_arrays_are_kept() -> Iterator[None]:
    """As large ones are for the next that needs one like it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "_LARGE", 0)
        yield


def agree(text: str, *, excess_precision: bool = False) -> NumpyProgram:
    """Run a module both ways, twice; inputs stay as they were and results have the same bytes."""
    module = hloopt.parse(text)
    hloopt.verify(module)
    inputs = generate(module, 3)
    before = [array.tobytes() for array in inputs]
    wanted = hloopt.evaluate(module, inputs, excess_precision=excess_precision)
    program = hloopt.compile(module, excess_precision=excess_precision, exact=True)
    assert isinstance(program, NumpyProgram)
    for _ in range(2):
        got = program.run(inputs)
        assert [array.dtype for array in got] == [array.dtype for array in wanted]
        assert [array.shape for array in got] == [array.shape for array in wanted]
        assert [array.tobytes() for array in got] == [array.tobytes() for array in wanted]
        assert [array.tobytes() for array in inputs] == before
    return program


SIZE = 4  # every array is SIZE x SIZE, so that any two can meet


def _elementwise(draw: st.DrawFn, x: str, y: str) -> str:
    opcode = draw(st.sampled_from(["add", "multiply", "subtract", "maximum", "minimum"]))
    return f"{opcode}({x}, {y})"


def _moved(draw: st.DrawFn, x: str) -> str:
    return draw(
        st.sampled_from(
            [
                f"transpose({x}), dimensions={{1,0}}",
                f"reverse({x}), dimensions={{0}}",
                f"reshape({x})",
                f"copy({x})",
                f"negate({x})",
                f"exponential({x})",
            ]
        )
    )


@st.composite
def steps(draw: st.DrawFn, names: list[str], prefix: str, *, depth: int) -> list[str]:
    """Instructions over f32[4,4] values that share, stretch, slice, update and loop."""
    kind = f"f32[{SIZE},{SIZE}]"
    lines = []
    for number in range(draw(st.integers(2, 7))):
        name = f"{prefix}{number}"
        x, y = (draw(st.sampled_from(names)) for _ in range(2))
        choice = draw(st.sampled_from(["pair", "moved", "row", "update", "slice", "wide", "loop"]))
        if choice == "row":
            axis = draw(st.integers(0, 1))
            begin = draw(st.integers(0, SIZE - 1))
            cut = f"{{[{begin}:{begin + 1}], [0:{SIZE}]}}"
            lines += [
                f"{name}s = f32[1,{SIZE}] slice({x}), slice={cut}",
                f"{name}r = f32[{SIZE}] reshape({name}s)",
                f"{name} = {kind} broadcast({name}r), dimensions={{{axis}}}",
            ]
        elif choice == "update":
            begin = draw(st.integers(-1, SIZE))
            lines += [
                f"{name}i = s32[] constant({begin})",
                f"{name}z = s32[] constant(0)",
                f"{name}p = f32[2,{SIZE}] slice({y}), slice={{[1:3], [0:{SIZE}]}}",
                f"{name} = {kind} dynamic-update-slice({x}, {name}p, {name}i, {name}z)",
            ]
        elif choice == "slice":
            lines += [
                f"{name}i = s32[] constant({draw(st.integers(0, SIZE))})",
                f"{name}z = s32[] constant(0)",
                (
                    f"{name}p = f32[1,{SIZE}] dynamic-slice({x}, {name}i, {name}z),"
                    f" dynamic_slice_sizes={{1,{SIZE}}}"
                ),
                f"{name}q = f32[{SIZE}] reshape({name}p)",
                f"{name} = {kind} broadcast({name}q), dimensions={{1}}",
            ]
        elif choice == "wide":
            lines += [
                f"{name}c = f32[] constant({draw(st.integers(-2, 2))})",
                f"{name}b = {kind} broadcast({name}c), dimensions={{}}",
                f"{name} = {kind} {_elementwise(draw, x, f'{name}b')}",
            ]
        elif choice == "loop" and depth:
            lines += [
                f"{name}n = s32[] constant({draw(st.integers(0, 3))})",
                f"{name}t = (s32[], {kind}, {kind}) tuple({name}n, {x}, {y})",
                (
                    f"{name}w = (s32[], {kind}, {kind}) while({name}t), condition=again,"
                    f" body=body{depth - 1}"
                ),
                f"{name} = {kind} get-tuple-element({name}w), index={draw(st.integers(1, 2))}",
            ]
        elif choice == "pair":
            lines.append(f"{name} = {kind} {_elementwise(draw, x, y)}")
        else:
            lines.append(f"{name} = {kind} {_moved(draw, x)}")
        names.append(name)
    return lines


@st.composite
def modules(draw: st.DrawFn) -> str:
    """An entry over three arrays with two levels of loops; results repeat and alias each other."""
    kind = f"f32[{SIZE},{SIZE}]"
    state = f"(s32[], {kind}, {kind})"
    parts = [
        "HloModule m",
        (
            f"again {{\n  s = {state} parameter(0)\n  i = s32[] get-tuple-element(s), index=0\n"
            "  z = s32[] constant(0)\n  ROOT g = pred[] compare(i, z), direction=GT\n}"
        ),
    ]
    for depth in range(2):
        names = ["a", "b"]
        lines = [
            f"s = {state} parameter(0)",
            "i = s32[] get-tuple-element(s), index=0",
            "one = s32[] constant(1)",
            "next = s32[] subtract(i, one)",
            f"a = {kind} get-tuple-element(s), index=1",
            f"b = {kind} get-tuple-element(s), index=2",
            *draw(steps(names, "v", depth=depth)),
        ]
        first, second = (draw(st.sampled_from(names)) for _ in range(2))
        lines.append(f"ROOT r = {state} tuple(next, {first}, {second})")
        parts.append(f"body{depth} {{\n  " + "\n  ".join(lines) + "\n}")
    names = ["x", "y", "z"]
    lines = [f"{name} = {kind} parameter({at})" for at, name in enumerate(names)]
    lines += draw(steps(names, "v", depth=2))
    kept = [draw(st.sampled_from(names)) for _ in range(3)]
    lines.append(f"ROOT t = ({kind}, {kind}, {kind}) tuple({', '.join(kept)})")
    parts.append("ENTRY e {\n  " + "\n  ".join(lines) + "\n}")
    return "\n".join(parts) + "\n"


@settings(max_examples=examples(250), deadline=None)
@given(modules())
def test_random_programs_agree_bit_for_bit(text: str) -> None:
    """Stretched operands, views, updates in place and nested loops change no bit."""
    agree(text)


SCAN = """HloModule m
body {
  s = (s32[], f32[64,8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  ys = f32[64,8] get-tuple-element(s), index=1
  x = f32[8] get-tuple-element(s), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  next = s32[] add(i, one)
  half = f32[] constant(0.5)
  halves = f32[8] broadcast(half), dimensions={}
  y = f32[8] multiply(x, halves)
  row = f32[1,8] reshape(y)
  EXTRA
  out = f32[64,8] dynamic-update-slice(ys, row, i, zero)
  ROOT r = (s32[], f32[64,8], f32[8]) tuple(next, out, RESULT)
}
condition {
  s = (s32[], f32[64,8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(64)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY e {
  zero = s32[] constant(0)
  nought = f32[] constant(0)
  ys = f32[64,8] INITIAL
  x = f32[8] parameter(0)
  start = (s32[], f32[64,8], f32[8]) tuple(zero, ys, x)
  loop = (s32[], f32[64,8], f32[8]) while(start), condition=condition, body=body
  found = f32[64,8] get-tuple-element(loop), index=1
  ROOT t = (f32[64,8], f32[64,8]) tuple(found, ys)
}
"""
BROADCAST = "broadcast(nought), dimensions={}"
PARAMETER = "parameter(1)"


def scan(extra: str = "", result: str = "y", initial: str = BROADCAST) -> str:
    """The scan with something more in its body."""
    return SCAN.replace("EXTRA", extra).replace("RESULT", result).replace("INITIAL", initial)


def updated(program: NumpyProgram) -> frozenset[int]:
    """The positions of the body's state that it updates in place."""
    body = program.module.computations["body"]
    line = program._compiler.line(body, counted=False)
    written = sharing.written_inputs(line)
    return frozenset(at for at, slot in enumerate(line.inputs) if slot in written)


@pytest.mark.parametrize("initial", [BROADCAST, PARAMETER])
def test_a_scan_updates_its_result_in_place(initial: str) -> None:
    """The stacked results are copied once, not once a trip; what they started as stays as it was."""
    program = agree(scan(initial=initial))

    assert updated(program) == {1}


def test_a_value_read_after_the_update_is_not_written_over() -> None:
    """A view of the old state that the body still hands on forbids the update in place."""
    extra = (
        "part = f32[32,8] slice(ys), slice={[0:32], [0:8]}\n  zeros = f32[] constant(0)\n"
        "  sum = f32[8] reduce(part, zeros), dimensions={0}, to_apply=plus"
    )
    plus = "plus {\n  p = f32[] parameter(0)\n  q = f32[] parameter(1)\n  ROOT s = f32[] add(p, q)\n}\n"
    late = (
        "first = f32[1,8] slice(ys), slice={[0:1], [0:8]}\n"
        "  flat = f32[8] reshape(first)\n  early = f32[8] add(flat, y)"
    )
    text = scan(late, "early")

    assert updated(agree(text)) == {1}, "the view is read before the update"
    agree(scan(extra, "sum").replace("body {", plus + "body {", 1))
    late_view = text.replace("tuple(next, out, early)", "tuple(next, out, flat)")
    assert updated(agree(late_view)) == set()


def test_the_same_buffer_twice_in_a_state_is_not_written_over() -> None:
    """Both members of the carry are one array; updating one of them leaves the other alone."""
    agree("""HloModule m
body {
  s = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = f32[4] get-tuple-element(s), index=1
  b = f32[4] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ten = f32[1] constant({10})
  c = f32[4] dynamic-update-slice(a, ten, i)
  ROOT r = (s32[], f32[4], f32[4]) tuple(next, c, b)
}
condition {
  s = (s32[], f32[4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY e {
  zero = s32[] constant(0)
  p = f32[4] parameter(0)
  x = f32[4] negate(p)
  start = (s32[], f32[4], f32[4]) tuple(zero, x, x)
  ROOT loop = (s32[], f32[4], f32[4]) while(start), condition=condition, body=body
}
""")


def test_a_large_callee_is_compiled_once() -> None:
    """Calls nested twice each would double a line that inlined all of them."""
    parts = ["HloModule m", "level0 {\n  p = f32[2] parameter(0)\n  ROOT r = f32[2] negate(p)\n}"]
    second = "call(a), to_apply=level{}"
    parts += [
        f"level{level} {{\n  p = f32[2] parameter(0)\n  a = f32[2] call(p), to_apply=level{level - 1}\n"
        f"  ROOT b = f32[2] {second.format(level - 1) if level < 12 else 'negate(a)'}\n}}"
        for level in range(1, 40)
    ]
    parts.append(
        "ENTRY e {\n  x = f32[2] parameter(0)\n  ROOT r = f32[2] call(x), to_apply=level39\n}"
    )
    program = agree("\n".join(parts) + "\n")

    assert program.launches == 2**11 + 28


@pytest.mark.parametrize("excess", [False, True])
def test_splats_and_iotas_are_results_of_their_full_size(excess: bool) -> None:
    """What is kept as one element, or one row, comes out whole."""
    agree(
        "HloModule m\nENTRY e {\n c = bf16[3,2] constant({{2,2},{2,2},{2,2}})\n"
        " i = s32[3,2] iota(), iota_dimension=0\n p = f32[] parameter(0)\n"
        " b = f32[2,3] broadcast(p), dimensions={}\n t = f32[3,2] transpose(b), dimensions={1,0}\n"
        " s = f32[0,2] slice(t), slice={[1:1], [0:2]}\n"
        " ROOT r = (bf16[3,2], s32[3,2], f32[3,2], f32[0,2]) tuple(c, i, t, s)\n}\n",
        excess_precision=excess,
    )


def test_an_iota_without_elements_counts_nothing() -> None:
    """However far it would have to count."""
    agree("HloModule m\nENTRY e {\n ROOT i = f32[1000000000000,0] iota(), iota_dimension=0\n}\n")


DOTS = [
    ("f32[4,5]", "f32[5,3]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}", "f32[4,3]"),
    ("f32[5,4]", "f32[3,5]", "lhs_contracting_dims={0}, rhs_contracting_dims={1}", "f32[4,3]"),
    ("f32[5]", "f32[5]", "lhs_contracting_dims={0}, rhs_contracting_dims={0}", "f32[]"),
    (
        "f32[2,7,4,5]",
        "f32[2,5,7,3]",
        "lhs_batch_dims={0,1}, rhs_batch_dims={0,2}, lhs_contracting_dims={3}, rhs_contracting_dims={1}",
        "f32[2,7,4,3]",
    ),
    (
        "f32[2,3,4]",
        "f32[4,6,3]",
        "lhs_contracting_dims={1,2}, rhs_contracting_dims={2,0}",
        "f32[2,6]",
    ),
    ("c64[2,3]", "c64[3,2]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}", "c64[2,2]"),
    ("bf16[4,5]", "bf16[5,3]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}", "bf16[4,3]"),
    ("bf16[4,5]", "f32[5,3]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}", "f32[4,3]"),
    ("f32[4,0]", "f32[0,3]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}", "f32[4,3]"),
    ("s8[4,5]", "s8[5,3]", "lhs_contracting_dims={1}, rhs_contracting_dims={0}", "s32[4,3]"),
]


@pytest.mark.parametrize("excess", [False, True])
@pytest.mark.parametrize(("left", "right", "dims", "result"), DOTS)
def test_products_agree(left: str, right: str, dims: str, result: str, excess: bool) -> None:
    """Dots of every arrangement of dimensions, up to the order of the sum."""
    module = hloopt.parse(
        f"HloModule m\nENTRY e {{\n x = {left} parameter(0)\n y = {right} parameter(1)\n"
        f" ROOT d = {result} dot(x, y), {dims}\n}}\n"
    )
    hloopt.verify(module)
    inputs = generate(module, 1)
    (got,) = hloopt.compile(module, excess_precision=excess).run(inputs)
    (want,) = hloopt.evaluate(module, inputs, excess_precision=excess)
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=1e-5, atol=1e-5)


EDGES = "{nan, -nan, inf, -inf, 0, -0, 1, -1, 1e-45, 3e38, 0.5, -2.5}"


@pytest.mark.parametrize(
    "opcode", ["maximum", "minimum", "add", "divide", "power", "remainder", "atan2", "multiply"]
)
@pytest.mark.parametrize("constant", ["", "0", "-0", "1", "-2", "nan", "inf"])
def test_edge_values_agree_bit_for_bit(opcode: str, constant: str) -> None:
    """Zeros of both signs, infinities and NaN, against each other and against constants."""
    other = (
        f"c = f32[] constant({constant})\n b = f32[12,12] broadcast(c), dimensions={{}}"
        if constant
        else "b = f32[12,12] broadcast(e), dimensions={1}"
    )
    module = hloopt.parse(
        f"HloModule m\nENTRY e {{\n e = f32[12] constant({EDGES})\n {other}\n"
        f" a = f32[12,12] broadcast(e), dimensions={{0}}\n ROOT r = f32[12,12] {opcode}(a, b)\n}}\n"
    )
    (got,) = hloopt.compile(module, exact=True).run([])
    (want,) = hloopt.evaluate(module, [])
    np.testing.assert_array_equal(got, want)
    assert (np.signbit(got) == np.signbit(want))[~np.isnan(want)].all()


@pytest.mark.parametrize("kind", ["s32", "u32", "s8", "u8", "s64", "u64", "s4", "u4"])
@pytest.mark.parametrize("opcode", ["shift-left", "shift-right-logical", "shift-right-arithmetic"])
@pytest.mark.parametrize("amount", [0, 3, 7])
def test_shifts_by_constants_agree(kind: str, opcode: str, amount: int) -> None:
    """By amounts inside and, for narrow types, beyond the width."""
    agree(
        f"HloModule m\nENTRY e {{\n x = {kind}[16] parameter(0)\n c = {kind}[] constant({amount})\n"
        f" b = {kind}[16] broadcast(c), dimensions={{}}\n ROOT r = {kind}[16] {opcode}(x, b)\n}}\n"
    )


def test_generators_begin_anew_on_every_run() -> None:
    """The state of rng-get-and-update-state belongs to one run."""
    program = agree(
        "HloModule m\nENTRY e {\n a = u64[2] rng-get-and-update-state(), delta=1\n"
        " b = u64[2] rng-get-and-update-state(), delta=1\n ROOT t = (u64[2], u64[2]) tuple(a, b)\n}\n"
    )
    assert program.kernels == 2


def test_a_state_of_tuples_and_tokens_passes_through_a_loop() -> None:
    """Nested tuples and tokens keep their places."""
    agree("""HloModule m
body {
  s = (s32[], (f32[2], token[]), f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = (f32[2], token[]) get-tuple-element(s), index=1
  x = f32[2] get-tuple-element(n), index=0
  k = token[] get-tuple-element(n), index=1
  y = f32[2] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  m = (f32[2], token[]) tuple(y, k)
  ROOT r = (s32[], (f32[2], token[]), f32[2]) tuple(j, m, x)
}
condition {
  s = (s32[], (f32[2], token[]), f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY e {
  zero = s32[] constant(0)
  x = f32[2] parameter(0)
  y = f32[2] parameter(1)
  k = token[] after-all()
  n = (f32[2], token[]) tuple(x, k)
  start = (s32[], (f32[2], token[]), f32[2]) tuple(zero, n, y)
  loop = (s32[], (f32[2], token[]), f32[2]) while(start), condition=condition, body=body
  m = (f32[2], token[]) get-tuple-element(loop), index=1
  a = f32[2] get-tuple-element(m), index=0
  b = f32[2] get-tuple-element(loop), index=2
  ROOT t = (f32[2], f32[2]) tuple(a, b)
}
""")


def identical(left: Any, right: Any) -> bool:
    """Whether two arrays share memory."""
    return bool(np.shares_memory(left, right))


def test_results_do_not_share_memory() -> None:
    """One value returned twice is two arrays."""
    module = hloopt.parse(
        "HloModule m\nENTRY e {\n x = f32[3] parameter(0)\n y = f32[3] negate(x)\n"
        " ROOT t = (f32[3], f32[3], f32[3]) tuple(y, y, x)\n}\n"
    )
    given_ = np.ones(3, np.float32)
    a, b, c = hloopt.compile(module).run([given_])
    assert not identical(a, b)
    assert not identical(c, given_)


def negations(between: int) -> plan.Line:
    """100 elements that are read last, ``between`` that come and go, two more hundreds, then 1000 at once."""
    line = plan.Line()
    kind = np.dtype(np.float32)
    given = line.slot(kind, (100,))
    line.inputs = [given]

    def negated() -> int:
        return line.step(np.negative, (given,), line.slot(kind, (100,)), ufunc=True)

    def made(count: int) -> int:
        zeros = line.step(lambda: np.zeros(count, kind), (), line.slot(kind, (count,)))
        return line.step(np.sum, (zeros,), line.slot(kind, ()))

    total = line.step(np.sum, (negated(),), line.slot(kind, ()))
    line.results = [total, made(between), negated(), negated(), made(1000)]
    return line


@pytest.mark.parametrize(("between", "kept"), [(10, True), (1000, True), (1200, False)])
def test_what_is_left_is_kept_where_it_costs_nothing(between: int, kept: bool) -> None:
    """For one other array, unless more would be alive at once than at any time without."""
    line = negations(between)
    run = compile_line(line, [0])
    first, second, third = [step for step in line.steps if step.ufunc]
    assert second.into == (first.outs[0] if kept else -1)
    assert (first.into, third.into) == (-1, -1)
    _, _, left, right, _ = run(np.ones(100, np.float32))
    assert not np.shares_memory(left, right)
    assert left.tolist() == right.tolist() == [-1.0] * 100


@given(data=st.data())
def test_no_array_is_written_over_while_it_is_needed(data: st.DataObject) -> None:
    """Any steps on arrays of one size, most of which die on the way, against a run that keeps them all."""
    line = plan.Line()
    kind, size = np.dtype(np.float32), 5
    line.inputs = [line.slot(kind, (size,)) for _ in range(2)]
    values = {slot: np.arange(size, dtype=kind) + 10 * slot for slot in line.inputs}
    for _ in range(data.draw(st.integers(4, 24))):
        # The latest are drawn most, so that the others die.
        near = sorted(values)[-data.draw(st.integers(1, 6)) :]
        x, y = (data.draw(st.sampled_from(near)) for _ in range(2))
        out = line.slot(kind, (size,))
        choice = data.draw(st.sampled_from(["negative", "add", "reversed", "written", "rolled"]))
        if choice == "negative":
            line.step(np.negative, (x,), out, ufunc=True)
            values[out] = -values[x]
        elif choice == "add":
            line.step(np.add, (x, y), out, ufunc=True)
            values[out] = values[x] + values[y]
        elif choice == "reversed":
            line.step(lambda a: a[::-1], (x,), out, view=True)
            values[out] = values[x][::-1]
        elif choice == "rolled":
            line.step(lambda a: np.roll(a, 1), (x,), out)
            values[out] = np.roll(values[x], 1)
        else:
            line.step(_set_in_copy, (x,), out, view=True, writes=(0,), choose=_setting)
            values[out] = np.concatenate([values[x][:2], [7], values[x][3:]]).astype(kind)
    drawn = st.lists(st.sampled_from(sorted(values)), min_size=1, max_size=3, unique=True)
    line.results = data.draw(drawn)
    # Room for all: what is kept is never refused for its size.
    room = line.step(lambda: np.zeros(1000, kind), (), line.slot(kind, (1000,)))
    line.results.append(room)
    given = [values[slot].copy() for slot in line.inputs]
    found = compile_line(line, [0])(*given)
    for slot, array in zip(line.results[:-1], found, strict=False):
        assert array.tolist() == values[slot].tolist()
    assert [array.tolist() for array in given] == [values[slot].tolist() for slot in line.inputs]


def _set(array: Any) -> Any:
    array[2] = 7
    return array


def _set_in_copy(array: Any) -> Any:
    return _set(array.copy())


def _setting(own: frozenset[int]) -> plan.Function:
    return _set if own else _set_in_copy


def test_a_conversion_without_rounding_is_no_new_array() -> None:
    """Where bf16 is carried as f32 the array that is converted lives on under the other name."""
    program = agree(
        """HloModule m
ENTRY e {
  p = f32[8,8] parameter(0)
  x = f32[8,8] negate(p)
  c = bf16[8,8] convert(x)
  n = bf16[8,8] negate(c)
  w = f32[8,8] convert(n)
  q = f32[8,8] negate(p)
  z = f32[8,8] multiply(q, w)
  y = f32[8,8] add(z, w)
  ROOT r = f32[8,8] add(y, x)
}
""",
        excess_precision=True,
    )
    assert program.kernels == 8


@pytest.mark.parametrize("rows", [7, 40_000])
@pytest.mark.parametrize("view", ["reverse(x), dimensions={0}", "copy(x)"])
def test_a_scatter_reads_all_updates_before_it_writes_over_them(rows: int, view: str) -> None:
    """Updates that are views of the operand: by a combiner that goes round by round, or part by part."""
    combined = "subtract(a, b)" if rows < 100 else "add(a, b)"
    module = hloopt.parse(f"""HloModule m
s {{
 a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] {combined}
}}
ENTRY e {{
 p = f32[{rows},4] parameter(0)
 i = s32[{rows},1] parameter(1)
 x = f32[{rows},4] add(p, p)
 u = f32[{rows},4] {view}
 ROOT r = f32[{rows},4] scatter(x, i, u), update_window_dims={{1}}, inserted_window_dims={{0}},
  scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=s
}}""")
    rng = np.random.default_rng(1)
    indices = rng.integers(0, rows, (rows, 1)).astype(np.int32)
    inputs = [rng.integers(1, 3, (rows, 4)).astype(np.float32), indices]
    (wanted,) = hloopt.evaluate(module, inputs)
    (got,) = hloopt.compile(module, exact=True).run(inputs)
    assert got.tobytes() == wanted.tobytes()
