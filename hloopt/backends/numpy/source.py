"""A line written out as one Python function.

Every slot is a local variable: an array, a NumPy scalar, or both, each made of the other where a step
first uses it.  Loops and conditionals are written in place, their state in variables.  The text consists
of numbers and names made here: nothing of the module's text ever reaches it; everything else is bound in
the function's globals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from hloopt.backends.numpy.arena import Arena, place_arrays
from hloopt.backends.numpy.loops import UNWATCHED, watch
from hloopt.backends.numpy.plan import Cases, Function, Line, LineLoop, Step
from hloopt.backends.numpy.sharing import choose_memory, deaths
from hloopt.backends.numpy.writer import FunctionSource
from hloopt.interpret.progress import Progress

if TYPE_CHECKING:
    from hloopt.backends.numpy.clock import LineClock
    from hloopt.ir import Instruction

__all__ = ["compile_line"]

_REPORT_EVERY = 8  # steps, so that progress reports cost next to nothing
# Loops and conditionals inside one another in one function: CPython takes 20 nested loops, of which each of
# ours takes two, and 100 levels of indentation.
_DEEPEST = 8
# Ufuncs whose third positional argument is not ``out``.
_BY_KEYWORD = frozenset({np.maximum, np.minimum})


def compile_line(
    line: Line,
    launches: list[int],
    progress: Progress | None = None,
    *,
    looped: bool = False,
    keeps: bool = False,
    clock: LineClock | None = None,
) -> Function:
    """The line as a function from arrays to a tuple of arrays.

    ``launches[0]`` is increased by ``kernels`` on each run; ``progress`` is kept up to date, if not to the
    step; ``looped`` says that it runs many times, ``keeps`` that it may keep memory from run to run: there is
    one run at a time.  ``clock`` is called between steps of different instructions.
    """
    source = FunctionSource(launches, clock)
    names = [source.variable() for _ in line.inputs]
    block = _Block(source, line, 1, looped=looped)
    for slot, name in zip(line.inputs, names, strict=True):
        block.hold(block.arrays, slot, name)
    block.write(progress, keeps=keeps)
    results = [block.array(slot) for slot in line.results]
    return source.function(names, results)


class _Block:
    """The steps of one line in a function, at a depth of indentation.

    ``arrays`` and ``scalars`` are the variables that hold a slot; those that a block is given belong to
    the block that wrote them.
    """

    def __init__(self, source: FunctionSource, line: Line, depth: int, *, looped: bool) -> None:
        self.source, self.line, self.depth, self.looped = source, line, depth, looped
        self.arrays: dict[int, str] = {}
        self.scalars: dict[int, str] = {}
        self._stretched: dict[int, str] = {}
        self._told = False
        self.users: Counter[str] = Counter()

    def write(self, progress: Progress | None = None, *, keeps: bool = False) -> None:
        """All steps."""
        line = self.line
        choose_memory(line)
        arena = place_arrays(line) if keeps else None
        dead = deaths(line)
        if arena is not None:
            self._take_places(arena)
        if progress is not None:
            self._told = True
            self.source.scope["progress"] = progress
            self._add(f"progress.begin({len(line.steps)})")
        laps = _Laps(self)
        for number, step in enumerate(line.steps):
            if self._told and (number % _REPORT_EVERY == 0 or isinstance(step.inner, LineLoop)):
                self._add(f"progress.done = {number}")
            laps.before(step)
            self._step(step, dead[number])
            laps.after(step)
        laps.end()
        if line.kernels:
            self.source.counts = True
            self._add(f"launched += {line.kernels}")

    def _take_places(self, arena: Arena) -> None:
        names = [self.source.variable() for _ in arena.slots]
        self._add(f"{', '.join(names)}, = {self.source.bind(arena.arrays)}()")
        for slot, name in zip(arena.slots, names, strict=True):
            self.hold(self.arrays, slot, name)
            self.users[name] += 1  # the arena keeps it: deleting the variable would free nothing

    def array(self, slot: int) -> str:
        """The variable or constant that holds a slot as an array."""
        if slot not in self.arrays:
            known = self.line.constants.get(slot)
            if known is not None:
                return self.source.bind(known)
            made = f"{self.source.bind(np.asarray)}({self.scalars[slot]})"
            self._define(self.arrays, slot, made)
        return self.arrays[slot]

    def scalar(self, slot: int) -> str:
        """The variable or constant that holds a slot as a NumPy scalar."""
        if slot not in self.scalars:
            known = self.line.constants.get(slot)
            if known is not None:
                return self.source.bind(known[()])
            self._define(self.scalars, slot, f"{self.arrays[slot]}[()]")
        return self.scalars[slot]

    def form(self, slot: int) -> str:
        """The slot as loops carry it."""
        return self.scalar(slot) if self.line.is_scalar(slot) else self.array(slot)

    def _stretching(self, slot: int) -> str:
        """An operand that a ufunc stretches: in a loop, one array is filled again and again."""
        if slot in self.arrays or slot in self.line.constants or not self.looped:
            return self.array(slot)
        if slot not in self._stretched:
            name = self._stretched[slot] = self.source.buffer(self.line.kinds[slot])
            self._add(f"{name}[()] = {self.scalars[slot]}")
        return self._stretched[slot]

    def _add(self, text: str) -> None:
        self.source.add(self.depth, text)

    def _define(self, table: dict[int, str], slot: int, value: str) -> None:
        name = self.source.variable()
        self._add(f"{name} = {value}")
        self.hold(table, slot, name)

    def hold(self, table: dict[int, str], slot: int, name: str) -> None:
        """A slot is in a variable, as an array or a scalar."""
        table[slot] = name
        self.users[name] += 1

    # ---- steps --------------------------------------------------------------------------------------

    def _step(self, step: Step, dead: Sequence[int]) -> None:
        if isinstance(step.inner, LineLoop) and self.depth <= _DEEPEST:
            self._loop(step, step.inner, dead)
        elif isinstance(step.inner, Cases) and self.depth <= _DEEPEST:
            self._cases(step, step.inner)
        elif step.code is not None:
            self._code(step)
        else:
            self._call(step)
        self._delete(dead)

    def _delete(self, slots: Sequence[int]) -> None:
        """Delete all names of dead arrays."""
        gone = []
        for slot in slots:
            for table in (self.arrays, self.scalars):
                name = table.pop(slot, None)
                if name is not None:
                    self.users[name] -= 1
                    if not self.users[name] and table is self.arrays and name[0] == "v":
                        gone.append(name)
        if gone:
            self._add(f"del {', '.join(gone)}")

    def _code(self, step: Step) -> None:
        code, source = step.code, self.source
        assert code is not None
        names = {
            str(at): self.scalar(slot) if at in code.scalars else self.array(slot)
            for at, slot in enumerate(step.ins)
        }
        result = source.code(self.depth, code, names)
        self.hold(self.scalars if code.scalar else self.arrays, step.outs[0], result)

    def _call(self, step: Step) -> None:
        function = step.function if step.inner is None else self._outlined(step)
        native = isinstance(function, np.ufunc)
        operand = self._stretching if native else self.array
        arguments = [operand(slot) for slot in step.ins]
        if step.into >= 0:
            keyword = "" if native and function not in _BY_KEYWORD else "out="
            arguments.append(keyword + self.array(step.into))
        if step.places:
            places = (step.places.get(at) for at in range(len(step.outs)))
            words = ("None" if place is None else self.array(place) for place in places)
            arguments.append(f"out=({', '.join(words)},)")
        names = [self.source.variable() for _ in step.outs]
        targets = ", ".join(names)
        if step.several:
            targets = f"({targets},)" if names else "()"
        self._add(f"{targets} = {self.source.bind(function)}({', '.join(arguments)})")
        for slot, name in zip(step.outs, names, strict=True):
            scalar = native and step.into < 0 and self.line.is_scalar(slot)
            self.hold(self.scalars if scalar else self.arrays, slot, name)

    def _outlined(self, step: Step) -> Function:
        """A loop or conditional nested too deeply, outlined as a separate function."""
        line = self.line
        inner = replace(step, owners=())  # whose time is taken around the call
        alone = Line(kinds=line.kinds, dims=line.dims, steps=[inner], results=list(step.outs))
        alone.inputs = list(dict.fromkeys(step.ins))
        alone.owned = frozenset(step.ins[at] for at in step.own)
        function = compile_line(
            alone, self.source.launches, looped=self.looped, clock=self.source.clock
        )
        ins = alone.inputs
        if ins == list(step.ins):
            return function
        firsts = [step.ins.index(slot) for slot in ins]
        return lambda *arrays: function(*[arrays[at] for at in firsts])

    # ---- loops --------------------------------------------------------------------------------------

    def _loop(self, step: Step, loop: LineLoop, dead: Sequence[int]) -> None:
        source, body = self.source, loop.body
        names, changing = [], []
        for at, slot in enumerate(step.ins):
            value = self.held(slot, loop.kept[at])
            if at in step.writes and at not in step.own:
                value = f"{source.bind(np.array)}({value})"
            if body.results[at] != body.inputs[at]:
                changing.append(at)
            elif value.isidentifier():  # every iteration passes it through
                names.append(value)
                continue
            names.append(source.variable())
            self._add(f"{names[-1]} = {value}")
        self._give(step, names)
        # The initial state is dead once the loop's variables have it.
        self._delete([slot for slot in dead if slot in step.ins])
        self._iterations(loop, names, changing, step.owners)

    def _give(self, step: Step, names: Sequence[str]) -> None:
        """Say which variables hold the results of a step, in the form in which loops carry them."""
        for slot, name in zip(step.outs, names, strict=True):
            self.hold(self.scalars if self.line.is_scalar(slot) else self.arrays, slot, name)

    def held(self, slot: int, kept: Function | None) -> str:
        """What a buffer keeps of a slot, in the form in which loops carry it."""
        if kept is None:
            return self.form(slot)
        value = f"{self.source.bind(kept)}({self.array(slot)})"
        return f"{value}[()]" if self.line.is_scalar(slot) else value

    def _iterations(
        self,
        loop: LineLoop,
        names: Sequence[str],
        changing: Sequence[int],
        owners: Sequence[Instruction],
    ) -> None:
        source = self.source
        if loop.trip_count is not None:
            if loop.condition.kernels:
                source.counts = True
                self._add(f"launched += {loop.condition.kernels * (loop.trip_count + 1)}")
            self._for(self.depth, str(loop.trip_count), str(loop.trip_count), loop.trip_count)
            self._iteration(loop, names, changing, owners, self.depth + 1)
            self._leave()
            return
        watching = ", ".join(source.variable() for _ in range(3))
        count, done, _ = watching.split(", ")
        self._add(f"{watching} = {UNWATCHED}")
        self._add("while True:")
        self._for(self.depth + 1, count, done, None)
        again = self._inlined(loop.condition, names, self.depth + 2)
        truth = again.scalar(loop.condition.results[0])
        self._add(f"        if not {truth}: break")
        self._iteration(loop, names, changing, owners, self.depth + 2)
        self._add("    else:")
        state = "".join(f"{names[at]}, " for at in changing)
        watched = f"{source.bind(watch)}({source.bind(loop.stuck)}, ({state}), {watching})"
        self._add(f"        {watching} = {watched}")
        self._add("        continue")
        self._add("    break")
        self._leave()

    def _for(self, depth: int, count: str, last: str, count_of_all: int | None) -> None:
        """The head of so many iterations, numbered up to ``last``, of ``count_of_all``."""
        repeated = f"{self.source.bind(repeat)}(None, {count})"
        if self._told:
            left = self.source.variable()
            self.source.add(depth, f"{left} = {repeated}")
            self.source.add(depth, f"progress.enter({left}, {last}, {count_of_all})")
            repeated = left
        self.source.add(depth, f"for _ in {repeated}:")

    def _leave(self) -> None:
        if self._told:
            self._add("progress.leave()")

    def _iteration(
        self,
        loop: LineLoop,
        names: Sequence[str],
        changing: Sequence[int],
        owners: Sequence[Instruction],
        depth: int,
    ) -> None:
        clock = self.source.clock if owners else None
        if clock is not None:
            begin, called = self.source.variable(), self.source.bind(clock)
            self.source.add(depth, f"{begin} = {called}.begin()")
        block = self._inlined(loop.body, names, depth)
        after = [block.held(loop.body.results[at], loop.kept[at]) for at in changing]
        targets = ", ".join(names[at] for at in changing)
        self.source.add(depth, f"{targets} = {', '.join(after)}" if after else "pass")
        if clock is not None:
            self.source.add(depth, f"{called}.iterated({clock.number(owners)}, {begin})")

    def _inlined(
        self, line: Line, names: Sequence[str], depth: int, *, looped: bool = True
    ) -> _Block:
        """A line written in place, its inputs in the form in which loops carry them."""
        block = _Block(self.source, line, depth, looped=looped)
        for slot, name in zip(line.inputs, names, strict=True):
            block.hold(block.scalars if line.is_scalar(slot) else block.arrays, slot, name)
            block.users[name] += 1  # the block that defines it deletes it
        block.write()
        return block

    # ---- conditionals -------------------------------------------------------------------------------

    def _cases(self, step: Step, cases: Cases) -> None:
        source = self.source
        names = [source.variable() for _ in step.outs]
        # Both forms of an operand are made before the branches, not in one of them.
        entering = [
            [self.held(slot, kept) for slot, kept in zip(step.ins[start:], enter, strict=False)]
            for start, enter in zip(cases.starts, cases.enter, strict=True)
        ]
        selector, last = self.scalar(step.ins[0]), len(cases.lines) - 1
        pred = self.line.kinds[step.ins[0]] == np.dtype(np.bool_)
        if not pred:
            number = source.variable()
            self._add(f"{number} = int({selector})")
            self._add(f"if not 0 <= {number} < {last}: {number} = {last}")
            selector = number

        def choose(numbers: range, depth: int) -> None:
            """Bisect the branches, so that finding one takes few tests."""
            if len(numbers) == 1:
                (number,) = numbers
                leave = cases.leave
                self._case(cases.lines[number], entering[number], names, leave, depth)
                return
            half = len(numbers) // 2
            test = selector if pred else f"{selector} < {numbers[half]}"
            source.add(depth, f"if {test}:")
            choose(numbers[:half], depth + 1)
            source.add(depth, "else:")
            choose(numbers[half:], depth + 1)

        choose(range(len(cases.lines)), self.depth)
        self._give(step, names)

    def _case(
        self,
        line: Line,
        entering: Sequence[str],
        names: Sequence[str],
        leave: Sequence[Function | None],
        depth: int,
    ) -> None:
        block = self._inlined(line, entering, depth, looped=self.looped)
        pairs = zip(line.results, leave, strict=True)
        after = [block.held(slot, kept) for slot, kept in pairs]
        text = f"{', '.join(names)} = {', '.join(after)}" if names else "pass"
        self.source.add(depth, text)


class _Laps:
    """Writes a block's calls of the clock: a lap is of steps in a row that belong to the same instructions."""

    def __init__(self, block: _Block) -> None:
        source, line = block.source, block.line
        self._clock = source.clock if any(step.owners for step in line.steps) else None
        self._owners: tuple[Instruction, ...] = ()
        self._write = partial(source.add, block.depth)
        if self._clock is not None:
            self._called, self._time = source.bind(self._clock), source.variable()
            self._write(f"{self._time} = {self._called}.begin()")

    def before(self, step: Step) -> None:
        """What precedes a step; those without owners belong to what comes before them."""
        if self._clock is None or not step.owners:
            return
        if step.owners != self._owners or _contains_steps(step):
            self.end()
        if _contains_steps(step):
            self._write(f"{self._time} = {self._called}.enter()")
        else:
            self._owners = step.owners

    def after(self, step: Step) -> None:
        """What follows it."""
        if self._clock is not None and step.owners and _contains_steps(step):
            self._call("leave", step.owners)

    def end(self) -> None:
        """The end of a lap, if one has begun."""
        if self._owners:
            self._call("lap", self._owners)
            self._owners = ()

    def _call(self, method: str, owners: Sequence[Instruction]) -> None:
        assert self._clock is not None
        number = self._clock.number(owners)
        self._write(f"{self._time} = {self._called}.{method}({number}, {self._time})")


def _contains_steps(step: Step) -> bool:
    return step.inner is not None or step.owners[-1].opcode == "call"
