"""Random expressions of matrices, and what equality saturation (egglog) makes of them.

``python -m tests.oracle.saturation --count 60`` prints flops of each as written, planned by ``linear-algebra``, and
extracted from the saturated graph.  egglog is needed for that alone (``pip install egglog``).
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Literal
from unittest.mock import patch

import hloopt
from hloopt.ir import Instruction, Module
from hloopt.linear_algebra import planning
from hloopt.linear_algebra.clusters import Cluster
from hloopt.linear_algebra.nodes import Use
from hloopt.linear_algebra.prices import AlgebraPrices
from hloopt.types import DotDims

SIZES = (1, 32, 128, 256)
PIPELINE = "cse,linear-algebra{reassociate=true,target=host},cse,dce"
_PRODUCT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


@dataclass(frozen=True)
class MatrixExpression:
    """A matrix of ``rows`` and ``cols``: a leaf by its name, a diagonal one, or made of ``parts``."""

    kind: Literal["leaf", "diagonal", "product", "sum", "transpose"]
    rows: int
    cols: int
    name: str = ""
    parts: tuple[MatrixExpression, ...] = ()

    def __str__(self) -> str:
        if self.kind == "leaf" or self.kind == "diagonal":
            return self.name
        if self.kind == "transpose":
            return f"{self.parts[0]}'"
        return f"({(' ' if self.kind == 'product' else ' + ').join(map(str, self.parts))})"

    def text(self) -> str:
        """The expression as an HLO module, equal parts written each time they occur."""
        lines: list[str] = []
        inputs: dict[str, str] = {}
        self._write(lines, inputs)
        lines[-1] = f"ROOT {lines[-1]}"
        return "\n".join(["HloModule m", "ENTRY e {", *inputs.values(), *lines, "}"])

    def _write(self, lines: list[str], inputs: dict[str, str]) -> str:
        shape = f"f32[{self.rows},{self.cols}]"
        operands = [part._write(lines, inputs) for part in self.parts]
        if self.kind in ("leaf", "diagonal"):
            own = f"f32[{self.rows}]" if self.kind == "diagonal" else shape
            inputs.setdefault(self.name, f"{self.name} = {own} parameter({len(inputs)})")
            operands = [self.name]
        name = f"v{len(lines)}"
        if self.kind == "leaf":
            lines.append(f"{name} = {shape} copy({self.name})")
        elif self.kind == "diagonal":
            square, mark = f"[{self.rows},{self.rows}]", f"m{len(lines)}"
            lines += [
                f"{mark}r = s32{square} iota(), iota_dimension=0",
                f"{mark}c = s32{square} iota(), iota_dimension=1",
                f"{mark} = pred{square} compare({mark}r, {mark}c), direction=EQ",
                f"{mark}d = {shape} broadcast({self.name}), dimensions={{0}}",
                f"{mark}n = f32[] constant(0)",
                f"{mark}z = {shape} broadcast({mark}n), dimensions={{}}",
            ]
            name = f"v{len(lines)}"
            lines.append(f"{name} = {shape} select({mark}, {mark}d, {mark}z)")
        elif self.kind == "transpose":
            lines.append(f"{name} = {shape} transpose({operands[0]}), dimensions={{1,0}}")
        elif self.kind == "sum":
            lines.append(f"{name} = {shape} add({', '.join(operands)})")
        else:
            lines.append(f"{name} = {shape} dot({', '.join(operands)}), {_PRODUCT}")
        return name


def expression(seed: int) -> MatrixExpression:
    """A random expression of 3 to 12 operands, some of which occur several times."""
    chooser = random.Random(seed)
    return _grown(chooser, chooser.choice(SIZES), chooser.choice(SIZES), chooser.randint(3, 12))


def _grown(chooser: random.Random, rows: int, cols: int, leaves: int) -> MatrixExpression:
    if leaves == 1:
        if rows == cols > 1 and chooser.random() < 0.3:
            return MatrixExpression("diagonal", rows, cols, f"d{rows}{chooser.choice('ab')}")
        if chooser.random() < 0.25:
            return MatrixExpression("transpose", rows, cols, parts=(_leaf(chooser, cols, rows),))
        return _leaf(chooser, rows, cols)
    left = chooser.randint(1, leaves - 1)
    kind = chooser.random()
    if kind < 0.1:
        part = _grown(chooser, cols, rows, leaves)
        return MatrixExpression("transpose", rows, cols, parts=(part,))
    if kind < 0.4:
        parts = (
            _grown(chooser, rows, cols, left),
            _grown(chooser, rows, cols, leaves - left),
        )
        return MatrixExpression("sum", rows, cols, parts=parts)
    inner = chooser.choice(SIZES)
    parts = (_grown(chooser, rows, inner, left), _grown(chooser, inner, cols, leaves - left))
    return MatrixExpression("product", rows, cols, parts=parts)


def _leaf(chooser: random.Random, rows: int, cols: int) -> MatrixExpression:
    return MatrixExpression("leaf", rows, cols, f"p{rows}x{cols}{chooser.choice('ab')}")


def flops(given: Module) -> int:
    """Of products and sums."""
    return sum(map(_flops, given.entry))


def _flops(one: Instruction) -> int:
    if one.opcode == "dot":
        (side,) = DotDims.of(one.attributes).lhs_contracting or (None,)
        depth = 1 if side is None else one.operands[0].array.dims[side]
        return product_flops(1, depth, one.array.elements)
    if one.opcode == "reduce":
        return one.operands[0].array.elements
    return one.array.elements if one.opcode in ("add", "subtract", "multiply") else 0


def product_flops(rows: int, depth: int, cols: int) -> int:
    """Of a product; one over a single index only multiplies."""
    return rows * cols * (2 * depth if depth > 1 else 1)


class FlopPrices(AlgebraPrices):
    """What egglog minimises, too."""

    def product(self, multiply_adds: int, elements: int) -> float:
        """A flop is a second."""
        return 2 * multiply_adds

    def sum(self, elements: int) -> float:
        """The same of a sum."""
        return elements

    def elementwise(self, elements: int) -> float:
        """The same of an elementwise op."""
        return elements


def planned(given: Module) -> int:
    """Flops of the plan of ``linear-algebra``, which may multiply out here whatever that gains."""
    with (
        patch.object(import_module(Cluster.__module__), "AlgebraPrices", FlopPrices),
        patch.object(planning, "_DISTRIBUTED", 1),
        patch.object(Cluster, "gains", _has_fewer_flops),
    ):
        return flops(hloopt.optimize(given, PIPELINE))


def _has_fewer_flops(cluster: Cluster, uses: Sequence[Use]) -> bool:
    return planning.flops(uses) < cluster.flops


def main() -> None:
    """Print a line an expression, and how many are no dearer than egglog's."""
    from tests.oracle.saturated import saturated

    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--first", type=int, default=0)
    given.add_argument("--count", type=int, default=60)
    options = given.parse_args()
    good = 0
    for seed in range(options.first, options.first + options.count):
        found = expression(seed)
        module = hloopt.parse(found.text(), f"expression {seed}")
        ours, theirs = planned(module), saturated(found)
        good += is_no_dearer(ours, theirs)
        mark = "" if is_no_dearer(ours, theirs) else "  DEARER"
        print(f"{seed:4} {flops(module):14,} {ours:14,} {theirs:14,}{mark}  {found}", flush=True)
    print(f"{good} of {options.count} equal or better")


def is_no_dearer(ours: int, theirs: int) -> bool:
    """Whether a plan has at most 1 % more flops: a scaled vector, where a number was multiplied elsewhere."""
    return ours <= theirs * 1.01


if __name__ == "__main__":
    main()
