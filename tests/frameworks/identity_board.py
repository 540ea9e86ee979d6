"""What identities of linear algebra gain in time: ``python -m tests.frameworks.identity_board``; needs JAX.

A line for each identity of ``identities.py``, by size (``--sizes``), forward and as a gradient (``--kinds``): flops of
the program as written, as hloopt optimises it for the host with fast math, and in its best form; and
milliseconds of CPU time of those three, the least of several turns, in XLA (ours as ``--emit xla`` writes it), ``cpu``
and ``native``.  What was optimised has to give what was written.  At the end: in how many cells ours is within 1.2 times of the best form,
and in how many it is slower than 0.95 of the original.  ``--flops`` times nothing; ``--pairs`` has the flops of each two
together instead.

Each cell has a process of its own with a deadline and ``--threads`` threads.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

LIMIT = 400
SIZES = (256, 1024, 2048)
KINDS = ("forward", "gradient")
FORMS = ("written", "ours", "best")
WITHIN, SLOWER = 1.2, 1 / 0.95
_LEAST_SECONDS = 0.02
"""Of one turn: quick programs are run several times."""
_FLOPS = 1.02


def modules(shapes: Sequence[Any], written: Any, best: Any) -> dict[str, Any]:
    """The three forms as modules, and the text of ours for XLA; what JAX gives and hloopt optimises."""
    import jax

    import hloopt
    from hloopt.runtime.xla_form import make_for_xla

    texts = {
        name: jax.jit(form).lower(*shapes).compiler_ir("hlo").as_hlo_text()
        for name, form in (("written", written), ("best", best))
    }
    made = {name: hloopt.parse(text) for name, text in texts.items()}
    found = {name: hloopt.optimize(one, "O2", "host") for name, one in made.items()}
    start = time.perf_counter()
    found["ours"] = hloopt.optimize(made["written"], "O2{fast_math=true}", "host")
    seconds = time.perf_counter() - start
    text = hloopt.optimize(found["ours"], "O0")
    make_for_xla(text)
    return {
        "texts": {**texts, "ours": text.to_text()},
        "modules": found,
        "seconds": seconds,
    }


def flops(found: dict[str, Any]) -> dict[str, int]:
    """Of each form; LU counts for nothing where it is there for the case that Cholesky fails."""
    from hloopt.analysis.cost import computation_cost, module_cost
    from hloopt.ir.walk import called_computations

    counted = {}
    for name in FORMS:
        module = found["modules"][name]
        counted[name] = module_cost(module).flops
        for one in module.entry:
            if one.opcode == "conditional" and name == "ours":
                branches = [computation_cost(branch).flops for branch in called_computations(one)]
                counted[name] -= max(branches) - branches[0]
    return counted


def by_xla(text: str) -> Callable[[Sequence[Any]], list[Any]]:
    """A program of XLA's CPU compiler: of NumPy's arrays, as the others."""
    import jax
    import jaxlib._hlo as hlo
    import jaxlib._jax as backend
    from jaxlib import lapack, xla_client

    lapack._lapack.initialize()  # LAPACK targets are null pointers until then
    device = jax.devices("cpu")[0]
    proto = hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    program = device.client.compile_and_load(
        backend.mlir.xla_computation_to_mlir_module(hlo.XlaComputation(proto)),
        backend.DeviceList((device,)),
        xla_client.CompileOptions(),
    )
    return lambda values: [one.block_until_ready() for one in program.execute(values)]


def timed(programs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Milliseconds of CPU time of each, the least of all turns: other programs may have the processor."""
    counts: dict[str, int] = {}
    for name, run in programs.items():
        run()
        start = time.process_time()
        run()
        counts[name] = max(1, int(_LEAST_SECONDS / max(time.process_time() - start, 1e-6)))
    found: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, run in programs.items():
            start = time.process_time()
            for _ in range(counts[name]):
                run()
            found[name].append((time.process_time() - start) / counts[name])
    return {name: min(times) * 1e3 for name, times in found.items()}


def worst(ours: Sequence[Any], wanted: Sequence[Any]) -> float:
    """The largest difference beside the largest element of each result."""
    import numpy as np

    return max(
        float(np.abs(np.asarray(one) - np.asarray(other)).max() / (np.abs(other).max() or 1.0))
        for one, other in zip(ours, wanted, strict=True)
    )


def examined(name: str, n: int, kind: str, threads: int, rounds: int) -> dict[str, Any]:
    """The line of one cell; no times where there are no rounds."""
    import jax
    import numpy as np

    import hloopt
    from tests.frameworks.identities import identities

    given = identities(n)[name]
    if kind == "gradient":
        given = given.gradient()
    shapes = given.shapes()
    made = modules(shapes, given.written, given.best)
    row: dict[str, Any] = {"identity": name, "n": n, "kind": kind, "flops": flops(made)}
    row["seconds"] = round(made["seconds"], 3)
    if not rounds:
        return row
    random = np.random.default_rng(n)
    inputs = [
        random.integers(0, n, one.shape).astype(np.int32)
        if one.dtype == np.int32
        else (random.standard_normal(one.shape) / n**0.5).astype(np.float32)
        for one in shapes
    ]
    results: dict[str, list[Any]] = {}
    values = [jax.device_put(one) for one in inputs]
    for place in ("xla", "cpu", "native"):
        runs: dict[str, Callable[[], Any]] = {}
        for form in FORMS:
            if place == "xla":
                program = by_xla(made["texts"][form])
                runs[form] = lambda program=program: program(values)
            else:
                module = hloopt.parse(made["modules"][form].to_text())
                compiled = hloopt.compile(module, place, threads=threads, target=None)
                runs[form] = lambda compiled=compiled: compiled.run(inputs)
            results[form] = runs[form]()
        row[place] = {key: round(ms, 4) for key, ms in timed(runs, rounds).items()}
        row[f"{place} difference"] = worst(results["ours"], results["written"])
    return row


def pairs(n: int) -> list[dict[str, Any]]:
    """Flops of each two identities together."""
    from tests.frameworks.identities import identities, paired

    known = identities(n)
    rows = []
    for first, one in known.items():
        for second, other in known.items():
            both = paired(one, other)
            found = flops(modules(both.shapes(), both.written, both.best))
            rows.append({"pair": f"{first} + {second}", "n": n, "flops": found})
            print(json.dumps(rows[-1]), flush=True)
    return rows


def is_best(found: dict[str, int]) -> bool:
    """Whether ours has no more flops than the best form, but for some elementwise ones."""
    return found["ours"] <= found["best"] * _FLOPS


def summary(rows: Sequence[dict[str, Any]]) -> None:
    """Print the figures."""
    best = sum(is_best(row["flops"]) for row in rows)
    print(f"flops: best known in {best} of {len(rows)}")
    for place in ("xla", "cpu", "native"):
        cells = [row for row in rows if place in row]
        if not cells:
            continue
        near = sum(row[place]["ours"] <= row[place]["best"] * WITHIN for row in cells)
        slow = [
            f"{row['identity']} {row['n']} {row['kind']}"
            for row in cells
            if row[place]["ours"] > row[place]["written"] * SLOWER
        ]
        print(
            f"{place}: within {WITHIN} of the best form in {near} of {len(cells)}; slower: {slow}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=None, help="numbers of identities")
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--flops", action="store_true")
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        name, n, kind = given.one
        print(json.dumps(examined(name, int(n), kind, given.threads, given.rounds)))
        return
    if given.pairs:
        summary([row for n in given.sizes for row in pairs(n)])
        return
    from tests.frameworks.identities import identities

    names = [one for one in identities(16) if given.only is None or one.split()[0] in given.only]
    threads = str(given.threads)
    flags = "" if given.threads > 1 else "--xla_cpu_multi_thread_eigen=false"
    environment = {
        **os.environ,
        "XLA_FLAGS": flags,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "JAX_PLATFORMS": "cpu",
        "HLOOPT_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
    }
    rows = []
    for n in given.sizes:
        for kind in given.kinds:
            for name in names:
                command = [sys.executable, "-W", "ignore", "-m", "tests.frameworks.identity_board"]
                command += ["--one", name, str(n), kind, "--threads", threads]
                command += ["--rounds", "0" if given.flops else str(given.rounds)]
                rows.append(_asked(command, environment, {"identity": name, "n": n, "kind": kind}))
                print(json.dumps(rows[-1]), flush=True)
    failed = [row for row in rows if "failed" in row]
    summary([row for row in rows if "failed" not in row])
    print(f"failed: {len(failed)}")


def _asked(command: list[str], environment: dict[str, str], row: dict[str, Any]) -> dict[str, Any]:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return {**row, "failed": f"no answer in {LIMIT} s"}
    if done.returncode:
        return {**row, "failed": done.stderr.strip()[-600:]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
