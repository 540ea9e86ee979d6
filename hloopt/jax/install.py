"""hloopt's passes inside of XLA: a pass of XLA's compiler that calls them, registered by JAX.

XLA calls it when modules are fused, laid out and have their copies: what buffers, aliasing and the schedule
rest on must stay.  So passes see one fused computation at a time, as a module by itself, and what they make of
it takes its place if that matters to nothing outside.  All else of XLA's protocol buffer stays as it is.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final, Self

from jax.extend import xla

from hloopt.dataclass import dataclass
from hloopt.errors import HlooptError, UsageError
from hloopt.ir import Computation, Instruction, Module, build
from hloopt.ir.canonical import fingerprint
from hloopt.kernels.standalone import body_module
from hloopt.ops.traits import COLLECTIVE, ELEMENTWISE, UPDATING
from hloopt.pipelines import Given, make_pipeline
from hloopt.proto import read_proto
from hloopt.proto.messages import new, text
from hloopt.proto.writer import write_entry_over
from hloopt.prover.compare import compare_modules
from hloopt.verifier import verify_module

__all__ = ["Change", "Installed"]

_REFUSED: Final[Mapping[str, str]] = {
    name: reason
    for reason, names in {
        "XLA has fused its modules, and emits its own fusions": (
            "sort-iota-fusion gemm-fusion triton-softmax-rewriter loop-fusion row-fusion instruction-fusion"
            " attention-recognition loop-along-fusion product-fusion"
            " fusion-merger priority-fusion multi-output-fusion horizontal-loop-fusion"
            " horizontal-input-fusion rename-fusions copy-fusion fusion-wrapper defuse locked-fusion"
            " native-loop-fusion native-row-fusion"
        ),
        "buffers rest on the copies and layouts that XLA has chosen": (
            "copy-insertion layout-assignment layout-normalization views-to-bitcasts bf16-propagation"
        ),
        "XLA schedules its modules": "schedule rematerialize",
        "kernels are XLA's": "drop-kernels kernel-selection native-splitter nested-reduction-splitter",
    }.items()
    for name in names.split()
}
"""Why a pass may not run there; all others may: what they do to a fused computation is checked."""

_NEW: Final = ELEMENTWISE | {"constant", "broadcast"}
"""Opcodes that every fusion of XLA's can have."""

_LEFT: Final = UPDATING | COLLECTIVE | {"custom-call", "fusion"}
"""Opcodes whose fusions stay as they are: what they write lies where an operand does, or a library reads it."""

_number = count(1)


@dataclass(frozen=True)
class Change:
    """What became of one fusion.

    module, fusion  their names
    passes          those that changed its computation
    before, after   how many instructions that has
    refused         why XLA's is kept; empty where it is not
    """

    module: str
    fusion: str
    passes: tuple[str, ...]
    before: int
    after: int
    refused: str = ""

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {**vars(self), "passes": list(self.passes)}


class Installed:
    """A pass of XLA's that runs a pipeline over fused computations until ``remove`` is called.

    ``log`` has a ``Change`` for each fusion whose computation the pipeline changes.
    """

    def __init__(
        self,
        pipeline: Given,
        when: Callable[[Module], bool] | None,
        compare: bool,
        platforms: tuple[str, ...],
    ) -> None:
        self._pipeline = make_pipeline(pipeline)
        for instance in self._pipeline.passes():
            if instance.name in _REFUSED:
                raise UsageError(
                    f"{instance.name} cannot run within XLA: {_REFUSED[instance.name]}"
                )
        if when is not None and not callable(when):
            raise TypeError(f"when is to be a function of a module, not {when!r}")
        self._when = when
        self._compare = compare
        self._place = {"name": f"hloopt-{next(_number)}", "platforms": list(platforms)}
        self.log: list[Change] = []
        xla.register_hlo_module_transformation(self._called, **self._place)

    def remove(self) -> None:
        """Leave XLA's modules alone from now on; functions that are compiled stay as they are."""
        xla.clear_hlo_module_transformation(**self._place)

    def __repr__(self) -> str:
        made = sum(not change.refused for change in self.log)
        left = f", {len(self.log) - made} refused" if made < len(self.log) else ""
        passes = ",".join(one.name for one in self._pipeline.passes())
        return f"<{passes} within XLA: {made} changed{left}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _called(self, data: bytes) -> bytes | None:
        """The module that XLA goes on with; None for the given one."""
        try:
            return self._changed(data)
        except Exception as error:  # noqa: BLE001 - it would fail the compilation of a program that is right
            try:
                warnings.warn(f"hloopt leaves XLA's module as it was: {error}", stacklevel=2)
            except Warning as raised:
                self.log.append(Change("", "", (), 0, 0, str(raised)))
            return None

    def _changed(self, data: bytes) -> bytes | None:
        # Fields that our table does not know stay in the message.
        proto = new("Module")
        proto.ParseFromString(data)
        module = read_proto(data, text(proto.name))
        if self._when is not None and not self._when(module):
            return None
        places = {text(one.name): one for one in proto.computations}
        callees = {name: one.id for name, one in places.items()}
        names = {text(one.name) for row in proto.computations for one in row.instructions}
        changed = False
        for instruction in list(module.instructions()):
            if not _may_change(instruction):
                continue
            place = places.get(instruction.attributes["calls"].name)
            made = None if place is None else self._body(module.name, instruction)
            if made is not None:
                write_entry_over(place, made, callees, names)
                changed = True
        if not changed:
            return None
        made_of: bytes = proto.SerializeToString()
        verify_module(read_proto(made_of, module.name))
        return made_of

    def _body(self, module: str, fusion: Instruction) -> Module | None:
        """What the pipeline makes of a fusion's computation; None where XLA's is kept."""
        before = body_module(fusion)
        after = build.clone_module(before)
        report = self._pipeline.run(after)
        passes = dict.fromkeys(run.instance.name for run in report.runs if run.changed)
        if not passes or fingerprint(before) == fingerprint(after):
            return None
        refused = _problem(before, after)
        if not refused and self._compare:
            compared = compare_modules(before, after)
            refused = "" if compared.equal else f"results differ: {compared.verdict}"
        sizes = [sum(1 for _ in one.entry) for one in (before, after)]
        self.log.append(Change(module, fusion.name, tuple(passes), sizes[0], sizes[1], refused))
        return None if refused else after


def _may_change(instruction: Instruction) -> bool:
    if instruction.opcode != "fusion" or instruction.attributes.get("kind") != "kLoop":
        return False
    return not any(inner.opcode in _LEFT for inner in instruction.attributes["calls"])


def _problem(before: Module, after: Module) -> str:
    """What of a fused computation matters outside and is not as it was; empty where all is."""
    one, other = before.entry, after.entry
    try:
        verify_module(after)
    except HlooptError as error:
        return f"it is not valid: {error.message}"
    if (one.parameter_shapes, one.result_shape) != (other.parameter_shapes, other.result_shape):
        return "parameters or results have other shapes or layouts"
    counts, new_counts = (Counter(inner.opcode for inner in body) for body in (one, other))
    if extra := sorted(new_counts.keys() - counts.keys() - _NEW):
        return f"{extra[0]} is new, which XLA may not emit in this fusion"
    if counts["copy"] != new_counts["copy"]:
        return f"it has {new_counts['copy']} copies, not {counts['copy']}"
    roots = (one.root.opcode, other.root.opcode)
    if roots[0] != roots[1] and not set(roots) <= ELEMENTWISE:
        return f"the root is {roots[1]}, not {roots[0]}, which says how XLA emits it"
    if sum(new_counts.values()) > sum(counts.values()):
        return "it has become larger"
    known = {body.name: _lines(body) for body in before}
    for body in after:
        if body is not other and known.get(body.name) != _lines(body):
            return f"what it calls has changed: {body.name}"
    return ""


def _lines(body: Computation) -> list[tuple[Any, ...]]:
    return [
        (one.name, one.opcode, one.shape, [operand.name for operand in one.operands])
        for one in body
    ]
