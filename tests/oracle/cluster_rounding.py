"""Whether plans of linear algebra err by no more than their remarks say: ``python -m tests.oracle.cluster_rounding``.

Random clusters (those of ``tests/passes/test_linear_algebra.py``) in f32 are planned as if each plan gained, and run
on ordinary numbers, on numbers of very unlike size, on sums that cancel and on special values, where results may
be infinite in another order.  The reference is
the module as it was, in f64; its terms are added up by their absolute values for the bound.  An error is explained
by the bound that the remarks tell, or by that of the module as it was.  Such bounds hold without underflow (N. J.
Higham, Accuracy and Stability of Numerical Algorithms, 2.1): what the module as it was errs by is explained as well,
since a product that underflows there may be multiplied by a large number.  Each case is made from its number.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from typing import Any
from unittest.mock import patch

import numpy as np

import hloopt
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.linear_algebra import LinearAlgebra
from hloopt.linear_algebra.clusters import Cluster
from hloopt.rewrite import PassLog
from tests.helpers.support import Array
from tests.passes.test_linear_algebra import Expression

UNIT = float(np.finfo(np.float32).eps) / 2
KINDS = ("ordinary", "unlike", "cancelling", "special")
SPECIAL = np.array([0, -0.0, 1e-45, -1e-38, 3e38, -1e20, np.inf, -np.inf, np.nan, 1], np.float32)


def drawn(kind: str, dims: tuple[int, ...], random: np.random.Generator) -> Array:
    """Numbers of one kind."""
    ordinary = random.standard_normal(dims).astype(np.float32)
    if kind == "unlike":
        return ordinary * np.float32(10) ** random.integers(-6, 6, dims).astype(np.float32)
    if kind == "cancelling":
        return np.float32(1) + ordinary * np.float32(1e-5)
    if kind == "special":
        return np.where(random.random(dims) < 0.1, random.choice(SPECIAL, dims), ordinary)
    return ordinary


def roundings(module: Module) -> int:
    """How often an element is rounded on its way through a module, at most."""
    found: dict[Any, int] = {}
    for one in module.entry:
        own = {"add": 1, "subtract": 1, "multiply": 1}.get(one.opcode, 0)
        if one.opcode in ("dot", "reduce"):
            given = one.operands[0].array.elements * (
                one.operands[1].array.elements if one.opcode == "dot" else 1
            )
            own = given // max(one.array.elements, 1) + 1
        parts = [found[operand] for operand in one.operands]
        is_product = one.opcode in ("dot", "multiply")
        found[one] = own + (sum(parts) if is_product else max(parts, default=0))
    return found[module.entry.root]


def told(log: PassLog) -> float:
    """The sum of the bounds in the remarks."""
    texts = [remark.reason for remark in log.remarks]
    return sum(float(one) for text in texts for one in re.findall(r"error at most (\S+) of", text))


def examined(seed: int) -> str:
    """What became of a case: an empty text where nothing was planned; unexplained ones are named."""
    text = Expression(seed).text().replace("s32[", "f32[")
    text = re.sub(r"f32(\[[\d,]*\] iota)", r"s32\1", text)
    given = hloopt.parse(text, f"seed {seed}")
    planned, log = clone_module(given), PassLog(kinds=frozenset({"passed"}))
    with patch.object(Cluster, "gains", lambda self, uses: True):
        if not LinearAlgebra(reassociate=True).run(planned, log):
            return ""
    kind = KINDS[seed % len(KINDS)]
    random = np.random.default_rng(seed)
    inputs = [drawn(kind, one.array.dims, random) for one in given.entry.parameters]
    wide = text.replace("f32", "f64")
    exact = hloopt.evaluate(hloopt.parse(wide), [one.astype(np.float64) for one in inputs])
    terms = hloopt.evaluate(
        hloopt.parse(wide.replace("subtract(", "add(")),
        [abs(one.astype(np.float64)) for one in inputs],
    )
    count = roundings(given)
    share = told(log) + 2 * count * UNIT / (1 - count * UNIT)
    tiny = 1e-37 * (1 + count)
    limit = float(np.finfo(np.float32).max)
    results = (hloopt.evaluate(module, inputs) for module in (planned, given))
    for at, (ours, written, wanted, sizes) in enumerate(zip(*results, exact, terms, strict=True)):
        # What overflows on the way, or is not finite, may be so elsewhere in another order.
        known = np.isfinite(sizes) & (sizes < limit) & np.isfinite(written)
        if kind == "special":
            known &= np.isfinite(ours)
        with np.errstate(invalid="ignore"):  # of infinities, which are not judged
            off, before = (abs(one.astype(np.float64) - wanted) for one in (ours, written))
            least = tiny + (before if kind == "special" else 0.0)
            over = known & ~(off <= share * sizes + least)
        if over.any():
            return f"{kind}: unexplained: seed {seed}, result {at}: {off[over].max():.3g}"
    return kind


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    found: Counter[str] = Counter()
    seed = given.first
    while sum(found.values()) < given.count:
        answer = examined(seed)
        seed += 1
        if not answer:
            continue
        found[answer.split(":")[0] if "unexplained" not in answer else "unexplained"] += 1
        if "unexplained" in answer:
            print(answer, flush=True)
    print(f"{sum(found.values())} planned of {seed}: {dict(found)}")


if __name__ == "__main__":
    main()
