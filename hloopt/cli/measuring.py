"""The times of ``--profile``, and the modules that they are of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from hloopt.cli.files import Input, InputText, open_texts
from hloopt.cli.options import PICK
from hloopt.cli.waiting import patience
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError

if TYPE_CHECKING:
    from hloopt.cost_models.predictor import Predictor
    from hloopt.profiles.spans import ProgramTimes, TraceProfile
    from hloopt.report.measured import MeasuredTimes

__all__ = ["Measuring"]


@dataclass(frozen=True)
class Measuring:
    """A trace, and the modules that it is about: those of files, or those that it holds itself."""

    profile: TraceProfile
    texts: Sequence[InputText]
    programs: dict[str, ProgramTimes]

    @classmethod
    def of(cls, trace: str, files: tuple[str, ...]) -> Measuring:
        """Read a trace; without files the modules are the trace's, as far as ``--module`` wants them.

        Raises ``UsageError`` where it holds none, and what ``read_profile`` raises.
        """
        from hloopt.report.measured import held_modules, read_profile

        with patience("reading", trace):
            profile = read_profile(trace)
        if files:
            return cls(profile, open_texts(files), {})
        held = held_modules(profile)
        if not held:
            raise UsageError(f"{trace} holds no module: give the file of the module that ran")
        pattern = click.get_current_context().meta.get(PICK, {}).get("module")
        picked = [one for one in held if pattern is None or re.search(pattern, one.name)]
        if not picked:
            names = ", ".join(one.label for one in held)
            raise UsageError(f"no module matches --module {pattern!r}; {trace} holds: {names}")
        named = {f"{trace}:{program.label}": program for program in picked}
        texts = [InputText(name, None, content=one.module) for name, one in named.items()]
        return cls(profile, texts, named)

    def measured(self, found: Input, predictor: Predictor | None = None) -> MeasuredTimes:
        """The times of a module."""
        from hloopt.report.measured import measured

        return measured(found.module, self.profile, predictor, self.programs.get(found.name))
