"""How exactly an op computes: precisions, algorithms, tolerances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hloopt.proto import ProtoProblem
from hloopt.proto.entry import kept, said
from hloopt.proto.rows import field, of_message, word
from hloopt.proto.words import ALGORITHMS, PRECISIONS, number_of, word_of
from hloopt.types import Verbatim

__all__ = ["ALGORITHM", "OPERAND_PRECISION", "RESULT_ACCURACY"]

_CONFIG = "precision_config"


def _precision(numbers: Sequence[int]) -> Verbatim | None:
    if not any(numbers):
        return None
    words = tuple(word_of(PRECISIONS, number, _CONFIG) for number in numbers)
    return Verbatim(f"{{{','.join(words)}}}", words)


def _precision_numbers(value: Verbatim) -> tuple[int, ...]:
    words = said("operand_precision", value, tuple)
    return tuple(number_of(PRECISIONS, word) for word in words)


_MODES = {0: "default", 1: "highest"}


def _accuracy(proto: Any) -> Verbatim | None:
    if proto.HasField("tolerance"):
        part = proto.tolerance
        text = f"{{tolerance={{atol={part.atol:.6g},rtol={part.rtol:.6g},ulps={part.ulps}}}}}"
        return kept("result_accuracy", text)
    mode = word_of(_MODES, proto.mode, "mode")
    return kept("result_accuracy", f"{{mode={mode}}}") if proto.mode else None


def _write_accuracy(proto: Any, value: Verbatim) -> None:
    for name, amount in said("result_accuracy", value, tuple):
        if name == "mode":
            proto.mode = number_of(_MODES, amount)
        elif name in ("atol", "rtol", "ulps"):
            setattr(proto.tolerance, name, int(amount) if name == "ulps" else float(amount))
        else:
            raise ProtoProblem(f"the proto has no field for the tolerance {name!r}")


OPERAND_PRECISION = field(
    "operand_precision", f"{_CONFIG}.operand_precision", _precision, _precision_numbers
)
ALGORITHM = word("algorithm", f"{_CONFIG}.algorithm", ALGORITHMS, unless=0)
RESULT_ACCURACY = of_message("result_accuracy", "result_accuracy", _accuracy, _write_accuracy)
