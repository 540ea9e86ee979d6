"""LU factors of matrices of which more is known: of definite ones by Cholesky, of triangles without work.

What reads the factors stays as it is, for it is the same for any factors (``factor_uses.py``).  Of a matrix
``L L'``, with the diagonal d of L, ``(L / d) (d L')`` are factors as those of LAPACK's ``getrf`` that exchange
no rows; a lower triangle is ``(A / d) d``, an upper one is its own factor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from typing import Any, Final, Literal

from hloopt.analysis.matrix_properties import Matrices
from hloopt.dataclass import dataclass
from hloopt.interpret import lapack, solvers
from hloopt.ir import Computation, Instruction, build, edit
from hloopt.linear_algebra.masks import diagonal_of, where_places
from hloopt.linear_algebra.prices import AlgebraPrices
from hloopt.linear_algebra.systems.factor_uses import hides_factors
from hloopt.rewrite.regions import combiner_computation
from hloopt.rewrite.site import Site, is_replaceable
from hloopt.targets import Target
from hloopt.types import DTYPES, ArrayShape, Text, TupleShape, Verbatim, array, scalar

__all__ = ["KnownFactors", "known_factors"]

_GETRF: Final = re.compile(r"(lapack_[sd]|cusolver_|hipsolver_)getrf_ffi")
_CHECKS: Final = lapack.CHECKS | solvers.CHECKS
_ELEMENTWISE: Final = 5
"""Ops on each element that make LU factors of a Cholesky factor."""


@dataclass(frozen=True)
class KnownFactors:
    """A call of ``getrf``; ``kind`` is what its matrix is, ``seconds`` before and after."""

    call: Instruction
    kind: Literal["definite", "lower", "upper"]
    seconds: tuple[float, float]

    @property
    def rule(self) -> str:
        """The equation."""
        return _RULES[self.kind]

    def write(self) -> Instruction:
        """Put the factors in the place of the call; the tuple that stands there now."""
        writer = _FactorWriter(self.call)
        if self.kind == "definite":
            return writer.definite()
        return writer.triangle(lower=self.kind == "lower")


_RULES: Final = {
    "definite": "getrf(positive definite) => potrf",
    "lower": "getrf(lower triangle) => divide",
    "upper": "getrf(upper triangle) => itself",
}


def known_factors(computation: Computation, target: Target) -> Iterator[KnownFactors]:
    """The calls in a computation whose matrices are factored in less time."""
    matrices = Matrices()
    for call in list(computation):
        kind = _kind(call, matrices)
        if kind is None:
            continue
        *batch, rows, _ = call.operands[0].array.dims
        prices = AlgebraPrices(target, call.operands[0].array.dtype)
        before = prices.factor(prod(batch), rows)
        after = prices.launch + _ELEMENTWISE * prices.elementwise(prod(batch) * rows * rows)
        if kind == "definite":
            # The launch is that of the choice between both; the upper factor is read from the lower one.
            after += prices.launch + prices.factor(prod(batch), rows, cholesky=True)
            after += prices.turned(prod(batch) * rows * rows)
        if after < before:
            yield KnownFactors(call, kind, (before, after))


def _kind(call: Instruction, matrices: Matrices) -> Literal["definite", "lower", "upper"] | None:
    if call.opcode != "custom-call" or not _GETRF.fullmatch(call.custom_call_target):
        return None
    if _CHECKS[call.custom_call_target](call) is not None or not is_replaceable(call):
        return None
    shapes = call.shape.elements if isinstance(call.shape, TupleShape) else ()
    matrix = call.operands[0].array
    if len(shapes) != 3 or matrix.rank < 2 or matrix.dims[-1] != matrix.dims[-2]:
        return None
    if matrix.dtype.name not in ("f32", "f64") or not matrix.elements:
        return None
    known, pair = matrices.of(call.operands[0]), (matrix.rank - 2, matrix.rank - 1)
    if known.is_upper(*pair):
        return "upper"
    if not hides_factors(call):
        return None
    if known.is_lower(*pair):
        return "lower"
    return "definite" if known.is_definite(*pair) else None


class _FactorWriter:
    """Makes the three results of a call: factors, pivots and info."""

    def __init__(self, call: Instruction) -> None:
        self.call = call
        self.site = Site(call)
        assert isinstance(call.shape, TupleShape), "a call of getrf has three results"
        self.shapes = call.shape.elements
        factors, pivots, info = self.shapes
        assert isinstance(factors, ArrayShape), "the factors are an array"
        assert isinstance(pivots, ArrayShape), "the pivots are an array"
        assert isinstance(info, ArrayShape), "info is an array"
        self.factors, self.pivots, self.info = factors, pivots, info
        self.rank = factors.rank
        self.batch = tuple(range(self.rank - 2))

    def definite(self) -> Instruction:
        """By Cholesky; by ``getrf`` where a minor of the matrix is not positive after all."""
        site, matrix = self.site, self.call.operands[0]
        made = site.make(
            "custom-call", matrix, shape=TupleShape((self.factors, self.info)), **self._potrf()
        )
        factor = site.make("get-tuple-element", made, shape=self.factors, index=0)
        info = site.make("get-tuple-element", made, shape=self.info, index=1)
        is_right = self._all_zero(info)
        found = site.make(
            "conditional",
            is_right,
            factor,
            matrix,
            shape=self.call.shape,
            true_computation=self._kept(),
            false_computation=self._factored(),
        )
        given, pivots, code = (
            site.make("get-tuple-element", found, shape=shape, index=at)
            for at, shape in enumerate(self.shapes)
        )
        diagonal = diagonal_of(site, given)
        across = self._spread(diagonal, self.rank - 1)
        down = self._spread(diagonal, self.rank - 2)
        order = (*self.batch, self.rank - 1, self.rank - 2)
        turned = site.make("transpose", given, shape=self.factors, dimensions=order)
        lower = site.make("divide", given, across, shape=self.factors)
        upper = site.make("multiply", down, turned, shape=self.factors)
        both = site.make("select", self._where("GT"), lower, upper, shape=self.factors)
        mask = ArrayShape(DTYPES["pred"], self.factors.dims, self.factors.layout)
        chosen = site.make("broadcast", is_right, shape=mask, dimensions=())
        factors = site.make("select", chosen, both, given, shape=self.factors)
        return self._put(factors, pivots, code)

    def triangle(self, *, lower: bool) -> Instruction:
        """Without a factorisation; info as LAPACK has it: the first zero on the diagonal, or 0."""
        site, matrix = self.site, self.call.operands[0]
        diagonal = diagonal_of(site, matrix)
        kept = "EQ" if lower else "LE"
        zeros = site.splat(self.factors, 0)
        factors = site.make("select", self._where(kept), matrix, zeros, shape=self.factors)
        if lower:
            across = self._spread(diagonal, self.rank - 1)
            scaled = site.make("divide", matrix, across, shape=self.factors)
            below = self._where("GT")
            factors = site.make("select", below, scaled, factors, shape=self.factors)
        pivots = self._counted(self.site.make, self.pivots)
        return self._put(factors, pivots, self._first_zero(diagonal, pivots))

    def _put(self, factors: Instruction, pivots: Instruction, info: Instruction) -> Instruction:
        made = self.site.make("tuple", factors, pivots, info, shape=self.call.shape)
        for user in list(self.call.users):
            if user.opcode == "get-tuple-element":
                edit.replace_instruction(user, (factors, pivots, info)[user.tuple_index])
        return self.site.replace(made)

    def _first_zero(self, diagonal: Instruction, places: Instruction) -> Instruction:
        site, last = self.site, self.factors.dims[-1] + 1
        shape = ArrayShape(DTYPES["pred"], diagonal.array.dims, diagonal.array.layout)
        is_zero = site.make(
            "compare", diagonal, site.splat(diagonal.array, 0), shape=shape, direction="EQ"
        )
        found = site.make(
            "select", is_zero, places, site.splat(self.pivots, last), shape=self.pivots
        )
        least = site.make(
            "reduce",
            found,
            site.scalar("s32", last),
            shape=self.info,
            dimensions=(self.rank - 2,),
            to_apply=combiner_computation(self.call.module, "minimum", "s32"),
        )
        return site.make("remainder", least, site.splat(self.info, last), shape=self.info)

    def _all_zero(self, info: Instruction) -> Instruction:
        site = self.site
        mask = ArrayShape(DTYPES["pred"], info.array.dims, info.array.layout)
        is_zero = site.make("compare", info, site.splat(info.array, 0), shape=mask, direction="EQ")
        if not mask.dims:
            return is_zero
        return site.make(
            "reduce",
            is_zero,
            site.scalar("pred", True),
            shape=array("pred"),
            dimensions=tuple(range(mask.rank)),
            to_apply=combiner_computation(self.call.module, "and", "pred"),
        )

    def _spread(self, diagonal: Instruction, along: int) -> Instruction:
        dims = (*self.batch, along)
        return self.site.make("broadcast", diagonal, shape=self.factors, dimensions=dims)

    def _where(self, direction: str) -> Instruction:
        """Where the row is in this relation to the column."""
        return where_places(self.site, self.factors, (self.rank - 2, self.rank - 1), direction)

    def _counted(self, make: Any, shape: ArrayShape) -> Instruction:
        """Pivots that exchange nothing: 1, 2, ..."""
        one = make("constant", shape=array("s32"), literal=scalar("s32", 1))
        ones = make("broadcast", one, shape=shape, dimensions=())
        counts = make("iota", shape=shape, iota_dimension=shape.rank - 1)
        found: Instruction = make("add", counts, ones, shape=shape)
        return found

    def _kept(self) -> Computation:
        """The branch of a Cholesky factor: no rows are exchanged, and info is 0."""
        region = Computation("cholesky_factor")

        def make(opcode: str, *operands: Instruction, shape: Any, **given: Any) -> Instruction:
            return build.make(region, opcode, operands, given, shape=shape)

        factor = make("parameter", shape=self.factors, parameter_number=0)
        pivots = self._counted(make, self.pivots)
        info = build.splat(region, self.info, 0)
        edit.set_root(region, make("tuple", factor, pivots, info, shape=self.call.shape))
        return edit.add_computation(self.call.module, region)

    def _factored(self) -> Computation:
        """The branch of any other matrix: the call itself."""
        region, call = Computation("lu_factors"), self.call
        shape = call.operands[0].shape
        matrix = build.make(region, "parameter", (), {"parameter_number": 0}, shape=shape)
        copied = build.make(
            region, "custom-call", (matrix,), dict(call.attributes), shape=call.shape
        )
        edit.set_root(region, copied)
        return edit.add_computation(call.module, region)

    def _potrf(self) -> dict[str, Any]:
        attributes = dict(self.call.attributes)
        # What it says of sizes is of three results.
        attributes.pop("frontend_attributes", None)
        target = str(attributes["custom_call_target"])
        attributes["custom_call_target"] = Text(target.replace("getrf", "potrf"))
        text = f"{{uplo = {ord('L')} : ui8}}" if target.startswith("lapack") else "{lower = true}"
        attributes["backend_config"] = Verbatim(text)
        return attributes
