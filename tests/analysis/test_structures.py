"""Numbers of structures: what has the same number is the same, and costs what it costs by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

import hloopt
from hloopt.analysis.structures import Structures
from hloopt.cost_models.kept_times import StructureTimes
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.xla_2026 import Xla2026
from hloopt.ir import Instruction
from hloopt.kernels.costs import kernel_costs
from hloopt.pipelines import parse_pipeline
from hloopt.targets import target
from tests.helpers.rarely import one_in

SAMPLES = Path(__file__).parents[2] / "samples"

_LARGEST = 40_000

HEAD = """HloModule m

sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
also_sum { x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = f32[] add(x, y) }
greatest { x = f32[] parameter(0) y = f32[] parameter(1) ROOT z = f32[] maximum(x, y) }
square { p = f32[8] parameter(0) ROOT m = f32[8] multiply(p, p) }
again { q = f32[8] parameter(0) ROOT n = f32[8] multiply(q, q), metadata={op_name="n"} }
double { p = f32[8] parameter(0) ROOT a = f32[8] add(p, p) }
test { p = f32[8] parameter(0) ROOT t = pred[] constant(false) }

ENTRY e {
  p = f32[8] parameter(0)
  q = f32[8] parameter(1)
  z = f32[] constant(0)
"""


def _instructions(text: str) -> dict[str, Instruction]:
    module = hloopt.parse(f"{HEAD}{text}\n}}\n")
    return module.entry.by_name


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ("f32[8] add(p, q)", 'f32[8] add(q, p), metadata={op_name="other"}', True),
        ("f32[8] add(p, q)", "f32[8] add(p, p)", False),
        ("f32[8] add(p, q)", "f32[8] multiply(p, q)", False),
        ("f32[8]{0} negate(p)", "f32[8]{0:S(5)} negate(p)", False),
        ("f32[2] slice(p), slice={[0:2]}", "f32[2] slice(p), slice={[2:4]}", False),
        ("f32[] reduce(p, z), dimensions={0}, to_apply=sum", "f32[] reduce(q, z), dimensions={0}, to_apply=also_sum", True),
        ("f32[] reduce(p, z), dimensions={0}, to_apply=sum", "f32[] reduce(p, z), dimensions={0}, to_apply=greatest", False),
        ("f32[8] fusion(p), kind=kLoop, calls=square", "f32[8] fusion(q), kind=kLoop, calls=again", True),
        ("f32[8] fusion(p), kind=kLoop, calls=square", "f32[8] fusion(q), kind=kInput, calls=again", False),
        ("f32[8] fusion(p), kind=kLoop, calls=square", "f32[8] fusion(q), kind=kLoop, calls=double", False),
        ("f32[] constant(1)", "f32[] constant(1)", True),
        ("f32[] constant(0)", "f32[] constant(-0)", False),
    ],
)  # fmt: skip
def test_equal_numbers(left: str, right: str, equal: bool) -> None:
    found = _instructions(f"left = {left}\nright = {right}\nROOT r = tuple(left, right)")
    structures = Structures()
    first, second = structures.of(found["left"]), structures.of(found["right"])
    assert first is not None
    assert second is not None
    assert (first == second) is equal


def test_no_number_where_more_counts() -> None:
    found = _instructions(
        "w = f32[8] while(p), condition=test, body=square\nROOT i = u32[] replica-id()"
    )
    structures = Structures()
    assert structures.of(found["w"]) is None
    assert structures.of(found["i"]) is None


def test_pairs() -> None:
    found = _instructions(
        "a = f32[8] negate(p)\nb = f32[8] add(a, p)\nc = f32[8] add(a, q)\nd = f32[8] add(p, a)\n"
        "e = f32[8] negate(q)\nf = f32[8] add(e, q)\nROOT r = tuple(b, c, d, f)"
    )
    structures = Structures()
    pair = structures.pair(found["a"], found["b"])
    assert pair is not None
    assert structures.pair(found["e"], found["f"]) == pair
    for other in "cd":
        assert structures.pair(found["a"], found[other]) != pair


def _as_planned(
    text: str, monkeypatch: pytest.MonkeyPatch, *, alone: bool
) -> tuple[str, list[object]]:
    """The plan of a module and its prices; each structure priced anew where it is to be alone."""
    with monkeypatch.context() as patch:
        if alone:
            patch.setattr(Structures, "of", lambda *_: None)
        module = hloopt.parse(text)
        parse_pipeline("O2,multi-output-fusion").run(module)
        model = Xla2026(target("h200"))
        rows = kernel_costs(module, Predictor(model))
        return str(module), [(row.instruction.name, row.prediction) for row in rows]


@pytest.mark.parametrize(
    "path",
    one_in(
        2,
        (
            (path.stem, path)
            for path in sorted(SAMPLES.glob("*.hlo"))
            if path.stat().st_size < _LARGEST
        ),
        named=True,
    ),
)
def test_prices_are_those_without(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = path.read_text()
    expected = _as_planned(text, monkeypatch, alone=True)
    for _ in range(2):  # the second time everything is known
        assert _as_planned(text, monkeypatch, alone=False) == expected


def test_layers_are_priced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    priced: list[str] = []
    alone = Xla2026._alone

    def counted(self: Xla2026, instruction: Instruction) -> object:
        priced.append(instruction.name)
        return alone(self, instruction)

    monkeypatch.setattr(Xla2026, "_alone", counted)
    model = Xla2026(target("h200"))
    monkeypatch.setattr(model, "_structures", StructureTimes())
    found = _instructions(
        "a = f32[8] negate(p)\nb = f32[8] negate(q)\nc = f32[8] exponential(p)\nROOT r = tuple(a, b, c)"
    )
    times = [model.run_time(found[name]) for name in "abc"]
    assert priced == ["a", "c"]
    assert times[0] is times[1]
    assert times[0] != times[2]
