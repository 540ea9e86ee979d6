"""How exactly an op computes: precisions, algorithms, tolerances."""

from __future__ import annotations

from typing import Any

from hloopt.proto.entry import Entry, Target, kept, said
from hloopt.proto.problem import Problem
from hloopt.proto.rows import Row, of_message
from hloopt.proto.words import ALGORITHMS, PRECISIONS, number_of, word_of
from hloopt.types import Verbatim

__all__ = ["ALGORITHM", "OPERAND_PRECISION", "RESULT_ACCURACY"]

_FIELD, _KIND = "precision_config", "PrecisionConfig"


def _precision() -> Row:
    def read(entry: Entry) -> Verbatim | None:
        numbers = entry.message(_KIND, _FIELD).operand_precision
        if not any(numbers):
            return None
        words = tuple(word_of(PRECISIONS, number, _FIELD) for number in numbers)
        return Verbatim(f"{{{','.join(words)}}}", words)

    def write(target: Target, value: Verbatim) -> None:
        words = said("operand_precision", value, tuple)
        numbers = [number_of(PRECISIONS, word) for word in words]
        target.message(_KIND, _FIELD).operand_precision.extend(numbers)

    return Row("operand_precision", (_FIELD,), read, write)


def _algorithm() -> Row:
    def read(entry: Entry) -> str | None:
        value = entry.message(_KIND, _FIELD).algorithm
        return word_of(ALGORITHMS, value, _FIELD) if value else None

    def write(target: Target, value: str) -> None:
        target.message(_KIND, _FIELD).algorithm = number_of(ALGORITHMS, value)

    return Row("algorithm", (_FIELD,), read, write)


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
            raise Problem(f"the proto has no field for the tolerance {name!r}")


OPERAND_PRECISION = _precision()
ALGORITHM = _algorithm()
RESULT_ACCURACY = of_message(
    "result_accuracy", "result_accuracy", "ResultAccuracy", _accuracy, _write_accuracy
)
