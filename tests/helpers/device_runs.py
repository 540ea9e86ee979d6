"""Running programs on the fake device, for tests: results held against the interpreter's, bit by bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

import hloopt
from hloopt.ir import Module
from hloopt.runtime.device_program import DeviceProgram
from tests.helpers.fake_device import FakeDevice
from tests.passes import proof

Array = np.ndarray[Any, Any]

LOOP = """HloModule m
less { s = (f32[], f32[8]) parameter(0)
  i = f32[] get-tuple-element(s), index=0
  n = f32[] constant(100)
  ROOT c = pred[] compare(i, n), direction=LT }
step { s = (f32[], f32[8]) parameter(0)
  i = f32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  j = f32[] BODY
  y = f32[8] cosine(x)
  ROOT t = (f32[], f32[8]) tuple(j, y) }
ENTRY main {
  a = f32[] parameter(0)
  p = f32[8] parameter(1)
  t = (f32[], f32[8]) tuple(a, p)
  w = (f32[], f32[8]) while(t), condition=less, body=step
  ROOT r = f32[8] get-tuple-element(w), index=1
}
"""


def counts(program: DeviceProgram) -> Counter[str]:
    device = program.device
    assert isinstance(device, FakeDevice)
    return Counter(event[0] for event in device.events)


def agree(module: Module, program: DeviceProgram, inputs: Sequence[Array]) -> None:
    wanted, got = hloopt.evaluate(module, inputs), program.run(inputs)
    assert len(wanted) == len(got)
    for number, (one, other) in enumerate(zip(wanted, got, strict=True)):
        assert proof.identical(one, other), f"result {number}"


def drawn(module: Module, seed: int) -> list[Array]:
    return proof.inputs(module, seed)
