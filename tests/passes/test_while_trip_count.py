"""trip-count: what is written down of loops, and what is left as it is."""

from __future__ import annotations

import json

import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.passes.loops.trip_count import TripCount
from hloopt.rewrite import PassLog
from tests.passes.loop_texts import COUNT, loop_text, scan_text
from tests.passes.proof import check


def written(source: str, instance: TripCount | None = None) -> object:
    module, _ = check(source, instance or TripCount(), draws=1)
    (loop,) = [one for one in module.entry if one.opcode == "while"]
    config = json.loads(str(loop.attributes["backend_config"]))
    return json.loads(config) if isinstance(config, str) else config


def missed(source: str, instance: TripCount) -> list[str]:
    module, log = hloopt.parse(source), PassLog(kinds=frozenset({"missed"}))
    assert not instance.run(module, log)
    return [remark.reason for remark in log.remarks]


STATE = [("v", "f32[4]", "x"), ("i", "s32[]", "three")]


def test_what_xla_writes() -> None:
    """Count, first value and step, and the place of the counter in the state."""
    condition = "n = s32[] constant(20)\nROOT c = pred[] compare(i, n), direction=LT"
    body = "k = s32[] constant(5)\ni1 = s32[] add(i, k)"
    assert written(loop_text(STATE, condition=condition, body=body, following=["v", "i1"])) == {
        "known_trip_count": {"n": "4"},
        "known_init_step": {"init": "3", "step": "5"},
        "known_induction_variable": {"tuple_index": "1"},
    }


def test_a_count_without_such_a_counter() -> None:
    """Down, or without a closed form: the count alone."""
    condition = "n = s32[] constant(-20)\nROOT c = pred[] compare(i, n), direction=GT"
    for body, iterations in (("k = s32[] constant(-5)\ni1 = s32[] add(i, k)", "5"),
                        ("k = s32[] constant(-2)\ni1 = s32[] multiply(i, k)", "3")):  # fmt: skip
        text = loop_text(STATE, condition=condition, body=body, following=["v", "i1"])
        expected = {"known_trip_count": {"n": iterations}}
        assert written(text) == expected


def test_other_entries_stay_and_so_does_a_count_that_is_there() -> None:
    """A string of JSON stays a string."""
    config = ', backend_config="{\\"queue\\":\\"1\\"}"'
    found = written(scan_text(5, attributes=config))
    assert isinstance(found, dict)
    assert (found["queue"], found["known_trip_count"]) == ("1", {"n": "5"})
    known = ', backend_config={"known_trip_count":{"n":"9"}}'
    assert missed(scan_text(5, attributes=known), TripCount()) == []


def test_reasons() -> None:
    """No JSON, no end within the limit, more trips than XLA can write."""
    assert missed(scan_text(5, attributes=', backend_config="abc"'), TripCount()) == [
        "its backend_config is not a JSON object"
    ]
    condition = "n = s32[] constant(20)\nROOT c = pred[] compare(i, n), direction=LT"
    grown = loop_text(
        STATE, condition=condition, body="i1 = s32[] multiply(i, i)", following=["v", "i1"]
    )
    assert written(grown) == {"known_trip_count": {"n": "2"}}
    assert missed(grown, TripCount(limit=1)) == ["no closed form, and no end within 1 iterations"]
    state = [("i", "u64[]", "w")]
    condition = (
        "n = u64[] constant(18446744073709551615)\nROOT c = pred[] compare(i, n), direction=NE"
    )
    long = loop_text(state, condition=condition, body=COUNT.replace("s32", "u64"), following=["i1"],
                     entry="w = u64[] constant(0)")  # fmt: skip
    assert missed(long, TripCount()) == ["18446744073709551615 iterations do not fit into 63 bits"]
    with pytest.raises(UsageError, match="limit must be non-negative, got -1"):
        TripCount(limit=-1)
