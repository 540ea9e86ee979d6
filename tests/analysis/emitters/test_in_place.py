"""Kernels that write an update only."""

from __future__ import annotations

import pytest

from hloopt.analysis.emitters.in_place import updates_in_place
from hloopt.analysis.emitters.kind import emission
from tests.analysis.emitters.regions import fusion, lone

SHAPES = "f32[8,4] f32[2,4] s32[] f32[8,4]"
UPDATE = "z = s32[] constant(0)\nROOT d = f32[8,4] dynamic-update-slice(p0, p1, p2, z)"


def test_an_update_of_an_operand() -> None:
    """Alone, in a fusion, behind bitcasts on both sides."""
    alone = lone(
        "p = f32[8] parameter(0)\nu = f32[2] parameter(1)\ni = s32[] parameter(2)\n"
        "ROOT d = f32[8] dynamic-update-slice(p, u, i)"
    )
    (update,) = updates_in_place(alone)
    assert (update.instruction.name, update.operand, update.result) == ("d", 0, 0)  # type: ignore[union-attr]
    assert emission(alone).kind == "in-place"
    assert emission(fusion(SHAPES, UPDATE, "f32[8,4]")).kind == "in-place"
    bitcasts = (
        "z = s32[] constant(0)\nb = f32[8,4] bitcast(p0)\n"
        "d = f32[8,4] dynamic-update-slice(b, p1, p2, z)\nROOT e = f32[32] bitcast(d)"
    )
    assert emission(fusion("f32[32] f32[2,4] s32[]", bitcasts, "f32[32]")).kind == "in-place"


SLICE = "s = f32[2,4] dynamic-slice(p0, p2, z), dynamic_slice_sizes={2,4}\n"


@pytest.mark.parametrize(
    "body",
    [
        # the place of the update is read
        (
            f"z = s32[] constant(0)\n{SLICE}u = f32[2,4] add(s, p1)\n"
            "ROOT d = f32[8,4] dynamic-update-slice(p0, u, p2, z)"
        ),
        # through a convert, and with equal constants
        (
            "z = s32[] constant(0)\ny = s32[] constant(0)\nc = f32[8,4] negate(p0)\n"
            "s = f32[2,4] dynamic-slice(c, p2, y), dynamic_slice_sizes={2,4}\n"
            "ROOT d = f32[8,4] dynamic-update-slice(p0, s, p2, z)"
        ),
    ],
)
def test_reading_the_place_of_the_update_is_allowed(body: str) -> None:
    """A thread reads the element it writes."""
    assert not isinstance(updates_in_place(fusion(SHAPES, body, "f32[8,4]")), str)


def test_a_single_element_may_be_read_anywhere() -> None:
    """One thread does all the reading before it writes."""
    body = (
        "z = s32[] constant(0)\ns = f32[1,1] dynamic-slice(p0, z, z), dynamic_slice_sizes={1,1}\n"
        "ROOT d = f32[8,4] dynamic-update-slice(p0, s, p2, p2)"
    )
    assert not isinstance(updates_in_place(fusion(SHAPES, body, "f32[8,4]")), str)


@pytest.mark.parametrize(
    ("body", "result", "problem"),
    [
        ("ROOT n = f32[8,4] negate(p0)", "f32[8,4]", "n is not a dynamic-update-slice"),
        (
            (
                "z = s32[] constant(0)\nn = f32[8,4] negate(p0)\n"
                "ROOT d = f32[8,4] dynamic-update-slice(n, p1, p2, z)"
            ),
            "f32[8,4]",
            "d updates no operand of the kernel",
        ),
        (
            (
                f"z = s32[] constant(0)\n{SLICE.replace('p2, z', 'z, p2')}"
                "ROOT d = f32[8,4] dynamic-update-slice(p0, s, p2, z)"
            ),
            "f32[8,4]",
            "s reads other elements of p0 than the update writes",
        ),
        (
            (
                "z = s32[] constant(0)\ny = s32[] constant(1)\n"
                "s = f32[2,4] dynamic-slice(p0, y, z), dynamic_slice_sizes={2,4}\n"
                "ROOT d = f32[8,4] dynamic-update-slice(p0, s, z, z)"
            ),
            "f32[8,4]",
            "s reads other elements of p0 than the update writes",
        ),
        (
            (
                "z = s32[] constant(0)\ns = f32[2,4] slice(p0), slice={[0:2],[0:4]}\n"
                "ROOT d = f32[8,4] dynamic-update-slice(p0, s, p2, z)"
            ),
            "f32[8,4]",
            "s reads other elements of p0 than the update writes",
        ),
        (
            (
                "z = s32[] constant(0)\nd = f32[8,4] dynamic-update-slice(p0, p1, p2, z)\n"
                "e = f32[8,4] dynamic-update-slice(p0, p1, z, z)\n"
                "ROOT t = (f32[8,4], f32[8,4]) tuple(d, e)"
            ),
            "(f32[8,4], f32[8,4])",
            "e updates p0 too",
        ),
        (
            (
                "z = s32[] constant(0)\nd = f32[8,4] dynamic-update-slice(p0, p1, p2, z)\n"
                "ROOT t = (f32[8,4], f32[8,4]) tuple(d, d)"
            ),
            "(f32[8,4], f32[8,4])",
            "d is the second update of one operand",
        ),
        (
            (
                "z = s32[] constant(0)\nd = f32[8,4] dynamic-update-slice(p0, p1, p2, z)\n"
                "n = f32[8,4] negate(d)\nROOT t = (f32[8,4], f32[8,4]) tuple(d, n)"
            ),
            "(f32[8,4], f32[8,4])",
            "n reads the result of d",
        ),
        (
            (
                "z = s32[] constant(0)\nd = f32[8,4] dynamic-update-slice(p0, p1, p2, z)\n"
                "u = f32[1,4] slice(p1), slice={[0:1],[0:4]}\n"
                "e = f32[8,4] dynamic-update-slice(p3, u, p2, z)\n"
                "ROOT t = (f32[8,4], f32[8,4]) tuple(d, e)"
            ),
            "(f32[8,4], f32[8,4])",
            "e writes a shape other than that of d",
        ),
        (
            "z = s32[] constant(0)\nROOT d = f32[8,4] dynamic-update-slice(p0, p0, p2, z)",
            "f32[8,4]",
            "d reads p0 besides updating it",
        ),
    ],
)
def test_what_forbids_it(body: str, result: str, problem: str) -> None:
    """The reason names the instruction; the kernel is a loop then."""
    region = fusion(SHAPES, body, result)
    assert updates_in_place(region) == problem
    assert emission(region).kind == "loop"


def test_two_updates_of_two_operands() -> None:
    """Of one shape, each into its own operand."""
    body = (
        "z = s32[] constant(0)\nd = f32[8,4] dynamic-update-slice(p0, p1, p2, z)\n"
        "e = f32[8,4] dynamic-update-slice(p3, p1, p2, z)\n"
        "ROOT t = (f32[8,4], f32[8,4]) tuple(d, e)"
    )
    found = updates_in_place(fusion(SHAPES, body, "(f32[8,4], f32[8,4])"))
    assert not isinstance(found, str)
    assert [(update.operand, update.result) for update in found] == [(0, 0), (3, 1)]


def test_an_operand_twice_is_read() -> None:
    """The update is the operand itself."""
    region = lone(
        "p = f32[8] parameter(0)\ni = s32[] parameter(1)\n"
        "ROOT d = f32[8] dynamic-update-slice(p, p, i)"
    )
    assert updates_in_place(region) == "d reads p besides updating it"
