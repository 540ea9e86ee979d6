"""Which of XLA's emitters a kernel falls to, and the hero behind each of its roots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from hloopt.analysis.backend_config import read_backend_config
from hloopt.analysis.emitters.in_place import updates_in_place
from hloopt.analysis.hero import find_hero, is_real_reduction_hero, roots
from hloopt.analysis.layout import is_descending, same_layout
from hloopt.analysis.reduction import reduction_dims
from hloopt.analysis.region import Region
from hloopt.analysis.transpose import tiled_transpose
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.types import ArrayShape, Shape, leaves

__all__ = [
    "CONCATENATE_OPERANDS",
    "Emission",
    "EmitterKind",
    "emission",
    "has_kernel",
    "region_roots",
]

EmitterKind: TypeAlias = Literal[
    "loop", "reduction", "transpose", "concatenate", "scatter", "sort", "memcpy", "in-place",
    "custom", "triton", "cudnn",
]  # fmt: skip

_CONFIGURED: Mapping[str, EmitterKind] = {
    "__custom_fusion": "custom",
    "__triton": "triton",
    "__triton_gemm": "triton",
    "__triton_nested_gemm_fusion": "triton",
    "__triton_collective": "triton",
    "__cudnn$fusion": "cudnn",
}
# Nothing is launched for these, or their launches are those of what they call or of a library.
_NO_KERNEL_FAMILIES = frozenset({"async", "collective", "control", "host", "tuple"})
_HEROES = frozenset({"concatenate", "reduce", "transpose"})
_NO_KERNEL = frozenset({"bitcast", "constant", "parameter"})


CONCATENATE_OPERANDS: Final = 4
"""With more operands a concatenate is a loop kernel."""


@dataclass(frozen=True)
class Emission:
    """An emitter, why that one, and what decides its layout.

    kind    the emitter
    roots   the instructions whose values are the results: a fusion's roots, or the instruction itself
    heroes  for each root the instruction that decides; the roots themselves in a loop kernel
    reason  in words
    """

    kind: EmitterKind
    roots: tuple[Instruction, ...]
    heroes: tuple[Instruction, ...]
    reason: str

    @property
    def hero(self) -> Instruction:
        """The hero the tiling is made for: the first one of the emitter's kind."""
        opcode = _HERO.get(self.kind, self.kind)
        for root, hero in zip(self.roots, self.heroes, strict=True):
            if hero.opcode == opcode and (opcode != "reduce" or is_real_reduction_hero(root, hero)):
                return hero
        return self.heroes[0]


_HERO: Mapping[str, str] = {"reduction": "reduce"}


def region_roots(region: Region) -> tuple[Instruction, ...]:
    """The instructions whose values are the results."""
    if region.is_fusion:
        body = region.instruction.calls
        return roots(body)
    return (region.instruction,)


def has_kernel(instruction: Instruction) -> bool:
    """Whether something is launched for an instruction itself."""
    opcode, family = instruction.opcode, instruction.op.family
    return opcode == "fusion" or not (opcode in _NO_KERNEL or family in _NO_KERNEL_FAMILIES)


def emission(region: Region) -> Emission:
    """The emitter of a region.

    In-place updates are reported wherever the kernel's form allows them; whether operand and result have one
    buffer is decided by buffer assignment.  Raises ``ValueError`` for an instruction that no kernel runs
    (tuples, bitcasts, control flow, collectives).
    """
    opcode = region.instruction.opcode
    if not has_kernel(region.instruction):
        raise ValueError(f"{region.instruction.name}: no kernel runs a {opcode}")
    found = region_roots(region)
    configured = _configured(region.instruction)
    if configured is not None:
        return Emission(configured[0], found, found, f"backend_config says {configured[1]}")
    if opcode == "custom-call":
        target = region.instruction.custom_call_target
        return Emission("custom", found, found, f"a call of {target}")
    heroes = found
    if region.is_fusion and not region.opcodes.isdisjoint(_HEROES):
        heroes = tuple(map(find_hero, found))
    decided = _tiled(found, heroes) or _single(region, found, heroes)
    return decided or _loop(region, found)


def _configured(instruction: Instruction) -> tuple[EmitterKind, str] | None:
    if instruction.opcode != "fusion" or "backend_config" not in instruction.attributes:
        return None
    config: Any = read_backend_config(instruction)
    for key in ("fusion_backend_config", "kind"):
        config = config.get(key) if isinstance(config, dict) else None
    kind = _CONFIGURED.get(config) if isinstance(config, str) else None
    return (kind, str(config)) if kind is not None else None


def _tiled(found: tuple[Instruction, ...], heroes: tuple[Instruction, ...]) -> Emission | None:
    pairs = tuple(zip(found, heroes, strict=True))
    for root, hero in pairs:
        if _is_reduction(root, hero):
            others = [_fits_reduction(hero, *pair) for pair in pairs if pair[0] is not root]
            if all(others):
                return Emission("reduction", found, heroes, f"{hero.name} is worth a tiled kernel")
            break
    transposes = [hero for hero in heroes if tiled_transpose(hero) is not None]
    if transposes and _consistent(transposes, pairs):
        reason = f"{transposes[0].name} is worth going through shared memory"
        return Emission("transpose", found, heroes, reason)
    return None


def _is_reduction(root: Instruction, hero: Instruction) -> bool:
    if not is_real_reduction_hero(root, hero):
        return False
    form = reduction_dims(hero)
    return form is not None and 0 not in form.dims


def _fits_reduction(first: Instruction, root: Instruction, hero: Instruction) -> bool:
    if _is_reduction(root, hero):
        return reduction_dims(hero) == reduction_dims(first)
    elements = first.operands[0].array.elements
    return all(
        isinstance(leaf, ArrayShape) and leaf.elements == elements for leaf in leaves(root.shape)
    )


def _consistent(
    transposes: list[Instruction], pairs: tuple[tuple[Instruction, Instruction], ...]
) -> bool:
    """Whether all transposes have one normal form, and all other roots lie as the transpose's operand does."""
    forms = {
        (form.dims, form.permutation)
        for hero in transposes
        if (form := tiled_transpose(hero)) is not None
    }
    source = transposes[0].operands[0].shape
    return len(forms) == 1 and all(
        tiled_transpose(hero) is not None or _lies_alike(root.shape, source) for root, hero in pairs
    )


def _lies_alike(shape: Shape, source: Shape) -> bool:
    if not isinstance(shape, ArrayShape) or not isinstance(source, ArrayShape):
        return False
    if shape.dims == source.dims:
        return same_layout(shape, source)
    return shape.elements == source.elements and is_descending(shape) and is_descending(source)


def _single(
    region: Region, found: tuple[Instruction, ...], heroes: tuple[Instruction, ...]
) -> Emission | None:
    if len(found) > 1:
        return None
    opcode = found[0].opcode
    if opcode == "scatter":
        return Emission("scatter", found, found, "the root is a scatter")
    if opcode == "sort":
        return Emission("sort", found, found, "the root is a sort")
    hero = heroes[0]
    if hero.opcode != "concatenate" or not isinstance(region.instruction.shape, ArrayShape):
        return None
    count, most = len(hero.operands), CONCATENATE_OPERANDS
    if count > most:
        return None
    reason = f"{hero.name} has {count} operands, at most {most}"
    return Emission("concatenate", found, heroes, reason)


def _loop(region: Region, found: tuple[Instruction, ...]) -> Emission:
    if all(_is_plain_copy(region, root) for root in found):
        return Emission(
            "memcpy", found, found, "every result is a copy of an operand in its layout"
        )
    updates = updates_in_place(region)
    if isinstance(updates, tuple):
        return Emission("in-place", found, found, "every result is an update of an operand")
    return Emission("loop", found, found, "a thread computes neighbouring elements of the results")


def _is_plain_copy(region: Region, root: Instruction) -> bool:
    return (
        root.opcode == "copy"
        and root.operands[0] in region.inputs
        and isinstance(root.shape, ArrayShape)
        and same_layout(root.operands[0].shape, root.shape)
    )
