"""Conditionals whose way is known, and what their branches share."""

from __future__ import annotations

from typing import ClassVar

from hloopt.analysis.effects import Effects
from hloopt.analysis.needed import Needed
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Instruction, Module, build, edit
from hloopt.ir.signatures import remove_uncalled
from hloopt.ir.walk import called_computations, of_opcode, wrapped_computations
from hloopt.passes.call_inliner import inline_call, inlining_obstacle
from hloopt.passes.conditional_simplifier.branches import Branch, branches_of
from hloopt.passes.conditional_simplifier.hoist import hoist_heads, hoist_results, hoist_tails
from hloopt.passes.conditional_simplifier.select import select_instead, select_of_two
from hloopt.passes.dce import narrow_argument, narrow_results, sweep
from hloopt.rewrite import Pass, PassLog

__all__ = ["ConditionalSimplifier"]


@dataclass(frozen=True)
class ConditionalSimplifier(Pass):
    """Take the branch that is known; compute outside what all branches compute; select where that is cheap.

    1. A constant predicate or index, and branches that are equal and get the same: the branch takes the
       place of the conditional.  An index out of range takes the last branch.
    2. A result that every branch makes alike of values outside is taken from outside.
    3. What every branch computes of the same operands is computed once, before the conditional; what every
       branch does last to an element of the result is done once, after it, unless the branches would
       have to return more bytes.
    4. Branches of few cheap ops on small arrays are all computed, and a select takes the result.
    5. Unused elements of arguments and results are removed.

    Only pure instructions without control edges and shardings move.  Branches that several conditionals
    share, and those whose argument is not a tuple made for them, keep what they compute.

    ops        the most ops of all branches together that a select may replace; 0: no selects
    elements   the most elements of an array that a select may replace
    own        false: a select replaces what XLA's does, two branches of cheap ops, however many
    """

    example: ClassVar[str] = """HloModule example

yes {
  t = (f32[4096], f32[4096]) parameter(0)
  a = f32[4096] get-tuple-element(t), index=0
  b = f32[4096] get-tuple-element(t), index=1
  e = f32[4096] exponential(a)
  s = f32[4096] sine(e)
  ROOT r = (f32[4096], f32[4096]) tuple(s, b)
}

no {
  t = (f32[4096], f32[4096]) parameter(0)
  a = f32[4096] get-tuple-element(t), index=0
  b = f32[4096] get-tuple-element(t), index=1
  e = f32[4096] exponential(a)
  ROOT r = (f32[4096], f32[4096]) tuple(e, b)
}

ENTRY main {
  p = pred[] parameter(0)
  x = f32[4096] parameter(1)
  y = f32[4096] parameter(2)
  t = (f32[4096], f32[4096]) tuple(x, y)
  c = (f32[4096], f32[4096]) conditional(p, t, t), true_computation=yes, false_computation=no
  u = f32[4096] get-tuple-element(c), index=0
  v = f32[4096] get-tuple-element(c), index=1
  ROOT r = f32[4096] add(u, v)
}
"""

    ops: int = 8
    elements: int = 1024
    own: bool = True

    def __post_init__(self) -> None:
        if self.ops < 0 or self.elements < 0:
            raise UsageError(f"{self.name}: ops and elements must be non-negative")

    def run(self, module: Module, log: PassLog) -> bool:
        """Rounds until nothing changes; each makes branches smaller."""
        changed = False
        while log.allows() and self._round(module, log):
            changed = True
        return changed

    def _round(self, module: Module, log: PassLog) -> bool:
        wrapped = wrapped_computations(module)
        changed = False
        for computation in module:
            if computation in wrapped or not (computation.callers or computation is module.entry):
                continue
            for instruction in of_opcode(computation, "conditional"):
                if instruction.computation is computation and instruction.is_understood:
                    changed |= self._simplify(instruction, module, log)
        if changed:
            # The branches that were not taken, and what only they called.
            remove_uncalled(list(module))
        return _drop(module, log) or changed

    def _simplify(self, conditional: Instruction, module: Module, log: PassLog) -> bool:
        branches = branches_of(conditional)
        known = _known(conditional, branches)
        if known is not None:
            return _take(conditional, known, module, log)
        if hoist_results(conditional, branches, log):
            return True
        if conditional.has_control_edges:
            return False
        if hoist_heads(conditional, branches, log) or hoist_tails(conditional, branches, log):
            return True
        if not self.own:
            return select_of_two(conditional, branches, log)
        return select_instead(conditional, branches, log, self.ops, self.elements)


def _known(conditional: Instruction, branches: list[Branch]) -> Branch | None:
    """The branch that is taken, or whose like is taken."""
    index = conditional.operands[0]
    array = index.constant_array
    if array is not None:
        value = int(array)
        if index.array.dtype.is_pred:
            return branches[0 if value else 1]
        return branches[value if 0 <= value < len(branches) else -1]
    first, *others = branches
    return first if all(_is_like(first, other) for other in others) else None


def _is_like(first: Branch, other: Branch) -> bool:
    if first.operand is not other.operand:
        return False
    if first.computation is other.computation:
        return True
    if len(first.computation) != len(other.computation):
        return False
    root, other_root = first.computation.root, other.computation.root
    if any(isinstance(key, tuple) and key[0] == "own" for key in first.keys.values()):
        return False
    return first.keys[root] == other.keys[other_root] and root.shape == other_root.shape


def _take(conditional: Instruction, branch: Branch, module: Module, log: PassLog) -> bool:
    """The branch in place of the conditional, or a call of it where it cannot be put there."""
    if not log.allows():
        return False
    step = "take the known branch"
    log.hit(step, conditional, f"it is {branch.computation.name}")
    attributes = {
        name: value
        for name, value in conditional.attributes.items()
        if name in ("sharding", "frontend_attributes", "backend_config")
    }
    home = conditional.home
    call = build.make(
        conditional, "call", (branch.operand,), {**attributes, "to_apply": branch.computation},
        shape=conditional.shape, metadata=conditional.metadata,
    )  # fmt: skip
    edit.replace_instruction(conditional, call)
    if not inlining_obstacle(call, home):
        inline_call(call, module)
    return True


def _drop(module: Module, log: PassLog) -> bool:
    """Step 5: unused arguments of branches, and unused results."""
    branches = {
        called: None
        for computation in module
        for instruction in of_opcode(computation, "conditional")
        for called in called_computations(instruction)
    }
    if not branches:
        return False
    needed = Needed(module, Effects(module))
    for results in [entry for entry in needed.results if entry not in branches]:
        del needed.results[results]
    changed = False
    for computation in branches:
        changed |= sweep(computation, needed, log)
    changed |= narrow_results(needed, log)
    for computation in branches:
        changed |= sweep(computation, needed, log)
        changed |= narrow_argument(computation, needed, log)
    return changed
