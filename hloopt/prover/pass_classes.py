"""What each pass of a compiler may do to results: nothing, round otherwise, or compute in another type."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from hloopt.dataclass import dataclass

__all__ = ["PassClass", "PassKind", "classes", "pass_class", "required_on_gpu"]

PassKind: TypeAlias = Literal["exact", "rounding", "type", "open"]
Compiler: TypeAlias = Literal["xla", "hloopt"]

ALLOWED: Final[Mapping[PassKind, str]] = {
    "exact": "results must keep their bits",
    "rounding": "results may move by what rounding allows",
    "type": "results may move by what rounding in either type allows",
    "open": "results may be any",
}


@dataclass(frozen=True)
class PassClass:
    """How far a pass may change results.

    kind      ``exact``: the same bits, all NaN being one value, zeros of different sign different;
              ``rounding``: what rounding allows each element; ``type``: the same, in the wider or the narrower
              of the types before and after; ``open``: what HLO does not define, so that nothing is compared
    reason    why it is of this kind
    required  why the compiler for CPUs cannot do without it; empty where it can
    known     whether the table has the pass
    """

    name: str
    kind: PassKind
    reason: str
    required: str = ""
    known: bool = True

    @property
    def allowed(self) -> str:
        """What it allows, as a clause."""
        return ALLOWED[self.kind]


def pass_class(name: str, compiler: Compiler = "xla") -> PassClass:
    """The class of a pass; of one that is not in the table, ``rounding``."""
    found = classes(compiler).get(name)
    if found is not None:
        return found
    return PassClass(name, "rounding", "a pass that hloopt does not know", known=False)


def classes(compiler: Compiler) -> Mapping[str, PassClass]:
    """The table of a compiler's passes by name."""
    return _TABLES[compiler]


def required_on_gpu(name: str) -> str:
    """Why XLA's compiler for GPUs cannot do without a pass; empty where it can."""
    return str(_FOUND["required_gpu"].get(name, ""))


def _rows(groups: list[dict[str, Any]], required: Mapping[str, str]) -> dict[str, PassClass]:
    return {
        name: PassClass(name, group["kind"], group["reason"], required.get(name, ""))
        for group in groups
        for name in group["passes"]
    }


_FOUND: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
_TABLES: Final[Mapping[str, Mapping[str, PassClass]]] = {
    compiler: _rows(_FOUND[compiler], _FOUND["required"] if compiler == "xla" else {})
    for compiler in ("xla", "hloopt")
}
