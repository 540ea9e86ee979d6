"""What selection writes is what a reader takes: every kernel's own tile, and every choice in a text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import hloopt
from hloopt.errors import HlooptError
from hloopt.ir import Module
from hloopt.kernels.examples import example_text, opcodes
from hloopt.kernels.registry import kernels
from hloopt.kernels.selection import KernelSelection, choice
from hloopt.kernels.selection.candidate import Candidate, candidates, with_tile
from hloopt.rewrite import Controls, Pipeline
from hloopt.rewrite.outcome import PipelineReport
from hloopt.types import DTYPES

ROWS = """HloModule m
add { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y) }
rows { p = f32[8,ROW] parameter(0)
  zero = f32[] constant(0)
  s = f32[8] reduce(p, zero), dimensions={1}, to_apply=add
  b = f32[8,ROW] broadcast(s), dimensions={0}
  ROOT d = f32[8,ROW] divide(p, b) }
ENTRY e { p = f32[8,ROW] parameter(0)
  ROOT f = f32[8,ROW] fusion(p), kind=kInput, calls=rows }
"""
SAMPLES = ("attention", "layernorm_gelu")


def texts(samples: Path) -> Iterator[str]:
    for size in ("48", "100000"):
        yield ROWS.replace("ROW", size)
    for name in SAMPLES:
        text = (samples / f"{name}.hlo").read_text()
        yield hloopt.optimize(hloopt.parse(text), "O3").to_text()
    for opcode in opcodes():
        for name in ("f32", "s32", "c64"):
            text = example_text(opcode, [DTYPES[name]])
            try:
                hloopt.verify(hloopt.parse(text))
            except HlooptError:  # no type of this op
                continue
            yield text
            break


def select(module: Module, device: str) -> PipelineReport:
    selection = KernelSelection(target="h200", device=device)  # type: ignore[arg-type]
    return Pipeline((selection,)).run(module, controls=Controls(remarks=True))


@pytest.mark.parametrize("device", ["gpu", "native"])
def test_a_reader_takes_every_tile_and_every_choice_that_is_written(
    device: str, samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over all ops, fused programs, and rows that fit in registers and that do not; few kernels are left out."""
    seen: dict[str, set[tuple[int, ...]]] = {}

    def watched(*args: object) -> tuple[Candidate, ...]:
        found = candidates(*args)  # type: ignore[arg-type]
        for one in found:
            if one.ok:
                full, _ = with_tile(one.kernel, one.site, dict(one.tile))
                assert full == one.tile
                seen.setdefault(one.name, set()).add(tuple(full.values()))
        return found

    monkeypatch.setattr(choice, "candidates", watched)
    for text in texts(samples):
        module = hloopt.parse(text)
        select(module, device)
        monkeypatch.setattr(choice, "candidates", candidates)
        written = module.to_text()
        again = hloopt.parse(written)
        report = select(again, device)
        monkeypatch.setattr(choice, "candidates", watched)
        assert not report.notes
        assert again.to_text() == written
    assert {tile[3] for tile in seen.get("whole-row", {(0, 0, 0, 0), (0, 0, 0, 1)})} == {0, 1}
    every = [kernel.name for kernel in kernels(device)]  # type: ignore[arg-type]
    assert len(seen) > 0.5 * len(every), sorted(set(every) - seen.keys())
