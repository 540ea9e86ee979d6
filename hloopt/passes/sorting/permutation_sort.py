"""Sorts of permutations as scatters."""

from __future__ import annotations

from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.passes.sorting.sort_simplifier import plain_order
from hloopt.rewrite import PassLog
from hloopt.rewrite.site import Site, SitePass, row_major
from hloopt.types import array

__all__ = ["PermutationSort"]


@dataclass(frozen=True)
class PermutationSort(SitePass):
    """Invert a permutation by a scatter instead of sorting it.

        p = sort(x, iota).1; sort(p, y)    =>    iota, scatter(y at p)

    The keys that a sort puts an iota in are every index once, so that an ascending sort of them has
    where each element goes: ``argsort(argsort(x))`` is linear.  Every operand but the keys is scattered;
    the sorted keys are an iota.

    Left alone: keys that are not seen to be a permutation, descending and other comparators, and sorts
    along another dimension than the one in which the keys were permuted.
    """

    opcode: ClassVar[str] = "sort"
    example: ClassVar[str] = """HloModule ranks

less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT l = pred[] compare(a, b), direction=LT
}

lower {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT l = pred[] compare(a, b), direction=LT
}

ENTRY main {
  x = f32[6]{0} parameter(0)
  i = s32[6]{0} iota(), iota_dimension=0
  s = (f32[6]{0}, s32[6]{0}) sort(x, i), dimensions={0}, is_stable=true, to_apply=less
  p = s32[6]{0} get-tuple-element(s), index=1
  t = (s32[6]{0}, s32[6]{0}) sort(p, i), dimensions={0}, is_stable=true, to_apply=lower
  ROOT r = s32[6]{0} get-tuple-element(t), index=1
}
"""

    def rewrite(self, instruction: Instruction, log: PassLog) -> bool:
        """Replace one sort whose keys are a permutation."""
        order = plain_order(instruction.to_apply)
        if not instruction.is_tuple or order is None or order.descending:
            return False
        if not _is_permutation(instruction.operands[order.operand], instruction.dimensions[0]):
            return False
        log.hit("sort of a permutation => scatter", instruction)
        _scatter(instruction, order.operand, instruction.module)
        return True


def _is_permutation(key: Instruction, dim: int) -> bool:
    """Whether each line along ``dim`` is 0 to n - 1 in some order: a sorted iota."""
    if key.opcode != "get-tuple-element" or key.operands[0].opcode != "sort":
        return False
    inner = key.operands[0]
    source = inner.operands[key.tuple_index]
    if source.opcode == "broadcast" and source.operands[0].opcode == "iota":
        dims, iota = source.dimensions, source.operands[0]
        along = dims[iota.iota_dimension]
        return along == dim == inner.dimensions[0] and _holds(iota)
    if source.opcode != "iota" or source.iota_dimension != dim:
        return False
    return inner.dimensions[0] == dim and _holds(source)


def _holds(iota: Instruction) -> bool:
    """Whether the type holds all indices, so that none comes twice."""
    dtype, size = iota.array.dtype, iota.array.dims[iota.iota_dimension]
    return dtype.is_integer and size <= 1 << (dtype.bits - (dtype.kind == "signed"))


def _scatter(sort: Instruction, number: int, module: Module) -> None:
    site, dim = Site(sort), sort.dimensions[0]
    key = sort.operands[number]
    rank = key.array.rank
    others = tuple(other for other in range(rank) if other != dim)
    places = site.reshape(key, row_major(key.array, (*key.array.dims, 1)))
    results: list[Instruction] = []
    for at, operand in enumerate(sort.operands):
        if at == number:
            results.append(site.make("iota", shape=operand.shape, iota_dimension=dim))
            continue
        # Every element is written, so that what was there before does not matter.
        attributes = {
            "update_window_dims": (),
            "inserted_window_dims": (dim,),
            "scatter_dims_to_operand_dims": (dim,),
            "index_vector_dim": rank,
            "unique_indices": True,
            "to_apply": _second(module, operand.array.dtype.name),
        }
        if others:
            attributes["input_batching_dims"] = others
            attributes["scatter_indices_batching_dims"] = others
        results.append(
            site.make("scatter", operand, places, operand, shape=operand.shape, **attributes)
        )
    comparator = sort.to_apply
    site.replace(site.result("tuple", *results))
    if not comparator.callers:
        edit.remove_computation(comparator)


def _second(module: Module, element: str) -> Computation:
    """A region that returns its second parameter; an earlier one where there is one."""
    name, shape = f"second_{element}", array(element)
    known = module.computations.get(name)
    if (
        known is not None
        and known.parameter_shapes == (shape, shape)
        and known.root is known.parameters[1]
    ):
        return known
    region = Computation(name)
    made = [
        build.make(region, "parameter", (), {"parameter_number": at}, shape=shape, name=letter)
        for at, letter in enumerate("ab")
    ]
    edit.set_root(region, made[1])
    return edit.add_computation(module, region)
