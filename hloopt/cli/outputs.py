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
from hloopt.cli.options import OptionGroup, option
from hloopt.dataclass import dataclass
from hloopt.driver.writing import file_name, is_folder, write_bytes, write_text
from hloopt.errors import UsageError
from hloopt.proto import write_module
from hloopt.text.parser import parse_module

if TYPE_CHECKING:
    from hloopt.ir import Module

__all__ = ["PRINT", "ModuleOutput", "check_output", "hlo_text", "proto_wanted"]

PRINT = OptionGroup(
    "print",
    option(
        "--canonical",
        is_flag=True,
        help="Print equal modules alike: names, computations and independent instructions in an order "
        "that the graph decides, defaults and usual spellings, no metadata.",
    ),
    option(
        "--no-layouts",
        is_flag=True,
        help="Leave out the layouts of shapes, of the entry and of custom calls' operands; a reader takes "
        "the usual ones, which matters for bitcasts.",
    ),
    option(
        "--no-metadata",
        is_flag=True,
        help="Leave out what only serves debugging: metadata, stack tables, origin, statistics.",
    ),
)
"""How ``hlo_text`` prints."""

_PROTOS = (".pb", ".pb.gz")


def proto_wanted(output: str | None) -> bool:
    """Whether a file's name means a protocol buffer."""
    return output is not None and output.endswith(_PROTOS)


@dataclass(frozen=True)
class ModuleOutput:
    """The modules that a command prints, as HLO or as protocol buffers, or within its JSON.

    output   as ``write_text`` takes it; None with ``as_json`` puts the text into the JSON
    several  whether a comment names the file of each module on stdout
    """

    output: str | None
    proto: bool
    as_json: bool
    several: bool

    @classmethod
    def of(
        cls, output: str | None, texts: Sequence[InputText], *, proto: bool, as_json: bool
    ) -> ModuleOutput:
        """For the command's options; ``proto`` where more than the name of OUT requests it.

        Raises ``UsageError`` where the output cannot be that.
        """
        proto = proto or proto_wanted(output)
        if output is not None or not as_json:
            check_output(output, texts, proto=proto)
        elif proto:
            raise UsageError("JSON cannot hold a protocol buffer: give -o OUT as well")
        return cls(output, proto, as_json, len(texts) > 1)

    def write(self, module: Module, name: str) -> dict[str, Any]:
        """Write a module that was read from ``name``; what the JSON says about it."""
        if self.proto:
            write_bytes(self.output, hlo_proto(module), name)
            return {}
        hlo = hlo_text(module)
        if self.as_json and self.output is None:
            return {"text": hlo}
        write_text(self.output, hlo, name, heading=self.several)
        return {}


def hlo_text(module: Module) -> str:
    """A module as the options ``PRINT`` of the command want it printed."""
    given = PRINT.given().get
    return module.to_text(
        canonical=bool(given("canonical")),
        layouts=not given("no_layouts"),
        metadata=not given("no_metadata"),
    )


def hlo_proto(module: Module) -> bytes:
    """A module as an HloProto, as the options ``PRINT`` of the command want it."""
    if any(PRINT.given().values()):
        module = parse_module(hlo_text(module), module.name)
    return write_module(module)


def check_output(output: str | None, texts: Sequence[InputText], *, proto: bool = False) -> None:
    """Raise ``UsageError`` where several modules would be written into one file, or over an input.

    ``proto`` says that protocol buffers are to be written, which a terminal does not show.
    """
    if output == "":
        raise UsageError("the name given by -o is empty")
    if output in (None, "-"):
        if proto and len(texts) > 1:
            raise UsageError(
                "one protocol buffer cannot hold several modules: give a directory by -o"
            )
        if proto and sys.stdout.isatty():
            raise UsageError(
                "a protocol buffer is not printed to a terminal: give -o FILE or a pipe"
            )
        return
    if not is_folder(output):
        if len(texts) < 2:
            return
        raise UsageError(f"{output}: several modules need a directory (write {output}{os.sep})")
    names = Counter(file_name(text.name, proto) for text in texts)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise UsageError(f"{output}: several of the modules would be written to {twice[0]}")
    for text in texts:
        target = Path(output) / file_name(text.name, proto)
        if text.path is not None and target.exists() and target.samefile(text.path):
            raise UsageError(f"{output}: {target} is one of the inputs; give another directory")
