"""Steps in a row that a device captures and plays again: the same results, and nothing left behind."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.ir import Module
from hloopt.kernels.plan import Plan
from hloopt.runtime.device import Pointer, PointerArgument
from tests.helpers.device_runs import LOOP, agree, counts, drawn
from tests.helpers.fake_device import FakeDevice, fake_program
from tests.properties.random_modules import module_text

Array = np.ndarray[Any, Any]


class Capturing(FakeDevice):
    """Writes launches down between ``begin_capture`` and ``end_capture``, and plays them."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.graphs: list[list[tuple[Any, ...]]] = []
        self.recording: list[tuple[Any, ...]] | None = None
        self.abandoned = 0

    def begin_capture(self) -> None:
        assert self.recording is None
        self.recording = []

    def end_capture(self) -> int:
        assert self.recording is not None
        self.graphs.append(self.recording)
        self.recording = None
        return len(self.graphs) - 1

    def abandon_capture(self) -> None:
        self.abandoned += self.recording is not None
        self.recording = None

    def replay(self, graph: int) -> None:
        self.events.append(("replay", graph))
        for call in self.graphs[graph]:
            super().launch(*call) if len(call) > 2 else super().copy(*call)

    def launch(
        self,
        function: str,
        grid: Any,
        block: Any,
        arguments: Sequence[PointerArgument],
        scalars: Sequence[int] = (),
    ) -> None:
        call = (function, grid, block, arguments, scalars)
        super().launch(*call) if self.recording is None else self.recording.append(call)

    def copy(self, target: Pointer, source: Pointer) -> None:
        if self.recording is None:
            super().copy(target, source)
        else:
            self.recording.append((target, source))

    def download(self, source: Pointer) -> Array:
        assert self.recording is None
        return super().download(source)

    def upload(self, target: Pointer, array: Array) -> None:
        assert self.recording is None
        super().upload(target, array)


def test_steps_in_a_row_are_captured_once() -> None:
    """The second time captures a row, later trips and runs play it; results are the same."""
    module = hloopt.parse(LOOP.replace("BODY", "add(i, i)"))
    program = fake_program(module, make_device=Capturing)
    device = program.device
    assert isinstance(device, Capturing)
    inputs = [np.float32(7), np.ones(8, np.float32)]
    agree(module, program, inputs)
    launches = program.launches
    agree(module, program, inputs)
    graphs = len(device.graphs)
    assert graphs
    assert program.launches == launches
    agree(module, program, [np.float32(30), np.zeros(8, np.float32)])
    agree(module, program, inputs)
    assert len(device.graphs) == graphs
    assert program.launches == launches
    assert launches == fake_launches(module, inputs)


def test_what_runs_once_is_not_captured() -> None:
    """Nor is anything before it has run: code is loaded when it is first needed, which no capture may do."""
    module = hloopt.parse(
        """HloModule m
        ENTRY main {
          p = f32[8] parameter(0)
          n = f32[8] negate(p)
          ROOT s = f32[8] sine(n)
        }"""
    )
    program = fake_program(module, make_device=Capturing)
    device = program.device
    assert isinstance(device, Capturing)
    for run, (graphs, launches, replays) in enumerate(((0, 2, 0), (1, 4, 1), (1, 6, 2))):
        agree(module, program, [np.arange(8, dtype=np.float32) + run])
        names = Counter(event[0] for event in device.events)
        assert (len(device.graphs), names["launch"], names["replay"]) == (graphs, launches, replays)
        assert program.launches == 2


@pytest.mark.parametrize(("longest", "replays"), [(1024, 1), (8, 1 + 5 + 1)])
def test_loops_of_known_count_are_part_of_a_graph(
    monkeypatch: pytest.MonkeyPatch, longest: int, replays: int
) -> None:
    """A short one is unrolled in the row it stands in; a long one is played trip by trip."""
    monkeypatch.setattr("hloopt.runtime.segments._LONGEST_LOOP", longest)
    text = LOOP.replace("BODY", "add(i, one)").replace(
        "  j = f", "  one = f32[] constant(2)\n  j = f"
    )
    text = text.replace(
        "a = f32[] parameter(0)", "z = f32[] parameter(0)\n  a = f32[] constant(90)"
    )
    last = "v = f32[8] get-tuple-element(w), index=1\n  u = f32[8] sine(v)\n  ROOT r = f32[8] negate(u)"
    text = text.replace("ROOT r = f32[8] get-tuple-element(w), index=1", last)
    module = hloopt.parse(text.replace("f32[]", "s32[]"))
    program = fake_program(module, make_device=Capturing)
    inputs = [np.int32(0), np.ones(8, np.float32)]
    for _ in range(3):
        before = counts(program)["replay"]
        agree(module, program, inputs)
        assert program.launches == fake_launches(module, inputs)
    assert counts(program)["replay"] - before == replays


def fake_launches(module: Module, inputs: Sequence[Array]) -> int:
    program = fake_program(module)
    program.run(inputs)
    return program.launches


def test_random_programs_are_the_same_captured() -> None:
    """Captured and played, programs compute what they do step by step."""
    for seed in range(10):
        module = hloopt.parse(module_text(random.Random(seed)))
        program = fake_program(module, make_device=Capturing)
        agree(module, program, drawn(module, 3))
        agree(module, program, drawn(module, 9))


def test_an_interrupted_run_leaves_no_capture_behind() -> None:
    """Ctrl-C while a row is captured goes through, and the next run begins anew."""

    class Interrupted(Capturing):
        left = 1

        def launch(self, *arguments: Any, **named: Any) -> None:
            if self.recording is not None and self.left:
                self.left -= 1
                raise KeyboardInterrupt
            super().launch(*arguments, **named)

    module = hloopt.parse(LOOP.replace("BODY", "add(i, i)"))
    program = fake_program(module, make_device=Interrupted)
    device = program.device
    assert isinstance(device, Interrupted)
    inputs = [np.float32(7), np.ones(8, np.float32)]
    with pytest.raises(KeyboardInterrupt):
        program.run(inputs)
    assert device.abandoned == 1
    agree(module, program, inputs)
