"""cuBLAS and cuDNN calls of optimised GPU modules."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import hloopt
from hloopt.errors import EvaluationError, UnsupportedError

RNG = np.random.default_rng(0)


def normal(*dims: int) -> np.ndarray:
    return RNG.standard_normal(dims).astype(np.float32)


def call(target: str, result: str, shapes: list[str], attributes: str, config: object) -> str:
    """A module of one call, whose root is the first element of its result."""
    parameters = "\n".join(f"  p{n} = {shape} parameter({n})" for n, shape in enumerate(shapes))
    names = ", ".join(f"p{n}" for n in range(len(shapes)))
    return f"""HloModule m
ENTRY e {{
{parameters}
  call = ({result}, u8[4]{{0}}) custom-call({names}), custom_call_target="{target}"{attributes}, backend_config={json.dumps(config)}
  ROOT r = {result} get-tuple-element(call), index=0
}}
"""


def gemm_config(**fields: object) -> object:
    numbers = {"lhs_contracting_dimensions": ["1"], "rhs_contracting_dimensions": ["0"]}
    return {"gemm_backend_config": {"dot_dimension_numbers": numbers, **fields}}


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("target", ["__cublas$gemm", "__cublas$lt$matmul"])
@pytest.mark.parametrize(
    ("fields", "finish"),
    [
        ({}, lambda p, c, b: p),
        ({"alpha_real": 0.5}, lambda p, c, b: 0.5 * p),
        ({"beta": 2}, lambda p, c, b: p + 2 * c),
        ({"epilogue": "BIAS"}, lambda p, c, b: p + b),
        ({"epilogue": "BIAS_RELU", "beta": 1}, lambda p, c, b: np.maximum(p + c + b, 0)),
        ({"epilogue": "GELU"}, lambda p, c, b: gelu(p)),
        ({"epilogue": "BIAS_SILU"}, lambda p, c, b: (p + b) / (1 + np.exp(-(p + b)))),
    ],
)
def test_matrix_products_with_epilogues(target: str, fields: dict, finish: object) -> None:
    """activation(alpha A B + beta C + bias)."""
    a, b, c, bias = normal(3, 4), normal(4, 5), normal(3, 5), normal(5)
    given, shapes = [a, b], ["f32[3,4]{1,0}", "f32[4,5]{1,0}"]
    if "beta" in fields:
        given.append(c)
        shapes.append("f32[3,5]{1,0}")
    if "BIAS" in str(fields.get("epilogue")):
        given.append(bias)
        shapes.append("f32[5]{0}")
    text = call(target, "f32[3,5]{1,0}", shapes, "", gemm_config(**fields))
    (found,) = hloopt.evaluate(hloopt.parse(text), given)
    np.testing.assert_allclose(found, finish(a @ b, c, bias), rtol=1e-5, atol=1e-5)


def test_the_operand_of_an_activation_can_be_a_result() -> None:
    """GELU_AUX gives what GELU was applied to as well."""
    a, b = normal(2, 3), normal(3, 2)
    text = call(
        "__cublas$lt$matmul",
        "f32[2,2]{1,0}",
        ["f32[2,3]{1,0}", "f32[3,2]{1,0}"],
        "",
        gemm_config(epilogue="GELU_AUX"),
    )
    text = text.replace("u8[4]{0}", "f32[2,2]{1,0}").replace("index=0", "index=1")
    (found,) = hloopt.evaluate(hloopt.parse(text), [a, b])
    np.testing.assert_allclose(found, a @ b, rtol=1e-5, atol=1e-6)


def test_a_triangular_system_is_solved() -> None:
    """With the options that the op itself has."""
    a, b = normal(3, 3) + 4 * np.eye(3, dtype=np.float32), normal(3, 2)
    options = {"left_side": True, "lower": True, "unit_diagonal": False, "transpose_a": "TRANSPOSE"}
    text = call(
        "__cublas$triangularSolve",
        "f32[3,2]{1,0}",
        ["f32[3,3]{1,0}", "f32[3,2]{1,0}"],
        "",
        options,
    )
    (found,) = hloopt.evaluate(hloopt.parse(text), [a, b])
    np.testing.assert_allclose(np.tril(a).T @ found, b, rtol=1e-4, atol=1e-5)


# window, feature groups, input size, output size of one spatial dimension
CONVOLUTIONS = [
    ("size=3 pad=1_1", 1, 6, 6),
    ("size=3 stride=2", 1, 7, 3),
    ("size=3 stride=2", 1, 8, 3),
    ("size=3 stride=2 pad=1_0 rhs_dilate=2", 2, 8, 3),
    ("size=2 pad=2_1 rhs_reversal=1", 3, 5, 7),
]


@pytest.mark.parametrize(("window", "groups", "size", "steps"), CONVOLUTIONS)
def test_backward_convolutions_are_the_adjoints_of_the_forward_one(
    window: str, groups: int, size: int, steps: int
) -> None:
    """<conv(x, k), g> = <x, backward-input(g, k)> = <k, backward-filter(x, g)>, for any layout."""
    width = int(window[5])
    x, k = normal(2, size, 2 * groups), normal(3 * groups, width, 2)
    g = normal(2, steps, 3 * groups)
    shapes = {
        "x": f"f32[2,{size},{2 * groups}]{{2,1,0}}",
        "k": f"f32[{3 * groups},{width},2]{{2,1,0}}",
        "g": f"f32[2,{steps},{3 * groups}]{{2,1,0}}",
    }
    attributes = f", window={{{window}}}, dim_labels=b0f_o0i->b0f, feature_group_count={groups}"

    def evaluate(target: str, result: str, operands: str, *arrays: np.ndarray) -> np.ndarray:
        given = [shapes[name] for name in operands]
        text = call(target, shapes[result], given, attributes, {"cudnn_conv_backend_config": {}})
        (found,) = hloopt.evaluate(hloopt.parse(text), arrays)
        return found.astype(np.float64)

    forward = evaluate("__cudnn$convForward", "g", "xk", x, k)
    plain = f"""HloModule m
ENTRY e {{
  x = {shapes["x"]} parameter(0)
  k = {shapes["k"]} parameter(1)
  ROOT c = {shapes["g"]} convolution(x, k){attributes}
}}
"""
    np.testing.assert_array_equal(forward, hloopt.evaluate(hloopt.parse(plain), [x, k])[0])
    wanted = (forward * g).sum()
    to_input = evaluate("__cudnn$convBackwardInput", "x", "gk", g, k)
    to_filter = evaluate("__cudnn$convBackwardFilter", "k", "xg", x, g)
    np.testing.assert_allclose((to_input * x).sum(), wanted, rtol=1e-4)
    np.testing.assert_allclose((to_filter * k).sum(), wanted, rtol=1e-4)


@pytest.mark.parametrize(
    ("mode", "activate"),
    [
        ("kNone", lambda z: z),
        ("kRelu", lambda z: np.maximum(z, 0)),
        ("kRelu6", lambda z: np.clip(z, 0, 6)),
        ("kElu", lambda z: np.where(z > 0, z, np.expm1(z))),
        ("kLeakyRelu", lambda z: np.where(z > 0, z, 0.25 * z)),
        ("kSigmoid", lambda z: 1 / (1 + np.exp(-z))),
        ("kTanh", np.tanh),
        ("2", lambda z: np.maximum(z, 0)),
    ],
)
def test_fused_convolutions(mode: str, activate: object) -> None:
    """activation(scale conv(x, k) + side_scale side + bias)."""
    x, k, bias, side = normal(1, 4, 4, 2), normal(3, 1, 1, 2), normal(3), normal(1, 4, 4, 3)
    config = {
        "activation_mode": mode,
        "conv_result_scale": 2,
        "side_input_scale": 3,
        "leakyrelu_alpha": 0.25,
    }
    shapes = [
        "f32[1,4,4,2]{3,2,1,0}",
        "f32[3,1,1,2]{3,2,1,0}",
        "f32[3]{0}",
        "f32[1,4,4,3]{3,2,1,0}",
    ]
    text = call(
        "__cudnn$convBiasActivationForward",
        shapes[3],
        shapes,
        ", window={size=1x1}, dim_labels=b01f_o01i->b01f",
        {"cudnn_conv_backend_config": config},
    )
    (found,) = hloopt.evaluate(hloopt.parse(text), [x, k, bias, side])
    wanted = activate(2 * x @ k[:, 0, 0].T + 3 * side + bias)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


F32, S, LABELS = "f32[2,2]{1,0}", "f32[]", ", dim_labels=bf_io->bf"


def graph(text: str) -> object:
    return {"cudnn_conv_backend_config": {"serialized_graph": text}}


def results(text: str, *arrays: np.ndarray) -> list[np.ndarray]:
    module = hloopt.parse(text)
    hloopt.verify(module)
    found = hloopt.evaluate(module, list(arrays))
    for ours, theirs in zip(found, hloopt.compile(module).run(list(arrays)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    return found


def whole_call(target: str, result: str, shapes: list[str], attributes: str, config: object) -> str:
    """A module whose root is the call with all its results."""
    parameters = "\n".join(f"  p{n} = {shape} parameter({n})" for n, shape in enumerate(shapes))
    names = ", ".join(f"p{n}" for n in range(len(shapes)))
    return f"""HloModule m
ENTRY e {{
{parameters}
  ROOT r = {result} custom-call({names}), custom_call_target="{target}"{attributes}, backend_config={json.dumps(config)}
}}
"""


@pytest.mark.every_value
@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("to", ["f32", "f8e4m3fn"])
def test_products_of_8_bits_have_scales(older: bool, to: str) -> None:
    """d_scale max(a_scale b_scale A B + bias, 0), saturated, and the largest magnitude before d_scale."""
    e4m3 = hloopt.types.DTYPES["f8e4m3fn"].numpy
    rng = np.random.default_rng(8)
    a = (rng.integers(-6, 7, (2, 4)) / 2).astype(e4m3)
    b = (rng.integers(-6, 7, (4, 3)) / 2).astype(e4m3)
    bias = np.array([1.0, -2.0, 40.0], np.float32)
    scales = [np.float32(4), np.float32(0.5)]
    narrow = to != "f32"
    more = [np.float32(7), np.float32(16)] if older else [np.float32(16)] if narrow else []
    shapes = ["f8e4m3fn[2,4]", "f8e4m3fn[4,3]", S, S, *[S] * len(more), "f32[3]"]
    result = f"({to}[2,3], f32[], u8[4])" if narrow else f"({to}[2,3], u8[4])"
    text = whole_call(
        "__cublas$lt$matmul$f8", result, shapes, "", gemm_config(epilogue="BIAS_RELU")
    )
    found = results(text, a, b, *scales, *more, bias)
    total = np.zeros((2, 3))
    for i, j in np.ndindex(2, 3):
        products = [float(a[i, k]) * float(b[k, j]) for k in range(4)]
        total[i, j] = max(2 * sum(products) + float(bias[j]), 0)
    factor = 16 if older or narrow else 1
    wanted = total * factor
    if narrow:
        assert (wanted > 448).any(), "some element saturates"
        wanted = np.minimum(wanted, 448).astype(e4m3)
        assert found[1] == total.max()
    np.testing.assert_array_equal(found[0].astype(np.float32), wanted.astype(np.float32))


@pytest.mark.parametrize("padded", [False, True])
def test_products_of_blocks_with_scales(padded: bool) -> None:
    """Each row of one operand meets each row of the other; padded scales have the blocks of their format."""
    lhs, rhs = normal(2, 3, 40), normal(2, 5, 40)
    kind = hloopt.types.DTYPES["f8e8m0fnu"].numpy
    dims = [(2, 4, 4), (2, 8, 4)] if padded else [(2, 3, 2), (2, 5, 1)]
    left, right = ((2.0 ** RNG.integers(-2, 3, d)).astype(kind) for d in dims)
    blocks = (32, 32) if padded else (20, 40)
    shapes = ["f32[2,3,40]", "f32[2,5,40]", *(f"f8e8m0fnu[{d[0]},{d[1]},{d[2]}]" for d in dims), S]
    text = whole_call("__op$block_scaled_dot", "f32[2,3,5]", shapes, "", {})
    (found,) = results(text, lhs, rhs, left, right, np.float32(3))
    for n, i, j in np.ndindex(2, 3, 5):
        total = 0.0
        for k in range(40):
            one = float(lhs[n, i, k]) * float(left[n, i, k // blocks[0]])
            total += one * float(rhs[n, j, k]) * float(right[n, j, k // blocks[1]])
        assert found[n, i, j] == pytest.approx(3 * total, rel=1e-4, abs=1e-3)


def test_a_graph_of_steps_after_a_convolution() -> None:
    """Operands come as the steps need them; largest magnitudes are results after the first."""
    x, k = normal(1, 3, 3, 2), normal(4, 1, 1, 2)
    scale, side, divisor = np.float32(100), normal(1, 3, 3, 4), np.float32(0.5)
    steps = "1:[f32]conv();5:[f32]scale(1);2:[f32]add(5);9:[f32]relu(2);4:[f32]amax(9);7:[f8e5m2]invscale(9);"
    shapes = ["f32[1,3,3,2]", "f32[4,1,1,2]", S, "f32[1,3,3,4]", S]
    text = whole_call(
        "__cudnn$convForwardGraph",
        "(f8e5m2[1,3,3,4], f32[], u8[0])",
        shapes,
        ", window={size=1x1}, dim_labels=b01f_o01i->b01f",
        graph(steps),
    )
    found, largest, _ = results(text, x, k, scale, side, divisor)
    wanted = np.maximum(x @ k[:, 0, 0].T * scale + side, 0)
    assert largest == pytest.approx(wanted.max(), rel=1e-5)
    kind = hloopt.types.DTYPES["f8e5m2"].numpy
    np.testing.assert_allclose(
        found.astype(float), (wanted * 2).astype(kind).astype(float), rtol=0.26
    )


@pytest.mark.parametrize(
    ("target", "shapes", "attributes", "config", "message"),
    [
        ("__cublas$gemm", [F32, F32], "", {}, "which dimensions meet"),
        ("__cublas$gemm", [F32, F32], "", {"gemm_backend_config": 3}, "which dimensions meet"),
        ("__cublas$gemm", [F32], "", gemm_config(), "with 1 operands instead of 2"),
        ("__cublas$gemm", [F32, F32], "", gemm_config(beta=1), "with 2 operands instead of 3"),
        ("__cublas$gemm", [F32, F32], "", gemm_config(epilogue="TANH"), "with the epilogue TANH"),
        ("__cublas$gemm", [F32, "f32[3,2]{1,0}"], "", gemm_config(), "dimensions do not meet"),
        ("__cublas$triangularSolve", [F32, F32], "", {}, "which system is to be solved"),
        ("__cublas$triangularSolve", [F32, F32], "", {"transpose_a": "T"}, "which system"),
        (
            "__cublas$triangularSolve",
            [F32, F32],
            "",
            {"transpose_a": "TRANSPOSE", "lower": "false"},
            "which system",
        ),
        ("__cublas$lt$matmul$f8", [F32, F32], "", {}, "which dimensions meet"),
        ("__cublas$lt$matmul$f8", [F32, F32], "", gemm_config(), "0 scales instead of 2, 3 or 4"),
        (
            "__cublas$lt$matmul$f8",
            [F32, F32, S, S],
            "",
            gemm_config(epilogue="BIAS"),
            "4 operands instead of 5",
        ),
        ("__op$block_scaled_dot", [F32, F32], "", {}, "is not one product"),
        ("__cudnn$convForwardGraph", [F32, F32], LABELS, graph(""), "without a serialized_graph"),
        (
            "__cudnn$convForwardGraph",
            [F32, F32],
            LABELS,
            graph("1:[f32]conv();x"),
            "without a serialized_graph",
        ),
        (
            "__cudnn$convForwardGraph",
            [F32, F32],
            LABELS,
            graph("1:[f32]conv();2:[f32]tanh(1);"),
            "with the step f32 tanh",
        ),
        (
            "__cudnn$convForwardGraph",
            [F32, F32],
            LABELS,
            graph("1:[f32]conv();2:[f32]add(1);"),
            "2 operands instead of 3",
        ),
        (
            "__cudnn$convForwardGraph",
            [F32, F32],
            LABELS,
            graph("1:[f32]conv();2:[f32]relu(7);"),
            "the step relu of 1",
        ),
        (
            "__cudnn$convForwardGraph",
            [F32, F32],
            LABELS,
            graph("1:[f32]conv();2:[f32]amax(1);"),
            "2 results instead of 3",
        ),
        ("__cudnn$convForward", [F32, F32], "", {}, "without dim_labels"),
        (
            "__cudnn$convForward",
            [F32, F32],
            ", dim_labels=bf_io->bf",
            {"activation_mode": "kSwish"},
            "with the activation kSwish",
        ),
        (
            "__cudnn$convForward",
            ["s8[2,2]{1,0}", "s8[2,2]{1,0}"],
            ", dim_labels=bf_io->bf",
            {},
            "only floats",
        ),
    ],
)
def test_calls_that_do_not_say_what_they_compute_are_refused(
    target: str, shapes: list[str], attributes: str, config: object, message: str
) -> None:
    """Before anything runs, by name and line."""
    module = hloopt.parse(call(target, F32, shapes, attributes, config))
    with pytest.raises(UnsupportedError) as caught:
        hloopt.evaluate(module, [np.zeros((2, 2), np.float32)] * len(shapes))
    assert message in caught.value.message
    assert caught.value.line == 3 + len(shapes)


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        ("f32[2,4]", "which does not divide f32[2,2] into blocks"),
        ("f8e8m0fnu[1,1]", "which does not divide f32[2,2] into blocks"),
        ("f32[2]", "of operands and scales of different ranks"),
    ],
)
def test_scales_that_fit_no_block_are_refused(scale: str, message: str) -> None:
    module = hloopt.parse(
        whole_call("__op$block_scaled_dot", "f32[2,2]", ["f32[2,2]", "f32[2,2]", scale], "", {})
    )
    with pytest.raises(UnsupportedError, match=re.escape(message)):
        hloopt.compile(module)


GEMM = "__cublas$lt$matmul"
CONV = ", window={size=3x3}, dim_labels=bf01_oi01->bf01"


@pytest.mark.parametrize(
    ("target", "shapes", "attributes", "config", "message"),
    [
        (GEMM, [F32, F32], "", gemm_config(alpha_real="x"), "convert string to float: 'x'"),
        (GEMM, [F32, F32], "", gemm_config(alpha_real=None), "do not fit: float"),
        (GEMM, [F32, F32, "f32[5]"], "", gemm_config(epilogue="BIAS"), "do not fit: operands"),
        (GEMM, [F32, "f32[2,3]"], "", gemm_config(), r"gives \[2, 3\], not f32\[2,2\]"),
        ("__cudnn$convForward", ["f32[1,2,5]", "f32[3,2,3]"], CONV, {}, "do not fit: axes"),
        (
            "__cudnn$convForward",
            ["f32[1,2,4,4]", "f32[3,2,3,3]"],
            CONV,
            {},
            r"gives \[1, 3, 2, 2\], not f32\[2,2\]",
        ),
    ],
)
def test_calls_whose_shapes_and_options_contradict_each_other_stop_with_their_place(
    target: str, shapes: list[str], attributes: str, config: object, message: str
) -> None:
    """No verifier has looked at the shapes of a custom call."""
    module = hloopt.parse(call(target, "f32[2,2]", shapes, attributes, config), "m")
    inputs = [np.ones(parameter.array.dims, np.float32) for parameter in module.entry.parameters]
    place = rf"m:{3 + len(shapes)}:3: call: "
    with pytest.raises(EvaluationError, match=rf"{place}.*{message}"):
        hloopt.evaluate(module, inputs)
    with pytest.raises(EvaluationError, match=rf"{place}.*{message}"):
        hloopt.compile(module).run(inputs)


def test_options_nested_without_end_are_refused() -> None:
    """No options of a library are as deep as Python's stack."""
    text = call(GEMM, "f32[2,2]", [F32, F32], "", {}).replace("{}", '"' + "[" * 100_000 + '"')
    with pytest.raises(UnsupportedError, match="which dimensions meet"):
        hloopt.evaluate(hloopt.parse(text), [np.ones((2, 2), np.float32)] * 2)
