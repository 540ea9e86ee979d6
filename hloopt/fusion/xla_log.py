"""XLA's own log of priority fusion: ``NAME.priority_fusion_dump.txt`` of a dump directory.

The text form of XLA's ``FusionProcessDumpProto``: its estimate of each fusion, each producer it did
not fuse at all and why, and each fusion, in the order of its work; the device, and the module before.
Names are those of that module, and of the fusions made on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from pathlib import Path
from typing import Final, TypeAlias

from hloopt.cost_models.model import Comparison
from hloopt.dataclass import dataclass
from hloopt.errors import FileError, UsageError
from hloopt.ir import Module
from hloopt.reading import bytes_of
from hloopt.source import Source
from hloopt.targets import Target
from hloopt.text.encoding import decode
from hloopt.text.parser import parse_module
from hloopt.textproto import Message, ScalarField, read_textproto
from hloopt.verifier import verify_module

__all__ = [
    "Fused",
    "Ineligible",
    "Priced",
    "XlaLog",
    "XlaStep",
    "module_before",
    "read_log",
    "read_log_file",
]

_WORDS: Final = {"inf": inf, "infinity": inf, "nan": nan}
_PASSED_OVER: Final = frozenset({"gpu_device_info", "hlo_module_before_fusion"})


@dataclass(frozen=True, slots=True)
class Fused:
    """A producer joined a consumer; both are called ``fusion`` now.  ``offset`` is its place in the log."""

    producer: str
    consumer: str
    fusion: str
    offset: int


@dataclass(frozen=True, slots=True)
class Priced:
    """XLA's estimate of what fusing a producer into all these consumers gains."""

    producer: str
    consumers: tuple[str, ...]
    times: Comparison
    offset: int


@dataclass(frozen=True, slots=True)
class Ineligible:
    """A producer that was not fused at all, with XLA's words."""

    producer: str
    reason: str
    offset: int


XlaStep: TypeAlias = "Fused | Priced | Ineligible"


@dataclass(frozen=True)
class XlaLog:
    """A log as it was read.

    module_text  the module before fusion, empty where the log has none
    """

    source: Source
    steps: tuple[XlaStep, ...]
    module_text: str
    message: Message

    def target(self, name: str = "device") -> Target:
        """The device of the log.  Raises ``FileError`` where the log describes none that is understood."""
        # XLA's description of devices is long; most readers of logs need none of it.
        from hloopt.targets.xla_form import read_xla_form

        return read_xla_form(self.source, name, self.message)

    def place(self, step: XlaStep) -> str:
        """``name:line:col`` of a step."""
        line, column = self.source.line_column(step.offset)
        return f"{self.source.name}:{line}:{column}"


def read_log(source: Source) -> XlaLog:
    """The steps in XLA's order.  Takes seconds for a quarter of a million lines.

    Raises ``FileError`` at its line for a damaged log: no text format, a step of no known kind, a name or
    time that is missing, given twice or of the wrong kind.
    """
    return _Reader(source).log()


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.kinds: dict[str, Callable[[Message], XlaStep]] = {
            "fusion": self.fused,
            "update_priority": self.priced,
            "producer_ineligible": self.ineligible,
        }

    def fail(self, offset: int, message: str) -> FileError:
        return self.source.error(FileError, offset, message)

    def log(self) -> XlaLog:
        whole = read_textproto(self.source)
        for name, values in whole.fields.items():
            if name != "fusion_steps" and name not in _PASSED_OVER:
                offset = values[0].offset if values else 0
                raise self.fail(offset, f"a log of fusions has no field '{name}'")
        steps = tuple(self.step(entry) for entry in whole.fields.get("fusion_steps", ()))
        found = whole.fields.get("hlo_module_before_fusion", [])
        text = self.text(whole, "hlo_module_before_fusion") if found else ""
        return XlaLog(self.source, steps, text, whole)

    def step(self, entry: ScalarField | Message) -> XlaStep:
        if isinstance(entry, Message) and len(entry.fields) == 1:
            name, values = next(iter(entry.fields.items()))
            read = self.kinds.get(name)
            if read is not None and len(values) == 1 and isinstance(values[0], Message):
                return read(values[0])
        raise self.fail(entry.offset, f"a step is one of {', '.join(self.kinds)}")

    def fused(self, step: Message) -> Fused:
        return Fused(
            self.text(step, "producer_name"),
            self.text(step, "consumer_name"),
            self.text(step, "fusion_name"),
            step.offset,
        )

    def priced(self, step: Message) -> Priced:
        consumers = tuple(map(self.word, step.fields.get("consumer_names", ())))
        fused, unfused = self.number(step, "us_fused"), self.number(step, "us_unfused")
        producer = self.text(step, "producer_name")
        return Priced(producer, consumers, Comparison(unfused, fused), step.offset)

    def ineligible(self, step: Message) -> Ineligible:
        return Ineligible(self.text(step, "producer_name"), self.text(step, "reason"), step.offset)

    def only(self, message: Message, name: str) -> ScalarField | Message:
        values = message.fields.get(name, ())
        if len(values) != 1:
            times = "twice" if values else "not"
            offset = values[1].offset if values else message.offset
            raise self.fail(offset, f"{name} is {times} given")
        return values[0]

    def text(self, message: Message, name: str) -> str:
        return self.word(self.only(message, name))

    def word(self, entry: ScalarField | Message) -> str:
        if isinstance(entry, ScalarField) and isinstance(entry.value, str):
            return entry.value
        raise self.fail(entry.offset, "a text is expected")

    def number(self, message: Message, name: str) -> float:
        """A time; XLA leaves out what is 0."""
        if name not in message.fields:
            return 0.0
        entry = self.only(message, name)
        value = entry.value if isinstance(entry, ScalarField) else None
        if isinstance(value, str):
            value = _WORDS.get(value.lower())
        if value is None:
            raise self.fail(entry.offset, f"{name} is a number")
        return float(value)


def read_log_file(path: Path) -> XlaLog:
    """A fusion log, perhaps gzipped.  Raises as ``read_log`` does."""
    return read_log(Source(decode(str(path), bytes_of(path)), str(path)))


def module_before(log: XlaLog) -> Module:
    """The module XLA began with.  Raises ``UsageError`` for a log without one."""
    name = f"{log.source.name} (module before fusion)"
    if not log.module_text:
        raise UsageError(f"{log.source.name}: the log has no module before fusion")
    module = parse_module(log.module_text, name)
    verify_module(module)
    return module
