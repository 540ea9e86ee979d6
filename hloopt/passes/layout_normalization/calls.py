"""Loops, conditionals, calls and fusions: operands and results in the orders of their computations."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.ir.walk import called_computations
from hloopt.passes.layout_normalization.rewriter import Rewriter

__all__ = ["call", "parameter", "stay"]


def parameter(rewriter: Rewriter, instruction: Instruction) -> None:
    """A parameter of a fixed computation stays; any other is in the order of the signature."""
    if rewriter.fixed:
        rewriter.keep(instruction, ())
        return
    signatures = rewriter.signatures
    orders = signatures.parameter(rewriter.computation, instruction.parameter_number)
    rewriter.update(instruction, (), orders)


def call(rewriter: Rewriter, instruction: Instruction) -> None:
    """``while``, ``conditional``, ``call`` and ``fusion``."""
    signatures = rewriter.signatures
    if signatures.is_fixed_call(instruction):
        stay(rewriter, instruction)
        return
    values = [rewriter.values[operand] for operand in instruction.operands]
    attributes = instruction.attributes
    if instruction.opcode == "conditional":
        branches = list(called_computations(instruction))
        orders = [signatures.parameter(branch, 0) for branch in branches]
        operands = tuple(map(rewriter.taken, values[1:], orders))
        operands = (rewriter.taken(values[0], ()), *operands)
        result = signatures.result(branches[0])
    elif instruction.opcode == "while":
        result = signatures.parameter(attributes["body"], 0)
        operands = (rewriter.taken(values[0], result),)
    else:
        (called,) = called_computations(instruction)
        operands = tuple(
            rewriter.taken(value, signatures.parameter(called, number))
            for number, value in enumerate(values)
        )
        result = signatures.result(called)
    rewriter.update(instruction, operands, result)


def stay(rewriter: Rewriter, instruction: Instruction) -> None:
    """What looks at buffers keeps the layouts of its operands and of its result."""
    operands = tuple(
        rewriter.declared(rewriter.values[operand], rewriter.shape(operand))
        for operand in instruction.operands
    )
    rewriter.keep(instruction, operands)
