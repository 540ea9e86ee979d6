"""A work item's statements made those of lanes: what is done once, what is in which loop, what needs an array."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hloopt.analysis.index import Index, Symbol
from hloopt.backends.native.codegen.lanes import across, for_lanes
from hloopt.kernel_ir.expressions import TRUE, Array, Call, Expr, IndexValue, Select, Var, as_expr
from hloopt.kernel_ir.printer import Printer
from hloopt.kernel_ir.scope import Names, Scope
from hloopt.kernel_ir.types import BOOL, FLOAT, INT

UNIT = Symbol("u", 0, 999).index
P, Q, R, OUT = (Array(name, FLOAT, (), "global") for name in ("p", "q", "r", "out"))


def written(fill: Callable[[Scope], None]) -> list[str]:
    """The lines of a work item ``u`` as those of a block of 8."""
    names = Names(reserved=frozenset({"p", "q", "r", "out"}))
    for taken in ("u", "first"):
        names.fresh(taken)
    unit = Scope(names)
    fill(unit)
    made = for_lanes(unit.statements(), "u", Var("first", INT), 8, 8, names)
    return list(Printer().body(made))


def test_straight_code_is_one_loop() -> None:
    """What is the same for all work items stands before it; nothing needs an array."""

    def fill(unit: Scope) -> None:
        a = unit.declare(FLOAT, P[UNIT], "a")
        k = unit.declare(INT, as_expr(3) + 4, "k")
        unit.set(Q[UNIT], a * k)

    assert written(fill) == [
        "const int k = 3 + 4;",
        "#pragma omp simd",
        "for (int lane = 0; lane < 8; ++lane) {",
        "  const float a = p[first + lane];",
        "  q[first + lane] = a * k;",
        "}",
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
        "int n = 0;",
        "__align__(64) float x[8];",
        "#pragma omp simd",
        "for (int lane = 0; lane < 8; ++lane) {",
        "  x[lane] = p[first + lane];",
        "}",
        "for (int t = 0; t < 5; ++t) {",
        "  const int m = n + 1;",
        "  #pragma omp simd",
        "  for (int lane_1 = 0; lane_1 < 8; ++lane_1) {",
        "    const float y = x[lane_1] + n;",
        "    x[lane_1] = y;",
        "  }",
        "  n = m;",
        "}",
        "#pragma omp simd",
        "for (int lane_2 = 0; lane_2 < 8; ++lane_2) {",
        "  q[first + lane_2] = x[lane_2];",
        "}",
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

    text = "\n".join(written(fill))
    assert text.count("hloopt::tired()) return;") == asks
    if asks:
        end = "\n  turns += 1;\n  if (turns % 256 == 0 && hloopt::tired()) return;\n}"
        assert end in text
        header = "while (true)" if ends is None else f"for (int t = {ends[0]}; t < {ends[1]};"
        assert "unsigned turns = 0;\n" + header in text


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

    text = "\n".join(written(fill))
    assert "alive[lane_1] = 1;" in text
    assert "const bool on = x[lane_2] < 3;" in text
    assert "alive[lane_2] = alive[lane_2] && !(!on);" in text
    assert "goes_on |= alive[lane_3];" in text
    assert "if (!goes_on) break;" in text
    assert "const float y = x[lane_4] * 2;" in text
    assert "if (alive[lane_4]) {\n      x[lane_4] = y;\n    }" in text


def test_truths_in_arrays_are_numbers() -> None:
    """Compilers make masks of them."""

    def fill(unit: Scope) -> None:
        b = unit.variable(BOOL, "b", P[UNIT] > 0)
        block, t = unit.loop(0, 5, "t")
        y = block.declare(FLOAT, Select.of(b, 1, 2), "y")
        block.set(b, y > t)
        unit.set(Q[UNIT], b)

    found = written(fill)
    assert "__align__(64) int b[8];" in found
    assert "    const float y = b[lane_1] != 0 ? 1 : 2;" in found
    assert "    b[lane_1] = y > t;" in found


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
    assert "static const unsigned char table[2] = {true, true};" in found
    assert "__align__(64) int own[12][8];" in found
    assert "    own[t][lane_1] = table[t % 2];" in found
    assert "  const bool b = own[3][lane_2];" in found


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

    found = written(fill)
    at = next(number for number, line in enumerate(found) if "h[lane" in line)
    assert found[at - 1].startswith("for (int lane")
    assert found[at - 2] != "#pragma omp simd"
    assert found[at + 1] == "}"
    assert found.count("#pragma omp simd") == loops


def test_what_is_taken_apart_is_that_of_the_lane() -> None:
    """An index of the work item's number is one of the lane's, its terms as they were."""

    def fill(unit: Scope) -> None:
        at = UNIT * -2 + (UNIT + 3) // 5 - 1
        unit.set(Q[UNIT], IndexValue(at))

    (line,) = (line for line in written(fill) if "q[" in line)
    assert line == "  q[first + lane] = -((first + lane) * 2) + (first + lane + 3) / 5 - 1;"


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

    found = written(fill)
    assert found[-4:] == [
        "for (int i = 1; i < 8; ++i) {",
        "  s[0] = s[0] + s[i];",
        "}",
        "out[0] = s[0];",
    ]
    assert found.count("#pragma omp simd") == 1


@pytest.mark.parametrize("differs", [True, False])
def test_branches_that_depend_on_the_unit_stay_inside(differs: bool) -> None:
    """Others are around the loops over lanes."""

    def fill(unit: Scope) -> None:
        x = unit.variable(FLOAT, "x", P[UNIT])
        unit.when((x if differs else Var("k", INT)) > 0).set(x, 1)
        unit.otherwise().set(x, 2)
        unit.set(Q[UNIT], x)

    found = written(fill)
    loops = [line.strip() for line in found].count("#pragma omp simd")
    if differs:
        assert loops == 1
        assert "  if (x > 0) {" in found
    else:
        assert loops == 4
        assert "if (k > 0) {" in found
        assert "} else {" in found
