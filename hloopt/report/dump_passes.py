"""Writing a module as passes leave it, in files that are called as XLA calls its own.

    module_0001.NAME.before_optimizations.txt
    module_0001.NAME.0003.hloopt-PIPELINE.after_PASS.before_NEXT.txt
    module_0001.NAME.after_optimizations.txt

The four digits before the pipeline are the number of the run.  Some passes are called as XLA's are: the name of
the pipeline says whose they were.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import field
from pathlib import Path

from hloopt.dataclass import dataclass
from hloopt.dumps import OWN, parse_name
from hloopt.ir import Module
from hloopt.rewrite import Pass, PassRun, Watcher

__all__ = ["DumpPasses"]

_OTHER = re.compile(r"[^A-Za-z0-9_.+-]")
_LONGEST = 100
_END = "pipeline-end"


@dataclass
class DumpPasses(Watcher):
    """Writes into ``folder``, beside the modules that are there already; ``write`` makes whole files.

    A stage's name has the next pass in it, so that its file is written when that begins.
    """

    folder: Path
    pipeline: str
    show: Callable[[Module], str]
    write: Callable[[Path, str], None]
    start: str = ""
    pending: PassRun | None = field(default=None, repr=False)

    def begin(self, module: Module) -> None:
        name = _OTHER.sub("_", module.name)[:_LONGEST].strip(".") or "module"
        self.start = f"module_{self._next_number():04d}.{name}"
        self._put("before_optimizations", module)

    def before(self, number: int, instance: Pass, module: Module) -> None:
        self._flush(instance.name, module)

    def after(self, run: PassRun, module: Module) -> None:
        if run.changed:
            self.pending = run

    def end(self, module: Module) -> None:
        self._flush(_END, module)
        self._put("after_optimizations", module)

    def _flush(self, following: str, module: Module) -> None:
        run, self.pending = self.pending, None
        if run is not None:
            passes = f"after_{run.instance.name}.before_{following}"
            self._put(f"{run.number:04d}.{OWN}{self.pipeline}.{passes}", module)

    def _put(self, stage: str, module: Module) -> None:
        self.write(self.folder / f"{self.start}.{stage}.txt", self.show(module))

    def _next_number(self) -> int:
        """One more than the numbers of the modules that are there: nothing is written over."""
        if not self.folder.is_dir():
            return 1
        numbers = (parse_name(entry.name).number for entry in self.folder.iterdir())
        return max((number for number in numbers if number is not None), default=0) + 1
