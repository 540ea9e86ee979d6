"""Options that say which kernel runs what: for every command that chooses kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hloopt.cli.fusion_options import LOCKS, locked_decisions
from hloopt.cli.outputs import write_text
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.kernels.verifier import verify_with

if TYPE_CHECKING:
    from hloopt.cost_models.predictor import Predictor
    from hloopt.ir import Module
    from hloopt.kernels.kernel import Kernel, Site
    from hloopt.kernels.lock import LockEntry
    from hloopt.kernels.selection import Choice, KernelSelection
    from hloopt.kernels.spec import KernelSpec
    from hloopt.rewrite import Pipeline, PipelineReport

__all__ = ["KERNEL_OPTIONS", "Selecting", "choices_of", "kernel_options", "selecting"]

Function = TypeVar("Function", bound=Callable[..., Any])

KERNEL_OPTIONS = (
    "target", "kernel", "kernel_rule", "kernel_file", "lock", "frozen", "write_lock",
)  # fmt: skip
"""The names of the parameters, for the groups of a command's help."""


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    ctx.meta.setdefault(LOCKS, {})[str(param.name)] = value


def _option(*names: str, **keywords: Any) -> Callable[[Function], Function]:
    return click.option(*names, expose_value=False, callback=_keep, **keywords)


def _complete_target(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from hloopt.targets import names

    return [name for name in names() if name.startswith(incomplete)]


def _complete_kernel(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from hloopt.kernels.registry import kernels

    pattern, equals, start = incomplete.rpartition("=")
    if not equals:
        return []
    device = ctx.params.get("device")
    names = (kernel.name for kernel in kernels("native" if device == "native" else "gpu"))
    return [f"{pattern}={name}" for name in names if name.startswith(start)]


_OPTIONS = (
    _option(
        "--target",
        metavar="NAME|FILE",
        shell_complete=_complete_target,
        help="The device to choose kernels for, and to fuse for: a name (see hloopt targets), or a "
        "description's path; h200 by default, host for the device native.",
    ),
    _option(
        "--kernel",
        multiple=True,
        metavar="PATTERN=NAME[{KEY=N}]",
        shell_complete=_complete_kernel,
        help="Run some instructions by this kernel: a name, a glob, /regex/, op:OPCODE (of a "
        "fusion's hero, too) or op_name:GLOB (may be repeated; the last that matches counts).",
    ),
    _option(
        "--kernel-rule",
        metavar="MODULE:FUNCTION",
        help="Let a Python function choose: it gets the instruction, the candidates and the target.",
    ),
    _option(
        "--kernel-file",
        multiple=True,
        metavar="FILE",
        help="Take kernels of one's own from a Python file, or from a .cu file beside the HLO it computes "
        "(may be repeated).",
    ),
    _option("--lock", metavar="FILE", help="Fuse, and choose kernels, as this lock file says."),
    _option("--frozen", is_flag=True, help="With --lock: what has changed since is an error."),
    _option(
        "--write-lock",
        metavar="FILE",
        help="Write what was fused, and the choices, as a lock file.",
    ),
)


def kernel_options(function: Function) -> Function:
    """``--target``, ``--kernel``, ``--kernel-rule``, ``--kernel-file``, ``--lock``,
    ``--frozen``, ``--write-lock``: what ``selecting`` makes a pass of.
    """
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def choices_of(report: PipelineReport) -> list[Choice]:
    """What the last run of kernel selection chose."""
    from hloopt.kernels.selection import Choice

    for run in reversed(report.runs):
        found = [record for record in run.records if isinstance(record, Choice)]
        if found or run.instance.name == "kernel-selection":
            return found
    return []


@dataclass
class Selecting:
    """What the options ask for; ``asked`` says whether there were any.  ``entries`` are for the lock file.

    ``fixed`` options are the command's own; ``has_files`` says that kernels were read from files.
    """

    options: dict[str, Any]
    fixed: dict[str, Any]
    write_lock: str | None
    entries: list[LockEntry]
    has_files: bool = False
    made: KernelSelection | None = None

    @property
    def instance(self) -> KernelSelection:
        """The pass, made when it is first asked for: a run on the CPU needs none."""
        if self.made is None:
            from hloopt.kernels.selection import KernelSelection

            self.made = KernelSelection(**{**self.options, **self.fixed})
        return self.made

    @property
    def is_native(self) -> bool:
        """Whether kernels are those of the device ``native``."""
        return self.fixed.get("device") == "native"

    @property
    def has_kernels(self) -> bool:
        """Whether there are kernels for the target; else its times can only be predicted."""
        from hloopt.targets import find_target

        return self.is_native or find_target(self.instance.target).kind == "cuda"

    @property
    def asked(self) -> bool:
        """Whether any of the options was given, other than a lock file that is about fusion alone."""
        return bool(self.options) or self.write_lock is not None

    def applied(self, pipeline: Pipeline) -> Pipeline:
        """The pipeline with the options given to its kernel selections; with one at the end if it has none.

        A lock file of a pipeline that fuses is about that, unless other options are about kernels.  A device
        whose times can only be predicted is for fusion alone, and so is the host: its fusions are still cut and
        joined when a program is made of them, which those with a kernel are not.
        """
        from hloopt.fusion.strategies import has_strategy
        from hloopt.kernels.selection import KernelSelection
        from hloopt.rewrite.entries import select

        def give(instance: Any) -> Any:
            if isinstance(instance, KernelSelection):
                return replace(instance, **self.options)
            return instance

        if any(isinstance(instance, KernelSelection) for instance in pipeline.passes()):
            return type(pipeline)(select(pipeline.entries, give))
        if not self.options and has_strategy(pipeline):
            return pipeline
        if not self.has_kernels or (self.is_native and self.options.keys() <= {"target"}):
            return pipeline
        return type(pipeline)((*pipeline.entries, self.instance))

    def choose(self, module: Module) -> tuple[Module, list[Choice], list[str]]:
        """Make a module ready for a device and choose kernels; what has them, the choices, and notes.

        The module itself is changed.
        """
        from hloopt.kernels.lowering import DEVICE, NATIVE
        from hloopt.kernels.written import drop_others

        dropped = drop_others(module, self.instance.device)
        ready = DEVICE
        if self.is_native:
            from hloopt.runtime.native.whole_loops import with_whole_loops

            module, ready = with_whole_loops(module), NATIVE
        report = type(ready)((*ready.entries, self.instance)).run(module)
        found = choices_of(report)
        self.lock(module, found)
        notes = (*dropped, *report.runs[-1].notes)
        return module, found, [f"kernel-selection: {note}" for note in notes]

    def predictor(self) -> Predictor:
        """What predicts the times of kernels on the target, as for every other report."""
        from hloopt.cost_models.predictor import Predictor
        from hloopt.cost_models.registry import DEFAULT, model_for
        from hloopt.targets import find_target

        return Predictor(model_for(DEFAULT, find_target(self.instance.target)))

    def lock(self, module: Module, found: list[Choice]) -> None:
        """Remember choices for the lock file."""
        if self.write_lock is None:
            return
        from hloopt.kernels.lock import entry_of

        for choice in found:
            if choice.kernel:
                home = module.computations[choice.computation]
                instruction = home.by_name[choice.instruction]
                self.entries.append(entry_of(instruction, choice.kernel, choice.tile))

    def finish(self) -> None:
        """Write the lock file, if one is wanted.  Raises ``UsageError``."""
        if self.write_lock is None:
            return
        from hloopt.fusion.lock_file import decisions_text, head_text
        from hloopt.kernels.lock import lock_text

        decisions = locked_decisions()
        if self.entries or not any(decisions):
            text = lock_text(self.entries, self.instance.target, self.instance.device)
        else:
            text = head_text({})
        write_text(self.write_lock, text + decisions_text(*decisions), "kernels.toml")


_LOCK = ("lock", "frozen")


def _is_about_fusion(lock: str) -> bool:
    """Whether a lock file says nothing about kernels.  Raises ``UsageError``."""
    from hloopt.fusion.lock_file import read_tables

    found = read_tables(lock)
    return not found.get("kernel") and any(
        found.get(key) for key in ("fusion", "loop", "unfused", "fuse", "nofuse")
    )


def _verify(site: Site, kernel: Kernel, spec: KernelSpec) -> str:
    from hloopt.runtime.trial import try_kernel

    return try_kernel(site, kernel, spec)


def _register(path: str) -> None:
    """Let selection know the kernels of a file while the command runs."""
    from hloopt.kernels.registry import registered
    from hloopt.kernels.user import load_kernels

    click.get_current_context().with_resource(registered(load_kernels(path)))


def selecting(*, predicted: bool = False, **fixed: Any) -> Selecting:
    """What the options of the running command ask for; ``fixed`` options are the command's own.

    ``predicted`` lets devices pass that kernels are only timed for, never made: where no other option is
    about kernels.  Raises ``UsageError`` for what cannot be, before any module is read.
    """
    given = click.get_current_context().meta.get(LOCKS, {})
    options: dict[str, Any] = {
        name: given[name] for name in ("target", "kernel", "lock", "frozen") if given.get(name)
    }
    if options.get("lock") and _is_about_fusion(options["lock"]):
        options = {name: value for name, value in options.items() if name not in _LOCK}
    if given.get("frozen") and not given.get("lock"):
        raise UsageError("--frozen says that a lock file has to suit: give --lock FILE as well")
    verify_with(_verify)
    for path in given.get("kernel_file") or ():
        _register(path)
    if given.get("kernel_rule"):
        from hloopt.kernels.selection.selectors import load_rule

        options["rule"] = load_rule(given["kernel_rule"])
    if "target" in options:
        from hloopt.targets.host import HOST

        if str(options["target"]).lower() == HOST.name:
            fixed = {"device": "native", "target": HOST.name, **fixed}
    write_lock, files = given.get("write_lock"), bool(given.get("kernel_file"))
    selected = Selecting(options, fixed, write_lock, [], files)
    if options:
        asked = not predicted or options.keys() - {"target"} or write_lock
        _check(selected.instance, asked=bool(asked))
    return selected


def _check(instance: KernelSelection, *, asked: bool) -> None:
    """Raise ``UsageError`` for a target that is none."""
    from hloopt.targets import find_gpu

    if instance.device == "gpu" and asked:
        find_gpu(instance.target)
