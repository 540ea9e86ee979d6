"""Options of ``hloopt run --device gpu``: how kernels are timed, and where their trace goes."""

from __future__ import annotations

from pathlib import Path

from hloopt.cli.options import OptionGroup, option
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError

__all__ = ["GPU", "Profiling"]

GPU = OptionGroup(
    "gpu",
    option(
        "--trace",
        metavar="FILE",
        help="On gpu: write a run's kernels for Perfetto (ui.perfetto.dev) as JSON.",
    ),
    option(
        "--cold-l2",
        is_flag=True,
        help="On gpu: time each kernel with its operands out of the second-level cache.",
    ),
)


@dataclass(frozen=True)
class Profiling:
    """``trace`` is a file for Perfetto; ``cold_l2`` empties the GPU's cache before each kernel."""

    trace: str | None = None
    cold_l2: bool = False

    def check(self, device: str) -> None:
        """Raise ``UsageError`` for options of another device, and for a trace that is no file."""
        if device != "gpu" and (self.trace is not None or self.cold_l2):
            raise UsageError("--trace and --cold-l2 time kernels on --device gpu")
        if self.trace is not None and (self.trace in {"", "-"} or Path(self.trace).is_dir()):
            raise UsageError(f"--trace needs a file, not '{self.trace}'")
