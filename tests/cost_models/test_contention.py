"""What updates of a scatter wait for each other: by how many meet, and whether an atomic instruction combines them."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.cost_models.contention import collisions, scatter_root, waiting_ns
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.ir import Instruction
from hloopt.targets import find_target

H200 = find_target("h200")


def scatter(
    kind: str = "f32",
    indices: str = "s32[40960,1] parameter(1)",
    region: str = "ROOT r = {kind}[] add(a, b)",
    more: str = "",
    rows: int = 399,
) -> Instruction:
    text = f"""HloModule m
combine {{ a = {kind}[] parameter(0) b = {kind}[] parameter(1) {region.format(kind=kind)} }}
ENTRY main {{
  t = {kind}[{rows},128] parameter(0)
  i = {indices}
  u = {kind}[40960,128] parameter(2)
  ROOT r = {kind}[{rows},128] scatter(t, i, u), update_window_dims={{1}}, inserted_window_dims={{0}},
      scatter_dims_to_operand_dims={{0}}, index_vector_dim=1{more}, to_apply=combine
}}
"""
    return hloopt.parse(
        text.replace("parameter(2)", "parameter(1)") if "constant" in indices else text
    ).entry.root


def test_windows_are_spread_evenly_at_least() -> None:
    """And all in one place at most."""
    found = collisions(scatter())
    assert (found.windows, found.places, found.least, found.most) == (40960, 399, 103, 40960)
    assert not found.exact


def test_constant_indices_are_counted() -> None:
    """The index that occurs most often."""
    numbers = ", ".join("{7}" if at % 4 == 0 else f"{{{at % 300}}}" for at in range(40960))
    found = collisions(scatter(indices=f"s32[40960,1] constant({{ {numbers} }})"))
    assert found.exact
    assert found.least == found.most == 10240 + 137


def test_the_worst_case_is_that_of_the_measured_one() -> None:
    """On an RTX 3080 Ti about 1 ms, and 500 ms by compare and swap: of the same order here."""
    native = waiting_ns(scatter(), H200, worst=True)
    assert 0.4e6 < native < 1.2e6
    swapped = waiting_ns(scatter(), H200, worst=True, native=False)
    assert 300 < swapped / native < 3000


@pytest.mark.parametrize(
    "one",
    [
        scatter(more=", unique_indices=true"),
        scatter(more=", indices_are_sorted=true"),
        scatter(region="ROOT r = {kind}[] copy(b)"),
        scatter(rows=0),
    ],
    ids=["unique", "sorted", "stores", "nothing"],
)
def test_others_do_not_wait(one: Instruction) -> None:
    """No two meet, or a register holds the sum, or nothing is combined."""
    assert waiting_ns(one, H200, worst=True) == 0


def test_types_without_an_atomic_instruction_take_longer() -> None:
    """Half as wide, and far slower."""
    wide, narrow = (waiting_ns(scatter(kind), H200, worst=True) for kind in ("f32", "bf16"))
    assert narrow > 100 * wide


def test_the_price_of_a_kernel_has_it() -> None:
    """Of a fusion, too; a host's threads do not meet."""
    text = scatter(rows=2).module.to_text()
    fused = hloopt.optimize(hloopt.parse(text), "xla-gpu-2026").entry
    (kernel,) = [one for one in fused if scatter_root(one) is not None]
    assert kernel.opcode == "fusion"
    found = Predictor(model_for(DEFAULT, H200)).predict(kernel)
    assert found.bound == "contention"
    assert found.seconds == pytest.approx(waiting_ns(kernel, H200) * 1e-9 + 1e-6)
    assert waiting_ns(kernel, find_target("host")) == 0
