"""Which arrays of the module before all passes a value was."""

from __future__ import annotations

from typing import TypeAlias

from hloopt.dataclass import dataclass
from hloopt.types.strings import quote

__all__ = ["Origin", "OriginTree", "OriginalArray", "Recovery"]


@dataclass(frozen=True, slots=True)
class OriginalArray:
    """``{"name" {0}}``: an array of the module before all passes, or ``{}`` for none."""

    name: str = ""
    index: tuple[int, ...] = ()

    def __str__(self) -> str:
        index = f" {{{','.join(map(str, self.index))}}}" if self.index else ""
        return f"{{{quote(self.name)}{index}}}" if self.name else "{}"


OriginTree: TypeAlias = "OriginalArray | tuple[OriginTree, ...]"
"""The original arrays in the tree of a shape."""


@dataclass(frozen=True, slots=True)
class Origin:
    """``origin={({"a"}, {"b" {0}})}``: which arrays a value was; without a tree that of a synthetic call."""

    tree: OriginTree | None = None

    def __str__(self) -> str:
        return f"{{{_tree_text(self.tree)}}}" if self.tree is not None else "{[synthetic_call]}"


def _tree_text(tree: OriginTree) -> str:
    return f"({', '.join(map(_tree_text, tree))})" if isinstance(tree, tuple) else str(tree)


@dataclass(frozen=True, slots=True)
class Recovery:
    """``{"a"} : {"b"}, "HloModule ..."``: an array, another one, and the module that makes it of that."""

    old: OriginalArray
    new: OriginalArray
    module: str = ""

    def __str__(self) -> str:
        module = f",\n  {quote(self.module)}" if self.module else ""
        return f"{self.old} : {self.new}{module}"
