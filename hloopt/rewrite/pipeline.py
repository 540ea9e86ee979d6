"""Pipelines: passes in a row, and groups of passes repeated until nothing changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hloopt.dataclass import dataclass
from hloopt.ir import Module
from hloopt.rewrite import spec
from hloopt.rewrite.entries import Entry, each_pass, entry_text, make_entries
from hloopt.rewrite.outcome import PipelineReport
from hloopt.rewrite.pass_ import Pass
from hloopt.rewrite.runner import Controls, Watcher, run_entries

__all__ = ["Pipeline"]


@dataclass(frozen=True)
class Pipeline:
    """Passes and ``fix`` groups in order; ``str`` gives the text it can be read back from."""

    entries: tuple[Entry, ...] = ()

    @classmethod
    def parse(
        cls,
        text: str,
        passes: Mapping[str, type[Pass]],
        named: Mapping[str, str] | None = None,
    ) -> Pipeline:
        """Read a text as in ``rewrite/spec.py``; names in ``named`` stand for whole pipelines.

        Raises ``UsageError`` for an unknown pass or option, with the nearest name and all valid ones.
        """
        return cls(
            tuple(make_entries(spec.parse(text), passes.get, lambda: tuple(passes), named or {}))
        )

    def __str__(self) -> str:
        return ",".join(map(entry_text, self.entries))

    def passes(self) -> Iterator[Pass]:
        """All passes, those inside groups included, in the order of the text."""
        return each_pass(self.entries)

    def run(
        self,
        module: Module,
        *,
        verify_each: bool = False,
        controls: Controls | None = None,
        watchers: Sequence[Watcher] = (),
    ) -> PipelineReport:
        """Run over ``module`` in place; ``watchers`` see it before and after every pass.

        ``verify_each``, as in ``controls``, verifies before the first and after every changing pass, and
        raises ``VerifyError`` naming the pass that broke the module or told an untruth about changing it.
        Raises ``UsageError`` when ``controls`` name a pass that is not in the pipeline.
        """
        return run_entries(
            self.entries, module, controls or Controls(verify_each=verify_each), watchers
        )
