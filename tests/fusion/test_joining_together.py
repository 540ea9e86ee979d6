"""Many producers that join a kernel together: as one after the other, in every respect but the price."""

from __future__ import annotations

from functools import partial

import pytest

import hloopt
from hloopt.fusion import apply
from hloopt.fusion.merge import copy_in, copy_in_all
from hloopt.fusion.priority import twins
from hloopt.ir.build import clone_module
from hloopt.ir.canonical import canonical
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite import Controls
from tests.helpers.growing import SHAPES
from tests.helpers.support import count_calls

PRODUCERS = """HloModule m

pair {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  s = f32[8] sine(y)
  ROOT r = f32[8] multiply(s, x)
}

same {
  ROOT x = f32[8] parameter(0)
}

wide {
  a = f32[8] parameter(0)
  b = f32[8] parameter(1)
  c = f32[8] parameter(2)
  d = f32[8] parameter(3)
  k = f32[32] concatenate(a, b, c, d), dimensions={0}
  ROOT r = f32[32] negate(k)
}

ENTRY e {
  p = f32[8] parameter(0)
  q = f32[8] parameter(1)
  t = f32[8] parameter(2)
  n = f32[8] negate(p)
  f = f32[8] fusion(p, q), kind=kLoop, calls=pair
  g = f32[8] fusion(t), kind=kLoop, calls=same
  m = f32[8] multiply(q, n), control-predecessors={g}
  z = f32[8] tanh(t)
  ROOT r = f32[32] fusion(f, g, m, z), kind=kLoop, calls=wide
}
"""


@pytest.mark.parametrize("order", ["f m z", "z g f", "g", "m f g z"])
def test_copies_are_those_of_one_after_the_other(order: str) -> None:
    """Names, places, parameters and control edges, once parameters are named by their numbers."""
    texts = []
    for together in (False, True):
        module = hloopt.parse(PRODUCERS)
        fusion = module.entry.root
        sources = [module.entry.by_name[name] for name in order.split()]
        if together:
            copy_in_all(fusion, sources)
        else:
            for source in sources:
                copy_in(fusion, source, alone=True)
        for source in sources:
            if not source.control_successors:
                apply.remove_producer(source)
        apply.number_parameter_names([fusion.calls])
        hloopt.verify(module)
        texts.append(module.to_text())
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    "shape", ["concatenate", "joined_parameters", "joined_slices", "wide_reduce"]
)
def test_kernels_are_those_of_one_after_the_other(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever joins, in whichever order: the kernels compute the same in the end."""
    module = hloopt.parse(SHAPES[shape](70))
    several = clone_module(module)
    monkeypatch.setattr(twins, "_EACH", 4)
    steps = count_calls(partial(parse_pipeline("priority-fusion").run, several), "_follow")
    hloopt.verify(several)
    monkeypatch.setattr(twins, "_EACH", 10**6)
    assert steps < count_calls(partial(parse_pipeline("priority-fusion").run, module), "_follow")
    assert canonical(several).to_text() == canonical(module).to_text()


@pytest.mark.parametrize("most", [3, 17, 30, 31, 32, 50])
def test_fuel_ends_within_those_that_join_together(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many join as may, and the module is valid."""
    monkeypatch.setattr(twins, "_EACH", 4)
    module = hloopt.parse(SHAPES["joined_parameters"](60))
    controls = Controls(fuel={"priority-fusion": most})
    report = parse_pipeline("priority-fusion").run(module, controls=controls)
    hloopt.verify(module)
    assert report.hits()["priority-fusion"].total() == most
