"""Cost counts flops, transcendental functions and bytes as XLA's HLO cost analysis does."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloopt
from hloopt.analysis.cost import Cost, computation_cost, instruction_cost, module_cost
from hloopt.analysis.library_calls import valid_products
from hloopt.types import WindowDim

SUM = "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"


def _cost(body: str, name: str = "r", regions: str = SUM) -> Cost:
    module = hloopt.parse(f"HloModule m\n{regions}ENTRY e {{\n{body}\n}}\n")
    return instruction_cost(module.entry.by_name[name])


def test_costs_add_and_scale() -> None:
    """Field by field."""
    assert Cost(1, 2, 3, 4) + Cost(10, 20, 30, 40) == Cost(11, 22, 33, 44)
    assert Cost(1, 2, 3, 4) * 3 == 3 * Cost(1, 2, 3, 4) == Cost(3, 6, 9, 12)
    assert Cost(4, 0, 6, 2).arithmetic_intensity == 0.5
    assert Cost().arithmetic_intensity == 0


def test_elementwise_ops_take_their_row() -> None:
    """One flop an element; transcendental functions are counted apart."""
    add = "p = f32[8] parameter(0)\nROOT r = f32[8] add(p, p)"
    exp = "p = bf16[8] parameter(0)\nROOT r = bf16[8] exponential(p)"
    assert _cost(add) == Cost(8, 0, 64, 32)
    assert _cost(exp) == Cost(0, 8, 16, 16)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("p = f32[8] parameter(0)\nROOT r = f32[1,8] reshape(p)", Cost(0, 0, 32, 32)),
        ("p = f32[8] parameter(0)\nROOT r = f32[8] bitcast(p)", Cost()),
        ("p = f32[8] parameter(0)\nROOT r = f32[2] slice(p), slice={[0:2]}", Cost(0, 0, 8, 8)),
        (
            (
                "p = f32[8] parameter(0)\ni = s32[] parameter(1)\n"
                "ROOT r = f32[2] dynamic-slice(p, i), dynamic_slice_sizes={2}"
            ),
            Cost(0, 0, 12, 8),
        ),
        (
            (
                "p = f32[8] parameter(0)\nu = f32[2] parameter(1)\ni = s32[] parameter(2)\n"
                "ROOT r = f32[8] dynamic-update-slice(p, u, i)"
            ),
            Cost(0, 0, 12, 8),
        ),
        (
            (
                "p = f32[100] parameter(0)\ni = s32[5,1] parameter(1)\n"
                "ROOT r = f32[5] gather(p, i), offset_dims={}, collapsed_slice_dims={0}, "
                "start_index_map={0}, index_vector_dim=1, slice_sizes={1}"
            ),
            Cost(0, 0, 40, 20),
        ),
        (
            (
                "p = f32[100] parameter(0)\ni = s32[5,1] parameter(1)\nu = f32[5] parameter(2)\n"
                "ROOT r = f32[100] scatter(p, i, u), update_window_dims={}, inserted_window_dims={0}, "
                "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum"
            ),
            Cost(5, 0, 60, 20),
        ),
        (
            (
                "p = f32[4,8] parameter(0)\nz = f32[] constant(0)\n"
                "ROOT r = f32[4] reduce(p, z), dimensions={1}, to_apply=sum"
            ),
            Cost(28, 0, 132, 16),
        ),
        (
            (
                "p = f32[8] parameter(0)\nz = f32[] constant(0)\n"
                "ROOT r = f32[6] reduce-window(p, z), window={size=3}, to_apply=sum"
            ),
            Cost(12, 0, 36, 24),
        ),
        (
            (
                "a = f32[4,8] parameter(0)\nb = f32[8,5] parameter(1)\n"
                "ROOT r = f32[4,5] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
            ),
            Cost(2 * 4 * 8 * 5, 0, 4 * (32 + 40), 80),
        ),
        (
            (
                "a = f32[3,4,8] parameter(0)\nb = f32[3,8,5] parameter(1)\n"
                "ROOT r = f32[3,4,5] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0}, "
                "lhs_contracting_dims={2}, rhs_contracting_dims={1}"
            ),
            Cost(2 * 3 * 4 * 8 * 5, 0, 12 * (32 + 40), 240),
        ),
    ],
)
def test_rules(body: str, expected: Cost) -> None:
    """One case for each kind of op."""
    assert _cost(body) == expected


def test_convolution_leaves_padding_out() -> None:
    """A 3-wide kernel over 8 elements padded by 1: the two outer positions have 2 valid products."""
    body = (
        "a = f32[2,8,3] parameter(0)\nb = f32[3,3,5] parameter(1)\n"
        "ROOT r = f32[2,8,5] convolution(a, b), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f"
    )
    assert _cost(body).flops == 2 * 2 * 3 * 5 * (8 * 3 - 2)


def test_grouped_convolution_counts_its_group_only() -> None:
    """Depthwise: each output feature reads one input feature."""
    body = (
        "a = f32[2,8,4] parameter(0)\nb = f32[3,1,4] parameter(1)\n"
        "ROOT r = f32[2,6,4] convolution(a, b), window={size=3}, dim_labels=b0f_0io->b0f, "
        "feature_group_count=4"
    )
    assert _cost(body).flops == 2 * 2 * 4 * 6 * 3


@given(
    st.integers(1, 4), st.integers(1, 3), st.integers(-2, 3), st.integers(-2, 3),
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 9),
)  # fmt: skip
def test_valid_products_by_hand(
    size: int, stride: int, low: int, high: int, base: int, window: int, source: int
) -> None:
    """The closed form agrees with trying every position."""
    dilated = (source - 1) * base + 1
    reach = (size - 1) * window + 1
    result = max(0, (dilated + low + high - reach) // stride + 1)
    expected = 0
    for position, element in itertools.product(range(result), range(size)):
        at = position * stride + element * window - low
        expected += 0 <= at < dilated and at % base == 0
    dimension = WindowDim(size, stride, low, high, base, window)
    assert valid_products(dimension, source, result) == expected


LOOP = """HloModule m
cond { s = (s32[], f32[8]) parameter(0) i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(10) ROOT c = pred[] compare(i, n), direction=LT }
body { s = (s32[], f32[8]) parameter(0) i = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1 k = s32[] constant(1) j = s32[] add(i, k)
  y = f32[8] exponential(x) ROOT r = (s32[], f32[8]) tuple(j, y) }
ENTRY e { x = f32[8] parameter(0) z = s32[] START t = (s32[], f32[8]) tuple(z, x)
  ROOT w = (s32[], f32[8]) while(t), condition=cond, body=body }
"""


def test_a_loop_costs_its_trips() -> None:
    """The body ten times, the condition once more; once where the count is unknown."""
    known = module_cost(hloopt.parse(LOOP.replace("START", "constant(0)")))
    assert known == Cost(10 * 1 + 11 * 1, 80, 10 * 40 + 11 * 8, 10 * 36 + 11)
    unknown = module_cost(hloopt.parse(LOOP.replace("START", "parameter(1)")))
    assert unknown.transcendentals == 8


def test_a_conditional_costs_its_worst_branch() -> None:
    """Figure by figure."""
    text = """HloModule m
a { x = f32[8] parameter(0) ROOT y = f32[8] exponential(x) }
b { x = f32[8] parameter(0) y = f32[8] add(x, x) ROOT z = f32[8] add(y, y) }
ENTRY e { p = pred[] parameter(0) x = f32[8] parameter(1)
  ROOT r = f32[8] conditional(p, x, x), true_computation=a, false_computation=b }
"""
    assert module_cost(hloopt.parse(text)) == Cost(16, 8, 128, 64)


def test_a_fusion_moves_only_what_enters_and_leaves() -> None:
    """Intermediates stay in registers; a parameter that is only sliced is read in part."""
    text = """HloModule m
f { a = f32[8] parameter(0) b = f32[100] parameter(1) s = f32[8] slice(b), slice={[0:8]}
  c = f32[8] multiply(a, s) ROOT d = f32[8] tanh(c) }
ENTRY e { a = f32[8] parameter(0) b = f32[100] parameter(1)
  ROOT r = f32[8] fusion(a, b), kind=kLoop, calls=f }
"""
    module = hloopt.parse(text)
    assert computation_cost(module.entry) == Cost(8, 8, 64, 32)


def test_a_scatter_in_place_moves_what_it_updates() -> None:
    """In a fusion as by itself: the array around it is not touched."""
    module = hloopt.parse("""HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
f { a = f32[100] parameter(0) i = s32[5,1] parameter(1) u = f32[5] parameter(2)
  n = f32[5] negate(u) ROOT s = f32[100] scatter(a, i, n), update_window_dims={}, inserted_window_dims={0},
  scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum }
ENTRY e { a = f32[100] parameter(0) i = s32[5,1] parameter(1) u = f32[5] parameter(2)
  ROOT r = f32[100] fusion(a, i, u), kind=kInput, calls=f }
""")
    cost = instruction_cost(module.entry.root)
    assert (cost.bytes_read, cost.bytes_written) == (60, 20)


def test_an_update_in_place_writes_the_update() -> None:
    """A fused dynamic-update-slice of a parameter touches neither input nor output as a whole."""
    text = """HloModule m
f { a = f32[100] parameter(0) u = f32[4] parameter(1) i = s32[] parameter(2)
  n = f32[4] negate(u) ROOT d = f32[100] dynamic-update-slice(a, n, i) }
ENTRY e { a = f32[100] parameter(0) u = f32[4] parameter(1) i = s32[] parameter(2)
  ROOT r = f32[100] fusion(a, u, i), kind=kLoop, calls=f }
"""
    assert module_cost(hloopt.parse(text)) == Cost(4, 0, 20, 16)


@pytest.mark.parametrize("window", ["", "window={}, "])
def test_a_window_left_out_costs_as_one_of_single_elements(window: str) -> None:
    """Convolution and reduce-window."""
    convolution = (
        "x = f32[2,3,3,4] parameter(0)\nk = f32[1,1,4,5] parameter(1)\n"
        f"ROOT r = f32[2,3,3,5] convolution(x, k), {window}dim_labels=b01f_01io->b01f"
    )
    reduce_window = (
        "x = f32[3,3] parameter(0)\nz = f32[] parameter(1)\n"
        f"ROOT r = f32[3,3] reduce-window(x, z), {window}to_apply=sum"
    )
    assert _cost(convolution).flops == 2 * 2 * 9 * 4 * 5
    assert _cost(reduce_window).flops == 0


def test_library_calls_cost_what_their_ops_would() -> None:
    """A product handed to cuBLAS has the flops of the dot, and its scratch space is no result."""
    config = (
        'backend_config={"gemm_backend_config":{"dot_dimension_numbers":'
        '{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}'
    )
    params = "a = f32[4,5] parameter(0)\nb = f32[5,6] parameter(1)\n"
    target = 'custom_call_target="__cublas$gemm"'
    call = f"{params}ROOT r = (f32[4,6], s8[999]) custom-call(a, b), {target}, {config}"
    dot = f"{params}ROOT r = f32[4,6] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    assert _cost(call) == _cost(dot) == Cost(2 * 4 * 6 * 5, 0, 4 * (20 + 30), 4 * 24)
    silent = f"{params}ROOT r = (f32[4,6], s8[999]) custom-call(a, b), {target}"
    assert _cost(silent).flops == 0


def test_convolutions_of_cudnn_cost_the_same_in_all_directions() -> None:
    """Forward, the gradient of the input and that of the kernel multiply as often."""
    x, k, y = "f32[2,3,8,8]", "f32[3,4,3,3]", "f32[2,4,6,6]"

    def cost(target: str, left: str, right: str, result: str) -> Cost:
        return _cost(
            f"a = {left} parameter(0)\nb = {right} parameter(1)\n"
            f"ROOT r = ({result}, u8[0]) custom-call(a, b), window={{size=3x3}}, "
            f'dim_labels=bf01_io01->bf01, custom_call_target="__cudnn$conv{target}"'
        )

    plain = _cost(
        f"a = {x} parameter(0)\nb = {k} parameter(1)\n"
        f"ROOT r = {y} convolution(a, b), window={{size=3x3}}, dim_labels=bf01_io01->bf01"
    )
    assert plain.flops == 2 * 2 * 3 * 4 * 36 * 9
    assert cost("Forward", x, k, y) == plain
    assert cost("BackwardInput", y, k, x).flops == plain.flops
    assert cost("BackwardFilter", x, y, k).flops == plain.flops


def test_a_sparse_operand_counts_its_values() -> None:
    """Of values and their places only the values are multiplied."""
    cost = _cost(
        "a = f32[3,16] parameter(0)\nv = f32[2,5] parameter(1)\ni = s32[2,5] parameter(2)\n"
        "k = (f32[2,5], s32[2,5]) tuple(v, i)\n"
        "ROOT r = f32[3,5] convolution(a, k), dim_labels=bf_io->bf, "
        "sparsity_config={rhs={sparsity=1x8 dimension=0 stride=1}}"
    )
    assert cost == Cost(2 * 3 * 2 * 5, 0, 4 * (48 + 10 + 10), 4 * 15)


def test_other_custom_calls_cost_their_bytes() -> None:
    """Nobody knows what they compute."""
    call = 'p = f32[8] parameter(0)\nROOT r = f32[2] custom-call(p), custom_call_target="mine"'
    assert _cost(call) == Cost(0, 0, 32, 8)
