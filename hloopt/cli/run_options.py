"""The options of ``hloopt run`` as one record."""

from __future__ import annotations

from dataclasses import field

from hloopt.backends import check_device
from hloopt.cli.gpu_options import Profiling
from hloopt.cli.kernel_options import KernelOptions
from hloopt.cli.outputs import is_folder
from hloopt.cli.pipeline_options import PassOptions
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError

__all__ = ["RunOptions"]


@dataclass(frozen=True)
class RunOptions:
    """What one run is to do; each field is the option of its name.

    ``seed`` is None where none is given, and so is ``repeat``, which then is as many runs as there is time for.
    """

    passes: PassOptions = field(default_factory=PassOptions)
    kernels: KernelOptions = field(default_factory=KernelOptions)
    profiling: Profiling = field(default_factory=Profiling)
    device: str = "cpu"
    allow_host: bool = False
    unchecked: bool = False
    inputs: str | None = None
    seed: int | None = None
    expect: str | None = None
    save_snapshot: str | None = None
    infeed: str | None = None
    outfeed: str | None = None
    rtol: float | None = None
    atol: float | None = None
    reference_seconds: float | None = None
    no_reference: bool = False
    fill_constants: int | None = None
    ignore_callbacks: bool = False
    threads: int | None = None
    repeat: int | None = None
    replicas: int | None = None
    partitions: int | None = None
    exact: bool = False
    excess_precision: bool = False
    custom_calls: tuple[str, ...] = ()

    @property
    def names_arrays(self) -> bool:
        """Whether files of arrays, which are those of one module, are read or written."""
        return any((self.inputs, self.expect, self.save_snapshot, self.infeed, self.outfeed))

    @property
    def interpreter_seconds(self) -> float | None:
        """How long the interpreter may take; None for as long as it needs."""
        return 0.0 if self.no_reference else self.reference_seconds

    def check_host(self) -> None:
        """Raise ``UsageError`` for options of kernels on a GPU where the device is the host."""
        given = {
            "--kernel-file": self.kernels.kernel_file,
            "--allow-host": self.allow_host,
            "--unchecked": self.unchecked,
        }
        asked = [option for option, is_given in given.items() if is_given]
        if asked and self.device in ("cpu", "native"):
            raise UsageError(f"{asked[0]} is for --device gpu and emulator, not for {self.device}")

    def check(self) -> None:
        """Raise ``UsageError`` or ``DeviceError`` for what is wrong whatever the module."""
        self.profiling.check(self.device)
        check_device(self.device)
        if self.threads is not None and self.device not in ("cpu", "native"):
            raise UsageError(f"--threads is for --device cpu and native, not {self.device}")
        if self.exact and self.device != "cpu":
            raise UsageError(f"--exact is for --device cpu: {self.device} has functions of its own")
        for option, path in (
            ("--save-snapshot", self.save_snapshot),
            ("--outfeed", self.outfeed),
        ):
            if path is not None and (path in {"", "-"} or is_folder(path)):
                raise UsageError(f"{option} needs a file, not '{path}'")
        if self.save_snapshot is not None and self.interpreter_seconds is not None:
            raise UsageError(
                "--save-snapshot writes the interpreter's results: it goes with neither --no-reference nor "
                "--reference-seconds"
            )
        if self.outfeed is not None and not self.outfeed.endswith(".npz"):
            raise UsageError(f"--outfeed writes arrays: {self.outfeed} has to end in .npz")
