"""A unit's statements written for lanes: what is done once, what is in which loop, what needs an array."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hloopt.codegen.native.lanes import across, write_lanes
from hloopt.kernel_ir.scope import Names, Scope


def written(fill: Callable[[Scope], None]) -> list[str]:
    """The lines of a unit ``u`` as those of a block of 8."""
    names = Names()
    for taken in ("u", "first"):
        names.fresh(taken)
    unit, target = Scope(names), Scope(names)
    fill(unit)
    write_lanes(unit, target, "u", "first", "8", 8)
    return list(target.text())


def lines(text: str) -> Callable[[Scope], None]:
    """A filler from lines; ``{`` and ``}`` at the end of one open and close a block."""

    def fill(scope: Scope) -> None:
        stack = [scope]
        for line in filter(None, map(str.strip, text.splitlines())):
            if line == "}":
                stack.pop()
            elif line.startswith("} else"):
                stack.pop()
                stack.append(stack[-1].otherwise(line[2:-1].strip()))
            elif line.endswith("{"):
                stack.append(stack[-1].block(line[:-1].strip()))
            else:
                stack[-1].line(line)

    return fill


def test_straight_code_is_one_loop() -> None:
    """What is the same for all units stands before it; nothing needs an array."""
    found = written(lines("const float a = p[u];\nconst int k = 3 + 4;\nq[u] = (a * k);"))
    assert found == [
        "const int k = 3 + 4;",
        "#pragma omp simd",
        "for (int lane = 0; lane < 8; ++lane) {",
        "  const float a = p[(first + lane)];",
        "  q[(first + lane)] = (a * k);",
        "}",
    ]


def test_trips_that_all_make_stay_around_lanes() -> None:
    """The state lies in an array; what the trips count is set after the lanes have read it."""
    found = written(
        lines(
            """float x = p[u];
            int n = 0;
            for (int t = 0; t < 5; ++t) {
            const float y = (x + n);
            const int m = n + 1;
            n = m;
            x = y;
            }
            q[u] = x;"""
        )
    )
    assert found == [
        "int n = 0;",
        "alignas(64) float x[8];",
        "#pragma omp simd",
        "for (int lane = 0; lane < 8; ++lane) {",
        "  x[lane] = p[(first + lane)];",
        "}",
        "for (int t = 0; t < 5; ++t) {",
        "  const int m = n + 1;",
        "  #pragma omp simd",
        "  for (int lane_1 = 0; lane_1 < 8; ++lane_1) {",
        "    const float y = (x[lane_1] + n);",
        "    x[lane_1] = y;",
        "  }",
        "  n = m;",
        "}",
        "#pragma omp simd",
        "for (int lane_2 = 0; lane_2 < 8; ++lane_2) {",
        "  q[(first + lane_2)] = x[lane_2];",
        "}",
    ]


@pytest.mark.parametrize(
    ("header", "asks"),
    [
        ("for (int t = 0; t < 256; ++t)", False),
        ("for (int t = 0; t < 257; ++t)", True),
        ("for (int t = -300; t < -10; ++t)", True),
        ("for (int t = 900; t < 910; ++t)", False),
        ("while (true)", True),
    ],
)
@pytest.mark.parametrize("unit", ["u", "7"])
def test_the_outermost_long_loop_asks_whether_to_end(header: str, asks: bool, unit: str) -> None:
    """Once, behind its trip, whether units differ or there is a single one; no loop within it asks."""
    text = "\n".join(
        written(
            lines(
                f"""float x = p[{unit}];
                {header} {{
                for (int r = 0; r < 9000; ++r) {{
                x = x + 1.0f;
                }}
                }}
                q[{unit}] = x;"""
            )
        )
    )
    assert text.count("hloopt::tired()) return;") == asks
    if asks:
        assert "\n  if (++turns % 256 == 0 && hloopt::tired()) return;\n}" in text
        assert "unsigned turns = 0;\n" + header in text


def test_lanes_leave_one_by_one() -> None:
    """A lane that has left changes nothing that outlives the trip."""
    text = "\n".join(
        written(
            lines(
                """float x = p[u];
                while (true) {
                const bool on = (x < 3.0f);
                if (!on) break;
                const float y = (x * 2.0f);
                x = y;
                }
                q[u] = x;"""
            )
        )
    )
    assert "alive[lane_1] = 1;" in text
    assert "const bool on = (x[lane_2] < 3.0f);" in text
    assert "alive[lane_2] = alive[lane_2] && !(!on);" in text
    assert "if (!goes_on) break;" in text
    assert "const float y = (x[lane_4] * 2.0f);" in text
    assert "if (alive[lane_4]) x[lane_4] = y;" in text


def test_truths_in_arrays_are_numbers() -> None:
    """Compilers make masks of them."""
    found = written(
        lines(
            """bool b = (p[u] > 0.0f);
            for (int t = 0; t < 5; ++t) {
            const float y = (b ? 1.0f : 2.0f);
            b = (y > t);
            }
            q[u] = b;"""
        )
    )
    assert "alignas(64) int b[8];" in found
    assert "    const float y = ((b[lane_1] != 0) ? 1.0f : 2.0f);" in found
    assert "    b[lane_1] = (y > t);" in found


@pytest.mark.parametrize(
    "hard",
    [
        "const float h = fmodf(a, 3.0f);",
        "const float h = r[u * 4 + 1];",
        "const float h = r[u % 5];",
    ],
)
def test_what_is_no_vector_has_its_own_loop(hard: str) -> None:
    """Neither a call nor a read far from its neighbours keeps the others from being vectors."""
    found = written(lines(f"const float a = p[u];\n{hard}\nq[u] = (a * h);"))
    at = next(number for number, line in enumerate(found) if "h[lane" in line)
    assert found[at - 1].startswith("for (int lane")
    assert found[at - 2] != "#pragma omp simd"
    assert found[at + 1] == "}"
    assert found.count("#pragma omp simd") == (2 if "fmodf" in hard else 1)


def test_what_all_lanes_have_is_gathered_behind_them() -> None:
    """And the state may be set in the same loop."""
    found = written(
        lines(
            f"""float s = 0.0f;
            s = (s + p[u]);
            for (int i = 1; i < 8; ++i) {{
            {across("s")}[0] = {across("s")}[0] + {across("s")}[i];
            }}
            out[0] = {across("s")}[0];
            q[u] = 3.0f;"""
        )
    )
    assert found[-4:] == [
        "for (int i = 1; i < 8; ++i) {",
        "  s[0] = s[0] + s[i];",
        "}",
        "out[0] = s[0];",
    ]
    assert found.count("#pragma omp simd") == 1


def test_branches_that_depend_on_the_unit_stay_inside() -> None:
    """Others are around the loops over lanes."""
    text = """float x = p[u];
        if (BRANCH) {
        x = 1.0f;
        } else {
        x = 2.0f;
        }
        q[u] = x;"""
    inside = written(lines(text.replace("BRANCH", "x > 0.0f")))
    assert inside.count("#pragma omp simd") == 1
    assert "  if (x > 0.0f) {" in inside
    around = written(lines(text.replace("BRANCH", "k > 0")))
    assert [line.strip() for line in around].count("#pragma omp simd") == 4
    assert "if (k > 0) {" in around
    assert "} else {" in around
