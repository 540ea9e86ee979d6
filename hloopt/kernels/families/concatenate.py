"""Concatenate: a grid over the largest operand, every thread visits all of them (XLA's kernel).

No thread looks up which operand an element is from: each operand has its own loop of the grid, guarded by its
own size, and its elements are stored where they go.
"""

from __future__ import annotations

from math import gcd
from types import MappingProxyType

from hloopt.analysis.emitters.unroll import concatenate_tiling
from hloopt.analysis.layout import is_descending
from hloopt.analysis.region import Region
from hloopt.analysis.written_code import elements_of_thread
from hloopt.errors import UsageError
from hloopt.ir import Instruction
from hloopt.kernels.families.loop import operands_read, own_threads
from hloopt.kernels.kernel import NO, YES, Kernel, Site, Verdict, elemental_problem
from hloopt.kernels.spec import Argument, KernelSpec, Launch, LeafPlace, Tile

__all__ = ["KERNELS", "concatenate_of", "largest"]


def concatenate_of(region: Region) -> Instruction | str:
    """The concatenate that a region is laid out for, or why there is none."""
    if len(region.results) != 1:
        return f"there are {len(region.results)} results instead of one"
    result = region.results[0]
    hero = region.hero(result)
    if hero.opcode != "concatenate" or hero in region.inputs:
        return "no concatenate reaches the result through elementwise ops alone"
    if hero.array.elements != result.shape.elements:
        return f"the result has {result.shape.elements} elements, its concatenate {hero.array.elements}"
    if not is_descending(result.shape):
        return "the result is not row-major"
    return hero


def largest(hero: Instruction) -> int:
    """Elements of the largest operand."""
    return max(operand.array.elements for operand in hero.operands)


def _hero(site: Site) -> Instruction:
    hero = concatenate_of(site.region)
    assert not isinstance(hero, str), hero
    return hero


def _fits(site: Site) -> Verdict:
    hero = concatenate_of(site.region)
    if isinstance(hero, str):
        return NO(hero)
    kind = site.region.results[0].shape.dtype
    if kind.bits < 8:
        return NO(f"elements of {kind.name} share bytes with their neighbours")
    if not largest(hero):
        return NO("all operands are empty")
    problem = elemental_problem(site.region)
    return NO(problem) if problem else YES(f"{len(hero.operands)} operands")


def _wanted(site: Site) -> Verdict:
    count, limit = len(_hero(site).operands), site.limits.concatenate_operands
    option = "concatenate_operands"
    if count > limit:
        return NO(f"{count} operands for each thread to visit, more than {limit}", option)
    return YES(f"{count} operands, up to {limit} are visited by each thread", option)


def _tile(site: Site) -> Tile:
    tiling = concatenate_tiling(_hero(site), site.region, site.target)
    unroll = elements_of_thread(site.region.instruction, tiling.unroll)
    return MappingProxyType(
        {"threads": site.limits.loop_threads, "unroll": unroll, "vector": unroll}
    )


def _spec(site: Site, tile: Tile) -> KernelSpec:
    hero = _hero(site)
    (axis,) = hero.attributes["dimensions"]
    most = gcd(*(operand.array.dims[axis] for operand in hero.operands))
    if tile["unroll"] < 1 or most % tile["unroll"]:
        raise UsageError(
            f"concatenate{{unroll={tile['unroll']}}}: elements of a thread divide every operand's size along "
            f"dimension {axis}; {most} and what divides it does"
        )
    blocks, threads = own_threads(site, largest(hero) // tile["unroll"], tile)
    arguments = (*operands_read(site.region), Argument(LeafPlace("result", 0), "out"))
    return KernelSpec("concatenate", tile, (Launch.linear("", blocks, threads, arguments),))


KERNELS = (
    Kernel(
        "concatenate",
        "a thread has neighbouring elements of each operand, and stores them where they go",
        _fits,
        _wanted,
        _tile,
        _spec,
    ),
)
