"""What is recorded of a module: the child of ``baseline.py`` answers one question a line.

A question is a subject (``Subject``) and an aspect of it, ``KIND WORD...``:

text LEVEL            what the pipeline of this name makes of it
plan DEVICE FORM      the plan of its kernels for ``gpu`` (of the device named) or ``native``
bits EXECUTOR FORM    a digest of each result on ``interpreter``, ``cpu``, ``native`` or ``emulator``
code ARCH FORM        registers, spills, stack and instructions of each CUDA kernel
messages              what the command of each golden case answers

FORM is ``given`` or the level that made the module.  The answer has a ``value``, the ``texts`` it names by their
digests, and the ``cpu`` seconds it took.  A value that begins with ``refused: `` is what a user reads, ``skipped: ``
says what is not asked because it would take too long, ``failed: `` is a defect.
"""

from __future__ import annotations

import resource
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import hloopt
from hloopt.analysis.cost import module_cost
from hloopt.backends.device_compile import Prepared, prepare
from hloopt.backends.native.compile import prepare_native
from hloopt.backends.nvrtc import CompilationError, compile_cuda
from hloopt.errors import HlooptError
from hloopt.ir import Module
from hloopt.kernels.selection import KernelSelection
from hloopt.report.plan import plan_text
from hloopt.runtime.inputs import generate_all, load_all_inputs
from hloopt.runtime.program import DeviceOptions
from hloopt.workers.records import WorkerLimits
from hloopt.workers.serving import serve
from tests.baseline.machine_code import instruction_counts
from tests.corpus.compile_kernels import written
from tests.corpus.native_stages import MOST_SOURCE, MOST_WORK
from tests.corpus.records import record_of
from tests.helpers import golden
from tests.properties.special_inputs import special_inputs

__all__ = ["Examined", "Subject", "answer", "array_digest", "text_digest", "work"]

Array: TypeAlias = "np.ndarray[Any, Any]"
Value: TypeAlias = Any

_RUN_WORK = {"interpreter": MOST_WORK, "emulator": MOST_WORK, "cpu": 10**10, "native": 10**10}
"""Bytes and flops above which a run takes minutes."""


@dataclass(frozen=True)
class Subject:
    """A module: ``text``, or that of the file ``path``; ``seed`` draws its inputs, special values among them,
    where it is not negative; else they are those beside the file, or the ones that ``hloopt run`` draws.
    """

    name: str
    path: str = ""
    text: str = ""
    seed: int = -1

    def given(self) -> str:
        """The text."""
        return self.text if self.text or not self.path else Path(self.path).read_text()


class Examined:
    """A module with what was made of it for one question and serves the next."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.texts: dict[str, str] = {}
        self._modules: dict[str, Module] = {}
        self._prepared: dict[tuple[str, str], Prepared] = {}

    def module(self, form: str) -> Module:
        """As it is given, or as a level leaves it."""
        if form not in self._modules:
            self._modules[form] = (
                hloopt.parse(self.subject.given(), self.subject.name)
                if form == "given"
                else hloopt.optimize(self.module("given"), form)
            )
        return self._modules[form]

    def prepared(self, device: str, form: str, target: str = "") -> Prepared:
        """The plan and the source of a form."""
        if (device, form) not in self._prepared:
            module = self.module(form)
            self._prepared[device, form] = (
                prepare_native(module) if device == "native" else prepare(module, _options(target))
            )
        return self._prepared[device, form]

    @cached_property
    def inputs(self) -> list[list[Array]]:
        """Arrays of each participant."""
        module, count = self.module("given"), self.participants()
        if self.subject.seed >= 0:
            return [special_inputs(module, self.subject.seed + number) for number in range(count)]
        path = Path(self.subject.path)
        beside = path.with_suffix(".npz")
        if beside.exists():
            return load_all_inputs(beside, module, count)
        record = record_of(path) if self.subject.path and count == 1 else None
        return [record.inputs] if record else generate_all(module, 0, count, 1)

    def participants(self) -> int:
        attributes = self.module("given").attributes
        return int(attributes.get("replica_count", 1)) * int(attributes.get("num_partitions", 1))

    def keep(self, text: str) -> str:
        """The digest by which the answer names a text."""
        name = text_digest(text)
        self.texts[name] = text
        return name


def _options(target: str) -> DeviceOptions:
    return DeviceOptions(selection=KernelSelection(target=target))


def text_digest(text: str) -> str:
    """The name of a text in the store."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def array_digest(array: Array) -> str:
    """Type, dimensions and bits; which NaN it is does not count, for compilers and alignment decide it."""
    digest = blake2b(f"{array.dtype} {array.shape} ".encode(), digest_size=8)
    digest.update(_one_nan(np.ascontiguousarray(array)).tobytes())
    return digest.hexdigest()


def _one_nan(array: Array) -> Array:
    if array.dtype.kind == "c":
        parts = array.view(array.real.dtype)
        return _one_nan(parts)
    if array.dtype.kind in "biu":
        return array
    with np.errstate(all="ignore"):
        lost = array != array
        return np.where(lost, np.array(np.nan).astype(array.dtype), array) if lost.any() else array


# ---- the kinds ----------------------------------------------------------------------------------------------


def _text(examined: Examined, level: str) -> Value:
    return examined.keep(examined.module(level).to_text())


def _plan(examined: Examined, device: str, form: str, target: str) -> Value:
    return examined.keep(plan_text(examined.prepared(device, form, target).plan))


def _bits(examined: Examined, executor: str, form: str) -> Value:
    cost = module_cost(examined.module("given"))
    if (work := cost.flops + cost.bytes_accessed) > _RUN_WORK[executor]:
        return f"skipped: {work:.1e} flops and bytes"
    if executor == "native":
        size = len(examined.prepared("native", form).source)
        if size > MOST_SOURCE:
            return f"skipped: {size} characters of C++"
    module, inputs = examined.module(form), examined.inputs
    results = _results(module, executor, inputs)
    return [array_digest(array) for arrays in results for array in arrays]


def _results(module: Module, executor: str, inputs: list[list[Array]]) -> list[list[Array]]:
    count = len(inputs)
    if executor == "interpreter":
        if count == 1:
            return [hloopt.evaluate(module, inputs[0])]
        return hloopt.evaluate_participants(module, inputs)
    if executor == "cpu":
        program = hloopt.compile(
            module,
            replicas=int(module.attributes.get("replica_count", 1)),
            partitions=int(module.attributes.get("num_partitions", 1)),
        )
        return program.run_participants(inputs)
    if executor == "emulator":
        from hloopt.backends.device_compile import compile_for_device

        # What its checks find is a part of the scoreboard; results do not depend on them.
        program = compile_for_device(module, "emulator", DeviceOptions(mode="fast"))
        try:
            return program.run_participants(inputs)
        finally:
            program.close()
    return hloopt.compile(module, executor).run_participants(inputs)


def _code(examined: Examined, arch: str, form: str) -> Value:
    program = written(examined.module(form), examined.subject.name)
    found: dict[str, Any] = {"source": examined.keep(program.source), "kernels": {}}
    if program.describe:
        made = compile_cuda(program.source, arch, describe=program.describe)
        counts = instruction_counts(made.image)
        for name, taken in made.resources.items():
            spills = taken.spill_stores + taken.spill_loads
            found["kernels"][name] = [taken.registers, spills, taken.stack, counts.get(name, 0)]
    return found


def _messages(examined: Examined) -> Value:
    cases = golden.read(Path(examined.subject.path))
    return examined.keep("".join(golden.run(case).text() for case in cases))


_KINDS = {"text": _text, "plan": _plan, "bits": _bits, "code": _code, "messages": _messages}


def answer(examined: Examined, aspect: Sequence[str], target: str) -> dict[str, Any]:
    """What comes of a question; an exception that is no answer is one here."""
    kind, *words = aspect
    if kind == "plan":
        words.append(target)
    before = _seconds()
    examined.texts.clear()
    value: Value
    try:
        value = _KINDS[kind](examined, *words)
    except HlooptError as error:
        value = f"refused: {_first_line(error)}"
    except CompilationError as error:
        value = f"failed: {_first_line(error)}"
    except Exception as error:  # noqa: BLE001 - a crash is what this is to find, too
        value = f"failed: {type(error).__name__}: {_first_line(error)}"
    return {"value": value, "texts": dict(examined.texts), "cpu": round(_seconds() - before, 3)}


def _first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0]


def _seconds() -> float:
    """Of the processor, for this process and the compilers it started."""
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def work(target: str, memory: int, seconds: int) -> None:
    """The child: ``[subject, aspect]`` a line in, an answer a line out.

    It may take ``memory`` bytes, and ``seconds`` of the processor for an answer; then it ends.
    """
    kept: list[Examined] = []

    def answered(question: list[Any]) -> dict[str, Any]:
        fields, aspect = question
        subject = Subject(**fields)
        if not kept or kept[0].subject != subject:
            kept[:] = [Examined(subject)]
        return answer(kept[0], aspect, target)

    serve(answered, WorkerLimits(memory=memory, processor=seconds))
