"""cuDNN's layer normalisation and attention, one row after the other."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import hloopt
from hloopt.errors import UnsupportedError

RNG = np.random.default_rng(3)


def normal(*dims: int) -> np.ndarray:
    return RNG.standard_normal(dims).astype(np.float32)


def evaluate(target: str, result: str, config: object, *arrays: np.ndarray) -> list[np.ndarray]:
    lines = "\n".join(
        f"  p{n} = f32[{','.join(map(str, array.shape))}] parameter({n})"
        for n, array in enumerate(arrays)
    )
    names = ", ".join(f"p{n}" for n in range(len(arrays)))
    module = hloopt.parse(
        f"HloModule m\nENTRY e {{\n{lines}\n  ROOT r = {result} custom-call({names}), "
        f'custom_call_target="{target}", backend_config={json.dumps(config)}\n}}\n'
    )
    hloopt.verify(module)
    found = hloopt.evaluate(module, list(arrays))
    for ours, theirs in zip(found, hloopt.compile(module).run(list(arrays)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    return found


def norm(kind: str) -> object:
    return {"cudnn_norm_backend_config": {"epsilon": 0.25, "kind": kind}}


def normalized(row: np.ndarray) -> tuple[list[float], float, float]:
    values = [float(x) for x in row.reshape(-1)]
    mean = sum(values) / len(values)
    variance = sum((x - mean) ** 2 for x in values) / len(values)
    factor = 1 / math.sqrt(variance + 0.25)
    return [(x - mean) * factor for x in values], mean, factor


def test_layers_are_normalized() -> None:
    """Over the dimensions that the scale has; in training with mean and factor."""
    x, scale, bias = normal(3, 2, 4, 1), normal(1, 2, 4, 1), normal(1, 2, 4, 1)
    (plain, _) = evaluate(
        "__cudnn$norm", "(f32[3,2,4,1], u8[8])", norm("LAYER_FWD_INFER"), x, scale, bias
    )
    shape = "(f32[3,2,4,1], f32[3,1,1,1], f32[3,1,1,1], u8[8])"
    trained, means, factors, _ = evaluate(
        "__cudnn$norm", shape, norm("LAYER_FWD_TRAIN"), x, scale, bias
    )
    np.testing.assert_array_equal(plain, trained)
    for row in range(3):
        values, mean, factor = normalized(x[row])
        wanted = np.array(values).reshape(2, 4, 1) * scale[0] + bias[0]
        np.testing.assert_allclose(plain[row], wanted, rtol=1e-5, atol=1e-5)
        assert means[row, 0, 0, 0] == pytest.approx(mean, abs=1e-6)
        assert factors[row, 0, 0, 0] == pytest.approx(factor, rel=1e-6)


def test_gradients_of_a_layer_are_differences_of_its_values() -> None:
    """A small step in any input changes the weighted sum of the results by its gradient."""
    x, scale, bias, g = normal(3, 5), normal(1, 5), normal(1, 5), normal(3, 5)

    def weighted(x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> float:
        rows = [np.array(normalized(row)[0]) for row in x]
        return float(((np.array(rows) * scale + bias) * g).sum())

    parts = [normalized(row)[1:] for row in x]
    means = np.array([[mean] for mean, _ in parts], np.float32)
    factors = np.array([[factor] for _, factor in parts], np.float32)
    shape = "(f32[3,5], f32[1,5], f32[1,5], u8[8])"
    *found, _ = evaluate("__cudnn$norm", shape, norm("LAYER_BWD"), x, scale, g, means, factors)
    inputs = [x, scale, bias]
    for which, gradient in enumerate(found):
        for index in np.ndindex(*gradient.shape):
            step = np.zeros(gradient.shape)
            step[index] = 1e-5
            up, down = (
                weighted(
                    *[
                        a + sign * step if n == which else a.astype(float)
                        for n, a in enumerate(inputs)
                    ]
                )
                for sign in (1, -1)
            )
            assert gradient[index] == pytest.approx((up - down) / 2e-5, rel=1e-3, abs=1e-3)


def attention(**fields: object) -> object:
    def numbers(left: int, right: int) -> object:
        dims = {"lhs_batch_dimensions": ["0", "1"], "rhs_batch_dimensions": ["0", "1"]}
        return dims | {
            "lhs_contracting_dimensions": [str(left)],
            "rhs_contracting_dimensions": [str(right)],
        }

    return {
        "cudnn_fmha_backend_config": {
            "fmha_scale": 0.5,
            "bmm1_dot_dimension_numbers": numbers(3, 3),
            "bmm2_dot_dimension_numbers": numbers(3, 2),
            **fields,
        }
    }


@pytest.mark.parametrize("mask", ["NO_MASK", "CAUSAL"])
@pytest.mark.parametrize("biased", [False, True])
def test_attention(mask: str, biased: bool) -> None:
    """Each query's weights sum to 1; the logarithms of the sums come second."""
    query, key, value = normal(2, 1, 3, 4), normal(2, 1, 5, 4), normal(2, 1, 5, 6)
    bias = normal(1, 1, 3, 5)
    target = "__cudnn$fmhaScaleBiasSoftmax" if biased else "__cudnn$fmhaSoftmax"
    arrays = [query, key, value, *([bias] if biased else [])]
    shape = "(f32[2,1,3,6], f32[2,1,3], u8[0])"
    found, logarithms, _ = evaluate(target, shape, attention(mask_type=mask), *arrays)
    for n, i in np.ndindex(2, 3):
        scores = [0.5 * float(query[n, 0, i] @ key[n, 0, j]) for j in range(5)]
        if biased:
            scores = [score + float(bias[0, 0, i, j]) for j, score in enumerate(scores)]
        seen = range(i + 1) if mask == "CAUSAL" else range(5)
        total = sum(math.exp(scores[j]) for j in seen)
        wanted = sum(math.exp(scores[j]) / total * value[n, 0, j].astype(float) for j in seen)
        np.testing.assert_allclose(found[n, 0, i], wanted, rtol=1e-5, atol=1e-6)
        assert logarithms[n, 0, i] == pytest.approx(math.log(total), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("heads_first", [True, False])
@pytest.mark.parametrize("mask", ["NO_MASK", "CAUSAL"])
def test_gradients_of_attention_are_differences_of_its_values(heads_first: bool, mask: str) -> None:
    """A small step in any operand changes the weighted sum of the results by its gradient."""
    batch = 1 if heads_first else 2
    order = (0, 1, 2, 3) if heads_first else (0, 2, 1, 3)
    query, key, value, g = (
        normal(1, 2, 3, 2),
        normal(1, 2, 4, 2),
        normal(1, 2, 4, 3),
        normal(1, 2, 3, 3),
    )
    bias = normal(1, 1, 3, 4)

    def forward(*parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        q, k, v, b = (part.astype(float) for part in parts)
        scores = 0.5 * q @ k.swapaxes(-1, -2) + b
        if mask == "CAUSAL":
            scores = np.where(np.arange(4) > np.arange(3)[:, None], -np.inf, scores)
        total = np.exp(scores).sum(axis=-1)
        return np.exp(scores) / total[..., None] @ v, np.log(total)

    def numbers(left: int, right: int, rows: int) -> object:
        return {
            "lhs_batch_dimensions": ["0", "1"],
            "rhs_batch_dimensions": ["0", str(batch)],
            "lhs_contracting_dimensions": [str(left)],
            "rhs_contracting_dimensions": [str(right if right == 3 else rows)],
        }

    places = 2 if heads_first else 1
    fields = {
        "bmm1_grad_gemm1_dot_dimension_numbers": numbers(2, 2, places),
        "bmm1_grad_gemm2_dot_dimension_numbers": numbers(3, 2, places),
        "bmm2_grad_gemm1_dot_dimension_numbers": numbers(2, 2, places),
        "bmm2_grad_gemm2_dot_dimension_numbers": numbers(3, 3, places),
    }
    inputs = [query, key, value, bias]
    result, logarithm = forward(*inputs)
    laid = [np.ascontiguousarray(a.transpose(order)) for a in (query, key, value, g)]
    shape = "(f32[1,2,3,2], f32[1,2,4,2], f32[1,2,4,3], f32[1,1,3,4], u8[0])"
    *found, _ = evaluate(
        "__cudnn$fmhaScaleBiasSoftmaxBackward",
        shape,
        attention(mask_type=mask, **fields),
        *laid[:3],
        logarithm.astype(np.float32),
        laid[3],
        bias,
        np.ascontiguousarray(result.transpose(order)).astype(np.float32),
    )
    for which, gradient in enumerate(found):
        for index in np.ndindex(*gradient.shape):
            step = np.zeros(gradient.shape)
            step[index] = 1e-5
            up, down = (
                (
                    forward(*[a + sign * step if n == which else a for n, a in enumerate(inputs)])[
                        0
                    ]
                    * g
                ).sum()
                for sign in (1, -1)
            )
            assert gradient[index] == pytest.approx((up - down) / 2e-5, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize(
    ("target", "count", "result", "config", "message"),
    [
        ("__cudnn$norm", 3, "(f32[2,2], u8[8])", norm("GROUP"), "of the kind GROUP"),
        ("__cudnn$norm", 3, "(f32[2,2], u8[8])", {}, "of the kind that is not said"),
        ("__cudnn$norm", 2, "(f32[2,2], u8[8])", norm("LAYER_FWD_INFER"), "2 operands and 2 results"),
        ("__cudnn$fmhaSoftmax", 3, "(f32[2,2], u8[0])", {}, "says which dimensions meet"),
        ("__cudnn$fmhaSoftmax", 2, "(f32[2,2], u8[0])", attention(), "2 operands instead of 3"),
        ("__cudnn$fmhaSoftmax", 3, "(f32[2,2], u8[0])", attention(dropout_rate=0.1), "with dropout"),
        ("__cudnn$fmhaSoftmax", 3, "(f32[2,2], u8[0])", attention(dropout_rate="x"), "an option that is not a number"),
        ("__cudnn$fmhaSoftmax", 3, "(f32[2,2], u8[0])", attention(mask_type="PADDING"), "the mask PADDING"),
        ("__cudnn$fmhaSoftmax", 3, "(f32[2,2], u8[0])", attention(sliding_window_length=4), "a sliding window"),
        ("__cudnn$fmhaSoftmax", 3, "(f32[2,2], u8[0])", attention(max_seg_per_batch=2), "packed sequences"),
        ("__cudnn$fmhaSoftmax", 3, "(f32[2,2], u8[0])", attention(), "not batch, heads, places"),
        ("__cudnn$fmhaSoftmaxBackward", 3, "(f32[2,2], u8[0])", attention(), "which dimensions meet"),
        ("__cudnn$fmhaSoftmaxDropout", 3, "(f32[2,2], u8[0])", attention(), "has no evaluation"),
    ],
)  # fmt: skip
def test_calls_that_need_more_than_their_operands_are_refused(
    target: str, count: int, result: str, config: object, message: str
) -> None:
    """Before anything runs, by name and line."""
    with pytest.raises(UnsupportedError) as caught:
        evaluate(target, result, config, *[np.zeros((2, 2), np.float32)] * count)
    assert message in caught.value.message
    assert caught.value.line == 3 + count
