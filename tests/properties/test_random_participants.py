"""Random programs of several participants end: with the same results in every form, or with an error."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.errors import EvaluationError
from tests.helpers.rarely import one_in

ADD = "add {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT s = f32[] add(x, y)\n}"


def listed(groups: list[list[int]]) -> str:
    return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups) + "}"


def step(operand: str, count: int, draw: random.Random) -> str:
    """An instruction of one scalar, mostly a collective."""
    numbers = draw.sample(range(count), count)
    match draw.randrange(5):
        case 0:
            cut = draw.randrange(1, count + 1)
            groups = [group for group in (numbers[:cut], numbers[cut:]) if group]
            return f"f32[] all-reduce({operand}), replica_groups={listed(groups)}, to_apply=add"
        case 1:
            pairs = [[source, numbers[source]] for source in range(count) if draw.random() < 0.7]
            return f"f32[] collective-permute({operand}), source_target_pairs={listed(pairs)}"
        case 2:
            group = numbers[: draw.randrange(1, count + 1)]
            return f"f32[] collective-broadcast({operand}), replica_groups={listed([group])}"
        case 3:
            return f"f32[] negate({operand})"
    return f"f32[] all-reduce({operand}), replica_groups={{}}, to_apply=add"


def program(count: int, draw: random.Random) -> str:
    """Steps for all, and conditionals that may part the participants."""
    regions = [ADD]
    for name in "abc":
        lines = ["  x0 = f32[] parameter(0)"]
        size = draw.randrange(4)
        lines += [f"  x{at + 1} = {step(f'x{at}', count, draw)}" for at in range(size)]
        regions.append("\n".join([f"{name} {{", *lines, f"  ROOT r = f32[] negate(x{size})", "}"]))
    lines = ["  x0 = f32[] parameter(0)", "  i = s32[] parameter(1)"]
    size = draw.randrange(1, 5)
    for at in range(size):
        made = step(f"x{at}", count, draw)
        if draw.random() < 0.5:
            made = f"f32[] conditional(i, x{at}, x{at}, x{at}), branch_computations={{a, b, c}}"
        lines.append(f"  x{at + 1} = {made}")
    lines.append(f"  ROOT r = f32[] negate(x{size})")
    return "\n".join(["HloModule m", *regions, "ENTRY e {", *lines, "}", ""])


def outcome(run: Callable[[], Any]) -> list[float] | str:
    try:
        return [float(result) for (result,) in run()]
    except EvaluationError as error:
        return "they wait" if " wait" in error.message else error.message


@pytest.mark.parametrize("seed", one_in(3, range(60)))
def test_all_forms_agree(seed: int) -> None:
    """Interpreter, executor and the optimised program; no thread is left."""
    draw = random.Random(seed)
    count = draw.randrange(2, 6)
    module = hloopt.parse(program(count, draw))
    together = draw.random() < 0.5
    inputs = [
        [np.float32(number + 1), np.int32(0 if together else draw.randrange(3))]
        for number in range(count)
    ]
    before = threading.active_count()
    wanted = outcome(lambda: hloopt.evaluate_participants(module, inputs, count))
    for form in (module, hloopt.optimize(module, "O3")):
        compiled = hloopt.compile(form, replicas=count)
        assert outcome(lambda compiled=compiled: compiled.run_participants(inputs)) == wanted
    assert threading.active_count() == before
    assert isinstance(wanted, list) or (wanted == "they wait" and not together)
