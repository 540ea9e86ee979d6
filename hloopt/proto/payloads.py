"""Backend configurations: bytes in the instruction, or in the module's table of payloads."""

from __future__ import annotations

from hloopt.proto.annotations import json_or_string
from hloopt.proto.entry import Entry, Target
from hloopt.proto.messages import text
from hloopt.proto.problem import Problem
from hloopt.proto.rows import Row
from hloopt.types import Verbatim
from hloopt.types.strings import unquote

__all__ = ["BACKEND_CONFIG"]


def _backend_config() -> Row:
    def read(entry: Entry) -> Verbatim | None:
        data = entry.proto.backend_config
        if not data and entry.proto.backend_config_payload:
            payload = entry.message("Payload", "backend_config_payload")
            data = payload.value
            if payload.HasField("id"):
                if not 0 <= payload.id < len(entry.reading.payloads):
                    raise Problem(
                        f"the module has no payload {payload.id}", "backend_config_payload.id"
                    )
                data = entry.reading.payloads[payload.id]
        return Verbatim(json_or_string(text(data))) if data else None

    def write(target: Target, value: Verbatim) -> None:
        word = value.text
        raw = unquote(word) if word[:1] in {'"', "'"} else word
        target.proto.backend_config = raw.encode("utf-8", "surrogateescape")

    return Row("backend_config", ("backend_config", "backend_config_payload"), read, write)


BACKEND_CONFIG = _backend_config()
