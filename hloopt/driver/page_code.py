"""The code of a page's kernels: in the language of its target, and beside it in that of the other device.

On a GPU's page that is the C++ of a kernel for the host, on the host's page the CUDA C: the same instruction,
made ready by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

from hloopt.backends.device_compile import choices_of, lower
from hloopt.backends.native.codegen import step_text as native_text
from hloopt.backends.native.compile import plan_ready
from hloopt.codegen.program import kernel_steps
from hloopt.codegen.program import step_text as cuda_text
from hloopt.driver.kernels import ModuleKernels
from hloopt.errors import UnsupportedError, UsageError
from hloopt.ir import Module
from hloopt.ir.canonical import fingerprint
from hloopt.kernels.costs import KernelCost
from hloopt.kernels.plan import KernelStep
from hloopt.kernels.planning import plan_program
from hloopt.kernels.selection import KernelSelection
from hloopt.kernels.standalone import standalone
from hloopt.pages.content import PageNumbers
from hloopt.targets.target import HOST

__all__ = ["KernelCode"]

_MOST_SOURCES: Final = 400
_MOST_CODE: Final = 6 << 20
"""Characters of the code of kernels that a page holds; those that cost most come first."""
_WORK: Final = 1_500
"""Instructions of the kernels, equal ones counted once, whose code for the other device a page holds."""

_LANGUAGES: Final = {"gpu": "CUDA C", "native": "C++"}


class KernelCode:
    """The code of the kernels of a module that is ready for its target."""

    def __init__(self, shown: ModuleKernels) -> None:
        self._shown = shown
        self._other = (
            KernelSelection()
            if shown.selection.device == "native"
            else KernelSelection(device="native", target=HOST.name)
        )
        self._problem = ""

    @property
    def languages(self) -> dict[str, str]:
        """What the code of both devices is called: ``own`` for the page's target, and ``other``."""
        other = self._other
        return {
            "own": _LANGUAGES[self._shown.selection.device],
            "other": f"{_LANGUAGES[other.device]} for {other.described.title}",
        }

    def of(self, place: object) -> dict[str, str]:
        """The code of the kernel at ``computation/instruction``: ``own`` and ``other``.

        Raises ``UsageError`` where there is none.
        """
        step = self._steps.get(place) if isinstance(place, str) else None
        if step is None:
            raise UsageError(f"no kernel is at {place}")
        own = _text(step, self._shown.selection)
        return {"own": own, "other": self._elsewhere(standalone(step.instruction))}

    def to_json(self, costs: Sequence[KernelCost], numbers: PageNumbers) -> dict[str, Any]:
        """As JSON values: the code of kernels by their numbers, those that cost most; or why there is none.

        Kernels that are equal, names aside, share their code: ``first`` has for each of them the number under
        which ``own`` and ``other`` have it.
        """
        spent = {row.instruction: row.seconds for row in costs}
        first, own, other = dict[int, int](), dict[int, str](), dict[int, str]()
        known = dict[tuple[str, str], int]()
        left, work = _MOST_CODE, _WORK
        for step in sorted(
            self._steps.values(), key=lambda step: -spent.get(step.instruction, 0.0)
        ):
            one = step.instruction
            number, module = numbers.of[one], standalone(one, keep_constants=True)
            key = fingerprint(module), repr(step.spec)
            if key not in known and left > 0 and len(known) < _MOST_SOURCES:
                known[key] = number
                own[number] = _text(step, self._shown.selection)
                left -= len(own[number])
                work -= module.instruction_count()
                if work >= 0:
                    other[number] = self._elsewhere(module)
            if key in known:
                first[number] = known[key]
        why = "The code of this kernel is not in the page: hloopt kernels --source has it."
        if self._problem:
            why = f"The page has no code of kernels: {self._problem}."
        return {"first": first, "own": own, "other": other, "why": why}

    @cached_property
    def _steps(self) -> dict[str, KernelStep]:
        """The steps by the names of computation and instruction; empty where no plan could be made."""
        try:
            plan = self._shown.readable_plan
        except UnsupportedError as error:
            self._problem = error.message
            return {}
        steps = ((step.instruction, step) for step in kernel_steps(plan.steps))
        return {f"{one.home.name}/{one.name}": step for one, step in steps}

    def _elsewhere(self, module: Module) -> str:
        """The code of a module for the other device; a comment says why there is none."""
        selection = self._other
        planned = plan_ready if selection.device == "native" else plan_program
        try:
            ready, report = lower(module, selection)
            plan = planned(ready, selection.kernel_of(choices_of(report)))
        except (UnsupportedError, UsageError) as error:
            return "".join(f"// {line}\n" for line in error.message.splitlines())
        return "\n\n".join(_text(step, selection) for step in kernel_steps(plan.steps))


def _text(step: KernelStep, selection: KernelSelection) -> str:
    """The code of a step; for one that calls a library a comment that says so."""
    if selection.device == "native":
        text = native_text(step)
    else:
        text = cuda_text(step, selection.described, selection.limits())
    return text or f"// {step.spec.kernel}: calls a function of a library, no code is written\n"
