"""``hloopt explain --xla-dump``: why XLA fused what it did, from its own dump."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from hloopt.cli.files import InputText, read_input
from hloopt.cli.json_out import write_json
from hloopt.cli.messages import show_warnings
from hloopt.cli.options import PICK
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import model_for
from hloopt.dataclass import dataclass
from hloopt.dumps import matching_modules, read_dump
from hloopt.errors import UsageError
from hloopt.fusion.xla_history import XlaHistory
from hloopt.fusion.xla_log import module_before, read_log_file
from hloopt.ir import build
from hloopt.report.console import product
from hloopt.report.xla_dump import XlaDump
from hloopt.report.xla_facts import instruction_facts, pair_facts, summary_facts
from hloopt.report.xla_history import show_xla_instruction, show_xla_pair, show_xla_summary
from hloopt.targets import find_target, targets
from hloopt.verifier import verify_module

if TYPE_CHECKING:
    from hloopt.dumps import DumpModule
    from hloopt.fusion.xla_log import XlaLog
    from hloopt.ir import Module
    from hloopt.targets import Target

__all__ = ["explain_xla"]

_LOG = "priority_fusion_dump.txt"
_KIND = "fusion log"
_MODEL = "xla-2026"
_CPU_END = ".cpu_after_optimizations"
_CPU_KEY = "outer_dimension_partitions"
_DEFAULT_TARGET = "h200"
_OPTIONS = ("files", "xla_dump", "module", "strict", "target", "as_json")


@dataclass(frozen=True, slots=True)
class _Files:
    """The data of one module: XLA's log, and the module it ended with."""

    log: Path | None
    after: Path | None


def explain_xla(dump: str, names: Sequence[str], *, target: str | None, as_json: bool) -> None:
    """Print what is known of XLA's decisions about one or two instructions, or in all.

    ``target`` takes the place of the device in the log.  Raises ``UsageError`` for what is not a dump,
    unknown names, and more than two of them.
    """
    _refuse_others()
    names = [name.removeprefix("%") for name in names]
    if len(names) > 2:
        raise UsageError(f"--xla-dump explains one instruction or two, not {len(names)}")
    found = _read(_files(Path(dump)), target)
    match names:
        case [first, second]:
            facts = pair_facts(found, first, second)
            show = show_xla_pair
        case [name]:
            facts = instruction_facts(found, name)
            show = show_xla_instruction
        case _:
            facts = summary_facts(found)
            show = show_xla_summary
    if as_json:
        write_json(
            "explain", {"xla": {"dump": dump, "target": found.predictor.target.name, **facts}}
        )
    else:
        show(facts, product())


def _refuse_others() -> None:
    """Raise ``UsageError`` for an option about what hloopt does: this is about what XLA did."""
    ctx = click.get_current_context()
    for option in ctx.command.params:
        given = ctx.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
        if given and option.name not in _OPTIONS:
            raise UsageError(
                f"{option.opts[0]} has no meaning with --xla-dump, which explains what XLA did"
            )


def _files(path: Path) -> _Files:
    if not path.exists():
        raise UsageError(f"{path}: no such file or directory")
    if not path.is_dir():
        is_log = path.name.removesuffix(".gz").endswith(_LOG)
        return _Files(path, None) if is_log else _Files(None, path)
    wanted = click.get_current_context().meta.get(PICK, {}).get("module")
    rows = [(module, _of(module)) for module in matching_modules(read_dump(path), wanted)]
    rows = [row for row in rows if row[1].log is not None or row[1].after is not None]
    logged = [row for row in rows if row[1].log is not None]
    if len(logged or rows) > 1:
        lines = "\n".join(f"  {module.label}" for module, _ in (logged or rows)[:12])
        raise UsageError(f"{path}: there are several modules; --module picks one\n{lines}")
    if not rows:
        raise UsageError(
            f"{path}: no {_LOG} in it, and no module after optimisation (see hloopt ls {path})"
        )
    return (logged or rows)[0][1]


def _of(module: DumpModule) -> _Files:
    logs = module.others.get(_KIND, ())
    ends = [stage for stage in module.stages if stage.kind == "after"]
    after = ends[0].file("text") or ends[0].file("proto") if ends else None
    return _Files(logs[0].path if logs else None, after.path if after is not None else None)


def _read(files: _Files, target: str | None) -> XlaDump:
    after = _module(files.after) if files.after is not None else None
    log = read_log_file(files.log) if files.log is not None else None
    device = find_target(target or _DEFAULT_TARGET) if log is None or target else _device(log)
    before = history = None
    if log is not None:
        before = module_before(log)
        history = XlaHistory.read(build.clone_module(before), log)
    is_cpu = after is not None and history is None and _is_of_cpu(files.after, after)
    return XlaDump(before, history, after, Predictor(model_for(_MODEL, device)), is_cpu)


def _is_of_cpu(path: Path | None, module: Module) -> bool:
    """Whether XLA's CPU compiler made a module, by its file's name or what that compiler alone writes."""
    if path is not None and _CPU_END in path.name:
        return True
    configs = (entry.attributes.get("backend_config") for entry in module.instructions())
    return any(config is not None and _CPU_KEY in str(config) for config in configs)


def _module(path: Path) -> Module:
    found = read_input(InputText(str(path), path))
    show_warnings(found.module, found.name)
    verify_module(found.module)
    return found.module


def _device(log: XlaLog) -> Target:
    """The device of the log, under our name where it has one."""
    device = log.target()
    known = next((one for one in targets().values() if one.title == device.title), None)
    return device if known is None else replace(device, name=known.name)
