"""Kernels of loops: what names one on the command line, and what the fusion itself says."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.analysis.backend_config import custom_name, written_name
from hloopt.ir import edit
from hloopt.kernels.selection import Choice, KernelSelection, read_choice
from hloopt.rewrite import PassLog

LOOP = """HloModule m
body { s = (s32[], f32[64]) parameter(0) i = s32[] get-tuple-element(s), index=0 one = s32[] constant(1)
  n = s32[] add(i, one) x = f32[64] get-tuple-element(s), index=1 y = f32[64] cosine(x)
  ROOT r = (s32[], f32[64]) tuple(n, y) }
condition { s = (s32[], f32[64]) parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] constant(9)
  ROOT r = pred[] compare(i, n), direction=LT }
ENTRY main { x = f32[64] parameter(0) zero = s32[] constant(0) t = (s32[], f32[64]) tuple(zero, x)
  w.1 = (s32[], f32[64]) while(t), condition=condition, body=body
  ROOT r = f32[64] get-tuple-element(w.1), index=1 }
"""


def chosen(module: hloopt.Module, selection: KernelSelection) -> Choice:
    """What is chosen for the one kernel of a module."""
    log = PassLog()
    selection.run(module, log)
    (choice,) = log.records
    assert isinstance(choice, Choice)
    return choice


@pytest.mark.parametrize("pattern", ["op:while", "w.1", "loop_fusion", "op:fusion"])
def test_a_loop_that_is_a_kernel_is_meant_by_its_while(pattern: str) -> None:
    """By its opcode, its name, and what the fusion is called."""
    module = hloopt.optimize(hloopt.parse(LOOP), "loop-fusion")
    choice = chosen(module, KernelSelection(kernel=(f"{pattern}=while-per-block{{threads=64}}",)))
    assert (choice.kernel, choice.tile) == ("while-per-block", {"threads": 64})


@pytest.mark.parametrize("name", ["while-per-thread", "while-per-block"])
def test_the_name_in_a_custom_fusion_is_its_kernel(name: str) -> None:
    """What made the fusion has weighed the ways; another selector has no say."""
    module = hloopt.optimize(hloopt.parse(LOOP), "loop-fusion")
    fusion = module.entry.root
    edit.set_attribute(fusion, "backend_config", written_name(fusion, name))
    choice = chosen(module, KernelSelection(selector="cost"))
    assert (choice.kernel, choice.reason) == (name, "the fusion was made for it")
    assert custom_name(fusion) == name
    assert read_choice(fusion) is not None


def test_a_name_that_is_no_kernel_says_nothing() -> None:
    """XLA's own custom fusions have names of its kernels."""
    module = hloopt.optimize(hloopt.parse(LOOP), "loop-fusion")
    fusion = module.entry.root
    edit.set_attribute(fusion, "backend_config", written_name(fusion, "cutlass_gemm"))
    assert chosen(module, KernelSelection()).source == "rules"


@pytest.mark.parametrize(
    ("tile", "message"),
    [
        ("threads=0", "while-per-thread: threads=0; a tile's sizes are 1 or more"),
        ("threads=2048", "while-per-thread: a block would have 2048 threads, 1024 at most on h200"),
        ("vector=2", "while-per-thread: vector=2; a thread has one work item at a time, 1"),
        ("lanes=3", "while-per-thread: 3 lanes for a work item do not divide a warp"),
    ],
)
def test_a_tile_that_cannot_be_is_the_users_error(tile: str, message: str) -> None:
    """It names what was asked for and the limit."""
    module = hloopt.optimize(hloopt.parse(LOOP.replace("f32[64]", "f32[4096]")), "loop-fusion")
    with pytest.raises(hloopt.UsageError) as caught:
        chosen(module, KernelSelection(kernel=(f"op:while=while-per-thread{{{tile}}}",)))
    assert message in caught.value.message
