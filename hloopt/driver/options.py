"""What commands are to do, as records: each field is the option of its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from hloopt.backends import check_device
from hloopt.dataclass import dataclass
from hloopt.driver.writing import is_folder
from hloopt.errors import UsageError
from hloopt.runtime.tolerance import Tolerance

if TYPE_CHECKING:
    from hloopt.pipelines import Given
    from hloopt.rewrite import Pipeline

__all__ = ["KernelOptions", "PassOptions", "Profiling", "RunOptions"]


@dataclass(frozen=True)
class PassOptions:
    """Which passes run, and how far: a ``level`` (0 to 3) or ``passes``, O2 without either.

    ``precision`` is what dots of f32 may round their factors to (``PRECISIONS``).
    """

    level: str | None = None
    passes: Given | None = None
    pass_file: tuple[str, ...] = ()
    fast_math: bool = False
    precision: str | None = None
    only: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()
    fuel: Mapping[str, int] = field(default_factory=dict)
    stop_after: int | None = None
    fusion_rule: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelOptions:
    """Which kernel runs what; a lock file may be about fusion, kernels, or both."""

    target: str | None = None
    kernel: tuple[str, ...] = ()
    kernel_rule: str | None = None
    kernel_file: tuple[str, ...] = ()
    lock: str | None = None
    frozen: bool = False
    write_lock: str | None = None

    def needed_by(self, pipeline: Pipeline) -> bool:
        """Whether any option is given, or a pass chooses kernels."""
        chooses = any(one.name == "kernel-selection" for one in pipeline.passes())
        return chooses or self != KernelOptions()


@dataclass(frozen=True)
class Profiling:
    """``kernels`` are timed, ``trace`` is a file for Perfetto; ``cold_l2`` empties the cache before each."""

    kernels: bool = False
    trace: str | None = None
    cold_l2: bool = False

    @property
    def is_wanted(self) -> bool:
        """Whether kernels are timed on a CPU; on a GPU they always are."""
        return self.kernels or self.trace is not None

    def check(self, device: str) -> None:
        """Raise ``UsageError`` for options of another device, and for a trace that is not a file."""
        if device != "gpu" and self.cold_l2:
            raise UsageError("--kernels=cold is for --device gpu")
        if device == "emulator" and self.is_wanted:
            raise UsageError(
                "--kernels and --trace are for --device cpu, native and gpu: how long the emulator takes says "
                "nothing of a GPU"
            )
        if self.trace is not None and (self.trace in {"", "-"} or Path(self.trace).is_dir()):
            raise UsageError(f"--trace needs a file, not '{self.trace}'")


@dataclass(frozen=True)
class RunOptions:
    """What one run is to do, as the options of ``hloopt run`` say, and what Python alone can ask for.

    Paths are texts.  ``rtol`` is relative to the expected value, ``atol`` absolute; ``fill_constants`` is the
    seed of values that the text leaves out.  ``seed`` is None where none is given, and so is ``repeat``, which
    then is as many runs as there is time for.  In Python alone: ``against`` is the file of a module whose
    results are compared, too; ``unchecked`` leaves out the emulator's checks of memory; ``reference_seconds``
    is how many seconds the interpreter may take.
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
    against: str | None = None
    save: tuple[str, ...] = ()
    rtol: float | None = None
    atol: float | None = None
    ulp: int | None = None
    bitwise: bool = False
    reference_seconds: float | None = None
    verify: bool = True
    fill_constants: int | None = None
    threads: int | None = None
    repeat: int | None = None
    replicas: int | None = None
    partitions: int | None = None
    exact: bool = False
    spmd: str = "threads"
    excess_precision: bool = False
    custom_calls: tuple[str, ...] = ()
    verify_each: bool = False

    @property
    def tolerance(self) -> Tolerance:
        """What is allowed in place of what rounding allows."""
        return Tolerance(self.rtol, self.atol, self.ulp, self.bitwise)

    @property
    def names_arrays(self) -> bool:
        """Whether files of arrays, which are those of one module, are read or written."""
        return any((self.inputs, self.expect, self.against, self.save))

    def saved(self, suffix: str) -> list[str]:
        """The files to write that end so."""
        return [path for path in self.save if path.endswith(suffix)]

    @property
    def interpreter_seconds(self) -> float | None:
        """How long the interpreter may take; None for as long as it needs."""
        return self.reference_seconds if self.verify else 0.0

    def check_host(self) -> None:
        """Raise ``UsageError`` for options of kernels on a GPU where the device is the CPU."""
        given = {
            "--kernel FILE": self.kernels.kernel_file,
            "--allow-host": self.allow_host,
            "unchecked": self.unchecked,
        }
        given_names = [option for option, is_given in given.items() if is_given]
        if given_names and self.device in ("cpu", "native"):
            raise UsageError(
                f"{given_names[0]} is for --device gpu and emulator, not for {self.device}"
            )

    def check(self) -> None:
        """Raise ``UsageError`` or ``DeviceError`` for what is wrong whatever the module."""
        self.tolerance.check()
        self.profiling.check(self.device)
        check_device(self.device)
        if self.threads is not None and self.device not in ("cpu", "native"):
            raise UsageError(f"--threads is for --device cpu and native, not {self.device}")
        if self.exact and self.device != "cpu" and self.spmd != "mpi":
            raise UsageError(
                f"--rounding exact is for --device cpu; {self.device} has its own functions"
            )
        if self.spmd == "mpi" and self.device not in ("cpu", "native"):
            raise UsageError(
                f"--participants mpi is for --device cpu and native, not {self.device}"
            )
        if self.spmd == "mpi" and self.profiling.is_wanted:
            raise UsageError(
                "--kernels and --trace time participants in threads: leave out --participants mpi"
            )
        for path in self.save:
            if is_folder(path) or not path.endswith((".npz", ".pb")):
                raise UsageError(
                    f"--save {path}: the file of results ends in .npz, that of a snapshot in .pb"
                )
        if self.saved(".pb") and self.interpreter_seconds is not None:
            raise UsageError(
                "--save writes the interpreter's results into a snapshot: leave out --no-verify"
            )
        if self.against is not None and self.expect is not None:
            raise UsageError("against and expect are both what results are compared with")
