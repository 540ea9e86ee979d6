"""``hloopt.jax`` on the programs of ``programs.py``, beside ``jax.jit``: ``python -m tests.frameworks.jax_board``.

A line a program: whether ``optimize`` and its gradient, ``native`` and its gradient give what JAX gives, and the
times of a call of ``jit`` and ``native``; at the end the figures.  ``--only NAME`` examines some; each program has a
process of its own with a deadline.

With ``--hook``: every pass that ``hloopt.jax.install`` takes and that changes one of the program's modules runs within
XLA, and the results are compared with those without it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend import xla

import hloopt.jax
from hloopt.pipelines import PASSES
from hloopt.runtime.judge import Evaluation, Judge
from tests.frameworks.programs import programs

LIMIT = 300
DEVICES = 8


class Reference:
    """What JAX gives for a function of some arguments, and the judge of other results: hloopt's own.

    It evaluates the module of JAX where results differ.  XLA keeps more than narrow types hold, and so it may.
    """

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...], **options: Any):
        jitted = jax.jit(function, **options)
        self.results = jitted(*jax.tree.map(_copied, arguments))
        static = options.get("static_argnums", ())
        given = [one for at, one in enumerate(arguments) if at not in static]
        module = hloopt.from_jax(
            jax.jit(function, static_argnums=static, keep_unused=True), *arguments
        )
        inputs = [_numbers(one) for one in jax.tree.leaves(given)]
        way = Evaluation(module, [inputs], (1, 1), None, excess_precision=True)
        self._judge = Judge.of_two([way], [None])

    def problem(self, found: Any) -> str:
        """Empty, or what is not as it should be."""
        if jax.tree.structure(self.results) != jax.tree.structure(found):
            return "another tree"
        leaves = zip(jax.tree.leaves(self.results), jax.tree.leaves(found), strict=True)
        for number, (one, other) in enumerate(leaves):
            if one.aval.str_short() != other.aval.str_short() or one.weak_type != other.weak_type:
                return f"result {number} is {other.aval}, not {one.aval}"
            compared = self._judge.compare((0, number), _numbers(other), _numbers(one))
            if not compared.passed:
                return f"result {number}: {compared.reason}"
        return ""


def _numbers(value: Any) -> np.ndarray[Any, Any]:
    if jax.dtypes.issubdtype(getattr(value, "dtype", None), jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    return np.asarray(value if hasattr(value, "dtype") else jax.numpy.asarray(value))


def examined(name: str) -> dict[str, Any]:
    """The line of one program."""
    program = programs()[name]
    options = {"donate_argnums": program.donate, "static_argnums": program.static}
    row: dict[str, Any] = {"program": name}
    with program.tracing():
        fresh: Callable[[], Any] = lambda: tuple(  # noqa: E731 - donated arrays are gone after a call
            one if at in program.static else jax.tree.map(_copied, one)
            for at, one in enumerate(program.arguments)
        )
        wanted = Reference(program.function, program.arguments, **options)
        slopes = None
        if program.smooth:
            loss = jax.grad(_summed(program.function))
            slopes = Reference(loss, program.arguments, static_argnums=program.static)
        for kind, wrap in (("optimize", hloopt.jax.optimize), ("native", hloopt.jax.native)):
            try:
                row[kind] = wanted.problem(wrap(program.function, **options)(*fresh())) or "equal"
                if slopes is not None:
                    bare = wrap(program.function, static_argnums=program.static)
                    made = jax.grad(_summed(bare))(*fresh())
                    row[f"{kind} gradient"] = slopes.problem(made) or "equal"
            except hloopt.HlooptError as error:
                row[kind] = f"refused: {error.message}"[:200]
        if row.get("native") == "equal":
            row.update(_timed(program, wrap(program.function, **options), fresh))
    return row


def hooked(name: str) -> dict[str, Any]:
    """What became of the passes that change a program's modules within XLA."""
    program = programs()[name]
    modules: list[bytes] = []
    with program.tracing():
        arguments = program.arguments
        run = jax.jit(program.function, static_argnums=program.static)
        expected = Reference(program.function, arguments, static_argnums=program.static)
        jax.clear_caches()
        xla.register_hlo_module_transformation(modules.append, name="capture")
        run(*arguments)
        xla.clear_hlo_module_transformation("capture")
        row: dict[str, Any] = {"program": name, "modules": len(modules), "equal": 0, "refused": 0}
        for each in PASSES:
            try:
                installed = hloopt.jax.install(each)
            except hloopt.UsageError:
                continue
            with installed:
                changes = [installed._called(data) for data in modules]
                row["refused"] += sum(bool(one.refused) for one in installed.log)
                if any(changes):
                    jax.clear_caches()
                    if problem := expected.problem(run(*arguments)):
                        row[each] = problem
                    row["equal"] += not problem
    return row


def _copied(value: Any) -> Any:
    return jax.numpy.array(value) if hasattr(value, "dtype") else value


def _summed(function: Callable[..., Any]) -> Callable[..., Any]:
    def loss(*arguments: Any) -> Any:
        leaves = jax.tree.leaves(function(*arguments))
        return sum(
            jax.numpy.sin(one.astype("float32")).sum()  # slopes that are not 0 where a sum is
            for one in leaves
            if jax.numpy.issubdtype(one.dtype, jax.numpy.floating)
        )

    return loss


def _timed(program: Any, native: Any, fresh: Callable[[], tuple[Any, ...]]) -> dict[str, float]:
    """Microseconds of a call, the best of rounds in turn; donated arguments are made before the clock starts."""
    kinds = {"jit": program.jitted(), "native": native}
    given = fresh()
    best = dict.fromkeys(kinds, math.inf)
    for _ in range(12):
        for kind, function in kinds.items():
            jax.block_until_ready(function(*fresh()))
            spent = calls = 0.0
            while spent < 0.02:
                lots = [fresh() if program.donate else given for _ in range(20)]
                jax.block_until_ready(lots)
                start = time.perf_counter()
                for arguments in lots:
                    jax.block_until_ready(function(*arguments))
                spent += time.perf_counter() - start
                calls += len(lots)
            best[kind] = min(best[kind], spent / calls)
    return {f"{kind} us": round(seconds * 1e6, 1) for kind, seconds in best.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--hook", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps((hooked if given.hook else examined)(given.one)))
        return
    rows = []
    for name in given.only or programs():
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tests.frameworks.jax_board",
            "--one",
            name,
        ]
        command += ["--hook"] * given.hook
        flags = (
            f"--xla_force_host_platform_device_count={DEVICES}"
            if programs()[name].devices > 1
            else ""
        )
        environment = {**os.environ, "XLA_FLAGS": flags, "TF_CPP_MIN_LOG_LEVEL": "3"}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=LIMIT, env=environment, check=False
            )
            text = done.stdout.strip().splitlines()
            row = (
                json.loads(text[-1])
                if done.returncode == 0
                else {"failed": done.stderr.strip()[-400:]}
            )
        except subprocess.TimeoutExpired:
            row = {"failed": f"no answer in {LIMIT} s"}
        rows.append({"program": name, **row})
        print(json.dumps(rows[-1]), flush=True)
    if given.hook:
        equal_, refused = (sum(row.get(key, 0) for row in rows) for key in ("equal", "refused"))
        print(f"hook: {equal_} passes ran with equal results; {refused} changes were refused")
        return
    for kind in ("optimize", "optimize gradient", "native", "native gradient"):
        answers = [row[kind] for row in rows if kind in row]
        print(f"{kind}: {answers.count('equal')} of {len(answers)} equal")
    ratios = [row["native us"] / row["jit us"] for row in rows if "jit us" in row]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"native / jit: {mean:.2f}, the geometric mean of {len(ratios)}")


if __name__ == "__main__":
    main()
