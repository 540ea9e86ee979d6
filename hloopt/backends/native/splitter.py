"""Splitting fusions so that products and ops no loop computes are separate for the native device."""

from __future__ import annotations

from typing import ClassVar, Final

from hloopt.analysis.region import region_of
from hloopt.backends.native.kernels.call import PRODUCTS, slow_in_a_loop
from hloopt.backends.native.kernels.dot import is_quick
from hloopt.backends.native.kernels.reduction import runs_whole
from hloopt.cost_models.host import LONGEST_WINDOW
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Computation, Instruction, Module, build, edit, walk
from hloopt.kernels.backend_config import read_choice
from hloopt.kernels.families.running_reduction import running_lines
from hloopt.kernels.nested_reduction_splitter import cuts_of, split_fusions
from hloopt.ops.traits import CONTROL_FLOW, FOLDING, SOURCES
from hloopt.rewrite import Pass, PassLog

__all__ = ["NativeSplitter"]

_PLAIN: Final = frozenset({"parameter", "tuple"})
_FOLDS: Final = FOLDING - {"ragged-dot", "scaled-dot"}
# A product inside a product is recomputed for each element of that.
_AGAIN: Final = 4


@dataclass(frozen=True)
class NativeSplitter(Pass):
    """Cut fusions at products, long windows, and ops that no loop over elements computes.

        fusion: x, y => tanh(dot(x, y)) + dot(y, x)     =>     dot(x, y), dot(y, x), fusion of the rest

    On a processor another kernel costs next to nothing, while a loop that recomputes a product for each
    element that uses it takes many times as long as one kernel, or BLAS, for all of the product.  Fusions of
    one small product stay whole: they have a kernel, and so have reductions of rows with what follows.  Other
    reductions that would be computed over and over are cut out as ``nested-reduction-splitter`` does, too.

    products  multiply-adds, in all, of a product that may stay inside; a quarter of it where others fold it
    window    elements of a window that may stay inside
    """

    keeps_schedule: ClassVar[bool] = True
    example: ClassVar[str] = """HloModule example

share {
  x = f32[64,64] parameter(0)
  y = f32[64,64] parameter(1)
  p = f32[64,64] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  q = f32[64,64] dot(y, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[64,64] tanh(p)
  ROOT r = f32[64,64] add(t, q)
}

ENTRY main {
  x = f32[64,64] parameter(0)
  y = f32[64,64] parameter(1)
  ROOT r = f32[64,64] fusion(x, y), kind=kLoop, calls=share
}
"""

    products: int = PRODUCTS
    window: int = LONGEST_WINDOW

    def __post_init__(self) -> None:
        for option in ("products", "window"):
            if getattr(self, option) < 1:
                raise UsageError(f"{self.name}: {option}={getattr(self, option)} must be above 0")

    def run(self, module: Module, log: PassLog) -> bool:
        """Visit each fusion that is a kernel."""
        return split_fusions(module, log, "cut a fusion", self._found, _unwrap)

    def _found(self, fusion: Instruction) -> list[Instruction]:
        """Where to cut, operands first: the same places whatever the order of the text."""
        body: Computation = fusion.attributes["calls"]
        if read_choice(fusion) is not None or any(one.control_predecessors for one in body):
            return []
        if any(one.opcode in CONTROL_FLOW for one in body):
            return []
        region, again = region_of(fusion), _recomputed(body)
        heavy = {
            one
            for one in body
            if one.opcode not in _PLAIN
            and slow_in_a_loop(one, self.products // (_AGAIN if one in again else 1), self.window)
        }
        if not runs_whole(region):
            heavy.update(cuts_of(body, 1.0))
        if not running_lines.problem(region):
            heavy.discard(running_lines(region).hero)
        if not heavy or is_quick(region):
            return []
        before = {
            operand
            for one in heavy
            if one.opcode != "reduce"
            for operand in one.operands
            if operand.opcode not in SOURCES
        }
        cuts = heavy | before
        roots = {body.root, *(body.root.operands if body.root.opcode == "tuple" else ())}
        inner = [one for one in walk.post_order(body, (body.root,)) if one in cuts]
        if body.root in cuts and len(inner) == 1:
            return []
        return [one for one in inner if one is not body.root and (one.users or one in roots)]


def _recomputed(body: Computation) -> set[Instruction]:
    """The operands of products and reductions, transitively: each of their elements is used several times."""
    found: set[Instruction] = set()
    for one in reversed(walk.post_order(body, (body.root,))):
        if one in found or one.opcode in _FOLDS:
            found.update(one.operands)
    return found


def _unwrap(fusion: Instruction) -> None:
    """Replace a fusion of one op by the op."""
    body: Computation = fusion.attributes["calls"]
    root = body.root
    if len(body) != len(body.parameters) + 1 or root.opcode in ("parameter", "tuple"):
        return
    operands = tuple(fusion.operands[one.parameter_number] for one in root.operands)
    copy = build.clone(root, fusion, operands)
    edit.replace_instruction(fusion, copy)
    if not body.callers:
        edit.remove_computation(body)
