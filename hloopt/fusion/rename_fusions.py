"""Names fusions after what they compute.

    f = fusion(a), kind=kLoop, calls=fused_computation
        =>    loop_add_fusion = fusion(a), kind=kLoop, calls=fused_add

A profile then says what a kernel does.  The names are those that XLA's pass gives.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Final

from hloopt.analysis.hero import find_hero, roots
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, Module, edit, walk
from hloopt.rewrite.naming import ModuleNames, name_number, name_stem
from hloopt.rewrite.pass_ import Pass, PassLog

__all__ = ["RenameFusions", "RenamedFusions"]

_KINDS: Final = {"kLoop": "loop", "kInput": "input", "kOutput": "output"}


@dataclass
class RenamedFusions:
    """The new names of fusions by their computation's name and the old one."""

    names: dict[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True)
class RenameFusions(Pass):
    """Name fusions and their computations by their kind and the ops that shape their kernels.

    A loop whose roots have an add and a negate for heroes becomes ``loop_add_negate_fusion`` and calls
    ``fused_add_negate``: opcodes sorted, each once, dashes as underscores.  Several of one name are numbered
    in the order in which they were made, given by the numbers of their computations.  Fusions of kind
    kCustom keep their names, and so does what is named that way already.
    """

    keeps_schedule: ClassVar[bool] = True
    names_only: ClassVar[bool] = True
    example: ClassVar[str] = """HloModule example

fused_computation {
  a = f32[4] parameter(0)
  b = f32[4] exponential(a)
  ROOT c = f32[4] negate(b)
}

ENTRY main {
  x = f32[4] parameter(0)
  ROOT r = f32[4] fusion(x), kind=kLoop, calls=fused_computation
}
"""

    def run(self, module: Module, log: PassLog) -> bool:
        """Visit each fusion once; the names of all instructions are read once."""
        names, renamed = ModuleNames(module), RenamedFusions()
        changed = False
        for fusion in _in_order_of_making(module):
            body = fusion.calls
            heroes = _hero_names(body)
            wanted = f"{_KINDS[fusion.attributes['kind']]}_{heroes}_fusion"
            rename_body = name_stem(body.name) != f"fused_{heroes}"
            if name_stem(fusion.name) == wanted and not rename_body:
                continue
            if not log.allows():
                break
            changed = True
            log.hit("name a fusion by its heroes", fusion, f"{wanted} of {body.name}")
            if rename_body:
                edit.rename_computation(body, f"fused_{heroes}")
            if name_stem(fusion.name) != wanted:
                home, old = fusion.computation, fusion.name
                assert home is not None
                edit.rename(fusion, names.fresh(wanted))
                renamed.names[home.name, old] = fusion.name
        if renamed.names:
            log.records.append(renamed)
        return changed


def _in_order_of_making(module: Module) -> list[Instruction]:
    fusions = [
        instruction
        for computation in walk.callees_first(module)
        for instruction in computation
        if instruction.opcode == "fusion" and instruction.attributes["kind"] in _KINDS
    ]
    return sorted(fusions, key=lambda fusion: name_number(fusion.calls.name))


def _hero_names(body: Computation) -> str:
    heroes = sorted({find_hero(root).opcode for root in roots(body)})
    return "_".join(heroes).replace("-", "_")
