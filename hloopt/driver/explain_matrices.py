"""What ``hloopt explain`` says of instructions as matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from hloopt.analysis.matrix_properties import Matrices
from hloopt.dataclass import dataclass
from hloopt.ir import Module
from hloopt.report.console import say
from hloopt.rewrite.naming import parse_pattern

if TYPE_CHECKING:
    from hloopt.report.console import Console

__all__ = ["KnownMatrix", "known_matrices"]

_MOST: Final = 8
_PLAIN: Final = frozenset({"broadcast", "iota"})


@dataclass(frozen=True)
class KnownMatrix:
    """An instruction of the file, and what is known of its result whatever the inputs are, in words."""

    computation: str
    instruction: str
    shape: str
    claims: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "computation": self.computation,
            "instruction": self.instruction,
            "shape": self.shape,
            "properties": list(self.claims),
        }

    def show(self, console: Console) -> None:
        """Print it."""
        say(console, (f"%{self.instruction}", "bold"), f" = {self.shape} is known to be:")
        for claim in self.claims:
            say(console, f"  {claim}")


def known_matrices(module: Module, names: Sequence[str]) -> tuple[KnownMatrix, ...]:
    """What is known of the named instructions of a module, the first of them; nothing of others."""
    patterns = [parse_pattern(name) for name in names]
    matrices, found = Matrices(), list[KnownMatrix]()
    for computation in module.computations.values() if patterns else ():
        for one in computation:
            if not one.is_array or len(found) == _MOST:
                continue
            if any(pattern.matches(one) for pattern in patterns):
                known = matrices.of(one)
                claims = tuple(known.named(one.array.dims))
                # Users know that a broadcast repeats its operand.
                if claims and len(known.constant) < one.array.rank and one.opcode not in _PLAIN:
                    found.append(KnownMatrix(computation.name, one.name, str(one.shape), claims))
    return tuple(found)
