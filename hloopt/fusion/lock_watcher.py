"""Noting what is fused while passes run, for a lock file."""

from __future__ import annotations

from hloopt.fusion.ledger import Ledgers
from hloopt.fusion.lock_adviser import groups_of, loops_of, unfused_of
from hloopt.fusion.lock_file import Group, LoopRow, Unfused
from hloopt.fusion.locked_fusion import LockedFusion
from hloopt.fusion.strategies import is_strategy
from hloopt.ir import Module
from hloopt.rewrite import Pass, Watcher

__all__ = ["LockWatcher"]


class LockWatcher(Watcher):
    """Names come from before the first strategy, fusions are those after the last one.

    ``ledgers`` are those of the advice that the passes get; ``groups``, ``loops`` and ``unfused`` are of
    all modules.
    """

    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers = ledgers
        self.groups: list[Group] = []
        self.unfused: list[Unfused] = []
        self.loops: list[LoopRow] = []

    def before(self, number: int, instance: Pass, module: Module) -> None:
        """Note the names before the first strategy."""
        if is_strategy(instance) or isinstance(instance, LockedFusion):
            self._ledgers.open(module).begin(module)

    def end(self, module: Module) -> None:
        """Keep what has become of them."""
        ledger = self._ledgers.open(module)
        self.groups += groups_of(ledger)
        self.loops += loops_of(ledger)
        self.unfused += unfused_of(ledger, module)
