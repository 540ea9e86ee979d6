"""What mixes is named, the largest dimension first; what no kernel can hold is an obstacle."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.analysis.parallel_loop import parallel_loop
from tests.analysis.parallel_loop.loop_module import loop_module
from tests.analysis.parallel_loop.unit_proof import found_in, loop_of

MIXES = {
    "stencil": (
        ["f32[4096]"],
        """  left = f32[4095] slice(x1), slice={[0:4095]}
  first = f32[1] slice(x1), slice={[0:1]}
  moved = f32[4096] concatenate(first, left), dimensions={0}
  y = f32[4096] add(x1, moved)""",
        "slice left mixes the 4096 elements of dimension 0 of x1",
    ),
    "bodies": (
        ["f32[512]"],
        """  a = f32[512,512] broadcast(x1), dimensions={0}
  b = f32[512,512] broadcast(x1), dimensions={1}
  d = f32[512,512] subtract(a, b)
  y = f32[512] reduce(d, nought), dimensions={1}, to_apply=add""",
        "reduce y mixes the 512 elements of dimension 1 of d; tuple r needs the result before the loop ends",
    ),
    "gather": (
        ["f32[64,9]"],
        """  p = s32[64,1] iota(), iota_dimension=0
  g = f32[64,9] gather(x1, p), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=1, slice_sizes={1,9}
  y = f32[64,9] reverse(g), dimensions={1}""",
        "gather g mixes the 64 elements of dimension 0 of x1",
    ),
    "outer product": (
        ["f32[64]", "f32[64,64]"],
        """  a = f32[64,64] broadcast(x1), dimensions={0}
  b = f32[64,64] broadcast(x1), dimensions={1}
  z = f32[64,64] multiply(a, b)
  y = f32[64] sine(x1)""",
        "broadcast b pairs each of 64 elements with each other",
    ),
}


@pytest.mark.parametrize("name", MIXES)
def test_what_mixes_is_named_with_size_and_place(name: str) -> None:
    """The instruction, how many elements, of which dimension of which value."""
    state, body, words = MIXES[name]
    following = ["y", "z"][: len(state)]
    found = found_in(loop_module(state, body, following))
    assert (found.sizes, found.mixing[0].words) == ((), words)


def test_the_largest_dimension_of_the_state_comes_first() -> None:
    """A user looks at what keeps the most from being parallel, and at no row that is written by number."""
    body = """  back = f32[7,900] reverse(x1), dimensions={0}
  turned = f32[7,900] reverse(back), dimensions={1}
  row = f32[1,7,900] reshape(turned)
  out = f32[5,7,900] dynamic-update-slice(x2, row, i, zero, zero)"""
    found = found_in(loop_module(["f32[7,900]", "f32[5,7,900]"], body, ["turned", "out"]))
    assert [one.words for one in found.mixing] == [
        "reverse turned mixes the 900 elements of dimension 1 of back",
        "reverse back mixes the 7 elements of dimension 0 of x1",
    ]


OBSTACLES = {
    "infeed": (
        """  t = token[] after-all()
  f = (f32[64], token[]) infeed(t)
  y = f32[64] get-tuple-element(f), index=0""",
        "infeed f runs outside of kernels",
    ),
    "custom-call": (
        '  y = f32[64] custom-call(x1), custom_call_target="mine"',
        'custom-call y calls "mine", which is not code of this module',
    ),
    "collective": (
        """  y = f32[64] all-reduce(x1), replica_groups={}, to_apply=add""",
        "all-reduce y runs outside of kernels",
    ),
    "rng": (
        "  y = f32[64] rng(nought, nought), distribution=rng_uniform",
        "rng y runs outside of kernels",
    ),
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_what_runs_outside_of_kernels_is_an_obstacle(name: str) -> None:
    """No axes are looked for; the instruction is named."""
    body, words = OBSTACLES[name]
    found = found_in(loop_module(["f32[64]"], body, ["y"]))
    assert found.obstacle is not None
    assert (found.sizes, found.obstacle.words) == ((), words)


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        ("token[]", "element 1 of its state is a token, which orders what is outside of kernels"),
        ("(f32[4], f32[4])", "element 1 of its state is a tuple; flatten it first"),
    ],
)
def test_a_state_that_is_not_flat_arrays_is_an_obstacle(inner: str, words: str) -> None:
    """Tokens and tuples in the state are said by the number of the element."""
    shape = f"(s32[], {inner})"
    text = f"""HloModule m
condition {{
  s = {shape} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT r = pred[] compare(i, n), direction=LT
}}
body {{
  s = {shape} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  k = s32[] add(i, one)
  x = {inner} get-tuple-element(s), index=1
  ROOT r = {shape} tuple(k, x)
}}
ENTRY e {{
  p = {shape} parameter(0)
  ROOT w = {shape} while(p), condition=condition, body=body
}}
"""
    module = hloopt.parse(text)
    found = parallel_loop(loop_of(module))
    assert found.obstacle is not None
    assert found.obstacle.words == words


def test_a_loop_inside_that_is_no_kernel_is_an_obstacle_outside() -> None:
    """What the loop inside meets, the loop around it meets."""
    called = """inner_condition {
  s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT r = pred[] compare(i, n), direction=LT
}
inner_body {
  s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[64] get-tuple-element(s), index=1
  y = f32[64] custom-call(x), custom_call_target="mine"
  ROOT r = (s32[], f32[64]) tuple(i, y)
}"""
    body = """  first = (s32[], f32[64]) tuple(zero, x1)
  inner = (s32[], f32[64]) while(first), condition=inner_condition, body=inner_body
  y = f32[64] get-tuple-element(inner), index=1"""
    found = found_in(loop_module(["f32[64]"], body, ["y"], called=called))
    assert found.obstacle is not None
    assert found.obstacle.words == 'custom-call y calls "mine", which is not code of this module'
