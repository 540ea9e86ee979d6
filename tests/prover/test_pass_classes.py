"""The table of what passes may do to results."""

from __future__ import annotations

import pytest

from hloopt.pipelines import PASSES
from hloopt.prover.pass_classes import ALLOWED, classes, pass_class, required_on_gpu


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("dce", "exact"),
        ("layout-assignment", "exact"),
        ("priority-fusion", "exact"),
        ("algsimp", "rounding"),
        ("tree_reduction_rewriter", "rounding"),
        ("float-normalization-bf16", "type"),
        ("simplify-fp-conversions", "type"),
        ("rng-expander", "open"),
    ],
)
def test_passes_of_xla_have_their_class(name: str, kind: str) -> None:
    found = pass_class(name)
    assert found.kind == kind
    assert found.known


def test_a_pass_that_is_not_there_may_round_and_is_said_to_be_unknown() -> None:
    found = pass_class("quantum-tunneller")
    assert (found.kind, found.known) == ("rounding", False)


def test_every_pass_of_ours_has_a_class_and_no_other_has() -> None:
    assert classes("hloopt").keys() - {"locked-fusion"} == set(PASSES)


@pytest.mark.parametrize("compiler", ["xla", "hloopt"])
def test_every_row_has_a_kind_and_a_reason(compiler: str) -> None:
    for row in classes("xla" if compiler == "xla" else "hloopt").values():
        assert row.kind in ALLOWED
        assert row.reason


def test_what_is_required_is_a_pass_of_the_table() -> None:
    required = [row for row in classes("xla").values() if row.required]
    assert {"float-normalization-bf16", "dot_decomposer"} <= {row.name for row in required}


def test_what_gpus_need_is_their_own() -> None:
    """Dots of bf16 and any form have code there; elementwise ops outside of fusions have none."""
    assert pass_class("float-normalization-bf16").required
    assert not required_on_gpu("float-normalization-bf16")
    assert not required_on_gpu("dot_decomposer")
    assert not required_on_gpu("reduction-dimension-grouper")
    assert required_on_gpu("fusion-wrapper")
    assert not pass_class("fusion-wrapper").required
    assert required_on_gpu("copy-insertion")
