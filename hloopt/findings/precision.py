"""Element types wider than what goes in and out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hloopt.findings.finding import FindingRemedy
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ir.walk import open_computations
from hloopt.ops.traits import MOVING
from hloopt.rewrite.regions import combiner_computation, named_combiner
from hloopt.rewrite.site import is_replaceable
from hloopt.types import DTYPES, ArrayShape, Literal

__all__ = ["doubles"]

_WIDE: Final = "f64"
_NARROW: Final = frozenset({"f32", "f16", "bf16", "s8", "u8", "s16", "u16", "pred"})
_PLAIN: Final = MOVING | {"dot", "dynamic-slice", "gather"}


def doubles(subject: Subject) -> Iterator[FindingCandidate]:
    """Parts of a computation in f64 whose inputs are narrower: one candidate for each that hangs together."""
    for computation in open_computations(subject.module):
        for region in _regions(computation):
            starts = [one for one in region if one.opcode == "convert"]
            if not starts:
                continue
            first = min(starts, key=lambda one: -one.shape.byte_size)
            heavy = max(region, key=lambda one: (one.shape.byte_size, one.opcode != "convert"))
            back = [
                user
                for one in region
                for user in one.users
                if user not in region and user.opcode == "convert"
            ]
            ends = (
                f" and is rounded to {back[0].array.dtype.name} again by %{back[0].name}"
                if back
                else ""
            )
            yield FindingCandidate(
                (heavy, *(one for one in region if one is not heavy)),
                f"{len(region)} instructions compute in f64 from %{first.operands[0].name}, which is "
                f"{first.operands[0].array.dtype.name}, since %{first.name}{ends}: twice the bytes, and "
                "f64 runs at a fraction of the rate of f32.",
                (
                    FindingRemedy(
                        "model",
                        "keep NumPy scalars and arrays out of the expression, or make them float32 "
                        "(jnp.float32(c), x.astype(x.dtype)); without jax_enable_x64 it is f32 anyway",
                    ),
                ),
                _narrowed,
                (first,),
            )


def _regions(computation: Computation) -> Iterator[list[Instruction]]:
    """Sets of connected f64 instructions that can be f32: nothing of f64 comes in but constants."""
    seen: set[Instruction] = set()
    for instruction in computation:
        if instruction in seen or not _is_wide(instruction):
            continue
        region, fits = dict.fromkeys((instruction,)), True
        pending = [instruction]
        while pending:
            here = pending.pop()
            fits = fits and _can_narrow(here)
            for near in (*here.operands, *here.users):
                if near not in region and _is_wide(near):
                    region[near] = None
                    pending.append(near)
        seen.update(region)
        if fits:
            yield [one for one in computation if one in region]


def _is_wide(instruction: Instruction) -> bool:
    return instruction.is_array and instruction.array.dtype.name == _WIDE


def _can_narrow(instruction: Instruction) -> bool:
    if instruction.opcode == "constant":
        return instruction.constant_array is not None
    if not is_replaceable(instruction):
        return False
    if instruction.opcode == "convert":
        return instruction.operands[0].array.dtype.name in {*_NARROW, "s32", "u32"}
    if instruction.opcode == "reduce":
        return bool(named_combiner(instruction.to_apply))
    if instruction.op.family == "elementwise":
        given = instruction.operands[instruction.opcode == "select" :]
        return all(map(_is_wide, given))
    return instruction.opcode in _PLAIN and _is_wide(instruction.operands[0])


def _narrowed(module: Module, places: Sequence[Instruction]) -> bool:
    """Compute in f32; what leaves as f64 is converted at the end."""
    region = set(places)
    single = DTYPES["f32"]
    for instruction in [one for one in places[0].home if one in region]:
        shape = instruction.array
        narrow = ArrayShape(single, shape.dims, shape.layout)
        edit.set_shape(instruction, narrow)
        literal = instruction.literal
        if literal is not None and literal.array is not None:
            value = literal.array.astype(single.numpy)
            edit.set_attribute(instruction, "literal", Literal(narrow, value))
        if instruction.opcode == "reduce":
            combiner = named_combiner(instruction.to_apply)
            edit.set_attribute(
                instruction, "to_apply", combiner_computation(module, combiner, single.name)
            )
        outside = [
            user
            for user in instruction.users
            if user not in region and user.opcode not in _TAKES_ANY
        ]
        if outside or instruction.is_root:
            _widen(instruction, shape, outside)
    return True


_TAKES_ANY: Final = frozenset({"convert", "compare"})


def _widen(instruction: Instruction, shape: ArrayShape, users: Sequence[Instruction]) -> None:
    """Give ``users``, and the caller, the f64 that they were given."""
    after = instruction._next
    wide = build.make(after or instruction.home, "convert", (instruction,), {}, shape=shape)
    for user in users:
        edit.replace_operand(user, instruction, wide)
    if instruction.is_root:
        edit.set_root(instruction.home, wide)
