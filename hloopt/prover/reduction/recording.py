"""What a delta is, and what it gets: the values of a run, which become inputs of smaller modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Any, Final, Literal, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.errors import EvaluationError, UnsupportedError, UsageError
from hloopt.interpret import evaluate_participants, supported
from hloopt.interpret.progress import Progress
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ir.walk import called_computations
from hloopt.passes.call_inliner import inline_call
from hloopt.pipelines import parse_pipeline
from hloopt.prover.reduction.case import Case, CaseDraft, Leaves, ModulePlace
from hloopt.runtime.inputs import generate_all, positions
from hloopt.runtime.memory import memory_limit
from hloopt.types import Array, TupleShape

__all__ = ["Delta", "Site", "ValueRecorder", "entry_chain", "opened"]

_SECONDS: Final = 60.0
_PART: Final = 8
"""Values are recorded all at once where they take less than this part of the memory."""


class ValueRecorder:
    """The values of a case, evaluated by the interpreter when they are first needed.

    Where it cannot, since it does not know a custom call, an elided constant, or takes too long, they are made
    up from a seed, as inputs are: whether a case with them still fails is for the question to say.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self._known: dict[ModulePlace, Leaves] = {}
        self._failed = False

    def values(
        self, places: Iterable[ModulePlace], more: Iterable[ModulePlace] = ()
    ) -> dict[ModulePlace, Leaves]:
        """The values of places in the entry, and in what it calls.

        ``more`` are places that will be asked for; they are evaluated as well where there is memory.
        """
        wanted = [place for place in places if place not in self._known]
        others = [place for place in more if place not in self._known and place not in wanted]
        for home in dict.fromkeys(home for home, _ in wanted):
            own = [place for place in wanted if place[0] == home]
            also = [place for place in others if place[0] == home]
            if self._failed or not self._evaluate(home, [*own, *also] if self._fit(also) else own):
                self._failed = True
                self._make_up(own)
        return {place: self._known[place] for place in places}

    def _fit(self, places: list[ModulePlace]) -> bool:
        module = self._case.module
        shapes = (module.computations[home].by_name[name].shape for home, name in places)
        total = sum(shape.byte_size for shape in shapes) * len(self._case.inputs.arrays)
        limit = memory_limit()
        return limit is None or total < limit // _PART

    def _evaluate(self, home: str, places: list[ModulePlace]) -> bool:
        """Values of one computation, which is put in the place of what calls it; whether that was possible."""
        module = build.clone_module(self._case.module)
        found = [module.computations[home].by_name[name] for _, name in places]
        for caller in entry_chain(module, home) or ():
            opened(caller, module)
        _return(module, found)
        parse_pipeline("dce").run(module)
        inputs = self._case.inputs
        progress = Progress(monotonic() + _SECONDS)
        try:
            supported(module, *inputs.counts)
            results = evaluate_participants(
                module,
                inputs.arrays,
                *inputs.counts,
                host=inputs.host.restarted(),
                progress=progress,
            )
        except (UnsupportedError, EvaluationError, UsageError, TimeoutError, MemoryError):
            return False
        self._keep(places, found, results)
        return True

    def _make_up(self, places: list[ModulePlace]) -> None:
        """Values as if the places were parameters of a module that does nothing with them."""
        computations = self._case.module.computations
        found = [computations[home].by_name[name] for home, name in places]
        module = Module(self._case.module.name)
        module.entry = edit.add_computation(module, Computation("entry"))
        for number, one in enumerate(found):
            number_of = {"parameter_number": number}
            build.make(module.entry, "parameter", (), number_of, shape=one.shape)
        _return(module, list(module.entry))
        self._keep(places, found, generate_all(module, 0, *self._case.inputs.counts))

    def _keep(
        self, places: list[ModulePlace], found: list[Instruction], results: list[list[Array]]
    ) -> None:
        at = 0
        for place, instruction in zip(places, found, strict=True):
            count = len(list(positions(instruction.shape)))
            self._known[place] = [list(arrays[at : at + count]) for arrays in results]
            at += count


def _return(module: Module, values: list[Instruction]) -> None:
    entry = module.entry
    shape = TupleShape(tuple(value.shape for value in values))
    root = build.make(entry, "tuple", tuple(values), shape=shape)
    edit.set_root(entry, root)
    module.attributes.pop("entry_computation_layout", None)


def entry_chain(module: Module, home: str) -> list[Instruction] | None:
    """The calls and fusions through which alone the entry runs a computation once, the entry's own first.

    None where several instructions call it, a loop does, or the entry does not reach it.
    """
    computation, chain = module.computations[home], list[Instruction]()
    while computation is not module.entry:
        if sum(computation.callers.values()) != 1:
            return None
        (caller,) = computation.callers
        if caller.opcode not in ("call", "fusion"):
            return None
        chain.append(caller)
        computation = caller.home
    return chain[::-1]


def opened(caller: Instruction, module: Module) -> None:
    """Put the body of a call or a fusion in its place."""
    if caller.opcode == "fusion":
        (body,) = called_computations(caller)
        call = build.make(caller, "call", caller.operands, {"to_apply": body}, shape=caller.shape)
        edit.replace_uses(caller, call)
        edit.take_control_edges(caller, call)
        edit.remove(caller)
        caller = call
    inline_call(caller, module)


Site: TypeAlias = tuple[Any, ...]
"""Where and how: hashable, and the same in each copy of a case."""

_Sites: TypeAlias = Callable[[Case], list[Site]]
_Apply: TypeAlias = Callable[[CaseDraft, Sequence[Site], ValueRecorder], None]


@dataclass(frozen=True)
class Delta:
    """One kind of change.

    name     as progress shows it
    sites    all places of a case, in the order in which they are tried
    apply    the change at some sites, on a copy; sites that an earlier change has removed are passed over
    quicker  whether a case may take no longer afterwards
    way      ``chunks``: all sites at once, halves, quarters, each alone; ``prefix``: the longest beginning of
             the sites,
             by bisection; ``each``: alone only
    grows    whether a case may have more instructions afterwards, as where a body is copied to its calls
    """

    name: str
    sites: _Sites
    apply: _Apply
    way: Literal["chunks", "prefix", "each"] = "chunks"
    grows: bool = False
    quicker: bool = False
