"""The names of constraints, and what the verifier costs, counted in lines of its code."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import hloopt
from hloopt.verifier import RULES, violations
from tests.helpers.support import invoke

ROOT = Path(__file__).parents[2]
BUFFER = "output_to_operand_aliasing={{}: (0, {})}"


def named() -> set[str]:
    """The strings of the verifier's code that stand alone, as names of constraints do."""
    return {
        node.value
        for path in (ROOT / "hloopt/verifier").glob("*.py")
        if path.name != "constraints.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_each_name_is_that_of_a_constraint_and_used() -> None:
    """No name is listed for nothing; ``test_unlisted`` sees to the other way round."""
    assert sorted(set(RULES) - named()) == []


def test_unlisted() -> None:
    """Each fault that is made in the code carries a listed name."""
    made: list[str] = []
    for path in (ROOT / "hloopt/verifier").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Fault":
                rule = node.args[1]
                if isinstance(rule, ast.Constant):
                    made.append(str(rule.value))
    assert len(made) > 40
    assert sorted(set(made) - set(RULES)) == []


def chain(count: int) -> str:
    lines = [f"  v{k} = f32[4] add(v{k - 1}, v{k - 1})" for k in range(1, count)]
    return "\n".join(["  v0 = f32[4] parameter(0)", *lines])


def fan(count: int) -> str:
    lines = [f"  v{k} = f32[4] negate(v0), control-predecessors={{v1}}" for k in range(2, count)]
    return "\n".join(["  v0 = f32[4] parameter(0)", "  v1 = f32[4] negate(v0)", *lines])


def buffers(count: int) -> str:
    lines = [
        f'  v{k} = b(f32[4]) custom-call(v{k - 1}), custom_call_target="w", {BUFFER}'
        for k in range(1, count)
    ]
    first = '  v0 = b(f32[4]) custom-call(), custom_call_target="CreateBuffer"'
    return "\n".join([first, *lines])


def updates(count: int) -> str:
    state = "((f32[4]), f32[4], u32[])"
    lines = [f"  v{k} = {state} async-update(v{k - 1})" for k in range(1, count)]
    lines.append(f"  d = f32[4] async-done(v{count - 1})")
    return "\n".join(
        ["  p = f32[4] parameter(0)", f"  v0 = {state} async-start(p), calls=c", *lines]
    )


def sharded(count: int) -> str:
    lines = [f"  v{k} = f32[4] negate(v0), sharding={{devices=[2]<=[2]}}" for k in range(1, count)]
    return "\n".join(["  v0 = f32[4] parameter(0)", *lines])


HEADER = "HloModule m\nc {\n  p = f32[4] parameter(0)\n  ROOT n = f32[4] negate(p)\n}\nENTRY e {\n"


def lines_run(text: str) -> int:
    """How many lines of hloopt run while a module is verified; it has no violations."""
    module = hloopt.parse(f"{HEADER}{text}\n}}")
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if "hloopt" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        found = list(violations(module))
    finally:
        sys.settrace(before)
    assert found == []
    return count


@pytest.mark.parametrize("make", [chain, fan, buffers, updates, sharded])
def test_the_cost_is_linear(make: Callable[[int], str]) -> None:
    """Eight times the instructions take at most nine times the steps; a quadratic rule takes 64."""
    assert lines_run(make(1600)) <= 9 * lines_run(make(200))


def test_the_command_line_names_and_lists_constraints(tmp_path: Path) -> None:
    """``check --rules`` has a line for each; JSON has the name beside the message."""
    listed = invoke("check", "--rules")
    assert listed.exit_code == 0
    assert all(name in listed.stdout for name in RULES)
    path = tmp_path / "m.hlo"
    path.write_text(
        f"HloModule m, replica_count=0\n{HEADER[12:]}  ROOT p = f32[4] parameter(0)\n}}\n"
    )
    told = invoke("check", "--json", str(path))
    assert told.exit_code == 3
    (row,) = json.loads(told.stdout)["files"]
    assert [error["rule"] for error in row["errors"]] == ["device-count"]
