"""Experts that are computed for all tokens: which weights are zero, and the same with the chosen ones alone."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.findings import Planner, pipeline_for
from hloopt.findings.dense_experts import for_all_tokens
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.targets import find_target

TOKENS, EXPERTS, EACH, WIDTH = 12, 6, 2, 4

HEAD = """HloModule experts
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
last {
  a = f32[] parameter(0)
  ROOT b = f32[] parameter(1)
}
ENTRY main {
  x = f32[12,4] parameter(0)
  scores = f32[12,6] parameter(1)
  up = f32[6,4,4] parameter(2)
  down = f32[6,4,4] parameter(3)
  bias = f32[6,4] parameter(4)
  zero = f32[] constant(0)
  top = (f32[12,2], s32[12,2]) topk(scores), k=2, largest=true
  scale = f32[12,2] get-tuple-element(top), index=0
  ids = s32[12,2] get-tuple-element(top), index=1
"""
ONE_HOT = """
  rows = s32[12,2,6] broadcast(ids), dimensions={0,1}
  columns = s32[12,2,6] iota(), iota_dimension=2
  hit = pred[12,2,6] compare(rows, columns), direction=EQ
"""
SUMMED = f"""{ONE_HOT}
  one = f32[12,2,6] convert(hit)
  each = f32[12,2,6] broadcast(scale), dimensions={{0,1}}
  both = f32[12,2,6] multiply(one, each)
  w = f32[12,6] reduce(both, zero), dimensions={{1}}, to_apply=add
"""
CHOSEN = f"""{ONE_HOT}
  each = f32[12,2,6] broadcast(scale), dimensions={{0,1}}
  none = f32[12,2,6] broadcast(zero), dimensions={{}}
  both = f32[12,2,6] select(hit, each, none)
  w = f32[12,6] reduce(both, zero), dimensions={{1}}, to_apply=add
"""
PRODUCT = f"""{ONE_HOT}
  one = f32[12,2,6] convert(hit)
  w = f32[12,6] dot(scale, one), lhs_batch_dims={{0}}, lhs_contracting_dims={{1}}, rhs_batch_dims={{0}}, rhs_contracting_dims={{1}}
"""
SCATTERED = """
  row = s32[12,2,1] iota(), iota_dimension=0
  column = s32[12,2,1] reshape(ids)
  at = s32[12,2,2] concatenate(row, column), dimensions={2}
  none = f32[12,6] broadcast(zero), dimensions={}
  w = f32[12,6] scatter(none, at, scale), update_window_dims={}, inserted_window_dims={0,1}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=2, to_apply=last
"""
DENSE = "  w = f32[12,6] tanh(scores)\n"
ANY = SUMMED.replace("broadcast(ids)", "broadcast(other)").replace(
    "rows =", "other = s32[12,2] convert(scale)\n  rows ="
)

EXPERTS_FIRST = """
  wide = f32[12,6,4] dot(x, up), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  biases = f32[12,6,4] broadcast(bias), dimensions={1,2}
  tokens = f32[12,6,4] broadcast(x), dimensions={0,2}
  added = f32[12,6,4] add(wide, biases)
  both_added = f32[12,6,4] add(added, tokens)
  hidden = f32[12,6,4] tanh(both_added)
  made = f32[6,12,4] dot(hidden, down), lhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1}
"""
DOT = """
  ROOT r = f32[12,4] dot(w, made), lhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_batch_dims={1}, rhs_contracting_dims={0}
}
"""
TURNED = """
  turned = f32[4,12,6] transpose(made), dimensions={2,1,0}
  spread = f32[4,12,6] broadcast(w), dimensions={1,2}
  scaled = f32[4,12,6] multiply(turned, spread)
  ROOT r = f32[4,12] reduce(scaled, zero), dimensions={2}, to_apply=add
}
"""
REVERSED = EXPERTS_FIRST.replace("tanh(both_added)", "reverse(both_added), dimensions={0}")


def candidates(text: str) -> tuple[Module, list[FindingCandidate]]:
    """What may be a finding on an H200."""
    module, target = hloopt.parse(text), find_target("h200")
    planner = Planner(pipeline_for(target, "h200")[0], Predictor(model_for(DEFAULT, target)))
    return module, list(for_all_tokens(Subject(module, planner)))


def arguments() -> list[np.ndarray]:
    """Random numbers; each expert is chosen by as many tokens as any other."""
    rng = np.random.default_rng(3)
    scores = rng.uniform(0, 1, (TOKENS, EXPERTS)).astype(np.float32)
    for number in range(EACH):
        scores[np.arange(TOKENS), (np.arange(TOKENS) + number) % EXPERTS] += 2
    shapes = ((EXPERTS, WIDTH, WIDTH), (EXPERTS, WIDTH, WIDTH), (EXPERTS, WIDTH))
    rest = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    return [rng.normal(size=(TOKENS, WIDTH)).astype(np.float32), scores, *rest]


@pytest.mark.parametrize("tail", [DOT, TURNED], ids=["dot", "sum"])
@pytest.mark.parametrize(
    "weights",
    [SUMMED, CHOSEN, PRODUCT, SCATTERED],
    ids=["one-hot", "select", "product", "scatter"],
)
def test_the_chosen_experts_alone_give_the_same(weights: str, tail: str) -> None:
    """However the weights are made, and what is priced, too, where all experts have as many tokens."""
    module, found = candidates(HEAD + weights + EXPERTS_FIRST + tail)
    (one,) = found
    assert [site.name for site in one.sites] == ["r", "wide", "made"]
    assert "all but 2 are multiplied by zero: %ids has those 2" in one.why
    expected = hloopt.evaluate(module, arguments())
    assert one.priced is not None
    for change in (one.change, one.priced):
        copy = clone_module(module)
        assert change(copy, [copy.entry.by_name[site.name] for site in one.sites])
        hloopt.verify(copy)
        made = hloopt.evaluate(copy, arguments())
        np.testing.assert_allclose(made[0], expected[0], rtol=1e-5, atol=1e-6)
    dots = [i.shape for i in copy.instructions() if i.opcode == "dot" and i.array.rank == 3]
    assert max(shape.byte_size for shape in dots) == TOKENS * EACH * WIDTH * 4


@pytest.mark.parametrize(
    "text",
    [
        DENSE + EXPERTS_FIRST + DOT,
        SUMMED.replace("direction=EQ", "direction=LE") + EXPERTS_FIRST + DOT,
        ANY + EXPERTS_FIRST + DOT,
        SUMMED + REVERSED + DOT,
    ],
    ids=["all-weights", "a-range", "indices-that-may-be-equal", "tokens-that-move"],
)
def test_other_mixtures_are_no_candidates(text: str) -> None:
    """Weights that are zero nowhere, or for half of the experts; an op that mixes tokens."""
    assert not candidates(HEAD + text)[1]


def test_many_chosen_experts_are_worth_computing_all() -> None:
    """Two of three are more than half of them."""
    text = (HEAD + SUMMED + EXPERTS_FIRST + DOT).replace("6", "3")
    assert not candidates(text)[1]


@pytest.mark.parametrize("length", [100, 2000])
def test_experts_of_many_ops_are_followed_up_to_a_number(length: int) -> None:
    """And a change of those that are followed is made without going too deep."""
    lines = [f"h{n + 1} = f32[12,6,4] tanh(h{n})" for n in range(length)]
    chain = "\n  ".join(["h0 = f32[12,6,4] tanh(both_added)", *lines])
    experts = EXPERTS_FIRST.replace("hidden = f32[12,6,4] tanh(both_added)", chain)
    module, found = candidates(
        HEAD + SUMMED + experts.replace("dot(hidden", f"dot(h{length}") + DOT
    )
    assert len(found) == (length == 100)
    for one in found:
        assert one.priced is not None
        assert one.priced(module, one.sites)
        hloopt.verify(module)
