"""Each delta alone: it makes a valid module, which computes what it should."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import hloopt
from hloopt.prover.reduction.case import Case, CaseDraft
from hloopt.prover.reduction.deltas import (
    attributes,
    bodies,
    dimensions,
    numbers,
    results,
    values,
    whole,
)
from hloopt.prover.reduction.recording import Delta, ValueRecorder
from hloopt.prover.trials import Trial, made
from hloopt.types import Array, PaddingDim, SliceRange, WindowDim

BROKEN = Path(__file__).with_name("broken_rewrites.py")

LOOP = """
HloModule loop

body {
  p = (s32[], f32[8,4], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8,4] get-tuple-element(p), index=1
  k = f32[8,4] get-tuple-element(p), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  e = f32[8,4] tanh(x)
  y = f32[8,4] add(e, k)
  z = f32[8,4] negate(k)
  ROOT t = (s32[], f32[8,4], f32[8,4]) tuple(j, y, z)
}

cond {
  p = (s32[], f32[8,4], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}

ENTRY main {
  x = f32[8,4] parameter(0), metadata={op_name="x"}
  y = f32[4,3] parameter(1)
  z = s32[] constant(0)
  s = (s32[], f32[8,4], f32[8,4]) tuple(z, x, x)
  w = (s32[], f32[8,4], f32[8,4]) while(s), condition=cond, body=body
  v = f32[8,4] get-tuple-element(w), index=1
  d = f32[8,3] dot(v, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[8,3] tanh(d)
  ROOT r = (f32[8,3], f32[8,4]) tuple(t, v)
}
"""


def case_of(text: str) -> Case:
    module = hloopt.parse(text)
    hloopt.verify(module)
    return Case(module, made(module, Trial()))


def applied(delta: Delta, case: Case, *sites: tuple[object, ...]) -> Case:
    """The case after a delta, which has these sites; it is valid, and so is its text."""
    assert set(sites) <= set(delta.sites(case)), delta.sites(case)
    draft = CaseDraft(case)
    delta.apply(draft, sites, ValueRecorder(case))
    found = draft.finish()
    assert found is not None
    hloopt.verify(hloopt.parse(found.module.to_text()))
    return found


def run(case: Case) -> list[Array]:
    return hloopt.evaluate(case.module, case.inputs.arrays[0])


def opcodes(case: Case) -> list[str]:
    return [one.opcode for one in case.module.entry]


def test_values_become_parameters_with_what_they_were() -> None:
    case = case_of(LOOP)
    found = applied(values.PARAMETERS, case, ("main", "d"))
    assert "dot" not in opcodes(found)
    for one, other in zip(run(found), run(case), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_beginning_of_the_entry_is_given() -> None:
    case = case_of(LOOP)
    sites = values.FRONT.sites(case)
    found = applied(values.FRONT, case, *sites[:-1])
    assert opcodes(found) == ["parameter", "parameter", "tanh", "tuple"][0:1] + opcodes(found)[1:]
    assert not {"while", "dot"} & set(opcodes(found))
    np.testing.assert_array_equal(run(found)[0], run(case)[0])


def test_the_end_of_the_entry_is_cut_off() -> None:
    case = case_of(LOOP)
    found = applied(results.BACK, case, ("r",), ("t",), ("d",))
    assert "dot" not in opcodes(found)
    np.testing.assert_array_equal(run(found)[-1], run(case)[1])


def test_results_are_dropped_and_a_single_one_is_bare() -> None:
    case = case_of(LOOP)
    found = applied(results.RESULTS, case, (0, 2))
    assert found.module.entry.root.name == "v"
    np.testing.assert_array_equal(run(found)[0], run(case)[1])


def test_the_root_becomes_its_operand() -> None:
    case = applied(results.RESULTS, case_of(LOOP), (1, 2))
    found = applied(results.ROOT, case, ("t", 0))
    assert found.module.entry.root.opcode == "dot"


def test_values_become_operands_and_constants() -> None:
    case = case_of(LOOP)
    assert "tanh" not in opcodes(applied(values.OPERANDS, case, ("main", "t", "d")))
    found = applied(values.CONSTANTS, case, ("main", "t", "0"))
    assert not run(found)[0].any()
    found = applied(values.CONSTANTS, case, ("main", "d", "first"))
    first = run(case)[0].reshape(-1)[0]
    np.testing.assert_array_equal(run(found)[0], np.full((8, 3), first))
    assert ("body", "j", "i") not in values.OPERANDS.sites(case), "the loop would not end"


def test_values_become_what_is_behind_their_operands() -> None:
    text = """
HloModule m
ENTRY e {
  x = f32[6] parameter(0)
  y = f32[6] negate(x)
  w = f32[2,3] reshape(y)
  t = f32[3,2] transpose(w), dimensions={1,0}
  z = f32[6] reshape(t)
  k = token[] after-all()
  o = token[] outfeed(w, k)
  ROOT r = f32[6] exponential(z)
}
"""
    case = case_of(text)
    found = applied(values.OPERANDS, case, ("e", "z", "y"))
    assert "transpose" not in opcodes(found)
    assert not [site for site in values.CONSTANTS.sites(case) if site[1] == "k"]
    # Where t is gone before, nothing behind z is left to take.
    sites = ("e", "r", "z"), ("e", "z", "y")
    assert "exponential" not in opcodes(applied(values.OPERANDS, case, *sites))


def test_a_loop_is_its_body_once_or_fewer_iterations() -> None:
    case = case_of(LOOP)
    once = applied(bodies.ONCE, case, ("main", "w", "once", 0))
    one_trip = applied(bodies.TRIPS, case, ("cond", "n", "number", 1))
    assert "while" not in opcodes(once)
    assert "while" in opcodes(one_trip)
    np.testing.assert_array_equal(run(once)[1], run(one_trip)[1])


def test_a_loop_runs_once_by_a_flag() -> None:
    case = case_of(LOOP)
    found = applied(bodies.TRIPS, case, ("main", "w", "flag", 0))
    assert "compare" not in [one.opcode for one in found.module.instructions()]
    once = applied(bodies.ONCE, case, ("main", "w", "once", 0))
    np.testing.assert_array_equal(run(found)[1], run(once)[1])
    assert not [site for site in bodies.TRIPS.sites(found) if site[2] == "flag"]
    assert ("main", "w", "drop", 3) not in bodies.STATES.sites(found), "nobody would end it"


def test_elements_of_a_state_stay_or_go() -> None:
    case = case_of(LOOP)
    kept = applied(bodies.STATES, case, ("main", "w", "keep", 2))
    assert "negate" not in [one.opcode for one in kept.module.instructions()]
    gone = applied(bodies.STATES, kept, ("main", "w", "drop", 2))
    assert len(gone.module.entry.by_name["w"].elements) == 2


def test_a_state_of_one_element_is_bare() -> None:
    text = LOOP.replace(
        "ROOT c = pred[] compare(i, n), direction=LT", "ROOT c = pred[] constant(false)"
    )
    case = case_of(text)
    case = applied(bodies.STATES, case, ("main", "w", "drop", 0), ("main", "w", "drop", 2))
    found = applied(bodies.STATES, case, ("main", "w", "bare", 0))
    assert found.module.entry.by_name["w"].is_array
    np.testing.assert_array_equal(run(found)[1], run(case)[1])


CALLS = """
HloModule calls

fused {
  a = f32[4] parameter(0)
  b = f32[4] exponential(a)
  ROOT c = f32[4] negate(b)
}

left { p = f32[4] parameter(0)
  ROOT n = f32[4] sine(p) }

right { p = f32[4] parameter(0)
  ROOT n = f32[4] cosine(p) }

ENTRY main {
  x = f32[4] parameter(0)
  q = pred[] parameter(1)
  f = f32[4] fusion(x), kind=kLoop, calls=fused
  ROOT w = f32[4] conditional(q, f, x), true_computation=left, false_computation=right
}
"""


def test_called_computations_take_the_place_of_calls() -> None:
    case = case_of(CALLS)
    found = applied(bodies.BODIES, case, ("main", "f", 0), ("main", "w", 1))
    assert opcodes(found) == ["parameter", "cosine"], "what only the other branch read is gone"
    opened = applied(bodies.BODIES, case, ("main", "f", 0))
    np.testing.assert_array_equal(run(opened)[0], run(case)[0])


def test_values_of_a_fusion_are_handed_in() -> None:
    case = case_of(CALLS)
    found = applied(values.PARAMETERS, case, ("fused", "b"))
    assert len(found.module.entry.by_name["f"].operands) == 1
    np.testing.assert_array_equal(run(found)[0], run(case)[0])


def test_dimensions_shrink_through_all_shapes() -> None:
    case = case_of(LOOP)
    sites = [site for site in dimensions.DIMENSIONS.sites(case) if site[-2:] == (1, False)]
    assert len(sites) == 3, sites
    for site in sites:
        assert applied(dimensions.DIMENSIONS, case, site).size < case.size
    shapes = {str(one.shape) for one in applied(dimensions.DIMENSIONS, case, *sites).module.entry}
    assert {"f32[1,1]", "s32[]"} <= shapes
    assert not any("8" in shape or "4" in shape for shape in shapes)


def test_dimensions_of_a_state_that_no_iteration_reads() -> None:
    text = LOOP.replace("e = f32[8,4] tanh(x)", "e = f32[8,4] tanh(k)")
    case = case_of(text)
    sites = [site for site in dimensions.DIMENSIONS.sites(case) if site[-2:] == (1, False)]
    found = applied(dimensions.DIMENSIONS, case, *sites)
    assert str(found.module.entry.by_name["w"].shape) == "(s32[], f32[1,1], f32[1,1])"


SHAPES = """
HloModule shapes

ENTRY main {
  x = f32[6,10] parameter(0)
  c = f32[10] constant({1,2,3,4,5,6,7,8,9,10})
  b = f32[6,10] broadcast(c), dimensions={1}
  m = f32[6,10] multiply(x, b)
  r = f32[60] reshape(m)
  s = f32[20] slice(r), slice={[30:50]}
  i = f32[20] iota(), iota_dimension=0
  a = f32[20] add(s, i)
  z = f32[] constant(0)
  ROOT p = f32[24] pad(a, z), padding=1_3
}
"""


def test_slices_reshapes_and_paddings_follow() -> None:
    case = case_of(SHAPES)
    found = case
    for _ in range(20):
        for site in dimensions.DIMENSIONS.sites(found):
            draft = CaseDraft(found)
            try:
                dimensions.DIMENSIONS.apply(draft, [site], ValueRecorder(found))
            except hloopt.ShapeError:
                continue
            smaller = draft.finish()
            if smaller is not None and smaller.size < found.size:
                found = smaller
                break
    assert found.module.entry.by_name["r"].array.dims == (1,)
    assert found.module.entry.root.array.dims == (5,)
    assert run(found)


WINDOWS = """
HloModule windows

add {
  l = f32[] parameter(0)
  m = f32[] parameter(1)
  ROOT n = f32[] add(l, m)
}

ENTRY main {
  x = f32[2,12,12,8] parameter(0)
  k = f32[3,3,2,8] parameter(1)
  c = f32[2,12,12,8] convolution(x, k), window={size=3x3 pad=1_1x1_1 rhs_reversal=1x0}, dim_labels=b01f_01io->b01f, feature_group_count=4
  z = f32[] constant(0)
  y = f32[2,12,12,8] parameter(2)
  w = f32[2,4,4,8] reduce-window(y, z), window={size=1x5x5x1 stride=1x2x2x1 rhs_dilate=1x1x1x1}, to_apply=add
  f = c64[2,4,4,5] fft(w), fft_type=RFFT, fft_length={8}
  b = f32[2,4,4,8] fft(f), fft_type=IRFFT, fft_length={8}
  ROOT r = (f32[2,12,12,8], f32[2,4,4,8]) tuple(c, b)
}
"""


def test_windows_shrink_with_what_they_slide_over() -> None:
    def dims(case: Case) -> list[tuple[int, ...]]:
        return [one.array.dims for one in case.module.entry.parameters]

    case, plain = case_of(WINDOWS), WindowDim(1)
    found = applied(numbers.NUMBERS, case, ("main", "c", "window", 0, plain))
    assert dims(found) == [(2, 12, 12, 8), (1, 3, 2, 8), (2, 12, 12, 8)]
    assert found.module.entry.by_name["c"].array.dims == (2, 12, 12, 8)
    found = applied(numbers.NUMBERS, found, ("main", "w", "window", 1, plain))
    assert dims(found)[2] == (2, 4, 12, 8), "as many places as before"
    found = applied(numbers.NUMBERS, found, ("main", "c", "groups", 0, 1))
    assert dims(found)[0] == (2, 12, 12, 2)
    found = applied(dimensions.DIMENSIONS, found, ("main", "y", 0, 3, 3, False))
    assert found.module.entry.by_name["f"].attributes["fft_length"] == (3,)
    assert found.module.entry.by_name["b"].array.dims == (2, 4, 4, 2)
    assert run(found)


def test_paddings_and_slices_become_plain() -> None:
    case = case_of(SHAPES)
    found = applied(numbers.NUMBERS, case, ("main", "p", "padding", 0, PaddingDim(0, 0)))
    assert found.module.entry.root.array.dims == (20,)
    found = applied(numbers.NUMBERS, case, ("main", "s", "slice", 0, SliceRange(0, 20)))
    assert found.module.entry.by_name["s"].attributes["slice"] == (SliceRange(0, 20),)


def test_the_last_elements_may_be_the_ones_that_stay() -> None:
    case = case_of(SHAPES)
    found = applied(dimensions.DIMENSIONS, case, ("main", "c", 0, 0, 1, True))
    literal = found.module.entry.by_name["c"].literal
    assert literal is not None
    np.testing.assert_array_equal(literal.array, [10])
    np.testing.assert_array_equal(found.inputs.arrays[0][0], case.inputs.arrays[0][0][:, -1:])


def test_nothing_becomes_empty() -> None:
    text = """
HloModule m
ENTRY e {
  x = f32[8] parameter(0)
  ROOT s = f32[3] slice(x), slice={[4:7]}
}
"""
    case, draft = case_of(text), CaseDraft(case_of(text))
    assert all(site[4] for site in dimensions.DIMENSIONS.sites(case))
    dimensions.DIMENSIONS.apply(draft, [("e", "x", 0, 0, 1, False)], ValueRecorder(case))
    found = draft.finish()
    assert found is not None
    assert found.module.entry.root.array.dims == (1,)


def test_values_become_others_of_their_shape() -> None:
    text = SHAPES.replace(
        "  x = f32[6,10] parameter(0)", "  x = f32[6,10] parameter(0)\n  y = f32[6,10] parameter(1)"
    )
    found = applied(values.ALIKE, case_of(text.replace("(x, b)", "(x, y)")), ("main", "y", "x"))
    assert len(found.module.entry.parameters) == 1
    found = applied(values.ALIKE, case_of(LOOP), ("body", "y", "x"))
    assert "tanh" not in [one.opcode for one in found.module.computations["body"]]


def test_values_that_nobody_knows_are_made_up() -> None:
    text = """
HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  big = f32[4] constant({...})
  t = f32[4] tanh(x)
  k = (f32[4], s32[2]) custom-call(t, big), custom_call_target="kernel"
  a = f32[4] get-tuple-element(k), index=0
  ROOT r = f32[4] add(a, t)
}
"""
    case = case_of(text)
    found = applied(values.PARAMETERS, case, ("e", "k"), ("e", "t"))
    assert opcodes(found) == ["parameter", "parameter", "add"]
    assert "constant" not in opcodes(applied(values.PARAMETERS, case, ("e", "big")))


def test_element_types_become_usual_ones() -> None:
    case = case_of(LOOP.replace("f32", "bf16").replace("s32", "s64"))
    found = applied(whole.ELEMENT_TYPES, case, ("s64", "s32"), ("bf16", "f32"))
    assert "bf16" not in found.module.to_text()
    assert run(found)[0].dtype == np.float32


def test_every_element_type_has_a_usual_one() -> None:
    kinds = {
        "f64": "f32",
        "f8e4m3fn": "f32",
        "f4e2m1fn": "f32",
        "s4": "s32",
        "u8": "s32",
        "c128": "c64",
    }
    for kind, simple in kinds.items():
        text = f"HloModule m\nENTRY e {{\n  x = {kind}[3] parameter(0)\n  ROOT y = {kind}[3] add(x, x)\n}}\n"
        found = applied(whole.ELEMENT_TYPES, case_of(text), (kind, simple))
        assert found.module.entry.root.array.dtype.name == simple
    assert not whole.ELEMENT_TYPES.sites(case_of(LOOP))


def test_attributes_go() -> None:
    text = LOOP.replace("HloModule loop", "HloModule loop, is_scheduled=true")
    found = applied(attributes.ATTRIBUTES, case_of(text), ("metadata",), ("header", "is_scheduled"))
    assert "metadata" not in found.module.to_text()
    assert not found.module.attributes
