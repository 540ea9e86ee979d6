"""Cholesky factors of one matrix, of which one is the other transposed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from hloopt.interpret import lapack, solvers
from hloopt.ir import Computation, Instruction
from hloopt.rewrite.site import Site, is_replaceable
from hloopt.types import ArrayShape, leaves

__all__ = ["equal_factors", "reads_lower", "take_transposed"]

_POTRF: Final = re.compile(r"lapack_[sdcz]potrf_ffi|(cu|hip)solver_potrf_ffi")
_CHECKS: Final = lapack.CHECKS | solvers.CHECKS
_MOST_VIEWS: Final = 16


def equal_factors(computation: Computation) -> Iterator[tuple[Instruction, Instruction]]:
    """Pairs of Cholesky factors, of which the first is the second, which comes before it, transposed.

    ``U' U`` of a matrix whose upper triangle is read is ``L L'`` of its transpose, whose lower one is read:
    both are computed from the same elements in the same way.
    """
    found: dict[tuple[object, ...], tuple[bool, Instruction]] = {}
    for factor in list(computation):
        lower = reads_lower(factor)
        if lower is None or not is_replaceable(factor):
            continue
        source, is_turned = _source(factor.operands[0])
        key = (
            factor.opcode,
            factor.attributes.get("custom_call_target"),
            source,
            lower != is_turned,
        )
        first = found.setdefault(key, (lower, factor))
        if first[0] != lower:
            yield factor, first[1]


def take_transposed(factor: Instruction, first: Instruction) -> None:
    """Put the transposed factor in the place of an equal one."""
    site = Site(factor)
    if factor.is_array:
        site.replace(_turned(site, first, factor.array))
        return
    shapes = [shape for shape in leaves(factor.shape) if isinstance(shape, ArrayShape)]
    parts = [
        site.make("get-tuple-element", first, shape=shape, index=at)
        for at, shape in enumerate(shapes)
    ]
    parts[0] = _turned(site, parts[0], shapes[0])
    site.replace(site.make("tuple", *parts, shape=factor.shape))


def _turned(site: Site, value: Instruction, shape: ArrayShape) -> Instruction:
    order = (*range(shape.rank - 2), shape.rank - 1, shape.rank - 2)
    return site.make("transpose", value, shape=shape, dimensions=order)


def reads_lower(factor: Instruction) -> bool | None:
    """Which triangle a factor is made of; None for what is no Cholesky factor."""
    if factor.opcode == "cholesky":
        return bool(factor.attributes.get("lower", False))
    if factor.opcode != "custom-call" or not _POTRF.fullmatch(factor.custom_call_target):
        return None
    if _CHECKS[factor.custom_call_target](factor) is not None:
        return None
    options = lapack.call_options(factor)
    return bool(options.get("lower", options.get("uplo") == ord("L")))


def _source(matrix: Instruction) -> tuple[Instruction, bool]:
    """What a matrix is a view of, and whether as its transpose."""
    is_turned = False
    for _ in range(_MOST_VIEWS):
        rank = matrix.array.rank
        if matrix.opcode == "copy":
            matrix = matrix.operands[0]
        elif matrix.opcode == "transpose" and matrix.dimensions == (
            *range(rank - 2),
            rank - 1,
            rank - 2,
        ):
            matrix, is_turned = matrix.operands[0], not is_turned
        else:
            break
    return matrix, is_turned
