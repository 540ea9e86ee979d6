"""Violations of constraints, and the names of these, which messages and JSON show and scripts rely on."""

from __future__ import annotations

from hloopt.dataclass import dataclass
from hloopt.errors import VerifyError
from hloopt.ir import Computation, Instruction, Module

__all__ = ["RULES", "Fault"]


RULES: dict[str, str] = {
    "alias": "input_output_alias= pairs each array of a parameter with at most one of the result, of its size",
    "async-chain": "what starts asynchronously is ended once, by its own kind of op, on its own thread",
    "async-computation": "an async-start wraps one op (or transfers, or a marked group of collectives)",
    "attribute": "the attributes of an instruction are those of its op, of the right kind and complete",
    "buffer": "a buffer b(...) is pinned, passed on and written once, by ops that may do so",
    "call-depth": "calls are nested 64 levels deep at most",
    "caller": "computations know who calls them, and calls stay in the module",
    "channel": "the two halves of a transfer name the same channel and partner",
    "collective-pairs": "source_target_pairs= are devices, none twice a source or a target",
    "composite": "a composite call has a name, attributes and a version",
    "constrain-layout": "either all or none of the all-reduces constrain their layout",
    "control-edge": "both ends of a control edge know it",
    "cycle": "no instruction needs its own result",
    "device-count": "replica_count= and num_partitions= are positive",
    "donor": "buffer_donor= names arrays of parameters that no result is aliased with",
    "entry": "the module has an entry, which is not the body of a fusion",
    "entry-layout": "entry_computation_layout= has the shapes of the entry's parameters and result",
    "execution-thread": "what is called runs on the caller's thread",
    "fusion": "the body of a fusion has one caller and no unused instruction",
    "layout": "a layout permutes the dimensions of an array",
    "layout-constraint": "operand_layout_constraints= has the operands' shapes",
    "link": "instructions and computations are where they say they are",
    "literal": "a literal has the type and the dimensions of its shape",
    "name": "instructions and computations are found by their names",
    "operand-count": "an op has the number of operands that it takes",
    "operand-order": "operands and control predecessors come first, in the same computation",
    "origin": "origin= has the tree of the instruction's shape",
    "output-aliasing": "output_to_operand_aliasing= pairs equal shapes that exist",
    "parameter": "parameters are numbered from 0, without gaps",
    "parameter-replication": "parameter_replication= has a flag for each array",
    "recursion": "no computation calls itself",
    "replica-groups": "replica_groups= name each device once, in groups of one size",
    "result-accuracy": "result_accuracy= is for ops that are approximated",
    "root": "a computation has a root among its instructions",
    "shape": "the result has the shape that operands and attributes give",
    "sharding": "a sharding fits the instruction's shape and names each device once",
    "shape-form": "sizes are not negative, and each dynamic mark has its dimension",
    "sharding-agreement": "loops and conditionals are sharded like what they carry and return",
    "stack-frame": "stack frames, locations and names are rows of the module's tables",
    "users": "instructions know who uses them",
}
"""What each constraint says, by its name, in one line each."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A broken constraint and the instruction, computation or module that breaks it.

    ``rule`` is a name out of ``constraints.RULES``.
    """

    subject: Instruction | Computation | Module
    rule: str
    message: str

    def error(self, module: Module) -> VerifyError:
        """The violation with its name, and with line and caret where the module was read."""
        subject = self.subject
        if isinstance(subject, Instruction):
            text, offset = f"%{subject.name}: {self.message}", subject.offset
            width = len(subject.name)
        elif isinstance(subject, Computation):
            text, offset = f"computation %{subject.name}: {self.message}", subject.offset
            width = len(subject.name)
        else:
            text, offset, width = f"module {subject.name}: {self.message}", 0, 1
        source = module.source
        if source is None or offset < 0:
            error = VerifyError(text, name=module.name)
        else:
            error = source.error(VerifyError, offset, text, width=width)
        error.rule = self.rule
        return error
