"""An offence, before it is known how to show its place."""

from __future__ import annotations

from hloopt.dataclass import dataclass
from hloopt.errors import VerifyError
from hloopt.ir import Computation, Instruction, Module

__all__ = ["Fault"]


@dataclass(frozen=True, slots=True)
class Fault:
    """A broken constraint and the instruction, computation or module that breaks it.

    ``rule`` is a name out of ``constraints.RULES``.
    """

    subject: Instruction | Computation | Module
    rule: str
    message: str

    def error(self, module: Module) -> VerifyError:
        """The offence with its name, and with line and caret where the module was read."""
        subject = self.subject
        if isinstance(subject, Instruction):
            text, offset = f"%{subject.name}: {self.message}", subject.offset
            width = len(subject.name)
        elif isinstance(subject, Computation):
            text, offset = f"computation %{subject.name}: {self.message}", subject.offset
            width = len(subject.name)
        else:
            text, offset, width = f"module {subject.name}: {self.message}", 0, 1
        source = module.source
        if source is None or offset < 0:
            error = VerifyError(text, name=module.name)
        else:
            error = source.error(VerifyError, offset, text, width=width)
        error.rule = self.rule
        return error
