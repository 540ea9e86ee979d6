"""A work item's statements made those of lanes: what is done once, what is in which loop, what needs an array."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

import pytest

from hloopt.analysis.index import Index, Symbol
from hloopt.backends.native.codegen.lanes import across, for_lanes
from hloopt.kernel_ir.expressions import TRUE, Array, Call, Expr, IndexValue, Select, Var, as_expr
from hloopt.kernel_ir.scope import Names, Scope
from hloopt.kernel_ir.statements import Declare
from hloopt.kernel_ir.types import BOOL, FLOAT, INT
from tests.helpers.kernel_code import KernelCode

UNIT = Symbol("u", 0, 999).index
P, Q, R, OUT = (Array(name, FLOAT, (), "global") for name in ("p", "q", "r", "out"))


def of_lanes(fill: Callable[[Scope], None]) -> KernelCode:
    """The statements of a work item ``u`` as those of a block of 8."""
    names = Names(reserved=frozenset({"p", "q", "r", "out"}))
    for taken in ("u", "first"):
        names.fresh(taken)
    unit = Scope(names)
    fill(unit)
    return KernelCode.of_body(for_lanes(unit.statements(), "u", Var("first", INT), 8, 8, names))


def written(fill: Callable[[Scope], None]) -> list[str]:
    """The lines of that, as ``hloopt kernels --ir`` lists them."""
    return dedent(of_lanes(fill).text("")).splitlines()


def test_straight_code_is_one_loop() -> None:
    """What is the same for all work items stands before it; nothing needs an array."""

    def fill(unit: Scope) -> None:
        a = unit.declare(FLOAT, P[UNIT], "a")
        k = unit.declare(INT, as_expr(3) + 4, "k")
        unit.set(Q[UNIT], a * k)

    assert written(fill) == [
        "let k: int = 3 + 4",
        "for lane: int from 0 to 8 simd",
        "  let a: float = p[first + lane]",
        "  store q[first + lane] = a * k",
    ]


def test_trips_that_all_make_stay_around_lanes() -> None:
    """The state lies in an array; what the trips count is set after the lanes have read it."""

    def fill(unit: Scope) -> None:
        x = unit.variable(FLOAT, "x", P[UNIT])
        n = unit.variable(INT, "n", 0)
        block, _ = unit.loop(0, 5, "t")
        y = block.declare(FLOAT, x + n, "y")
        m = block.declare(INT, n + 1, "m")
        block.set(n, m)
        block.set(x, y)
        unit.set(Q[UNIT], x)

    assert written(fill) == [
        "var n: int = 0",
        "array local x: float[8] align 64",
        "for lane: int from 0 to 8 simd",
        "  store x[lane] = p[first + lane]",
        "for t: int from 0 to 5",
        "  let m: int = n + 1",
        "  for lane_1: int from 0 to 8 simd",
        "    let y: float = x[lane_1] + n",
        "    store x[lane_1] = y",
        "  set n = m",
        "for lane_2: int from 0 to 8 simd",
        "  store q[first + lane_2] = x[lane_2]",
    ]


@pytest.mark.parametrize(
    ("ends", "asks"),
    [((0, 256), False), ((0, 257), True), ((-300, -10), True), ((900, 910), False), (None, True)],
)
@pytest.mark.parametrize("at", [UNIT, Index(7)], ids=["units", "one"])
def test_the_outermost_long_loop_asks_whether_to_end(
    ends: tuple[int, int] | None, asks: bool, at: Index
) -> None:
    """Once, behind its trip, whether work items differ or there is a single one; no loop within it asks."""

    def fill(unit: Scope) -> None:
        x = unit.variable(FLOAT, "x", P[at])
        outer = unit.repeat(TRUE) if ends is None else unit.loop(*ends, "t")[0]
        inner, _ = outer.loop(0, 9000, "r")
        inner.set(x, x + 1)
        unit.set(Q[at], x)

    assert len(of_lanes(fill).calls("hloopt::should_stop")) == asks
    if asks:
        found = written(fill)
        before = found.index("var turns: unsigned = 0")
        header = "while true" if ends is None else f"for t: int from {ends[0]} to {ends[1]}"
        assert found[before + 1] == header
        end = next(at for at in range(before + 2, len(found)) if found[at][0] != " ")
        assert found[end - 3 : end] == [
            "  set turns += 1",
            "  if turns % 256 == 0 && hloopt::should_stop()",
            "    return",
        ]


def test_lanes_leave_one_by_one() -> None:
    """A lane that has left changes nothing that outlives the trip."""

    def fill(unit: Scope) -> None:
        x = unit.variable(FLOAT, "x", P[UNIT])
        block = unit.repeat(TRUE)
        on = block.declare(BOOL, x < 3, "on")
        block.leave(on.negated())
        y = block.declare(FLOAT, x * 2, "y")
        block.set(x, y)
        unit.set(Q[UNIT], x)

    assert written(fill) == [
        "array local x: float[8] align 64",
        "for lane: int from 0 to 8 simd",
        "  store x[lane] = p[first + lane]",
        "array local alive: int[8] align 64",
        "for lane_1: int from 0 to 8 simd",
        "  store alive[lane_1] = 1",
        "var turns: unsigned = 0",
        "while true",
        "  for lane_2: int from 0 to 8 simd",
        "    let on: bool = x[lane_2] < 3",
        "    store alive[lane_2] = alive[lane_2] && !(!on)",
        "  var goes_on: int = 0",
        "  for lane_3: int from 0 to 8",
        "    set goes_on |= alive[lane_3]",
        "  if !goes_on",
        "    break",
        "  for lane_4: int from 0 to 8 simd",
        "    let y: float = x[lane_4] * 2",
        "    if alive[lane_4]",
        "      store x[lane_4] = y",
        "  set turns += 1",
        "  if turns % 256 == 0 && hloopt::should_stop()",
        "    return",
        "for lane_5: int from 0 to 8 simd",
        "  store q[first + lane_5] = x[lane_5]",
    ]


def test_truths_in_arrays_are_numbers() -> None:
    """Compilers make masks of them."""

    def fill(unit: Scope) -> None:
        b = unit.variable(BOOL, "b", P[UNIT] > 0)
        block, t = unit.loop(0, 5, "t")
        y = block.declare(FLOAT, Select.of(b, 1, 2), "y")
        block.set(b, y > t)
        unit.set(Q[UNIT], b)

    found = written(fill)
    assert "array local b: int[8] align 64" in found
    assert "    let y: float = b[lane_1] != 0 ? 1 : 2" in found
    assert "    store b[lane_1] = y > t" in found


def test_truths_are_read_from_bytes() -> None:
    """Of an array with more elements than a lane has each for itself, and of a table that all lanes read."""

    def fill(unit: Scope) -> None:
        own = unit.array(BOOL, (12,), "own")
        table = unit.array(BOOL, (2,), "table", [TRUE, TRUE], space="constant", is_static=True)
        block, t = unit.loop(0, 12, "t")
        block.set(own[t], table[t % 2])
        unit.set(own[3], P[UNIT] > 0)
        b = unit.declare(BOOL, own[3], "b")
        unit.set(Q[UNIT], b)

    found = written(fill)
    assert "array constant table: unsigned char[2] = true, true" in found
    assert [one.is_static for one in of_lanes(fill).statements(Declare)] == [True, False]
    assert "array local own: int[12, 8] align 64" in found
    assert "    store own[t][lane_1] = table[t % 2]" in found
    assert "  let b: bool = own[3][lane_2]" in found


@pytest.mark.parametrize(
    ("hard", "loops"),
    [
        (lambda a: Call("fmodf", (a, as_expr(3)), FLOAT), 2),
        (lambda a: Call("power_signed<int>", (a, as_expr(3)), INT), 2),
        (lambda a: R[UNIT * 4 + 1], 1),
        (lambda a: R[UNIT % 5], 1),
        (lambda a: R[(UNIT + 3) // 5], 1),
    ],
    ids=["call", "library", "times", "rest", "quotient"],
)
def test_what_is_no_vector_has_its_own_loop(hard: Callable[[Expr], Expr], loops: int) -> None:
    """Neither a call nor a read far from its neighbours keeps the others from being vectors."""

    def fill(unit: Scope) -> None:
        a = unit.declare(FLOAT, P[UNIT], "a")
        h = unit.declare(FLOAT, hard(a), "h")
        unit.set(Q[UNIT], a * h)

    code = of_lanes(fill)
    (alone,) = (one for one in code.loops() if not one.is_simd)
    (store,) = alone.body
    assert KernelCode.of_body([store]).written_at("h") == [alone.var.name]
    assert len(code.loops()) == 1 + loops


def test_what_is_taken_apart_is_that_of_the_lane() -> None:
    """An index of the work item's number is one of the lane's, its terms as they were."""

    def fill(unit: Scope) -> None:
        at = UNIT * -2 + (UNIT + 3) // 5 - 1
        unit.set(Q[UNIT], IndexValue(at))

    assert written(fill) == [
        "for lane: int from 0 to 8 simd",
        "  store q[first + lane] = -((first + lane) * 2) + (first + lane + 3) / 5 - 1",
    ]


def test_what_all_lanes_have_is_gathered_behind_them() -> None:
    """And the state may be set in the same loop."""

    def fill(unit: Scope) -> None:
        s = unit.variable(FLOAT, "s", 0)
        unit.set(s, s + P[UNIT])
        every = across(s)
        block, i = unit.loop(1, 8, "i")
        block.set(every[0], every[0] + every[i])
        unit.set(OUT[0], every[0])
        unit.set(Q[UNIT], 3)

    assert written(fill)[-3:] == [
        "for i: int from 1 to 8",
        "  store s[0] = s[0] + s[i]",
        "store out[0] = s[0]",
    ]
    assert [one.is_simd for one in of_lanes(fill).loops()] == [True, False]


@pytest.mark.parametrize("differs", [True, False])
def test_branches_that_depend_on_the_unit_stay_inside(differs: bool) -> None:
    """Others are around the loops over lanes."""

    def fill(unit: Scope) -> None:
        x = unit.variable(FLOAT, "x", P[UNIT])
        unit.when((x if differs else Var("k", INT)) > 0).set(x, 1)
        unit.otherwise().set(x, 2)
        unit.set(Q[UNIT], x)

    found = written(fill)
    assert [one.is_simd for one in of_lanes(fill).loops()] == [True] * (1 if differs else 4)
    if differs:
        assert "  if x > 0" in found
    else:
        assert "if k > 0" in found
        assert "else" in found
