"""What the reduction kernels share: the reduces of a region that a kernel is laid out for, and their results.

A *hero* is a reduce whose elements threads compute together.  A result is computed from heroes, element by
element, or it is a *side* result: it has an element for each element that is reduced, and is stored by the
thread that reduces it.  Results that share what they read are computed by one launch, others by separate
launches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from hloopt.analysis.commuting import order_example
from hloopt.analysis.elementwise import is_elementwise
from hloopt.analysis.emitters.tree_split import TreeOptions, tree_split
from hloopt.analysis.layout import transpose_is_bitcast
from hloopt.analysis.reduction import WARP_SIZE, ReductionDims, is_unnested, reduction_dims
from hloopt.analysis.region import Region
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.kernels.families.reduction_groups import ReductionGroup, groups_of
from hloopt.kernels.kernel import NO, YES, Recognizer, Site, Verdict, elemental_problem
from hloopt.kernels.limits import Limits
from hloopt.kernels.spec import Argument, LeafPlace
from hloopt.ops.traits import ASSOCIATIVE
from hloopt.types import ArrayShape, DType, dtype, leaves

__all__ = [
    "ReductionGroup",
    "Reductions",
    "accumulator_types",
    "folds_alone",
    "operands_of",
    "passes_on",
    "plain_reducer",
    "race_free",
    "reductions_of",
    "wanted_by_rule",
]


@dataclass(frozen=True)
class Reductions:
    """The heroes of a region, all of one merged form, and the launches their results make."""

    form: ReductionDims
    groups: tuple[ReductionGroup, ...]

    @property
    def heroes(self) -> tuple[Instruction, ...]:
        """All of them, group by group."""
        return tuple(hero for group in self.groups for hero in group.heroes)

    @property
    def kept(self) -> int:
        """Elements of each hero."""
        major, middle, minor = self.form.dims
        return middle if self.form.is_row else major * minor


def race_free(reductions: Reductions, limits: Limits) -> bool:
    """Whether one block finishes each result alone."""
    options = TreeOptions(
        limits.reduction_row_elements,
        limits.reduction_row_batch,
        limits.reduction_column_elements,
    )
    return tree_split(reductions.form, options) is None


def wanted_by_rule(site: Site) -> Verdict:
    """XLA's rule: all heroes are better than scalar loops, and a block finishes each result alone."""
    reductions = reductions_of(site.region)
    for hero in reductions.heroes:
        if not is_unnested(hero):
            return NO(
                f"{hero.name} reduces {_form_text(reductions.form)}: as well in a loop a result"
            )
    if not race_free(reductions, site.limits):
        limits = site.limits
        bound = (
            f"rows of {limits.reduction_row_elements} in batches of {limits.reduction_row_batch}"
            if reductions.form.is_row
            else f"columns of {limits.reduction_column_elements}"
        )
        option = f"reduction_{'row' if reductions.form.is_row else 'column'}_elements"
        return NO(f"{_form_text(reductions.form)}: a block finishes at most {bound}", option)
    return YES(f"reduces {_form_text(reductions.form)}")


def _form_text(form: ReductionDims) -> str:
    sizes = "x".join(str(size) for size in form.dims)
    return f"{'rows' if form.is_row else 'columns'} of {sizes}"


def folds_alone(reduce: Instruction) -> bool:
    """Whether a thread that needs an element of a reduce had best fold its elements itself."""
    form = reduction_dims(reduce)
    if form is None or not is_unnested(reduce):
        return True
    major, middle, minor = form.dims
    return (major * minor if form.is_row else middle) <= WARP_SIZE


def plain_reducer(hero: Instruction) -> str:
    """The opcode of a reducer that is one op of its two parameters, else empty."""
    computation = hero.attributes["to_apply"]
    root = computation.root
    kind = hero.operands[0].array.dtype
    if len(hero.operands) != 2 or root.opcode not in ASSOCIATIVE or root.array.dtype is not kind:
        return ""
    return root.opcode if set(root.operands) == set(computation.parameters) else ""


def accumulator_types(hero: Instruction) -> tuple[DType, ...]:
    """The element types in which a hero is accumulated: sums and products of narrow floats in f32."""
    kinds = tuple(part.array.dtype for part in hero.fold_inputs)
    if plain_reducer(hero) in ("add", "multiply") and kinds[0].is_narrow_float:
        return (dtype("f32"),)
    return kinds


def passes_on(instruction: Instruction) -> Iterator[Instruction]:
    """The operands whose element at a position decides the element at that position, row-major."""
    if instruction.opcode == "get-tuple-element":
        yield instruction.operands[0]
        return
    if not isinstance(instruction.shape, ArrayShape):
        return
    elements = instruction.shape.elements
    if instruction.opcode == "transpose":
        if transpose_is_bitcast(instruction):
            yield instruction.operands[0]
    elif instruction.opcode in ("bitcast", "reshape"):
        source = instruction.operands[0].array
        if source.elements == elements and source.dtype.bits == instruction.shape.dtype.bits:
            yield instruction.operands[0]
    elif instruction.opcode == "reduce":
        # Over dimensions of one element each.
        if instruction.operands[0].array.elements == elements:
            yield instruction.operands[0]
    elif is_elementwise(instruction) or instruction.opcode == "copy":
        for operand in instruction.operands:
            if isinstance(operand.shape, ArrayShape) and operand.shape.elements == elements:
                yield operand


@Recognizer
def reductions_of(region: Region) -> Reductions | str:
    """The reductions of a region, or why no reduction kernel can run it."""
    if not any(inner.opcode == "reduce" for inner in region.body):
        return "nothing is reduced"
    problem = elemental_problem(region)
    if problem:
        return problem
    heroes = {number: _heroes(region, number) for number in range(len(region.results))}
    # Those that a thread had best fold alone are heroes only where there are no others.
    better = {hero for found in heroes.values() for hero in found if is_unnested(hero)}
    if better:
        heroes = {number: found & better for number, found in heroes.items()}
    every = [inner for inner in region.body if any(inner in found for found in heroes.values())]
    if not every:
        return "no result is computed from a reduce element by element"
    form = reduction_dims(every[0])
    assert form is not None
    if 0 in form.dims:
        return f"{every[0].name} has nothing to reduce, or no results"
    problem = _shapes_problem(region, heroes, form) or _nested_problem(region, every, heroes)
    if problem:
        return problem
    for hero in every:
        if not plain_reducer(hero):
            example = order_example(hero.attributes["to_apply"])
            if example:
                return f"the reducer of {hero.name} depends on the order: {example}"
    return Reductions(form, tuple(groups_of(region, every, heroes)))


def _heroes(region: Region, number: int) -> frozenset[Instruction]:
    """The reduces from which a result is computed element by element."""
    result = region.results[number]
    found = set()
    seen = {result.instruction}
    pending = [result.instruction]
    while pending:
        inner = pending.pop()
        if inner in region.inputs:
            continue
        if inner.opcode == "reduce":
            if _elements(inner) == result.shape.elements and reduction_dims(inner) is not None:
                found.add(inner)
            continue
        for operand in passes_on(inner):
            if operand not in seen:
                seen.add(operand)
                pending.append(operand)
    return frozenset(found)


def _elements(reduce: Instruction) -> int:
    first = next(iter(leaves(reduce.shape)))
    assert isinstance(first, ArrayShape)
    return first.elements


def _shapes_problem(
    region: Region, heroes: Mapping[int, frozenset[Instruction]], form: ReductionDims
) -> str:
    """Results that no thread of the kernel has the elements of."""
    reduced = form.dims[0] * form.dims[1] * form.dims[2]
    for number, found in heroes.items():
        shape = region.results[number].shape
        if shape.dtype.bits < 8:
            return f"result {number} is {shape.dtype.name}: its elements share bytes"
        for hero in found:
            if reduction_dims(hero) != form:
                return f"{hero.name} does not reduce {_form_text(form)} as the others do"
        if not found and shape.elements != reduced:
            return (
                f"result {number} has {shape.elements} elements: it is not a reduction, and "
                f"{reduced} are reduced"
            )
    return ""


def _nested_problem(
    region: Region,
    every: list[Instruction],
    heroes: Mapping[int, frozenset[Instruction]],
) -> str:
    """Reduces that a thread would have to compute alone, again for each element."""
    large = {
        inner
        for inner in region.body
        if inner.opcode == "reduce" and (inner in every or not folds_alone(inner))
    }
    above: dict[Instruction, Instruction] = {}
    for inner in region.body:
        for operand in inner.operands:
            if operand in region.inputs:
                continue
            found = operand if operand in large else above.get(operand)
            if found is not None:
                above[inner] = found
                break
    for hero in every:
        if hero in above:
            return f"{hero.name} reduces what {above[hero].name} has reduced"
    for inner in large:
        if inner not in every:
            return f"{inner.name} is not a result, element by element"
    for number, found_heroes in heroes.items():
        root = region.results[number].instruction
        if not found_heroes and root in above:
            return f"result {number} is as large as what is reduced, and needs {above[root].name}"
        if found_heroes and (outside := _outside(region, root, found_heroes, large)) is not None:
            return f"result {number} needs elements of {outside.name} at other places"
    return ""


def _outside(
    region: Region, root: Instruction, found: frozenset[Instruction], large: set[Instruction]
) -> Instruction | None:
    """A large reduce that a root needs other than element by element."""
    pending, seen = [(root, True)], {(root, True)}
    while pending:
        inner, in_place = pending.pop()
        if inner in region.inputs:
            continue
        if inner in large:
            if not in_place:
                return inner
            continue
        passed = set(passes_on(inner)) if in_place else set()
        for operand in inner.operands:
            at = (operand, operand in passed)
            if at not in seen:
                seen.add(at)
                pending.append(at)
    return None


def operands_of(
    region: Region, starts: Iterable[Instruction], known: Iterable[Instruction] = ()
) -> tuple[Argument, ...]:
    """Pointers to the operand leaves that instructions are computed from, those of ``known`` left out."""
    seen = set(known)
    pending = [start for start in starts if start not in seen]
    seen.update(pending)
    needed: set[int] = set()
    while pending:
        inner = pending.pop()
        if inner in region.inputs:
            first = region.inputs[inner]
            count = len(region.arrays_of(inner))
            needed.update(region.canonical(first + leaf) for leaf in range(count))
            continue
        for operand in inner.operands:
            if operand not in seen:
                seen.add(operand)
                pending.append(operand)
    return tuple(
        Argument(LeafPlace("operand", number), "in") for number in region.read if number in needed
    )
