"""Replays XLA's log of priority fusion on the module it is about."""

from __future__ import annotations

from collections.abc import Iterator

from hloopt.analysis.backend_config import TRITON, config_text, is_triton, read_backend_config
from hloopt.dataclass import dataclass
from hloopt.errors import FileError
from hloopt.fusion import apply
from hloopt.fusion.in_place import decide_scatter
from hloopt.fusion.kinds import fusion_kind
from hloopt.fusion.priority.rules import is_native_fusible
from hloopt.fusion.strategies import fusible_computations
from hloopt.fusion.triton_support import unsupported_by_triton
from hloopt.fusion.xla_log import Fused, Ineligible, XlaLog, XlaStep
from hloopt.ir import Computation, Instruction, Module, edit
from hloopt.types import ArrayShape

__all__ = ["Event", "replay"]


@dataclass(frozen=True, slots=True)
class Event:
    """A step, and the instructions it names in the module at that time.

    consumers  of a priced producer, in XLA's order; the one consumer of a fusion, before it is made; none of
               an ineligible producer
    fusion     what a ``Fused`` made, None for other steps
    removed    whether the producer has left the module with this step
    """

    step: XlaStep
    producer: Instruction
    consumers: tuple[Instruction, ...]
    fusion: Instruction | None = None
    removed: bool = False


def replay(module: Module, log: XlaLog) -> Iterator[Event]:
    """Each step of the log in turn; fusions are made in ``module`` right before their event.

    ``module`` is the one before XLA's priority fusion, with XLA's names (``log.module_text`` has no large
    constants).  After the last event the constants of one element go into all their users, which XLA does not
    log, and the module is what XLA had after that pass, but for the tiles of Triton fusions, which no log
    has: ``backend_config`` has their kind alone.  Raises ``FileError`` at the step that names what is not
    there.
    """
    replayer = _Replayer(module, log)
    for step in log.steps:
        yield replayer.event(step)
    replayer.close()


class _Replayer:
    def __init__(self, module: Module, log: XlaLog) -> None:
        self.log = log
        self.module = module
        self.named: dict[str, Instruction] = {
            entry.name: entry
            for computation in fusible_computations(module)
            for entry in computation
        }
        self.grown: dict[Instruction, None] = {}

    def event(self, step: XlaStep) -> Event:
        producer = self.find(step.producer, step)
        if isinstance(step, Fused):
            return self.fuse(step, producer, self.find(step.consumer, step))
        if isinstance(step, Ineligible):
            return Event(step, producer, ())
        return Event(step, producer, tuple(self.find(name, step) for name in step.consumers))

    def find(self, name: str, step: XlaStep) -> Instruction:
        found = self.named.get(name)
        if found is None:
            raise self.fail(step, f"the module has no instruction {name} at this step")
        return found

    def fail(self, step: XlaStep, message: str) -> FileError:
        return self.log.source.error(FileError, step.offset, message)

    def fuse(self, step: Fused, producer: Instruction, consumer: Instruction) -> Event:
        if producer not in consumer.operands:
            raise self.fail(step, f"{consumer.name} does not read {producer.name} at this step")
        fusion = self.join(producer, consumer)
        if fusion is not consumer:
            del self.named[step.consumer]
            edit.rename(fusion, step.fusion)
        elif step.fusion != step.consumer:
            raise self.fail(step, f"{step.consumer} is a fusion already, not {step.fusion}")
        self.named[step.fusion] = fusion
        removed = apply.remove_producer(producer)
        if removed:
            del self.named[step.producer]
        return Event(step, producer, (consumer,), fusion, removed)

    def join(self, producer: Instruction, consumer: Instruction) -> Instruction:
        tiled = next((entry for entry in (consumer, producer) if is_triton(entry)), None)
        config = read_backend_config(tiled) if tiled is not None else None
        fusion = apply.fuse(producer, consumer)
        if config is not None:
            config["fusion_backend_config"] = {"kind": TRITON}
            edit.set_attribute(fusion, "kind", "kCustom")
            edit.set_attribute(fusion, "backend_config", config_text(fusion, config))
        else:
            # The log does not have the kinds; they follow from the bodies.
            edit.set_attribute(fusion, "kind", fusion_kind(fusion))
        self.grown[fusion] = None
        return fusion

    def close(self) -> None:
        for computation in fusible_computations(self.module):
            for entry in list(computation):
                if entry.opcode == "constant" and _is_single(entry):
                    for user in list(entry.users):
                        if self.takes_constant(entry, user):
                            self.join(entry, user)
                    apply.remove_producer(entry)
        bodies: list[Computation] = [
            fusion.calls for fusion in self.grown if fusion.computation is not None
        ]
        apply.number_parameter_names(bodies)

    def takes_constant(self, constant: Instruction, user: Instruction) -> bool:
        if is_triton(user):
            return not unsupported_by_triton(constant, self.log.target())
        return is_native_fusible(user) and bool(decide_scatter(constant, user))


def _is_single(constant: Instruction) -> bool:
    return isinstance(constant.shape, ArrayShape) and constant.shape.elements <= 1
