"""The C++ of a whole plan: device functions that are used, a function or more an instruction, the driver."""

from __future__ import annotations

from collections.abc import Iterator

from hloopt.codegen.device import Uses
from hloopt.codegen.native.driver import driver
from hloopt.codegen.native.families import emitters
from hloopt.codegen.program import comment, kernel_steps
from hloopt.codegen.writer import write_function
from hloopt.kernels.plan import KernelStep, Plan
from hloopt.kernels.spec import Launch

__all__ = ["render"]


def render(plan: Plan) -> str:
    """The source text of a program against ``runtime/native/include``.

    Raises ``UnsupportedError`` for an instruction inside a kernel that no kernel can compute.
    """
    uses = Uses(native=True)
    functions: list[str] = []
    for step in kernel_steps(plan.steps):
        functions += [*_step(step, uses), ""]
    head = '#include "native.h"\n#include "vector_math.h"\n'
    body = "\n".join([uses.source(), *functions])
    return f"{head}namespace {{\n{body}\n}}  // namespace\n{driver(plan, uses)}"


def _step(step: KernelStep, uses: Uses) -> Iterator[str]:
    launches: dict[str, Launch] = {}
    for part in step.spec.steps:
        if isinstance(part, Launch):
            launches.setdefault(part.function, part)
    if launches:
        yield from comment(step.instruction)
    for launch in launches.values():
        yield from write_function(step, launch, emitters()[step.spec.kernel], uses, native=True)
