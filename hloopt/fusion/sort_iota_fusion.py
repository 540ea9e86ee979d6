"""A sort together with the iotas it sorts along.

    s = sort(x, iota)    =>    f = fusion(x), kind=kCustom, calls={ sort(x, iota) }

The positions that an argsort sorts along are then never written to memory.
"""

from __future__ import annotations

from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.fusion import apply
from hloopt.ir import Module
from hloopt.ir.walk import wrapped_computations
from hloopt.rewrite.pass_ import Pass, PassLog

__all__ = ["SortIotaFusion"]


@dataclass(frozen=True)
class SortIotaFusion(Pass):
    """Put a sort and the iotas among its operands into a fusion of kind kCustom.

    Sorts in a fusion are left as they are.  An iota that others read, too, stays for them.
    """

    example: ClassVar[str] = """HloModule example

less {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT
}

ENTRY main {
  x = s32[8] parameter(0)
  i = s32[8] iota(), iota_dimension=0
  ROOT r = (s32[8], s32[8]) sort(x, i), dimensions={0}, is_stable=true, to_apply=less
}
"""

    def run(self, module: Module, log: PassLog) -> bool:
        """Visit each sort once."""
        wrapped = wrapped_computations(module)
        changed = False
        for computation in module:
            if computation in wrapped:
                continue
            for sort in list(computation):
                iotas = [one for one in dict.fromkeys(sort.operands) if one.opcode == "iota"]
                if sort.opcode != "sort" or not iotas:
                    continue
                if not log.allows():
                    return changed
                log.hit("fuse iota into sort", sort, f"{len(iotas)} of its operands")
                fusion = apply.wrap(sort, "kCustom", "fusion")
                for iota in iotas:
                    apply.fuse(iota, fusion)
                    apply.remove_producer(iota)
                changed = True
        return changed
