"""XLA's fusion logs as inputs of commands, and ``hloopt diff`` of two of them."""

from __future__ import annotations

from pathlib import Path

from hloopt.cli.files import InputText
from hloopt.cli.json_out import write_json
from hloopt.cli.waiting import patience
from hloopt.dumps.content import is_fusion_log
from hloopt.errors import UsageError
from hloopt.fusion.log_differences import log_difference
from hloopt.fusion.xla_log import XlaLog, read_log
from hloopt.ir import Module
from hloopt.report.console import product
from hloopt.report.log_differences import log_json, show_logs
from hloopt.source import Source
from hloopt.text.encoding import decode
from hloopt.text.parser import parse_module
from hloopt.verifier import verify_module

__all__ = ["diff_logs", "module_before", "read_log_file"]


def read_log_file(path: Path) -> XlaLog:
    """A fusion log, perhaps gzipped.  Raises as ``read_log`` does."""
    text = InputText(str(path), path)
    return read_log(Source(decode(text.name, text.read()), text.name))


def module_before(log: XlaLog) -> Module:
    """The module XLA began with.  Raises ``UsageError`` for a log without one."""
    name = f"{log.source.name} (module before fusion)"
    if not log.module_text:
        raise UsageError(f"{log.source.name}: the log has no module before fusion")
    module = parse_module(log.module_text, name)
    verify_module(module)
    return module


def diff_logs(before: str, after: str, *, as_json: bool) -> bool:
    """Print what differs between two logs; whether anything does.

    Raises ``UsageError`` where only one of the files is a log, or a log has no module, ``FileError`` for a
    damaged log.
    """
    paths = Path(before), Path(after)
    for path, other in (paths, paths[::-1]):
        if not is_fusion_log(path):
            raise UsageError(
                f"{other} is a fusion log of XLA, {path} is none: two logs are compared, or two modules"
            )
    sides = []
    for path in paths:
        with patience("reading", path.name):
            log = read_log_file(path)
            sides.append((module_before(log), log))
    with patience("comparing", "the logs"):
        found = log_difference(sides[0], sides[1])
    if as_json:
        write_json("diff", {"logs": [before, after], **log_json(found)})
    else:
        show_logs(found, product())
    return not found.equal
