"""Rules about fusion: each gets a producer and a consumer, and says yes, no, or nothing, with a reason."""

from hloopt.ir import Instruction


def root(instruction: Instruction) -> Instruction:
    """What an op, or a fusion that has been made already, computes last."""
    return instruction.attributes["calls"].root if instruction.opcode == "fusion" else instruction


def exponentials_once(producer: Instruction, consumer: Instruction) -> tuple[bool, str] | None:
    """Compute an exponential in one kernel, not again in each that reads it."""
    if root(producer).opcode == "exponential" and len(producer.users) > 1:
        return False, f"{len(producer.users)} kernels would compute it"
    return None
