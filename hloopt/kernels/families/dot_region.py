"""Which regions are one product: a dot, convolution or library call, and the ops around it.

Before the product anything goes that is computed element by element; behind it, what moves each element to
one place: elementwise ops, transposes, reshapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hloopt.analysis.contraction import Contraction, of_dot, of_scaled_dot
from hloopt.analysis.contraction_calls import call_finish, call_problem, is_product_call, of_call
from hloopt.analysis.convolutions import of_convolution
from hloopt.analysis.region import Region
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.ir.walk import called_computations
from hloopt.kernels.kernel import Recognizer, elemental_problem
from hloopt.ops.traits import REARRANGING
from hloopt.types import DotDims

__all__ = [
    "HEROES",
    "ProductRegion",
    "convolution_of",
    "dot_of",
    "dots_of",
    "product_of",
    "twin_dots",
]

HEROES = frozenset({"dot", "convolution"})
_MOVES = REARRANGING - {"slice"}


@dataclass(frozen=True)
class ProductRegion:
    """A region that is one product.

    contraction  what is multiplied
    routes       for each result leaf the ops that move the hero's elements on their way there, in order
    second       another product of the same left side, of which results are made, too: element by element
    """

    contraction: Contraction
    routes: tuple[tuple[Instruction, ...], ...]
    second: Contraction | None = None


@Recognizer
def product_of(region: Region) -> ProductRegion | str:
    """The product of a region, or why it has none."""
    if is_product_call(region.instruction):
        problem = call_problem(region.instruction)
        if problem:
            return problem
        finish = call_finish(region.instruction)
        return ProductRegion(of_call(region.instruction), ((),) * (1 + finish.keeps))
    if region.instruction.opcode == "scaled-dot":
        contraction = of_scaled_dot(region.instruction)
        return _problem(contraction) or ProductRegion(contraction, ((),))
    if not region.is_fusion and region.instruction.opcode not in HEROES:
        return f"{region.instruction.name} is not a dot or convolution"
    heroes = [inner for inner in _all(region) if inner.opcode in HEROES]
    if len(heroes) != 1 and not _are_alike(heroes):
        return (
            f"there are {len(heroes)} dots and convolutions instead of one, or two of one left side"
        )
    problem = elemental_problem(region)
    if problem:
        return problem
    hero, *others = heroes = [one for one in region.body if one in heroes]
    for one in heroes:
        if one not in region.body:
            return f"{one.name} stands in a computation that is called"
        if len(one.operands) != 2 or "sparsity_config" in one.attributes:
            return f"{one.name} is sparse"
    routes = _routes(region, heroes)
    if isinstance(routes, str):
        return routes
    found: list[tuple[Instruction, ...]] = []
    for result in region.results:
        route = routes.get(result.instruction)
        if route is None or result.leaf:
            return f"{result.instruction.name} is a result that does not depend on {hero.name}"
        if result.shape.dtype.bits < 8:
            return f"elements of {result.instruction.name} share bytes"
        found.append(route)
    contraction = of_dot(hero) if hero.opcode == "dot" else of_convolution(hero)
    second = next(map(of_dot, others), None)
    return _problem(contraction) or ProductRegion(contraction, tuple(found), second)


@Recognizer
def dots_of(region: Region) -> ProductRegion | str:
    """The product of a region where it is a dot, or two of one left side, or why it is not."""
    product = product_of.find(region)
    if isinstance(product, str) or product.contraction.is_dot:
        return product
    return f"{product.contraction.hero.name} is a convolution"


@Recognizer
def dot_of(region: Region) -> ProductRegion | str:
    """The product of a region where it is one dot, or a call of cuBLAS, or why it is not."""
    product = dots_of.find(region)
    if isinstance(product, str) or product.second is None:
        return product
    return "there are 2 dots and convolutions instead of one"


@Recognizer
def convolution_of(region: Region) -> ProductRegion | str:
    """The product of a region where it is a convolution, or why it is not."""
    product = product_of.find(region)
    if isinstance(product, str) or not product.contraction.is_dot:
        return product
    return f"{product.contraction.hero.name} is not a convolution"


def _problem(contraction: Contraction) -> str:
    hero = contraction.hero
    if any(not contraction.size(group) for group in contraction.axes):
        return f"{hero.name} has a dimension of no elements"
    shapes = [operand.array for operand in hero.operands]
    if any(shape.is_dynamic for shape in (*shapes, hero.array)):
        return f"{hero.name} has a bounded dynamic dimension"
    if hero.array.dtype.bits < 8:
        return f"elements of {hero.name} share bytes"
    return ""


def _all(region: Region) -> Iterator[Instruction]:
    pending = list(region.body)
    while pending:
        instruction = pending.pop()
        yield instruction
        for computation in called_computations(instruction):
            pending.extend(computation)


def _are_alike(heroes: Sequence[Instruction]) -> bool:
    """Whether these are two dots of one left side, whose right sides are alike and read alike."""
    if len(heroes) != 2 or any(one.opcode != "dot" for one in heroes):
        return False
    first, second = heroes
    return twin_dots(first, second)


def twin_dots(first: Instruction, second: Instruction) -> bool:
    """Whether two dots multiply one left side by right sides of one shape in one way."""
    return (
        first is not second
        and first.operands[0] is second.operands[0]
        and first.shape == second.shape
        and first.operands[1].shape == second.operands[1].shape
        and DotDims.of(first.attributes) == DotDims.of(second.attributes)
        and all(
            str(first.attributes.get(name, "")) == str(second.attributes.get(name, ""))
            for name in ("algorithm", "operand_precision", "sparsity_config")
        )
    )


def _routes(
    region: Region, heroes: Sequence[Instruction]
) -> Mapping[Instruction, tuple[Instruction, ...]] | str:
    """What moves the heroes' elements on the way to each instruction behind them."""
    hero = heroes[0]
    routes: dict[Instruction, tuple[Instruction, ...]] = dict.fromkeys(heroes, ())
    for inner in region.body:
        behind = {operand for operand in inner.operands if operand in routes}
        if inner in heroes and behind:
            return f"{inner.name} reads what is made of {hero.name}"
        if not behind:
            continue
        if not inner.op.is_elementwise and inner.opcode not in _MOVES:
            return f"{inner.opcode} {inner.name} behind {hero.name} moves no element to one place"
        ways = {routes[operand] for operand in behind}
        if len(ways) > 1:
            return f"{inner.name} takes elements of {hero.name} from several places"
        for operand in behind:
            same = (
                operand.array.dims == inner.array.dims
                if inner.op.is_elementwise
                else operand.array.elements == inner.array.elements
                and operand.array.dtype is inner.array.dtype
            )
            if not same:
                return f"{inner.opcode} {inner.name} takes an element of {hero.name} more than once"
        way = ways.pop()
        routes[inner] = way if inner.op.is_elementwise else (*way, inner)
    return routes
