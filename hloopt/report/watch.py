"""Printing a module while passes run over it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from hloopt.dataclass import dataclass
from hloopt.ir import Module
from hloopt.report.diff import unified_diff
from hloopt.rewrite import Pass, PassRun, Watcher

__all__ = ["PrintPasses"]

Sink = Callable[[str], None]
Show = Callable[[Module], str]


@dataclass
class PrintPasses(Watcher):
    """Prints HLO before and after passes, each time below a comment that names the run.

    before, after   names of passes, or ``all``; after a run only where it changed something
    changed         ``hlo`` or ``diff``: the module at first and after each run that changed it, or only what
                    each of them changed
    """

    sink: Sink
    show: Show
    before_names: tuple[str, ...] = ()
    after_names: tuple[str, ...] = ()
    changed: str | None = None
    name: str = ""
    last: str = field(default="", repr=False)

    def begin(self, module: Module) -> None:
        if self.changed is not None:
            self.last = self.show(module)
        if self.changed == "hlo":
            self.write("before the first run", self.last)

    def before(self, number: int, instance: Pass, module: Module) -> None:
        if _named(instance, self.before_names):
            self.write(f"before run {number}: {instance.name}", self.show(module))

    def after(self, run: PassRun, module: Module) -> None:
        if not run.changed:
            return
        named = _named(run.instance, self.after_names)
        if not named and self.changed is None:
            return
        text = self.show(module)
        if named or self.changed == "hlo":
            self.write(f"after {run.title}", text)
        if self.changed == "diff":
            lines = unified_diff(self.last, text)
            self.write(f"changed by {run.title}", "".join(f"{line}\n" for line in lines))
        self.last = text

    def write(self, title: str, text: str) -> None:
        of = f"{self.name}: " if self.name else ""
        self.sink(f"// {of}{title}\n{text}\n")


def _named(instance: Pass, names: tuple[str, ...]) -> bool:
    return "all" in names or instance.name in names
