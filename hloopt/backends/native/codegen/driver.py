"""The driver: a plan's steps as functions that call the kernels on the addresses of their buffers.

Its entry (``ENTRY``, unless named otherwise) gets the address of each allocation and the host's side (``Host``
of native.h): a callable for each step that the NumPy executor runs, and what handles signals.  It is called
with Python's lock, and returns 0, or 1 where an exception was raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from hloopt.analysis.region import region_of
from hloopt.backends.native.kernels.dot import is_brief
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import (
    TRUE,
    Array,
    ArrayValue,
    Call,
    Expr,
    Make,
    Member,
    Unary,
    Var,
    as_expr,
    both,
    eq,
)
from hloopt.kernel_ir.scope import Names, Scope
from hloopt.kernel_ir.statements import Function, If, Parameter, Return
from hloopt.kernel_ir.types import BOOL, INT, LONG, VOID, Type, pointer, struct
from hloopt.kernels.plan import (
    ConditionalStep,
    HostStep,
    KernelStep,
    Move,
    Plan,
    PlanBuffer,
    PlanStep,
    WhileStep,
    function_name,
    walk_steps,
)
from hloopt.kernels.spec import Copy, Fill, Launch, LeafPlace

__all__ = ["ENTRY", "called_steps", "driver", "loops"]

ENTRY: Final = "hloopt_run"
"""What the process calls."""

_PLACES: Final = Array("a", Type("char* const", "pointer"), (), "global")
_HOST: Final = Array("host", struct("hloopt::Host"), (), "global")
_BYTES: Final = struct("hloopt::Bytes")
_CONTAINING: Final = struct("hloopt::Containing")
_POINTER: Final = pointer(VOID)
_ANYTHING: Final = (_POINTER, pointer(VOID, is_read=True))


def called_steps(plan: Plan) -> list[KernelStep | HostStep]:
    """The steps that the driver passes to the host, in the order of their numbers."""
    return [
        step
        for step in walk_steps(plan.steps)
        if isinstance(step, HostStep) or (isinstance(step, KernelStep) and step.spec.library)
    ]


def loops(plan: Plan) -> list[WhileStep]:
    """The loops of unknown trip count, in the order of their numbers."""
    return [
        step
        for step in walk_steps(plan.steps)
        if isinstance(step, WhileStep) and step.iterations is None
    ]


def driver(
    plan: Plan, functions: Mapping[str, Function], *, is_timed: bool = False, entry: str = ENTRY
) -> tuple[Function, Function]:
    """What runs the steps, and the function ``entry``; ``functions`` are what a launch of each name calls.

    ``is_timed`` has each step's time recorded, under its number in ``walk_steps``.
    """
    names = Names(reserved=frozenset((_PLACES.name, _HOST.name)))
    writer = _Driver(
        Scope(names),
        {id(allocation): number for number, allocation in enumerate(plan.allocations)},
        {id(step): number for number, step in enumerate(called_steps(plan))},
        {id(step): number for number, step in enumerate(loops(plan))},
        functions,
        {id(step): number for number, step in enumerate(walk_steps(plan.steps))}
        if is_timed
        else {},
    )
    for number, step in enumerate(plan.steps):
        if number:
            writer.scope.set(_host_member("done"), number)
            writer.check_stop()
        writer.steps((step,))
    writer.scope.add(Return(as_expr(0)))
    parameters = tuple(Parameter(one, is_read=False) for one in (_PLACES, _HOST))
    run = Function("run", parameters, writer.scope.statements())
    given = (Var(run.name, INT), ArrayValue(_PLACES), ArrayValue(_HOST))
    drive = Return(Call("hloopt::drive", given, INT))
    return run, Function(entry, parameters, (drive,))


def _host_member(name: str, type: Type = LONG, at: int | None = None) -> Member:
    """A member of ``Host`` (native.h)."""
    return Member(_HOST[0], name, type, None if at is None else as_expr(at))


@dataclass
class _Driver:
    """Writes steps into ``scope``; others have numbers: of allocations, calls, loops, steps that are timed."""

    scope: Scope
    allocations: dict[int, int]
    calls: dict[int, int]
    loops: dict[int, int]
    functions: Mapping[str, Function]
    timed: Mapping[int, int]

    def at(self, buffer: PlanBuffer) -> Expr:
        place = _PLACES[self.allocations[id(buffer.allocation)]]
        return place + buffer.offset if buffer.offset else place

    def read(self, buffer: PlanBuffer, type: Type) -> Expr:
        return Unary("*", self.at(buffer).cast(pointer(type, is_read=True)), type)

    def do(self, function: str, *given: Expr | int) -> None:
        self.scope.do(Call(function, tuple(map(as_expr, given)), INT))

    def fail(self, function: str, *given: Expr | int) -> None:
        """Call a function, and end the run where it returns other than 0."""
        call = Call(function, (ArrayValue(_HOST), *map(as_expr, given)), INT)
        self.scope.add(If(call, (Return(as_expr(1)),)))

    def check_stop(self) -> None:
        self.fail("hloopt::stopped")

    @contextmanager
    def within(self, scope: Scope) -> Iterator[Scope]:
        before, self.scope = self.scope, scope
        yield scope
        self.scope = before

    def steps(self, steps: Iterable[PlanStep]) -> None:
        for step in steps:
            with self.clocked(step):
                if isinstance(step, KernelStep):
                    self.kernel(step)
                elif isinstance(step, HostStep):
                    self.call(step)
                elif isinstance(step, WhileStep):
                    self.loop(step)
                else:
                    self.select(step)

    @contextmanager
    def clocked(self, step: PlanStep, *, iteration: bool = False) -> Iterator[None]:
        """Have what is written meanwhile timed as a step, or as an iteration of one, where steps are."""
        number = self.timed.get(id(step))
        if number is None:
            yield
            return
        contains = not isinstance(step, KernelStep | HostStep) and not iteration
        if contains:
            end, made = "leave", Call("hloopt::enter", (ArrayValue(_HOST),), _CONTAINING)
        else:
            end, made = "iterated" if iteration else "lap", Call("hloopt::now", (), LONG)
        begin = self.scope.declare(made.type, made, "begin")
        yield
        self.do(f"hloopt::{end}", ArrayValue(_HOST), number, begin)

    def kernel(self, step: KernelStep) -> None:
        self.moves(step.before)
        if step.spec.library:
            self.call(step)
        elif step.spec.steps:
            self.scope.set(_host_member("launches"), 1, "+")
        for part in step.spec.steps:
            if isinstance(part, Launch):
                self.launch(step, part)
            elif isinstance(part, Copy):
                move = Move(_place(step, part.source), _place(step, part.target))
                if self.at(move.source) != self.at(move.target):
                    self.moves((move,))
            else:
                assert isinstance(part, Fill)
                target = _place(step, part.target)
                self.do("memset", self.at(target), part.value, target.byte_size)
        self.moves(step.after)

    def moves(self, moves: Iterable[Move]) -> None:
        for move in moves:
            self.do("memcpy", self.at(move.target), self.at(move.source), move.source.byte_size)

    def launch(self, step: KernelStep, launch: Launch) -> None:
        function, tasks = self.functions[function_name(step, launch)], launch.grid[0]
        places = [self.at(_place(step, argument.place)) for argument in launch.arguments]
        _, _, *parameters = function.parameters
        values = [*places, *map(as_expr, launch.scalars)]
        # A void pointer takes the address without a cast.
        given = [
            value if parameter.type in _ANYTHING else value.cast(parameter.type)
            for value, parameter in zip(values, parameters, strict=True)
        ]
        if tasks == 1 or is_brief(region_of(step.instruction)):
            self.do(function.name, 0, tasks, *given)
        else:
            self.fail(f"hloopt::share<{function.name}>", tasks, *given)

    def call(self, step: KernelStep | HostStep) -> None:
        self.fail("hloopt::call", _host_member("calls", _POINTER, self.calls[id(step)]))
        self.scope.set(_host_member("launches"), 1, "+")

    def loop(self, step: WhileStep) -> None:
        scope = self.scope
        if step.iterations is not None:
            block, _ = scope.loop(0, step.iterations, "iteration", LONG)
            with self.within(block), self.clocked(step, iteration=True):
                self.check_stop()
                self.steps(step.body)
            return
        assert step.predicate is not None
        iteration = scope.variable(LONG, "iteration", 0)
        watch = scope.variable(struct("hloopt::Watch"), "watch")
        state = [Make(_BYTES, (self.at(one), as_expr(one.byte_size))) for one in step.state]
        is_watched = Call("hloopt::Watch::is_watched", (iteration,), BOOL)
        repeats = Call("hloopt::repeats", (watch, iteration, *state), BOOL)
        with self.within(scope.repeat(TRUE)) as block:
            self.steps(step.condition)
            block.leave(self.read(step.predicate, BOOL).negated())
            self.check_stop()
            with self.within(block.when(both([is_watched, repeats]))) as stuck:
                stuck.set(_host_member("iterations"), iteration)
                self.fail("hloopt::call", _host_member("stuck", _POINTER, self.loops[id(step)]))
            with self.clocked(step, iteration=True):
                self.steps(step.body)
            block.set(iteration, 1, "+")

    def select(self, step: ConditionalStep) -> None:
        scope, count = self.scope, len(step.branches) - 1
        if step.selector.shape.dtype.is_pred:
            tests: list[Expr] = [self.read(step.selector, BOOL)]
        else:
            which = scope.declare(INT, self.read(step.selector, INT), "which")
            tests = [eq(which, number) for number in range(count)]
        for number, branch in enumerate(step.branches):
            if not tests:
                block = scope.braces()
            else:
                block = (
                    scope.otherwise(*tests[number : number + 1]) if number else scope.when(tests[0])
                )
            with self.within(block):
                self.steps(branch)


def _place(step: KernelStep, place: LeafPlace) -> PlanBuffer:
    buffers = {"operand": step.operands, "result": step.results, "scratch": step.scratch}
    return buffers[place.kind][place.number]
