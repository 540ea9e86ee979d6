"""XLA's log of priority fusion is read, and its steps are done again."""

from __future__ import annotations

from pathlib import Path

import pytest

import hloopt
from hloopt.cost_models.model import Comparison
from hloopt.errors import FileError
from hloopt.fusion.replay import replay
from hloopt.fusion.xla_log import Fused, Ineligible, Priced, XlaLog, read_log
from hloopt.ir import Module
from hloopt.source import Source
from hloopt.targets import target
from tests.helpers.partition import compare_partitions, partition
from tests.helpers.support import count_calls

FOLDER = Path(__file__).parent / "xla"


def _log() -> XlaLog:
    path = FOLDER / "steps.priority_fusion_dump.txt"
    return read_log(Source(path.read_text(), path.name))


def _module(stage: str) -> Module:
    return hloopt.parse((FOLDER / f"steps.{stage}.hlo").read_text())


def test_the_kinds_of_steps() -> None:
    """Prices of a producer with all its consumers, producers left alone, and fusions, at their lines."""
    log = _log()
    counts = {
        kind: sum(isinstance(step, kind) for step in log.steps)
        for kind in (Priced, Ineligible, Fused)
    }
    assert counts == {Priced: 13, Ineligible: 11, Fused: 8}
    assert log.steps[0] == Priced(
        "rest.1.0", ("power.1.0",), Comparison(2.0285, 1.02125), log.steps[0].offset
    )
    assert log.place(log.steps[0]) == "steps.priority_fusion_dump.txt:2:19"
    assert Ineligible in map(type, log.steps)
    assert any(isinstance(step, Priced) and len(step.consumers) == 2 for step in log.steps)


def test_the_module_and_the_device_of_a_log() -> None:
    """The module is a text that parses; the device is the one it was compiled for."""
    log = _log()
    assert hloopt.parse(log.module_text).name == "steps"
    found, known = log.target("h200"), target("h200")
    assert (found.cores, found.memory_bandwidth) == (known.cores, known.memory_bandwidth)


def test_the_replay_ends_at_xlas_partition() -> None:
    """Kernels after XLA's steps, constants included, are those of XLA's module; so are kinds and names."""
    module, theirs = _module("before"), _module("after")
    events = list(replay(module, _log()))
    hloopt.verify(module)
    found = compare_partitions(partition(module), partition(theirs))
    assert not found
    assert found.same == 6
    fused = [event for event in events if event.fusion is not None]
    assert [event.step.producer for event in fused if not event.removed] == ["fusion.3"]
    kinds = [
        {
            entry.name: entry.attributes["kind"]
            for entry in side.instructions()
            if entry.opcode == "fusion" and entry.name in ("fusion.4", "fusion.5")
        }
        for side in (module, theirs)
    ]
    assert kinds[0] == kinds[1] == {"fusion.4": "kLoop", "fusion.5": "kInput"}


def test_a_price_is_shown_before_its_fusion() -> None:
    """At an event the module stands as it did when XLA asked: whoever prices it again compares like with like."""
    module = _module("before")
    for event in replay(module, _log()):
        if isinstance(event.step, Priced):
            assert all(event.producer in consumer.operands for consumer in event.consumers)
        for name, entry in zip(getattr(event.step, "consumers", ()), event.consumers, strict=False):
            assert entry.name == name


def test_the_replayed_module_computes_the_same() -> None:
    """Fusions change no value."""
    import numpy as np

    before, after = _module("before"), _module("before")
    list(replay(after, _log()))
    chooser = np.random.default_rng(3)
    inputs = [chooser.standard_normal(shape).astype(np.float32) for shape in ((128, 256), (256,))]
    left, right = (hloopt.evaluate(module, inputs) for module in (before, after))
    assert [value.tobytes() for value in left] == [value.tobytes() for value in right]


GOOD = """fusion_steps {
  update_priority {
    producer_name: "a"
    consumer_names: "b"
    us_fused: inf
  }
}
"""


def test_times_that_are_left_out_or_infinite() -> None:
    """XLA leaves out a zero; a kernel that does not fit takes for ever."""
    (step,) = read_log(Source(GOOD)).steps
    assert isinstance(step, Priced)
    assert (step.times.unfused_us, step.times.fused_us) == (0.0, float("inf"))


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        (GOOD.replace("update_priority", "updated"), 1, 14, "a step is one of fusion, update_pri"),
        (GOOD.replace('producer_name: "a"\n', ""), 2, 19, "producer_name is not given"),
        (GOOD.replace('"a"', '"a" producer_name: "c"'), 3, 39, "producer_name is twice given"),
        (GOOD.replace('"b"', "3"), 4, 21, "a text is expected"),
        (GOOD.replace("inf", '"soon"'), 5, 15, "us_fused is a number"),
        (GOOD + "steps: 1", 8, 8, "a log of fusions has no field 'steps'"),
        (GOOD[:34], 2, 20, "the name of a field or '}' is expected, not the end"),
        (GOOD[:56], 3, 20, "a string without an end"),
    ],
)
def test_damaged_logs(text: str, line: int, column: int, message: str) -> None:
    """Each mistake is shown at its place."""
    with pytest.raises(FileError) as caught:
        read_log(Source(text, "log"))
    assert caught.value.message.startswith(message)
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            'fusion { producer_name: "no" consumer_name: "q" fusion_name: "f" }',
            "has no instruction no",
        ),
        ('fusion { producer_name: "x" consumer_name: "r" fusion_name: "f" }', "r does not read x"),
        (
            'fusion { producer_name: "q" consumer_name: "r" fusion_name: "f" }',
            "r is a fusion already",
        ),
        ('producer_ineligible { producer_name: "gone" reason: "" }', "has no instruction gone"),
    ],
)
def test_a_log_of_another_module(step: str, message: str) -> None:
    """A step that names what is not there is shown at its line."""
    module = hloopt.parse("""HloModule m
f {
  a = f32[8] parameter(0)
  ROOT b = f32[8] negate(a)
}
ENTRY e {
  x = f32[8] parameter(0)
  q = f32[8] abs(x)
  ROOT r = f32[8] fusion(q), kind=kLoop, calls=f
}
""")
    log = read_log(Source(f"\nfusion_steps {{ {step} }}", "log"))
    with pytest.raises(FileError, match=message) as caught:
        list(replay(module, log))
    assert caught.value.line == 2


def test_reading_is_linear() -> None:
    """Twice the steps take twice the work."""
    small, large = (Source(GOOD * count) for count in (200, 400))
    assert count_calls(lambda: read_log(large)) < 2.1 * count_calls(lambda: read_log(small))


PARTS = """HloModule m
both {
  a = f32[8] parameter(0)
  b = f32[8] negate(a)
  ROOT c = f32[8] abs(b)
}
one {
  z = f32[8] parameter(0)
  ROOT y = f32[8] negate(z)
}
"""


def _parts(body: str) -> Module:
    return hloopt.parse(f"{PARTS}ENTRY e {{\n x = f32[8] parameter(0)\n{body}\n}}\n")


def test_partitions_are_compared_by_what_is_computed() -> None:
    """Names do not count, nor does whether an op by itself is a fusion."""
    left = partition(_parts("n = f32[8] negate(x)\n ROOT r = f32[8] abs(n)"))
    right = partition(
        _parts("f = f32[8] fusion(x), kind=kLoop, calls=one\n ROOT s = f32[8] abs(f)")
    )
    found = compare_partitions(left, right)
    assert (bool(found), found.same) == (False, 2)


def test_what_two_kernels_compute_counts_in_both() -> None:
    """A producer that was copied is a difference."""
    copied = partition(
        _parts("""
  n = f32[8] negate(x)
  f = f32[8] fusion(x), kind=kLoop, calls=both
  ROOT r = (f32[8], f32[8]) tuple(n, f)""")
    )
    shared = partition(
        _parts("""
  n = f32[8] negate(x)
  f = f32[8] abs(n)
  ROOT r = (f32[8], f32[8]) tuple(n, f)""")
    )
    found = compare_partitions(copied, shared)
    assert [entry.name for entry in found.only_left] == ["f"]
    assert [entry.name for entry in found.only_right] == ["f"]
    assert found.same == 1
    twice = partition(
        _parts("""
  n = f32[8] negate(x)
  f = f32[8] fusion(x), kind=kLoop, calls=one
  ROOT r = (f32[8], f32[8]) tuple(n, f)""")
    )
    once = partition(_parts("ROOT n = f32[8] negate(x)"))
    assert [entry.name for entry in compare_partitions(twice, once).only_left] == ["f"]
