"""Reading schedules out of machine code: waits behind instructions, barriers, ways around slow paths."""

from __future__ import annotations

from tests.cost_models import sass

LATENCIES = {"xu": 23, "memory": 100, "f64": 8, "imad": 5, "alu": 5, "fma": 4, "control": 12}


def line(text: str, stall: int = 1, sets: int = 7, waits: str = "", labels: str = "") -> sass.Line:
    """An instruction as nvdisasm writes it."""
    guard, _, rest = text.partition(" ") if text.startswith("@") else ("", "", text)
    opcode, _, operands = rest.partition(" ")
    return sass.Line(
        guard.lstrip("@"),
        opcode,
        tuple(part.strip() for part in operands.split(",")) if operands else (),
        tuple(labels.split()),
        stall,
        sets,
        frozenset(map(int, waits)),
    )


LOAD = line("LDG.E R0, [R2.64]", sets=0)
STORE = line("STG.E [R2.64], R0")


def test_a_chain_waits_for_what_stalls_and_for_barriers() -> None:
    """Five cycles behind the sum, then the reciprocal's own latency."""
    path = [
        LOAD,
        line("FADD R0, R0, R0", stall=5, waits="0"),
        line("MUFU.RCP R0, R0", stall=1, sets=1),
        line("FMUL R0, R0, R0", stall=5, waits="1"),
        STORE,
    ]
    found = sass.run(path, LATENCIES)
    assert found.cycles == 5 + 23 + 5
    assert found.units == {"fma": 2, "xu": 1}


def test_what_does_not_depend_on_operands_is_not_counted() -> None:
    """A constant that is made beside the chain takes no more than its turn."""
    path = [
        LOAD,
        line("FADD R0, R0, R0", stall=1, waits="0"),
        line("MOV R9, 0x3f800000", stall=4),
        line("FMUL R0, R0, R9", stall=5),
        STORE,
    ]
    found = sass.run(path, LATENCIES)
    assert found.cycles == 1 + 4 + 5
    assert found.units == {"fma": 2}


def test_ordinary_arguments_go_around_calls_and_loops() -> None:
    """The branch around a call is taken; a loop that is run into is not."""
    code = [
        LOAD,
        line("@!P0 BRA `(.ok)", waits="0"),
        line("CALL.REL.NOINC `(slow)"),
        line("FADD R0, R0, R0", labels=".ok"),
        line("@P1 BRA `(.end)"),
        line("IADD3 R1, R1, 0x1, RZ", labels=".again"),
        line("@P2 BRA `(.again)"),
        line("STG.E [R2.64], R0", labels=".end"),
        line("EXIT"),
    ]
    path = sass.ordinary_path(code)
    assert [one.name for one in path] == ["LDG", "BRA", "FADD", "BRA", "STG", "EXIT"]


def test_a_trip_is_what_lies_between_a_label_and_the_branch_back() -> None:
    """In a steady state each trip takes what its waits add up to."""
    code = [
        line("MOV R0, 0x0"),
        line("FADD R0, R0, R1", stall=5, labels=".top"),
        line("FMUL R0, R0, R1", stall=4),
        line("@P0 BRA `(.top)", stall=5),
        line("EXIT"),
    ]
    found = sass.loop_run(code, LATENCIES)
    assert found is not None
    assert found.cycles == 14
    assert sass.loop_run(code[:1], LATENCIES) is None
