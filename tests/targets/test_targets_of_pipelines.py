"""The target of ``optimize`` reaches the passes that ask for one, and only a known one does."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.pipelines import for_target, parse_pipeline
from hloopt.targets import find_gpu, target

TEXT = "HloModule m\nENTRY e {\np = f32[8] parameter(0)\nROOT n = f32[8] negate(p)\n}\n"


def test_an_unknown_target_is_a_usage_error() -> None:
    """Whether a pass of the pipeline asks for it or not."""
    module = hloopt.parse(TEXT)
    for pipeline in ("O2", "dce", "kernel-selection"):
        with pytest.raises(UsageError, match="unknown target 'h20'; did you mean 'h200'"):
            hloopt.optimize(module, pipeline, "h20")
    assert hloopt.optimize(module, "dce", "tpu-v4").to_text() == module.to_text()


def test_passes_that_ask_get_it() -> None:
    """Others stay as they are."""
    made = for_target(parse_pipeline("dce,fix(kernel-selection)"), "a100")
    assert str(made) == "dce,fix(kernel-selection{target=a100})"
    plain = parse_pipeline("dce,cse")
    assert for_target(plain, "a100") is plain
    with pytest.raises(UsageError, match="'v10'; did you mean 'v100'"):
        for_target(plain, "v10")


def test_kernels_are_for_cuda() -> None:
    """Other devices are refused with their kind."""
    assert find_gpu("A100") is target("a100")
    for name, kind in (("tpu-v4", "tpu"), ("mi200", "rocm")):
        with pytest.raises(
            UsageError,
            match=rf"kernels are CUDA, and {name} is of kind {kind}.*\(valid: a10, a100, a6000, b200, h100, ",
        ):
            find_gpu(name)
    module = hloopt.parse(TEXT)
    with pytest.raises(UsageError, match="tpu-v4 is of kind tpu"):
        hloopt.optimize(module, "kernel-selection", "tpu-v4")
