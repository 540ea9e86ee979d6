"""Where results go: standard output, a file, or a directory with a file for each module.

A file appears whole or not at all.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hloopt.cli.files import InputText
from hloopt.cli.output_options import PRINT
from hloopt.dataclass import dataclass
from hloopt.driver.writing import file_name, form_named, is_folder, write_bytes, write_text
from hloopt.errors import UsageError
from hloopt.proto import write_module
from hloopt.runtime.xla_form import make_for_xla
from hloopt.text.parser import parse_module

if TYPE_CHECKING:
    from hloopt.ir import Module

__all__ = ["ModuleOutput", "check_output", "hlo_text"]


_BINARY = {"proto": "a protocol buffer", "mlir.bc": "a portable artifact"}


@dataclass(frozen=True)
class ModuleOutput:
    """The modules that a command prints, as HLO, as protocol buffers or as StableHLO, or within its JSON.

    output   as ``write_text`` takes it; None with ``as_json`` puts the text into the JSON
    form     hlo, proto, stablehlo or mlir.bc (a portable artifact of StableHLO)
    several  whether a comment names the file of each module on stdout
    """

    output: str | None
    form: str
    as_json: bool
    several: bool

    @classmethod
    def of(
        cls, output: str | None, texts: Sequence[InputText], *, emit: str, as_json: bool
    ) -> ModuleOutput:
        """For the command's options; the name of OUT decides where ``emit`` is HLO.

        Raises ``UsageError`` where the output cannot be that.
        """
        form = emit if emit in {"stablehlo", "mlir.bc", "proto"} else form_named(output or "")
        if output is not None or not as_json:
            check_output(output, texts, form=form)
        elif form in _BINARY:
            raise UsageError(f"JSON cannot hold {_BINARY[form]}: give -o OUT as well")
        return cls(output, form, as_json, len(texts) > 1)

    @property
    def is_stablehlo(self) -> bool:
        """Whether modules are written as StableHLO, which has no fusions."""
        return self.form in {"stablehlo", "mlir.bc"}

    def write(self, module: Module, name: str) -> dict[str, Any]:
        """Write a module that was read from ``name``; what the JSON says about it."""
        if self.is_stablehlo:
            make_for_xla(module)
        if self.form == "proto":
            write_bytes(self.output, write_module(_as_printed(module)), name)
            return {}
        text = hlo_text(module)
        if self.is_stablehlo:
            from hloopt.stablehlo.conversion import write_stablehlo

            content = write_stablehlo(_as_printed(module), self.form)
            if self.form == "mlir.bc":
                write_bytes(self.output, content, name, form=self.form)
                return {}
            text = content.decode()
        if self.as_json and self.output is None:
            return {"text": text}
        if self.output in (None, "-") and not self.is_stablehlo and sys.stdout.isatty():
            from hloopt.report.highlight import print_hlo

            print_hlo(f"// {name}\n{text}\n" if self.several else text)
        else:
            write_text(self.output, text, name, heading=self.several, form=self.form)
        return {}


def hlo_text(module: Module) -> str:
    """A module as the options ``PRINT`` of the command want it printed."""
    given = PRINT.given().get
    return module.to_text(
        canonical=bool(given("canonical")),
        layouts=not given("no_layouts"),
        metadata=not given("no_metadata"),
    )


def _as_printed(module: Module) -> Module:
    """A module as the options ``PRINT`` of the command change it."""
    if any(PRINT.given().values()):
        return parse_module(hlo_text(module), module.name)
    return module


def check_output(output: str | None, texts: Sequence[InputText], *, form: str = "hlo") -> None:
    """Raise ``UsageError`` where several modules would be written into one file, or over an input.

    A terminal does not show a binary ``form``.
    """
    if output == "":
        raise UsageError("the name given by -o is empty")
    if output in (None, "-"):
        called = _BINARY.get(form, "one text of StableHLO" if form == "stablehlo" else "")
        if called and len(texts) > 1:
            what = called.replace("a ", "one ", 1)
            raise UsageError(f"{what} cannot hold several modules: give a directory by -o")
        if form in _BINARY and sys.stdout.isatty():
            raise UsageError(f"{called} is not printed to a terminal: give -o FILE or a pipe")
        return
    if not is_folder(output):
        if len(texts) < 2:
            return
        raise UsageError(f"{output}: several modules need a directory (write {output}{os.sep})")
    names = Counter(file_name(text.name, form) for text in texts)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise UsageError(f"{output}: several of the modules would be written to {twice[0]}")
    for text in texts:
        target = Path(output) / file_name(text.name, form)
        if text.path is not None and target.exists() and target.samefile(text.path):
            raise UsageError(f"{output}: {target} is one of the inputs; give another directory")
