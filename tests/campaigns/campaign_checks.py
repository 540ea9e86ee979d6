"""What is asked of a case of each campaign; a case follows from its number alone.

A judge answers with an outcome and the opcodes that were executed, or raises whatever no user should meet.  Outcomes:

    equal         every executor gave the interpreter's results: bit for bit, or as near as rounding allows where a
                  compiled device computes functions and sums in ways of its own
    rounded       not compared: a pass of the pipeline has fast_math=true
    large         not executed: its arrays would take much memory
    refused       not executed: an option of a pass has no such value
    invalid       refused by the parser or the verifier, with a place in the text
    unsupported   refused by the interpreter before it runs
    long          the interpreter did not end in time
"""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import hloopt
from hloopt.errors import (
    EvaluationError,
    HlooptError,
    ParseError,
    UnsupportedError,
    UsageError,
    VerifyError,
)
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.ir.canonical import fingerprint
from hloopt.ops import OPS
from hloopt.pipelines import PASSES, parse_pipeline
from hloopt.proto import read_proto, write_module
from hloopt.rewrite import Pass
from hloopt.rewrite.spec import pass_text
from hloopt.runtime.judge import judged
from hloopt.targets import names as target_names
from hloopt.types import DTYPES, ArrayShape, leaves
from hloopt.workers.process import Worker
from hloopt.workers.records import NoAnswer
from tests.campaigns.campaign_modules import OPCODES, campaign_module
from tests.corpus.judge import check_place, round_trip
from tests.corpus.mutate import TOKENS, Mutator
from tests.helpers.respell import respell
from tests.oracle.oracle import CHILD, available, python
from tests.oracle.xla_child import stored
from tests.passes.proof import identical
from tests.properties.special_inputs import special_inputs

__all__ = ["CAMPAIGNS", "Answer", "Campaign"]

Array = np.ndarray[Any, Any]

NATIVE_EVERY, EMULATOR_EVERY, XLA_EVERY = 100, 150, 50
MOST_BYTES = 16 << 20  # of all arrays of a damaged module together
SECONDS = 4.0  # of processor time, for the interpreter
LEVELS = ("O1", "O2", "O3")
# Families that XLA's CPU compiler waits for, or draws, or has no target for.
_NOT_BY_XLA = ("host", "async", "collective", "custom", "random")
# Passes that write an op as several, which round in between, or sums in another order.
_ROUNDING_PASSES = frozenset({
    "batch-norm-expander", "logistic-expander", "triangular-solve-expander", "cholesky-expander",
    "reduce-window-rewriter", "bf16-propagation",
})  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """What came of a case; ``opcodes`` are those of the modules that were executed."""

    outcome: str
    opcodes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Campaign:
    """``text`` of a case by its number, and ``judge``, which may be asked beside it."""

    text: Callable[[int], str]
    judge: Callable[[int], Answer]


# ---- what all of them ask ---------------------------------------------------------------------------------


def case(index: int) -> tuple[Module, str, random.Random]:
    """A module as it was drawn, another spelling of it, and what further choices are drawn from."""
    chance = random.Random(f"campaign {index}")
    module = hloopt.parse(campaign_module(chance, OPCODES[index % len(OPCODES)]), "drawn")
    return module, respell(module, chance), chance


def opcodes_of(module: Module) -> frozenset[str]:
    return frozenset(one.opcode for one in module.instructions())


def same(what: str, got: Sequence[Array], want: Sequence[Array]) -> None:
    """Fail where results are not the wanted ones, bit by bit; NaNs count as one."""
    assert len(got) == len(want), f"{what}: {len(got)} results, not {len(want)}"
    for number, (one, other) in enumerate(zip(got, want, strict=True)):
        assert identical(one, other), f"{what}: result {number} is {one!r}, not {other!r}"[:2000]


def near(
    what: str, module: Module, inputs: list[Array], got: list[Array], want: list[Array]
) -> None:
    """Fail where results are further off than rounding allows."""
    for number, found in enumerate(judged(module, inputs, got, want)):
        assert found.passed, f"{what}: result {number}: {found.reason}"


def sound(what: str, module: Module) -> None:
    """The verifier takes it, and what is printed reads as the same graph."""
    hloopt.verify(module)
    again = hloopt.parse(module.to_text(), what)
    assert fingerprint(again) == fingerprint(module), f"{what}: the printed text is another module"


def runs(what: str, module: Module, inputs: list[Array], want: list[Array]) -> None:
    """The executor of the CPU gives the results, unless it says that it cannot."""
    try:
        program = hloopt.compile(module, exact=True)
    except UnsupportedError:
        return
    same(what, program.run(inputs), want)


@contextmanager
def in_time(seconds: float = SECONDS) -> Iterator[None]:
    """Raises ``TimeoutError`` in Python code that takes longer."""

    def late(_number: int, _frame: types.FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, late)
    # Again and again: what is raised in a callback of the garbage collector is lost.
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 0.1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


# ---- random modules ---------------------------------------------------------------------------------------


def judge_random(index: int) -> Answer:
    """Another spelling, each level, each executor: one result."""
    module, text, chance = case(index)
    hloopt.verify(module)
    spelled = hloopt.parse(text, "spelled")
    hloopt.verify(spelled)
    assert fingerprint(spelled) == fingerprint(module), "another spelling has another fingerprint"
    inputs = special_inputs(module, index)
    try:
        want = hloopt.evaluate(module, inputs)
    except UnsupportedError:
        return Answer("unsupported")
    same("the other spelling", hloopt.evaluate(spelled, inputs), want)
    runs("cpu", spelled, inputs, want)
    better = {level: hloopt.optimize(spelled, level) for level in LEVELS}
    for level, one in better.items():
        sound(level, one)
        same(level, hloopt.evaluate(one, inputs), want)
    level = chance.choice(LEVELS)
    runs(f"cpu after {level}", better[level], inputs, want)
    if index % NATIVE_EVERY == 0:
        on_device("native", better[level], inputs, want)
    if index % EMULATOR_EVERY == 1:
        on_device("emulator", better[level], inputs, want)
    if index % XLA_EVERY == 2:
        by_xla(spelled, text, inputs, want)
    return Answer("equal", opcodes_of(module))


def on_device(device: str, module: Module, inputs: list[Array], want: list[Array]) -> None:
    """A compiled device gives the results, unless it says that it cannot."""
    try:
        program = hloopt.compile(module, device)
    except UnsupportedError:
        return
    near(device, module, inputs, program.run(inputs), want)


@cache
def xla() -> Worker:
    """XLA's CPU compiler in a process that runs one module after the other."""
    quiet = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return Worker((python(), str(CHILD), "serve"), 60.0, os.environ | quiet)


def by_xla(module: Module, text: str, inputs: list[Array], want: list[Array]) -> None:
    """XLA reads the spelling, and computes the same where it computes at all."""
    if not available() or any(one.op.family in _NOT_BY_XLA for one in module.instructions()):
        return
    with TemporaryDirectory() as folder:
        path, given, made = (Path(folder) / name for name in ("m.hlo", "in.npz", "out.npz"))
        path.write_text(text)
        np.savez(given, **{f"in_{number}": stored(array) for number, array in enumerate(inputs)})
        try:
            said = xla().ask([str(path), str(given), str(made)])
        except NoAnswer:
            return  # XLA ends its process where it does not know what to do
        if said is not None:
            assert "yntax error" not in said, f"XLA does not read the spelling: {said}"
            return
        with np.load(made) as arrays:
            got = [_typed(arrays[f"out_{number}"], one) for number, one in enumerate(want)]
    near("xla", module, inputs, got, want)


def _typed(array: Array, like: Array) -> Array:
    return array.view(like.dtype) if array.dtype.kind == "V" else array


# ---- random pipelines -------------------------------------------------------------------------------------


def pipeline_of(index: int) -> str:
    """One to six passes, some with options, some in groups that are repeated."""
    chance = random.Random(f"pipeline {index}")
    parts = [_pass(chance) for _ in range(chance.randint(1, 6))]
    if chance.random() < 0.3:
        at = chance.randrange(len(parts))
        parts[at:] = [f"fix({','.join(parts[at:])})"]
    return ",".join(parts)


def _pass(chance: random.Random) -> str:
    kind = PASSES[chance.choice(list(PASSES))]
    hints = typing.get_type_hints(kind)
    options: Any = kind
    chosen = {
        option.name: value
        for option in dataclasses.fields(options)
        if option.init and chance.random() < 0.3
        for value in _values(kind, option.name, hints[option.name], chance)
    }
    try:
        return pass_text(kind(**chosen))
    except UsageError:  # one of the values is none of this option
        return pass_text(kind())


def _values(kind: type[Pass], name: str, hint: Any, chance: random.Random) -> list[Any]:
    default = getattr(kind(), name)
    if typing.get_origin(hint) is typing.Literal:
        return [chance.choice(typing.get_args(hint))]
    if isinstance(default, bool):
        return [not default]
    if isinstance(default, (int, float)):
        return [type(default)(chance.choice((0, 1, 2, 3, default // 2, default + 1, default * 2)))]
    if name == "target":
        return [chance.choice(target_names())]
    return []


def judge_pipeline(index: int) -> Answer:
    """Valid after each pass, what it says of itself is true, and the results are the same."""
    _, text, _ = case(index)
    module = hloopt.parse(text, "spelled")
    words = pipeline_of(index)
    inputs = special_inputs(module, index)
    try:
        want = hloopt.evaluate(module, inputs)
    except UnsupportedError:
        return Answer("unsupported")
    better = clone_module(module)
    try:
        pipeline = parse_pipeline(words)
        pipeline.run(better, verify_each=True)
    except UsageError:
        return Answer("refused")
    sound(words, better)
    got = hloopt.evaluate(better, inputs)
    runs(f"cpu after {words}", better, inputs, got)
    if "fast_math=true" in words:
        return Answer("rounded", opcodes_of(module))
    if any(name in words for name in _ROUNDING_PASSES):
        near(words, module, inputs, got, want)
    else:
        same(words, got, want)
    return Answer("equal", opcodes_of(module))


def pipeline_text(index: int) -> str:
    return f"// hloopt optimize --passes '{pipeline_of(index)}'\n{case(index)[1]}"


# ---- mutated texts ----------------------------------------------------------------------------------------


def mutated(index: int) -> str:
    """A text that is damaged somewhere, or changed everywhere in the same way."""
    chance = random.Random(f"mutation {index}")
    first, second = case(index)[1], case(chance.randrange(1 << 30))[1]
    if chance.random() < 0.4:
        return Mutator([first, second], 0).text(index)
    tokens = TOKENS.findall(first)
    for _ in range(chance.choice((1, 1, 2, 3))):
        chance.choice(_CONSISTENT)(tokens, chance)
    return "".join(tokens)


def _another_type(tokens: list[str], chance: random.Random) -> None:
    """One element type in the place of another, everywhere."""
    old = chance.choice(["f32", "s32", *(token for token in tokens if token in DTYPES)])
    new = chance.choice(list(DTYPES))
    tokens[:] = [new if token == old else token for token in tokens]


def _another_number(tokens: list[str], chance: random.Random) -> None:
    """One number in the place of another, everywhere or in one place."""
    places = [at for at, token in enumerate(tokens) if token.isdigit()]
    if places:
        old = tokens[chance.choice(places)]
        new = str(chance.choice((0, 1, 2, 3, 5, int(old[:9]) + 1, max(0, int(old[:9]) - 1))))
        chosen = places if chance.random() < 0.5 else [chance.choice(places)]
        for at in chosen:
            tokens[at] = new if tokens[at] == old else tokens[at]


def _another_opcode(tokens: list[str], chance: random.Random) -> None:
    """An elementwise op in the place of another of as many operands."""
    places = [at for at, token in enumerate(tokens) if token in OPS and OPS[token].is_elementwise]
    if places:
        at = chance.choice(places)
        wanted = OPS[tokens[at]].arity
        alike = [name for name, row in OPS.items() if row.is_elementwise and row.arity == wanted]
        tokens[at] = chance.choice(alike)


def _another_word(tokens: list[str], chance: random.Random) -> None:
    """A word of the text, an enumerator perhaps, or a name, in the place of another that stands alone."""
    places = [at for at, token in enumerate(tokens) if token.lstrip("%").isidentifier()]
    if len(places) > 1:
        first, second = chance.sample(places, 2)
        tokens[first] = tokens[second]


_CONSISTENT = (_another_type, _another_number, _another_number, _another_opcode, _another_word)


def judge_mutation(index: int) -> Answer:
    """Whatever is refused has a place; what is not computes the same everywhere."""
    if index % 5 == 4:
        return judge_proto(index)
    text = mutated(index)
    try:
        module = hloopt.parse(text, "text", strict=index % 2 == 1)
    except ParseError as error:
        check_place(text, error)
        return Answer("invalid")
    round_trip(module)
    try:
        hloopt.verify(module)
    except VerifyError as error:
        check_place(text, error)
        return Answer("invalid")
    return executed(module, index)


def judge_proto(index: int) -> Answer:
    """The same of a module in binary form with a few bytes changed."""
    data = bytearray(write_module(case(index)[0]))
    chance = random.Random(f"proto {index}")
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(data))
        change = chance.randrange(4)
        if change == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif change == 1:
            data[at] = chance.choice((0, 1, 2, 127, 128, 255))
        elif change == 2:
            del data[at : at + chance.choice((1, 1, 4, 20))]
        else:
            data[at:at] = data[chance.randrange(len(data)) :][: chance.choice((1, 4, 20))]
        if not data:
            break
    try:
        module = read_proto(bytes(data), "m.pb")
        hloopt.verify(module)
    except HlooptError:
        return Answer("invalid")
    round_trip(module)
    return executed(module, index)


def executed(module: Module, index: int) -> Answer:
    """The interpreter's results by every level and by the executor."""
    if bytes_of(module) > MOST_BYTES:
        return Answer("large")
    try:
        with in_time():
            inputs = special_inputs(module, index)
            want = hloopt.evaluate(module, inputs)
    except (UnsupportedError, EvaluationError):
        return Answer("unsupported")
    except TimeoutError:
        return Answer("long")
    runs("cpu", module, inputs, want)
    for level in LEVELS:
        better = hloopt.optimize(module, level)
        sound(level, better)
        same(level, hloopt.evaluate(better, inputs), want)
    runs("cpu after O3", better, inputs, want)
    return Answer("equal", opcodes_of(module))


def bytes_of(module: Module) -> int:
    return sum(
        leaf.elements * leaf.dtype.bits // 8
        for one in module.instructions()
        for leaf in leaves(one.shape)
        if isinstance(leaf, ArrayShape) and leaf.dtype.is_array
    )


CAMPAIGNS = {
    "random": Campaign(lambda index: case(index)[1], judge_random),
    "mutations": Campaign(mutated, judge_mutation),
    "pipelines": Campaign(pipeline_text, judge_pipeline),
}
