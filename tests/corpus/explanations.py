"""What XLA's compilers do to a module that changes its results: rewrites that hloopt does not make.

A run that misses the recorded results is repeated on a module rewritten so; where the results are met then, that
rewrite alone is the difference, and the failure says ``not so with ...``.  ``known.py`` has the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import ml_dtypes

from hloopt.ir import Instruction, Module, build, edit
from hloopt.types import ArrayShape, Window, WindowDim, leaves

__all__ = ["EXPLANATIONS", "Explanation", "rewritten"]

TREE_WINDOW = 32
"""XLA's CPU compiler reduces dimensions longer than this in two steps (TreeReductionRewriter)."""


@dataclass(frozen=True)
class Explanation:
    """A rewrite by its ``name``; ``apply`` makes it in place and says whether anything was to be rewritten."""

    name: str
    apply: Callable[[Module], bool]


def rewritten(module: Module) -> Iterator[tuple[str, Module]]:
    """Every rewrite that applies, with the module it makes of a copy."""
    for explanation in EXPLANATIONS:
        copy = build.clone_module(module)
        if explanation.apply(copy):
            yield explanation.name, copy


def _reciprocals(module: Module) -> bool:
    """``x / c`` as ``x * (1 / c)``, which rounds twice."""
    found = False
    for instruction in _all(module, "divide"):
        if not instruction.array.dtype.is_float:
            continue
        divisor = instruction.operands[1]
        source = divisor.operands[0] if divisor.opcode == "broadcast" else divisor
        if source.literal is not None and source.literal.is_scalar:
            one = instruction.array.dtype.numpy.type(1)
            reciprocal = build.splat(instruction, instruction.array, one / source.literal.array[()])
            product = build.make(instruction, "multiply", (instruction.operands[0], reciprocal))
            edit.replace_instruction(instruction, product)
            found = True
    return found


def _trees(module: Module) -> bool:
    """A reduction of long dimensions as one of windows and one of their results, each from the same init."""
    found = False
    for instruction in _all(module, "reduce"):
        shape = instruction.operands[0].shape
        assert isinstance(shape, ArrayShape)
        reduced = instruction.attributes["dimensions"]
        if all(shape.dims[dim] <= TREE_WINDOW for dim in reduced):
            continue
        window = Window(tuple(_window(size, dim in reduced) for dim, size in enumerate(shape.dims)))
        first = build.make(
            instruction,
            "reduce-window",
            instruction.operands,
            {"window": window, "to_apply": instruction.attributes["to_apply"]},
        )
        count = len(instruction.operands) // 2
        parts = (
            (first,)
            if count == 1
            else tuple(
                build.make(instruction, "get-tuple-element", (first,), {"index": index})
                for index in range(count)
            )
        )
        edit.set_operands(instruction, (*parts, *instruction.operands[count:]))
        found = True
    return found


def _window(size: int, is_reduced: bool) -> WindowDim:
    if not is_reduced:
        return WindowDim(1)
    length = min(size, TREE_WINDOW)
    missing = -size % length
    return WindowDim(length, length, missing // 2, missing - missing // 2)


def _rounded_sums(module: Module) -> bool:
    """Sums of 16 bits and less rounded after every addition, not once at their end as XLA's evaluator has it."""
    found = False
    for instruction in [*_all(module, "reduce"), *_all(module, "reduce-window")]:
        region = instruction.attributes["to_apply"]
        root = region.root
        if root.opcode == "add" and root.array.dtype.is_float and root.array.dtype.bits <= 16:
            kind = ml_dtypes.finfo(root.array.dtype.numpy)
            bits = {"exponent_bits": int(kind.nexp), "mantissa_bits": int(kind.nmant)}
            edit.set_root(region, build.make(region, "reduce-precision", (root,), bits))
            found = True
    return found


def _without_init(module: Module) -> bool:
    """Reductions and windows of one element each as these elements, whatever their init."""
    found = False
    for instruction in [*_all(module, "reduce"), *_all(module, "reduce-window")]:
        operands = instruction.operands[: len(instruction.operands) // 2]
        shapes = list(leaves(instruction.shape))
        if not _folds_single_elements(instruction):
            continue
        elements = tuple(
            build.make(instruction, "reshape", (operand,), shape=shape)
            for operand, shape in zip(operands, shapes, strict=True)
        )
        whole = elements[0] if len(elements) == 1 else build.make(instruction, "tuple", elements)
        edit.replace_instruction(instruction, whole)
        found = True
    return found


def _folds_single_elements(instruction: Instruction) -> bool:
    dims = instruction.operands[0].array.dims
    if instruction.opcode == "reduce":
        return all(dims[dim] == 1 for dim in instruction.attributes["dimensions"])
    window = instruction.window
    return all(entry == WindowDim(1) for entry in window.dims)


def _bounded_by_clamp(module: Module) -> bool:
    """``maximum(a, clamp(a, x, b))`` as the clamp, which takes it that ``a <= b``."""
    found = False
    for instruction in _all(module, "maximum"):
        for bound, clamp in (instruction.operands, instruction.operands[::-1]):
            if clamp.opcode == "clamp" and clamp.operands[0] is bound:
                edit.replace_instruction(instruction, clamp)
                found = True
                break
    return found


def _lost_infinities(module: Module) -> bool:
    """Complex quotients whose numerator has NaN as its real part as NaN, be the imaginary part infinite."""
    found = False
    for instruction in _all(module, "divide"):
        if not instruction.array.dtype.is_complex:
            continue
        copy = build.clone(instruction, instruction, instruction.operands)
        real = build.make(instruction, "real", instruction.operands[:1])
        lost = build.make(instruction, "compare", (real, real), {"direction": "NE"})
        nan = build.splat(instruction, instruction.array, complex("nan+nanj"))
        edit.replace_instruction(instruction, build.make(instruction, "select", (lost, nan, copy)))
        found = True
    return found


def _all(module: Module, opcode: str) -> list[Instruction]:
    return [one for one in module.instructions() if one.opcode == opcode]


EXPLANATIONS = (
    Explanation("reciprocals of constant divisors", _reciprocals),
    Explanation("reductions in two steps", _trees),
    Explanation("sums that are rounded after every addition", _rounded_sums),
    Explanation("reductions of one element without their init", _without_init),
    Explanation("complex quotients that lose an infinity beside a NaN", _lost_infinities),
    Explanation("a clamp for its maximum with its lower bound", _bounded_by_clamp),
)
