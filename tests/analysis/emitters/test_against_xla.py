"""Kinds and heroes beside those in XLA's final modules for an H200, which its fusions' kinds and names tell."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import hloopt
from hloopt.analysis.emitters.kind import Emission, emission
from hloopt.analysis.region import region_of
from hloopt.ir import Instruction

_KINDS = {
    "loop": "kLoop", "in-place": "kLoop", "memcpy": "kLoop",
    "custom": "kCustom", "triton": "kCustom", "cudnn": "kCustom",
}  # fmt: skip
_NAME = re.compile(r"(?:loop|input)_(.*)_fusion(?:\.\d+)?")


def _fusions() -> Iterator[tuple[Instruction, Emission]]:
    for path in sorted((Path(os.environ["HLOOPT_CORPUS"]) / "jax").glob("*.h200.hlo")):
        for computation in hloopt.parse(path.read_text()):
            for instruction in computation:
                if instruction.opcode == "fusion":
                    yield instruction, emission(region_of(instruction))


@pytest.mark.corpus
def test_kinds_and_heroes_are_xlas() -> None:
    """All but fusions made around a lone instruction, or joined to others, after XLA chose their kind.

    XLA names a fusion after its heroes; copies it appends later are not in the name.
    """
    kinds, names = [], []
    for instruction, found in _fusions():
        kind = instruction.attributes["kind"]
        # XLA keeps sorts with an iota in fusions of kind kCustom.
        expected = kind if found.kind == "sort" else _KINDS.get(found.kind, "kInput")
        kinds.append(kind == expected)
        match = _NAME.fullmatch(instruction.name)
        if match is not None and kind != "kCustom":
            heroes = sorted({hero.opcode.replace("-", "_") for hero in found.heroes})
            names.append("_".join(heroes) == match[1])
    print(f"kinds: {sum(kinds)} of {len(kinds)}; heroes: {sum(names)} of {len(names)}")
    assert len(kinds) > 1000
    assert sum(kinds) >= 0.99 * len(kinds)
    assert sum(names) >= 0.99 * len(names)
