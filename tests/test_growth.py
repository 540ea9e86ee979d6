"""Work grows with the module, not with its square: counted calls, for every pass, over shapes that grow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from math import log
from typing import Any, Final

import pytest

import hloopt
from hloopt.backends.native.compile import plan_native
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import model_for
from hloopt.fusion.priority.run import PriorityRun
from hloopt.ir.build import clone_module
from hloopt.ir.canonical import canonical, fingerprint
from hloopt.kernels.costs import kernel_costs
from hloopt.kernels.planning import plan_program
from hloopt.kernels.selection import choose
from hloopt.pipelines import PASSES, for_target, parse_pipeline
from hloopt.report.stats import module_stats
from hloopt.targets import find_gpu
from hloopt.verifier import verify_module
from tests.helpers.growing import SHAPES, doubled_calls
from tests.helpers.support import count_calls

_SIZE: Final = 12
_LARGE: Final = 80
"""What a shape grows from, four times; the second where a way for many has not begun at the first."""
_EXPONENT: Final = 1.2
_LITTLE: Final = 3000
"""Calls below which a step says nothing about growth."""
_ROWS: Final = (
    "binary_chain", "calls", "carried", "conditionals", "control_chain", "copies", "dots_of_one", "fan_out",
    "loops", "movement", "reduces", "slices", "tuples", "updates", "wide_tuple",
)  # fmt: skip
"""Shapes that each pass is put to."""


def _plan_for_cuda(module: hloopt.Module) -> object:
    return plan_program(
        hloopt.optimize(module, "device"), lambda one: choose(one, find_gpu("h200"))
    )


def _predict(module: hloopt.Module) -> object:
    return kernel_costs(module, Predictor(model_for("xla-2026", find_gpu("h200"))))


_STEPS: Final[Mapping[str, Callable[[hloopt.Module], object]]] = {
    "print": hloopt.Module.to_text,
    "verify": verify_module,
    "fingerprint": fingerprint,
    "canonical": canonical,
    "stats": partial(module_stats, buffers=10),
    "stats --target": _predict,
    "kernels": _plan_for_cuda,
    "kernels --target host": plan_native,
}
"""What is done with a module that leaves it as it is."""


def _step(name: str, module: hloopt.Module, text: str) -> Callable[[], object]:
    if name == "parse":
        return lambda: hloopt.parse(text)
    if name in _STEPS:
        return partial(_STEPS[name], module)
    pipeline = for_target(parse_pipeline(name), "h200")
    copy = clone_module(module)
    return lambda: pipeline.run(copy)


@lru_cache(maxsize=4)
def _grown(shape: str, size: int) -> tuple[hloopt.Module, str]:
    """The module of a shape, which steps leave as it is, and its text."""
    text = SHAPES[shape](size)
    module = hloopt.parse(text)
    module.to_text()
    return module, text


def _work(name: str, shape: str, size: int) -> tuple[int, int]:
    """Calls, and the length of the module's text."""
    module, text = _grown(shape, size)
    if name == "parse":
        hloopt.parse(text)  # what it remembers of a text it has from the second time on
    return count_calls(_step(name, module, text)), len(text)


def _exponent(name: str, shape: str, size: int) -> float:
    """Of the work in the length of the text; 0 for little work."""
    small, few = _work(name, shape, size)
    large, many = _work(name, shape, 4 * size)
    return log(large / small) / log(many / few) if large > _LITTLE else 0.0


def _at_length(name: str, shape: str) -> float:
    """The exponent; where it is steep at first, that of larger modules."""
    exponent = _exponent(name, shape, _SIZE)
    return exponent if exponent <= _EXPONENT else _exponent(name, shape, _LARGE)


@pytest.mark.every_value
@pytest.mark.parametrize("turn", range(5))
@pytest.mark.parametrize("shape", _ROWS)
def test_no_pass_takes_the_square(shape: str, turn: int) -> None:
    """Four times the module, at most 5.3 times the calls; where a way for many begins, beyond that."""
    steep = {}
    for name in ("parse", "print", "verify", "fingerprint", *PASSES)[turn::5]:
        _work(name, shape, 2)
        exponent = _at_length(name, shape)
        if exponent > _EXPONENT:
            steep[name] = round(exponent, 2)
    assert steep == {}


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("instruction-fusion", "concatenate summed wide_fusion"),
        ("multi-output-fusion", "backward diamonds ladder layers selects sibling_fusions skips"),
        ("priority-fusion", "backward copies fusions ladder layouts pads selects sums"),
    ],
)
def test_what_joins_a_kernel_is_looked_at_but_not_the_kernel(name: str, shapes: str) -> None:
    """Prices, forms and results of a kernel follow from what it was and what has come."""
    for shape in shapes.split():
        _work(name, shape, 2)
        assert _at_length(name, shape) <= _EXPONENT, shape


@pytest.mark.every_value
@pytest.mark.parametrize(
    "name",
    [
        "O1", "O2", "O3", "device", "xla-gpu-2022", "xla-gpu-2026", "canonical", "stats", "stats --target",
        "kernels", "kernels --target host",
    ],
)  # fmt: skip
@pytest.mark.parametrize("shape", ["fan_out", "loops", "reduces"])
def test_commands_grow_with_the_module(name: str, shape: str) -> None:
    """Whole pipelines, predictions and plans."""
    _work(name, shape, 2)
    assert _exponent(name, shape, 8) <= _EXPONENT


@pytest.mark.parametrize("shape", ["softmaxes", "windows"])
def test_instruction_fusion_costs_what_it_writes(shape: str) -> None:
    """Here each kernel computes all before it again, as XLA's does: the result is the square of the text."""
    counts = []
    for size in (2, 6, 24):
        module = hloopt.parse(SHAPES[shape](size))
        calls = count_calls(partial(parse_pipeline("instruction-fusion").run, module))
        counts.append((calls, len(module.to_text())))
    (small, few), (large, many) = counts[1:]
    assert log(large / small) / log(many / few) <= _EXPONENT


@pytest.mark.parametrize("shape", ["deep_calls", "deep_conditionals", "deep_loops"])
def test_rematerialize_finds_each_peak_once(shape: str) -> None:
    """However many computations are above the one that changes."""
    assert _exponent("rematerialize", shape, _SIZE) <= _EXPONENT


def test_rematerialize_tries_each_computation_once() -> None:
    """However many ways lead to it."""
    counts = []
    for size in (10, 40):
        module = hloopt.parse(doubled_calls(size))
        counts.append(count_calls(partial(parse_pipeline("rematerialize").run, module)))
    assert log(counts[1] / counts[0]) / log(4) <= _EXPONENT


def test_a_body_that_is_called_once_is_moved_to_its_call() -> None:
    """Once for each level of calls, of which there may be 64."""
    small, few = _work("call-inliner", "deep_calls", 16)
    large, many = _work("call-inliner", "deep_calls", 64)
    assert log(large / small) / log(many / few) <= _EXPONENT


def test_a_slice_of_many_updates_goes_to_its_writer() -> None:
    """Without a rewrite for each update that it passes."""
    _work("simplify", "updates_read", 2)
    assert _exponent("simplify", "updates_read", _SIZE) <= _EXPONENT


def test_simplify_costs_what_it_writes() -> None:
    """Pads that move behind what reads them leave a number each for every element behind them."""
    counts = []
    for size in (10, 40):
        module = hloopt.parse(SHAPES["pads"](size))
        calls = count_calls(partial(parse_pipeline("simplify").run, module))
        counts.append((calls, len(module.to_text())))
    (small, few), (large, many) = counts
    assert log(large / small) / log(many / few) <= _EXPONENT


def test_a_wide_concatenate_takes_its_operands_in_one_by_one() -> None:
    """Producers that nothing tells apart are judged once for all of them."""
    assert _exponent("priority-fusion", "concatenate", 40) <= _EXPONENT


@pytest.mark.parametrize("shape", ["concatenate", "joined_slices"])
def test_a_very_wide_one_takes_several_in_at_once(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps, each of which looks at all operands: two for each of few operands, far fewer of many."""
    follow, steps, size = PriorityRun._follow, 0, 600

    def counted(*given: Any) -> None:
        nonlocal steps
        steps += 1
        follow(*given)

    monkeypatch.setattr(PriorityRun, "_follow", counted)
    parse_pipeline("priority-fusion").run(hloopt.parse(SHAPES[shape](size)))
    assert 0 < steps <= size * 1.4


@pytest.mark.parametrize("name", ["parse", "print", "verify", "fingerprint"])
def test_nested_tuples_cost_what_their_text_is_long(name: str) -> None:
    """Each level of a tuple is looked at once, however many hold it."""
    _work(name, "nested_tuples", 2)
    assert _exponent(name, "nested_tuples", 200) <= _EXPONENT


@pytest.mark.parametrize("name", ["parse", "print", "verify", "fingerprint"])
def test_nested_tuples_are_taken_in_at_large(name: str) -> None:
    """Levels that are written alike are read once, not element by element."""
    _work(name, "nested_tuples", 2)
    calls, length = _work(name, "nested_tuples", 5000)
    assert calls < length / 6
