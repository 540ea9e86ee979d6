"""Transposes folded into the dimension numbers of dots and convolutions."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Instruction, Module, edit
from hloopt.ir.walk import open_computations
from hloopt.rewrite import Pass, PassLog, own_attributes
from hloopt.rewrite.dimension_numbers import (
    are_matrices,
    conv_dims,
    dot_attributes,
    moved_labels,
)
from hloopt.rewrite.site import Site, is_replaceable
from hloopt.rewrite.source_lines import merge_lines
from hloopt.types import Dims, DotDims, free_dims, inverse_permutation

__all__ = ["TransposeFolding"]

_FOLD = "dot(transpose(A), B) => dot(A, B)"
_WHERE = ("dots", "convolutions", "all")


@dataclass(frozen=True)
class TransposeFolding(Pass):
    """Let dots and convolutions read what was transposed, and convolutions write it.

        dot(transpose(a), b)          =>  dot(a, b) with other dimension numbers
        convolution(transpose(x), w)  =>  convolution(x, w) with other dim_labels
        transpose(convolution(x, w))  =>  convolution(x, w) with other dim_labels

    A dot keeps its sums: contracting dimensions stay in their order.  A transpose that changes the order
    of dimensions that come back in a dot's result is left alone, as the result would be another.  The
    last form wants a convolution that nothing else uses.

    into      ``dots``, ``convolutions`` or ``all``
    matrices  whether an operand of a dot must stay a batch of matrices as libraries read them: its batch,
              contracting and other dimensions each run through memory in one piece, the batch not the
              fastest.  As XLA's GPU compiler does; what is not is copied by a kernel.
    """

    example: ClassVar[str] = """HloModule transposed

ENTRY main {
  a = f32[5,3]{1,0} parameter(0)
  b = f32[5,4]{1,0} parameter(1)
  t = f32[3,5]{1,0} transpose(a), dimensions={1,0}
  ROOT r = f32[3,4]{1,0} dot(t, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""

    into: str = "all"
    matrices: bool = False

    def __post_init__(self) -> None:
        if self.into not in _WHERE:
            raise UsageError(f"{self.name}: into is one of {', '.join(_WHERE)}, not {self.into}")

    def run(self, module: Module, log: PassLog) -> bool:
        """Look at each dot, convolution and transpose once, operands before users."""
        changed = False
        for computation in open_computations(module):
            for instruction in list(computation):
                if not is_replaceable(instruction) or not log.allows():
                    continue
                if instruction.opcode == "dot" and self.into != "convolutions":
                    changed |= _fold_into_dot(instruction, self.matrices, log)
                elif self.into != "dots" and instruction.opcode == "convolution":
                    changed |= _fold_into_convolution(instruction, log)
                elif self.into != "dots" and instruction.opcode == "transpose":
                    changed |= _fold_behind(instruction, log)
        return changed


def _order(instruction: Instruction) -> Dims | None:
    """The permutation of a transpose, or None for another instruction."""
    if instruction.opcode != "transpose" or not instruction.is_understood:
        return None
    return instruction.dimensions


def _fold_into_dot(dot: Instruction, matrices: bool, log: PassLog) -> bool:
    changed = False
    for side in (0, 1):
        # A transpose of a transpose is folded as well.
        while (order := _order(dot.operands[side])) is not None and log.allows():
            dims = DotDims.of(dot.attributes)
            batch = (dims.lhs_batch, dims.rhs_batch)[side]
            contracting = (dims.lhs_contracting, dims.rhs_contracting)[side]
            free = [order[dim] for dim in free_dims(len(order), batch, contracting)]
            if free != sorted(free):
                log.miss(
                    _FOLD,
                    dot,
                    f"dimensions {free} would come back in another order",
                )
                break
            moved_batch = tuple(order[dim] for dim in batch)
            moved = tuple(order[dim] for dim in contracting)
            source = dot.operands[side].operands[0].array
            if matrices and not are_matrices(source, (moved_batch, moved, tuple(free))):
                log.miss(_FOLD, dot, "it would read what is not a batch of matrices in memory")
                break
            if side:
                dims = replace(dims, rhs_batch=moved_batch, rhs_contracting=moved)
            else:
                dims = replace(dims, lhs_batch=moved_batch, lhs_contracting=moved)
            log.hit(_FOLD, dot)
            for name, value in dot_attributes(dot, dims).items():
                edit.set_attribute(dot, name, value)
            _skip(dot, side)
            changed = True
    return changed


def _skip(product: Instruction, side: int) -> None:
    """Read what the operand transposes; its line goes with it where the transpose has no other user."""
    transpose = product.operands[side]
    edit.set_operand(product, side, transpose.operands[0])
    if not transpose.users:
        merge_lines(product, (transpose,))


def _fold_into_convolution(convolution: Instruction, log: PassLog) -> bool:
    changed = False
    for number, side in enumerate(("input", "kernel")):
        while (order := _order(convolution.operands[number])) is not None and log.allows():
            log.hit("convolution(transpose(A), B) => convolution(A, B)", convolution)
            labels = moved_labels(conv_dims(convolution), side, order)
            edit.set_attribute(convolution, "dim_labels", labels)
            _skip(convolution, number)
            changed = True
    return changed


def _fold_behind(transpose: Instruction, log: PassLog) -> bool:
    convolution = transpose.operands[0]
    if convolution.opcode != "convolution" or not is_replaceable(convolution):
        return False
    if sum(convolution.users.values()) != 1 or convolution.is_root:
        return False
    if any(mark in convolution.attributes for mark in ("sharding", "frontend_attributes")):
        log.miss("transpose(convolution) => convolution", transpose, "the convolution is marked")
        return False
    order = transpose.dimensions
    back = inverse_permutation(order)
    log.hit("transpose(convolution) => convolution", transpose)
    site = Site(transpose)
    labels = moved_labels(conv_dims(convolution), "output", back)
    attributes = {**own_attributes(convolution), "dim_labels": labels}
    copy = site.result("convolution", *convolution.operands, **attributes)
    merge_lines(copy, (convolution,))
    site.replace(copy)
    edit.remove(convolution)
    return True
