"""Joining a long producer with its user by moving the user: the text is that of copying, the cost is not."""

from __future__ import annotations

from math import log

import pytest

import hloopt
from hloopt.fusion import apply
from hloopt.fusion.fusion_merger import FusionMerger
from hloopt.fusion.joining import Joiner
from hloopt.fusion.priority_fusion import PriorityFusion
from hloopt.ir import Instruction, Module
from hloopt.rewrite import Pass, PassLog
from tests.helpers.growing import SHAPES
from tests.helpers.support import count_calls


def _chain(name: str, length: int) -> Module:
    """A fusion of ``length`` instructions that one op reads, and an op of the same name elsewhere."""
    body = ["x0 = f32[8] parameter(0)", "y = f32[8] parameter(1)"]
    body += [f"x{i + 1} = f32[8] atan2(x{i}, y)" for i in range(length)]
    body += [f"ROOT {name} = f32[8] sine(x{length})"]
    return hloopt.parse(
        "HloModule m\nlong {\n" + "\n".join(body) + "\n}\n"
        "short { a = f32[8] parameter(0) b = f32[8] parameter(1) s = f32[8] atan2(a, b) "
        "ROOT end = f32[8] cosine(s) }\n"
        "ENTRY e { p = f32[8] parameter(0) q = f32[8] parameter(1) "
        'f = f32[8] fusion(p, q), kind=kLoop, calls=long, metadata={op_name="far"} '
        "ROOT g = f32[8] fusion(f, q), kind=kLoop, calls=short }\n"
    )


def _joined(module: Module) -> tuple[Instruction, bool]:
    """The fusion of both, and whether the producer's own instructions are in it."""
    producer, consumer = list(module.entry)[-2:]
    kept = producer.attributes["calls"].root
    fusion = Joiner().fuse(producer, consumer)
    apply.remove_producer(producer)
    apply.number_parameter_names([fusion.attributes["calls"]])
    hloopt.verify(module)
    return fusion, kept.computation is fusion.attributes["calls"]


def _copied(module: Module) -> None:
    producer, consumer = list(module.entry)[-2:]
    fusion = apply.fuse(producer, consumer)
    apply.remove_producer(producer)
    apply.number_parameter_names([fusion.attributes["calls"]])


@pytest.mark.parametrize("length", [3, 40])
def test_what_is_long_stays_where_it_is(length: int) -> None:
    """From a length on, what the user computes is moved; the text is that of copying either way."""
    module, other = _chain("last", length), _chain("last", length)
    assert _joined(module)[1] == (length == 40)
    _copied(other)
    assert module.to_text() == other.to_text()


@pytest.mark.parametrize("name", ["s", "end"])
def test_what_would_be_told_apart_gets_its_name(name: str) -> None:
    """A name that both bodies have: a copy gets another one, and so does what is not copied."""
    module, other = _chain(name, 40), _chain(name, 40)
    assert _joined(module)[1]
    _copied(other)
    assert module.to_text() == other.to_text()


def test_names_that_depend_on_their_order_are_those_of_copies() -> None:
    """Two of one stem: the copy that comes first gets the lower number."""
    texts = [_chain("s", 40).to_text().replace("x7 =", "s.1 =").replace("x7,", "s.1,")] * 2
    texts = [text.replace("end", "s.1") for text in texts]
    module, other = map(hloopt.parse, texts)
    assert _joined(module)[1]
    _copied(other)
    assert module.to_text() == other.to_text()


@pytest.mark.every_value
@pytest.mark.parametrize("strategy", [PriorityFusion(), FusionMerger()])
@pytest.mark.parametrize(
    "shape",
    ["backward", "chain", "binary_chain", "diamonds", "fusions", "selects", "summed", "pads"],
)
def test_strategies_write_what_copying_would(
    strategy: Pass, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same text, whoever moves where."""
    module, other = (hloopt.parse(SHAPES[shape](90)) for _ in range(2))
    strategy.run(module, PassLog())
    monkeypatch.setattr(Joiner, "fuse", lambda self, left, right: apply.fuse(left, right))
    strategy.run(other, PassLog())
    assert module.to_text() == other.to_text()


@pytest.mark.parametrize(
    ("strategy", "shape"), [(PriorityFusion(), "chain"), (FusionMerger(), "fusions")]
)
def test_a_chain_costs_what_it_is_long(strategy: Pass, shape: str) -> None:
    """Kernels that grow one into the other are not written again each time."""
    small, large = (hloopt.parse(SHAPES[shape](size)) for size in (200, 800))
    calls = [
        count_calls(lambda module=module: strategy.run(module, PassLog()))
        for module in (small, large)
    ]
    assert log(calls[1] / calls[0], 4) < 1.3
