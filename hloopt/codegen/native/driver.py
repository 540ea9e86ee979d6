"""The driver: a plan's steps as C++ that calls the kernels' functions on the places of their buffers.

``hloopt_run`` gets the address of each allocation and the host's side (``Host`` of native.h): a callable for
each step that the NumPy executor runs, and what handles signals.  It is called with Python's lock, and returns
0, or 1 where an exception was raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field

from hloopt.codegen.device import Uses
from hloopt.dataclass import dataclass
from hloopt.kernels.plan import (
    Buffer,
    ConditionalStep,
    HostStep,
    KernelStep,
    Move,
    Plan,
    PlanStep,
    WhileStep,
    function_name,
)
from hloopt.kernels.spec import Copy, Fill, Launch, Place

__all__ = ["called_steps", "driver", "loops", "parameter_types"]

_INDENT = "  "


def called_steps(plan: Plan) -> list[KernelStep | HostStep]:
    """The steps that the driver hands to the host, in the order of their numbers."""
    return [
        step
        for step in _walk(plan.steps)
        if isinstance(step, HostStep) or (isinstance(step, KernelStep) and step.spec.library)
    ]


def loops(plan: Plan) -> list[WhileStep]:
    """The loops of unknown count, in the order of their numbers."""
    return [
        step for step in _walk(plan.steps) if isinstance(step, WhileStep) and step.trips is None
    ]


def _walk(steps: Iterable[PlanStep]) -> Iterator[PlanStep]:
    for step in steps:
        yield step
        if isinstance(step, WhileStep):
            yield from _walk(step.condition)
            yield from _walk(step.body)
        elif isinstance(step, ConditionalStep):
            for branch in step.branches:
                yield from _walk(branch)


def parameter_types(step: KernelStep, launch: Launch, uses: Uses) -> list[str]:
    """The C types of what a function gets behind the range of its tasks."""
    found = []
    for argument in launch.arguments:
        kind = uses.storage(_place(step, argument.place).shape.dtype)
        found.append(f"{'const ' if argument.role == 'in' else ''}{kind}*")
    return [*found, *("int" for _ in launch.scalars)]


def _place(step: KernelStep, place: Place) -> Buffer:
    buffers = {"operand": step.operands, "result": step.results, "scratch": step.scratch}
    return buffers[place.kind][place.number]


def driver(plan: Plan, uses: Uses, names: Mapping[str, str], *, by_doors: bool = False) -> str:
    """The text of ``hloopt_run``; ``names`` gives the function that a launch of each name calls.

    With ``by_doors`` these take pointers to anything.
    """
    numbers = {id(allocation): number for number, allocation in enumerate(plan.allocations)}
    writer = _Driver(
        uses,
        numbers,
        {id(step): number for number, step in enumerate(called_steps(plan))},
        {id(step): number for number, step in enumerate(loops(plan))},
        names,
        by_doors,
    )
    for number, step in enumerate(plan.steps):
        if number:
            writer.line(1, f"host->done = {number};")
            writer.line(1, "if (hloopt::stopped(host)) return 1;")
        writer.steps((step,), 1)
    lines = [
        "static int run(char* const* a, hloopt::Host* host) {",
        *writer.lines,
        f"{_INDENT}return 0;",
        "}",
        'extern "C" int hloopt_run(char* const* a, hloopt::Host* host) {',
        f"{_INDENT}host->done = 0;",
        f"{_INDENT}host->ends = 0;",
        f"{_INDENT}host->runner = &hloopt::helped;",
        f"{_INDENT}hloopt::Host* const before = hloopt::helped;",
        f"{_INDENT}hloopt::helped = host;",
        f"{_INDENT}host->state = host->release();",
        f"{_INDENT}const int failed = run(a, host);",
        f"{_INDENT}host->take(host->state);",
        f"{_INDENT}hloopt::helped = before;",
        f"{_INDENT}return failed || host->ends;",
        "}",
    ]
    return "\n".join(lines) + "\n"


@dataclass
class _Driver:
    uses: Uses
    allocations: dict[int, int]
    calls: dict[int, int]
    loops: dict[int, int]
    functions: Mapping[str, str]
    by_doors: bool
    lines: list[str] = field(default_factory=list)
    names: int = 0

    def line(self, depth: int, text: str) -> None:
        self.lines.append(_INDENT * depth + text)

    def at(self, buffer: Buffer) -> str:
        return f"a[{self.allocations[id(buffer.allocation)]}] + {buffer.offset}"

    def steps(self, steps: Iterable[PlanStep], depth: int) -> None:
        for step in steps:
            if isinstance(step, KernelStep):
                self.kernel(step, depth)
            elif isinstance(step, HostStep):
                self.call(step, depth)
            elif isinstance(step, WhileStep):
                self.loop(step, depth)
            else:
                self.select(step, depth)

    def kernel(self, step: KernelStep, depth: int) -> None:
        self.moves(step.before, depth)
        if step.spec.library:
            self.call(step, depth)
        elif step.spec.steps:
            self.line(depth, "++host->launches;")
        for part in step.spec.steps:
            if isinstance(part, Launch):
                self.launch(step, part, depth)
            elif isinstance(part, Copy):
                source, target = _place(step, part.source), _place(step, part.target)
                if self.at(source) != self.at(target):
                    self.copy(source, target, depth)
            else:
                assert isinstance(part, Fill)
                target = _place(step, part.target)
                size = target.byte_size
                self.line(depth, f"memset({self.at(target)}, {part.value}, {size});")
        self.moves(step.after, depth)

    def moves(self, moves: Iterable[Move], depth: int) -> None:
        for move in moves:
            self.copy(move.source, move.target, depth)

    def copy(self, source: Buffer, target: Buffer, depth: int) -> None:
        self.line(depth, f"memcpy({self.at(target)}, {self.at(source)}, {source.byte_size});")

    def launch(self, step: KernelStep, launch: Launch, depth: int) -> None:
        places = [_place(step, argument.place) for argument in launch.arguments]
        given = [*(self.at(buffer) for buffer in places), *map(str, launch.scalars)]
        arguments = given
        if not self.by_doors:
            types = parameter_types(step, launch, self.uses)
            arguments = [f"({kind})({one})" for kind, one in zip(types, given, strict=True)]
        name, tasks = self.functions[function_name(step, launch)], launch.grid[0]
        told = "".join(f", {argument}" for argument in arguments)
        if tasks == 1:
            self.line(depth, f"{name}(0, 1{told});")
            return
        body = f"[=](long long begin, long long end) {{ {name}(begin, end{told}); }}"
        self.line(depth, f"if (hloopt::share(host, {tasks}, {body})) return 1;")

    def call(self, step: KernelStep | HostStep, depth: int) -> None:
        number = self.calls[id(step)]
        self.line(depth, f"if (hloopt::call(host, host->calls[{number}])) return 1;")
        self.line(depth, "++host->launches;")

    def loop(self, step: WhileStep, depth: int) -> None:
        self.names += 1
        trip = f"trip_{self.names}"
        if step.trips is not None:
            self.line(depth, f"for (long long {trip} = 0; {trip} < {step.trips}; ++{trip}) {{")
            self.tired(depth + 1)
            self.steps(step.body, depth + 1)
            self.line(depth, "}")
            return
        assert step.predicate is not None
        self.line(depth, f"hloopt::Watch watch_{self.names};")
        watch = f"watch_{self.names}"
        self.line(depth, f"for (long long {trip} = 0;; ++{trip}) {{")
        self.steps(step.condition, depth + 1)
        self.line(depth + 1, f"if (!*(const bool*)({self.at(step.predicate)})) break;")
        self.tired(depth + 1)
        self.line(depth + 1, f"if (hloopt::Watch::asks({trip})) {{")
        state = ", ".join(f"{{{self.at(one)}, {one.byte_size}}}" for one in step.state)
        seen = f"{watch}.repeats({trip}, {{{state}}})"
        number = self.loops[id(step)]
        stuck = f"hloopt::call(host, host->stuck[{number}])"
        self.line(depth + 2, f"if ({seen}) {{")
        self.line(depth + 3, f"host->trips = {trip};")
        self.line(depth + 3, f"if ({stuck}) return 1;")
        self.line(depth + 2, "}")
        self.line(depth + 1, "}")
        self.steps(step.body, depth + 1)
        self.line(depth, "}")

    def tired(self, depth: int) -> None:
        self.line(depth, "if (hloopt::stopped(host)) return 1;")

    def select(self, step: ConditionalStep, depth: int) -> None:
        selector = step.selector
        if selector.shape.dtype.name == "pred":
            which = f"*(const bool*)({self.at(selector)}) ? 0 : 1"
        else:
            which = f"*(const int*)({self.at(selector)})"
        self.line(depth, f"switch ({which}) {{")
        last = len(step.branches) - 1
        for number, branch in enumerate(step.branches):
            self.line(depth + 1, f"case {number}: {{" if number < last else "default: {")
            self.steps(branch, depth + 2)
            self.line(depth + 2, "break;")
            self.line(depth + 1, "}")
        self.line(depth, "}")
