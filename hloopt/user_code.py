"""Code of users: Python files that are run, modules that are imported, and errors in them, with their lines.

Only command lines and installed packages name such code; files of data never do.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any, Literal

from hloopt.errors import UsageError
from hloopt.spelling import missing

__all__ = ["error_text", "line_in", "load_function", "run_file", "user_line"]


def load_function(text: str, option: str, what: Literal["function", "class"] = "function") -> Any:
    """The function that ``module:function`` or ``FILE.py:function`` names; ``option`` is for messages.

    A module is looked for in the current directory, too.  Raises ``UsageError``, also for what is not
    a function, or not a class where one is wanted.
    """
    module_name, _, function_name = text.rpartition(":")
    if not (module_name and function_name):
        raise UsageError(f"{option}: '{text}' is not of the form module:{what}")
    found: Any
    if module_name.endswith(".py"):
        found = run_file(module_name, "hloopt_rule_file")
    else:
        here = str(Path.cwd())
        if here not in sys.path:
            sys.path.insert(0, here)
        try:
            found = importlib.import_module(module_name)
        except (Exception, SystemExit) as error:
            raise UsageError(
                f"{option}: '{module_name}' cannot be imported{user_line(error)}: {error_text(error)}"
            ) from error
    for part in function_name.split("."):
        if not hasattr(found, part):
            unknown = missing(function_name, dir(found), f"'{module_name}' has no {what}")
            raise UsageError(f"{option}: {unknown}")
        found = getattr(found, part)
    if callable(found) and isinstance(found, type) == (what == "class"):
        return found
    kind = "a class" if isinstance(found, type) else f"of type {type(found).__name__}"
    raise UsageError(f"{option}: '{function_name}' of '{module_name}' is {kind}, not a {what}")


def run_file(path: str, prefix: str) -> Any:
    """The module that a Python file makes, called ``prefix`` and the file's name.

    Raises ``UsageError`` where it is not there, is not a Python file, or fails, with the line.
    """
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"{path}: no such file")
    name = f"{prefix}_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: not a Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their own module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise UsageError(
            f"{path}{line_in(error, path)}: {type(error).__name__}: {error}"
        ) from error
    return module


def line_in(error: BaseException, path: str) -> str:
    """``:12``: the last line of the file on the way to an error."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == Path(path).absolute():
            line = trace.tb_lineno
        trace = trace.tb_next
    return f":{line}" if line else ""


def error_text(error: BaseException) -> str:
    """``KeyError: 'x'``: an error raised by user code, as text."""
    return f"{type(error).__name__}: {error}"


def user_line(error: BaseException) -> str:
    """`` (file.py:12)`` of the innermost place that is the user's."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({_shown(error.filename)}:{error.lineno})"
    found, trace = "", error.__traceback__
    own = str(Path(__file__).resolve().parent)
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith((own, "<frozen ")) and "importlib" not in file:
            found = f" ({_shown(file)}:{trace.tb_lineno})"
        trace = trace.tb_next
    return found


def _shown(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
