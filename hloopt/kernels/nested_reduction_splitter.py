"""Cutting fusions whose reductions a kernel would compute again for each element that reads them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from math import inf
from typing import Any, ClassVar, Final

from hloopt.analysis.region import region_of
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.fusion.merge import new_parameter
from hloopt.ir import Computation, Instruction, Module, build, edit, walk
from hloopt.kernels.backend_config import read_choice
from hloopt.kernels.families.attention import attention_of
from hloopt.kernels.families.row_phases import whole_rows
from hloopt.ops.attributes import OUTPUT_ALIASING
from hloopt.ops.traits import CONTRACTING
from hloopt.rewrite import Pass, PassLog
from hloopt.types import ArrayShape, leaves

__all__ = [
    "NestedReductionSplitter",
    "cuts_of",
    "split_fusions",
    "steps_in_loops",
]

_PLACED: Final = frozenset({"concatenate", "dynamic-update-slice", "pad"})
_CONFIG: Final = "backend_config"


@dataclass(frozen=True)
class NestedReductionSplitter(Pass):
    """Give reductions that a fusion recomputes separate kernels.

        fusion: x => x / sum(x)     =>     fusion: x => sum(x);  fusion: x, s => x / s

    A kernel that computes its results element by element folds a reduction anew for each element that needs
    it, and what that reduces anew for each of its elements: work that grows with the square of a row, or its
    cube.  The kernels for whole rows and attention do not: where one fits, nothing is cut.  XLA runs such
    fusions by tiles (``__triton``), others come from a user's rules.

    A reduction is cut out where folding it takes more steps than all ops of the fusion do when each computes
    its elements once, times ``recomputed``.  Its kernel computes what it needs itself, down to other cuts.

    recomputed  how many times the fusion's own work one reduction may take; above 0
    """

    keeps_schedule: ClassVar[bool] = True
    example: ClassVar[str] = """HloModule example

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

share {
  x = f32[64,64] parameter(0)
  zero = f32[] constant(0)
  s = f32[64] reduce(x, zero), dimensions={1}, to_apply=add
  across = f32[64,64] broadcast(s), dimensions={1}
  ROOT q = f32[64,64] divide(x, across)
}

ENTRY main {
  x = f32[64,64] parameter(0)
  ROOT r = f32[64,64] fusion(x), kind=kLoop, calls=share
}
"""

    recomputed: float = 1.0

    def __post_init__(self) -> None:
        if not self.recomputed > 0:
            raise UsageError(f"{self.name}: recomputed={self.recomputed} must be above 0")

    def run(self, module: Module, log: PassLog) -> bool:
        """Visit each fusion that is run by itself."""
        return split_fusions(module, log, "cut a nested reduction", self._repeated)

    def _repeated(self, fusion: Instruction) -> list[Instruction]:
        """The reduces to cut out, operands first: the same ones whatever the order of the text."""
        body: Computation = fusion.attributes["calls"]
        if not any(inner.opcode == "reduce" and inner.users for inner in body):
            return []
        if read_choice(fusion) is not None or any(one.control_predecessors for one in body):
            return []
        region = region_of(fusion)
        if not whole_rows.problem(region) or not attention_of.problem(region):
            return []
        return cuts_of(body, self.recomputed)


def steps_in_loops(body: Computation) -> float:
    """Ops, and elements folded, where each element of the results is computed by itself; about that many.

    Of several readers the one that reads most counts: code holds a value that it needs twice at one place.
    """
    return _walk(body, inf)[1]


def cuts_of(body: Computation, recomputed: float) -> list[Instruction]:
    """The reduces that take more than ``recomputed`` times the work of all of a body, operands first."""
    once = sum(_elements(inner) * _folded(inner) for inner in body)
    return _walk(body, recomputed * once)[0]


def _walk(body: Computation, most: float) -> tuple[list[Instruction], float]:
    """From the results to the operands: how often each element is read, and the total.

    The reductions that take more than ``most`` steps, operands first, and the steps without them.
    """
    reads: dict[Instruction, float] = defaultdict(float)
    for root in body.root.operands if body.root.opcode == "tuple" else (body.root,):
        reads[root] = _elements(root)
    found, steps = [], 0.0
    for inner in reversed(walk.post_order(body, (body.root,))):
        times = reads[inner]
        if inner.opcode == "reduce" and times > _elements(inner) and times * _folded(inner) > most:
            found.append(inner)
            times = _elements(inner)
        if inner.opcode != "parameter":
            steps += times * _folded(inner)
        for operand, wanted in _asks(inner, times):
            reads[operand] = max(reads[operand], wanted)
    found.reverse()
    return found, steps


def _asks(instruction: Instruction, times: float) -> Iterator[tuple[Instruction, float]]:
    """How often elements of the operands are read where ``times`` of the instruction's are."""
    if instruction.opcode == "reduce":
        count = len(instruction.operands) // 2
        for number, operand in enumerate(instruction.operands):
            yield operand, times * _folded(instruction) if number < count else times
    elif instruction.opcode in CONTRACTING:
        # A tile is loaded once for many elements.
        again = times / max(_elements(instruction), 1)
        for operand in instruction.operands:
            yield operand, again * _elements(operand)
    elif instruction.opcode in _PLACED:
        # Each element of the result is one of one operand's.
        again = times / max(_elements(instruction), 1)
        for operand in instruction.operands:
            is_array = bool(operand.array.dims)
            yield operand, again * _elements(operand) if is_array else times
    elif not (instruction.opcode == "tuple" and instruction.is_root):
        for operand in instruction.operands:
            yield operand, times


def _elements(instruction: Instruction) -> int:
    """Of the largest array of the result."""
    shapes = leaves(instruction.shape)
    return max((shape.elements for shape in shapes if isinstance(shape, ArrayShape)), default=0)


def _folded(instruction: Instruction) -> int:
    """Steps for one element of the result."""
    if instruction.opcode != "reduce":
        return 1
    return instruction.operands[0].array.elements // max(_elements(instruction), 1)


def split_fusions(
    module: Module,
    log: PassLog,
    rewrite: str,
    find: Callable[[Instruction], list[Instruction]],
    finish: Callable[[Instruction], None] = lambda _: None,
) -> bool:
    """Split each fusion that is run by itself at what ``find`` finds in it; whether any was.

    ``rewrite`` is its name in the log; ``finish`` is called with each part.
    """
    changed = False
    for computation in walk.top_level_computations(module):
        for fusion in list(computation):
            found = find(fusion) if fusion.opcode == "fusion" else []
            if not found:
                continue
            if not log.allows():
                return changed
            log.hit(rewrite, fusion, f"at {', '.join(one.name for one in found)}")
            for part in _split_fusion(fusion, found):
                finish(part)
            changed = True
    return changed


def _split_fusion(fusion: Instruction, cuts: Collection[Instruction]) -> list[Instruction]:
    """Put a fusion for each cut before ``fusion``, and in its place one that reads their results; all of these.

    ``cuts`` come operands first; each part computes what it needs itself, down to other cuts.
    """
    body: Computation = fusion.attributes["calls"]
    made: dict[Instruction, Instruction] = {}
    for reduce in cuts:
        part = _fusion(fusion, reduce, made, {"kind": "kInput"})
        edit.rename(part, reduce.name)
        part.metadata, part.offset = reduce.metadata, reduce.offset
        for before in fusion.control_predecessors:
            edit.add_control_edge(before, part)
        made[reduce] = part
    attributes = {key: value for key, value in fusion.attributes.items() if key != _CONFIG}
    if attributes["kind"] == "kCustom":
        attributes["kind"] = "kLoop"
    rest = _fusion(fusion, body.root, made, attributes)
    edit.replace_instruction(fusion, rest)
    if not body.callers:
        edit.remove_computation(body)
    return [*made.values(), rest]


def _fusion(
    fusion: Instruction,
    root: Instruction,
    made: Mapping[Instruction, Instruction],
    attributes: Mapping[str, Any],
) -> Instruction:
    """A fusion right before ``fusion`` that computes ``root`` of its body, from what was ``made`` already."""
    body, home = root.computation, fusion.computation
    assert body is not None, "of a body"
    assert home is not None, "of a module"
    assert home.module is not None, "of a module"
    copy = edit.add_computation(home.module, Computation(body.name))
    copies: dict[Instruction, Instruction] = {}
    operands: list[Instruction] = []

    def read(inner: Instruction, operand: Instruction) -> None:
        copies[inner] = edit.append(copy, new_parameter(len(operands), operand))
        operands.append(operand)

    needed = _needed(root, made)
    # What says which operand a result lies in says it by number.
    keeps_all = OUTPUT_ALIASING.name in attributes
    for parameter in body.parameters:
        if keeps_all or parameter in needed:
            read(parameter, fusion.operands[parameter.parameter_number])
    for inner in walk.post_order(body, (body.root,)):
        if inner in made and inner in needed:
            read(inner, made[inner])
        elif inner in needed and inner.opcode != "parameter":
            copies[inner] = build.clone(inner, copy, tuple(map(copies.__getitem__, inner.operands)))
    copy.root = copies[root]
    new = {**attributes, "calls": copy}
    return edit.insert_before(
        fusion, Instruction(fusion.name, "fusion", root.shape, tuple(operands), new)
    )


def _needed(root: Instruction, made: Collection[Instruction]) -> set[Instruction]:
    """What ``root`` is computed from, itself included, down to parameters and to what was ``made``."""
    needed = {root}
    pending = [root]
    while pending:
        inner = pending.pop()
        if inner in made:
            continue
        for operand in inner.operands:
            if operand not in needed:
                needed.add(operand)
                pending.append(operand)
    return needed
