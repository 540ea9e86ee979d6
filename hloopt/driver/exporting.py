"""From a module and the name of a kernel to a file: ``hloopt.export`` and ``hloopt export``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from hloopt.dataclass import dataclass
from hloopt.display import Displayed
from hloopt.driver.options import KernelOptions, PassOptions
from hloopt.driver.passes import Chosen, choose_passes
from hloopt.driver.run import read_task
from hloopt.driver.selecting import selecting
from hloopt.errors import UsageError
from hloopt.exports.check import KernelCheck, check_of
from hloopt.exports.cuda_file import write_cuda
from hloopt.exports.cupy_file import write_cupy
from hloopt.exports.kernel import KernelExport, export_kernel
from hloopt.exports.python_files import write_jax, write_torch
from hloopt.ir.build import clone_module
from hloopt.rewrite.spec import did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

    from hloopt.ir import Module
    from hloopt.kernels.selection import KernelSelection
    from hloopt.pipelines import Given

__all__ = ["FORMS", "ExportedFile", "export", "export_from"]

FORMS: Final[Mapping[str, tuple[str, Callable[[KernelExport, KernelCheck], str]]]] = {
    "cuda": (".cu", write_cuda),
    "cupy": (".py", write_cupy),
    "jax": (".py", write_jax),
    "torch": (".py", write_torch),
}
"""The forms of a file: the end of its name, and what writes it."""


@dataclass(frozen=True)
class ExportedFile(Displayed):
    """A kernel as a file.

    name      what the file may be called, without a folder
    form      cuda, cupy, jax or torch
    text      its content
    kernel    the kernel that runs the instruction, with its tile, as ``--kernel`` takes it
    compared  how many numbers its check compares with the interpreter's; 0 verifies nothing
    """

    name: str
    form: str
    text: str
    instruction: str
    kernel: str
    target: str
    compared: int

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "file_name": self.name,
            "form": self.form,
            "instruction": self.instruction,
            "kernel": self.kernel,
            "target": self.target,
            "compared": self.compared,
            "text": self.text,
        }


def export(
    module: Module | str | Path,
    kernel: str,
    form: str = "cuda",
    *,
    pipeline: Given | None = None,
    target: str | None = None,
    seed: int = 0,
) -> ExportedFile:
    """What ``hloopt export`` does: one kernel of a module as a file that stands by itself.

    ``kernel`` is the name of an instruction that is a kernel once the module is optimised (by ``pipeline``,
    as ``optimize`` takes it; O2 by default) and ready for ``target``: the names that ``hloopt kernels``
    lists. ``form`` is ``cuda`` (CUDA C with a check as its ``main``), ``cupy``, ``jax`` or ``torch``.  Each
    file checks itself, on inputs made from ``seed``, against what the interpreter gives.

    Raises ``UsageError`` for a form, a kernel or a target that there is not, ``UnsupportedError`` for a
    kernel that has no such file.
    """
    task = read_task(module)
    with ExitStack() as stack:
        options = KernelOptions(target=target)
        chosen = choose_passes(PassOptions(passes=pipeline), options)
        selection = selecting(options, stack.enter_context)
        found, _ = export_from(
            clone_module(task.module), kernel, form, chosen, selection.instance, seed
        )
        return found


def export_from(
    module: Module, kernel: str, form: str, chosen: Chosen, selection: KernelSelection, seed: int
) -> tuple[ExportedFile, list[str]]:
    """As ``export``, of a module that it optimises in place; and the notes of the passes."""
    if form not in FORMS:
        raise UsageError(f"--as is '{form}'" + did_you_mean(form, FORMS))
    if selection.device != "gpu":
        raise UsageError("a file has the functions of a GPU: --target host has none")
    notes = chosen.run(module).notes
    made = export_kernel(module, kernel, selection)
    check = check_of(made, seed)
    end, write = FORMS[form]
    compared = sum(map(len, check.expected))
    text = write(made, check)
    name = made.name + end
    target = made.target.name
    return ExportedFile(name, form, text, made.instruction, made.kernel, target, compared), notes
