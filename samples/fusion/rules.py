"""Rules about fusion: each gets a producer and a consumer, and says yes, no, or nothing, with a reason."""


def root(instruction):
    """What an op, or a fusion that has been made already, computes last."""
    return instruction.attributes["calls"].root if instruction.opcode == "fusion" else instruction


def exponentials_once(producer, consumer):
    """Compute an exponential in one kernel, not again in each that reads it."""
    if root(producer).opcode == "exponential" and len(producer.users) > 1:
        return False, f"{len(producer.users)} kernels would compute it"
    return None
