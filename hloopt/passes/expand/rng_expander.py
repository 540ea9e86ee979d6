"""Random bits as integer arithmetic."""

from __future__ import annotations

from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.interpret import gpu_random, random
from hloopt.ir import Instruction
from hloopt.ops.traits import RANDOM
from hloopt.passes.expand import rolled_threefry
from hloopt.passes.expand.counter_based import philox_bits, threefry2x32, threefry_bits
from hloopt.passes.expand.expander import Expander
from hloopt.passes.expand.writer import Term, Writer, plain
from hloopt.types import DTYPES, ArrayShape, DType, TupleShape, dtype, leaves

__all__ = ["RngExpander"]


@dataclass(frozen=True)
class RngExpander(Expander):
    """Write Threefry and Philox as plain integer HLO, to the same bits.

    1. ``rng-bit-generator``: Threefry2x32 with 20 rounds, Philox4x32 with 10 (also ``rng_default``), for
       every state, shape and element type.
    2. Custom calls ``cu_threefry2x32`` and ``hip_threefry2x32``, with and without ``_ffi``.
    3. JAX's Threefry on CPU, a ``while`` of 5 iterations that carries the rotations {13, 15, 26, 6} and
       {17, 29, 16, 24}: unrolled, with what is known of each iteration put in.

    Left alone: ``rng`` and ``rng-get-and-update-state``, whose numbers come from a state of the device that
    no instruction reads; calls with side effects or with results in the place of operands.

    concatenate   false: each element computes a whole block and selects its word, so that nothing but
                  elementwise ops is left, at twice (Philox: four times) the arithmetic; true: each block
                  is computed once and the words are put beside each other, as XLA does.  64-bit
                  Threefry needs neither
    loops         whether to unroll JAX's loops, which XLA leaves alone
    """

    opcodes: ClassVar[frozenset[str]] = RANDOM | {"custom-call", "while"}
    example: ClassVar[str] = """\
HloModule bits

ENTRY main {
  state = u64[2]{0} parameter(0)
  ROOT bits = (u64[2]{0}, u32[3]{0}) rng-bit-generator(state), algorithm=rng_three_fry
}
"""

    concatenate: bool = True
    loops: bool = True

    def is_candidate(self, instruction: Instruction) -> bool:
        """Ops of random numbers, and calls and loops that are known to be Threefry."""
        if instruction.opcode == "custom-call":
            return instruction.custom_call_target in gpu_random.CHECKS
        if instruction.opcode == "while":
            return self.loops and rolled_threefry.is_threefry(instruction)
        return instruction.opcode in self.opcodes

    def step(self, instruction: Instruction) -> str:
        """Calls by their targets, loops by what they are."""
        if instruction.opcode == "custom-call":
            return f"expand {instruction.attributes['custom_call_target']}"
        return "unroll Threefry" if instruction.opcode == "while" else super().step(instruction)

    def obstacle(self, instruction: Instruction) -> str | None:
        """State that is not in the module, types without bits, marks of a call that would be lost."""
        if instruction.opcode in ("rng", "rng-get-and-update-state"):
            return "its numbers come from a state of the device that no instruction reads"
        if instruction.opcode == "while":
            return rolled_threefry.obstacle(instruction)
        if instruction.opcode == "custom-call":
            target = instruction.custom_call_target
            for mark in ("custom_call_has_side_effect", "output_to_operand_aliasing"):
                if instruction.attributes.get(mark):
                    return f"the call has {mark}"
            return gpu_random.CHECKS[target](instruction)
        problem = random.CHECKS[instruction.opcode](instruction)
        kind = _bits_shape(instruction).dtype
        if problem is None and f"u{kind.bits}" not in DTYPES:
            return f"there is no integer type of {kind.bits} bits to make {kind.name} of"
        return problem

    def expand(self, instruction: Instruction, write: Writer) -> Term:
        """Write the block function, and how blocks make the array."""
        if instruction.opcode == "while":
            return rolled_threefry.expand(instruction, write)
        if instruction.opcode == "custom-call":
            return _call(instruction, write)
        return self._bits(instruction, write)

    def _bits(self, instruction: Instruction, write: Writer) -> Term:
        shape = _bits_shape(instruction)
        kind = shape.dtype
        generate = philox_bits
        if instruction.attributes["algorithm"] == "rng_three_fry":
            generate = threefry_bits
        word = dtype("u64" if kind.bits == 64 else "u32")
        state = write.term(instruction.operands[0])
        after, words = generate(state, plain(shape, word), self.concatenate)
        bits = _typed(words, kind)
        if not isinstance(instruction.shape, TupleShape):
            return bits
        parts = zip((after, bits), instruction.shape.elements, strict=True)
        return write.pack(*(write.fitted(part, wanted) for part, wanted in parts))


def _bits_shape(instruction: Instruction) -> ArrayShape:
    *_, shape = leaves(instruction.shape)
    assert isinstance(shape, ArrayShape)
    return shape


def _typed(words: Term, kind: DType) -> Term:
    """The low bits of each word as an element of the type."""
    return words.convert(f"u{kind.bits}").bits_as(kind)


def _call(instruction: Instruction, write: Writer) -> Term:
    first = instruction.elements[0]
    key0, key1, x0, x1 = (
        write.fitted(write.term(operand), first) for operand in instruction.operands
    )
    words = threefry2x32((key0, key1), x0, x1)
    parts = zip(words, instruction.elements, strict=True)
    return write.pack(*(write.fitted(word, wanted) for word, wanted in parts))
