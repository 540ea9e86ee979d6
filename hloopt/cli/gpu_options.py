"""Options of ``hloopt run --device gpu``: how kernels are timed, and where their trace goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hloopt.cli.outputs import write_text
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError

if TYPE_CHECKING:
    from hloopt.cli.kernel_options import Selecting
    from hloopt.runtime.cuda.profile import Profile
    from hloopt.runtime.device_compile import Prepared

__all__ = ["GPU_OPTIONS", "Profiling", "choose_for_this_gpu", "gpu_options", "profiling"]

GPU_OPTIONS = ("trace", "cold_l2")
_REPEAT = 20
_KEY = "hloopt.gpu_options"


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

    def profile(
        self, prepared: Prepared, inputs: Sequence[Any], repeat: int | None, *, fast_math: bool
    ) -> Profile:
        """Time a program on a GPU of its own session, compiled for speed; write the trace."""
        import json

        from hloopt.runtime.cuda import CudaDevice
        from hloopt.runtime.cuda.description import describe_gpu
        from hloopt.runtime.cuda.profile import profile
        from hloopt.runtime.nvrtc import FAST_MATH, TIMED

        device = CudaDevice(flags=FAST_MATH if fast_math else TIMED)
        try:
            target = describe_gpu(device)
            found = profile(
                prepared, inputs, device, target, repeat=repeat or _REPEAT, cold=self.cold_l2
            )
        finally:
            device.close()
        if self.trace is not None:
            write_text(self.trace, json.dumps(found.trace()), prepared.module.name)
        return found


def choose_for_this_gpu(selecting: Selecting) -> None:
    """Without ``--target`` kernels are chosen for the GPU that runs them.

    A note says so where hloopt does not know it.  Raises ``DeviceError`` without one.
    """
    from hloopt.runtime.cuda.description import this_gpu

    if "target" in selecting.options:
        return
    title, target = this_gpu()
    if target is not None:
        selecting.made = replace(selecting.instance, target=target.name)
        return
    click.echo(
        f"note: hloopt does not know {title}: kernels are chosen for {selecting.instance.target}; "
        "--target takes another device, or a description",
        err=True,
    )


def gpu_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the options; ``profiling`` reads them."""
    for option in (
        click.option(
            "--cold-l2",
            is_flag=True,
            expose_value=False,
            callback=_keep,
            help="On gpu: time each kernel with its operands out of the second-level cache.",
        ),
        click.option(
            "--trace",
            metavar="FILE",
            expose_value=False,
            callback=_keep,
            help="On gpu: write a run's kernels for Perfetto (ui.perfetto.dev) as JSON.",
        ),
    ):
        command = option(command)
    return command


def _keep(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    ctx.meta.setdefault(_KEY, {})[parameter.name] = value


def profiling() -> Profiling:
    """What the command that runs was given."""
    return Profiling(**click.get_current_context().meta.get(_KEY, {}))
