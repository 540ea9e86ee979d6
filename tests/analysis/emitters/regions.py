"""Regions of small modules for the tests of emitters."""

from __future__ import annotations

import hloopt
from hloopt.analysis.region import Region, region_of

__all__ = ["SUM", "fusion", "lone"]

SUM = "sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"


def lone(body: str, computations: str = "") -> Region:
    """The region of ENTRY's root."""
    text = f"HloModule m\n{SUM}{computations}ENTRY e {{\n{body}\n}}\n"
    return region_of(hloopt.parse(text).entry.root)


def fusion(
    parameters: str,
    body: str,
    result: str,
    kind: str = "kLoop",
    more: str = "",
    computations: str = "",
) -> Region:
    """The region of a fusion; ``parameters`` are the shapes of p0, p1 ..., ``body`` has its ROOT."""
    shapes = parameters.split()
    inner = "\n".join(
        f"p{number} = {shape} parameter({number})" for number, shape in enumerate(shapes)
    )
    operands = ", ".join(f"p{number}" for number in range(len(shapes)))
    return lone(
        f"{inner}\nROOT fused = {result} fusion({operands}), kind={kind}, calls=body{more}",
        f"{computations}body {{\n{inner}\n{body}\n}}\n",
    )
