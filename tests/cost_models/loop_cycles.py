"""Holds predicted times of loops in one kernel against the schedules of their machine code; no GPU needed.

    python -m tests.cost_models.loop_cycles --nvdisasm PATH MODULE.hlo ...

Each loop that O3 makes a kernel of is generated, compiled for sm_90, disassembled, and its trip walked as one warp
alone executes it (``sass.py``).  A model of a model: what waits for memory or for other warps is not in it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import hloopt
from hloopt.analysis.parallel_loop import fused_loop
from hloopt.analysis.parallel_loop.thread_lanes import LaneValues
from hloopt.backends.nvrtc import TIMED, compile_cuda
from hloopt.codegen.program import render
from hloopt.cost_models.fused_loops import fused_loop_time
from hloopt.cost_models.instructions import latencies_of
from hloopt.cost_models.loop_time import best_lanes
from hloopt.kernels.limits import Limits
from hloopt.kernels.planning import plan_program
from hloopt.kernels.selection import choose
from hloopt.pipelines import make_pipeline
from hloopt.targets import find_target
from tests.cost_models import sass
from tests.cost_models.count_instructions import LATENCIES

H200 = find_target("h200")
SHUFFLE = latencies_of(H200).shuffle


def compared(path: Path, tool: str) -> Iterator[str]:
    """A line for each loop: predicted, scheduled, their ratio."""
    module = hloopt.parse(path.read_text(), name=path.name)
    make_pipeline("O3").run(module)
    hloopt.optimize(module, "device")
    plan = plan_program(module, lambda one: choose(one, H200, Limits()))
    source = render(plan).text
    compiled = compile_cuda(source, "sm_90", TIMED)
    latencies = {**LATENCIES, "memory": 281, "control": 22, "shuffle": int(SHUFFLE)}
    code = sass.disassemble(compiled.image, tool)
    for fusion in module.instructions():
        if fused_loop(fusion) is None:
            continue
        found = fused_loop_time(fusion, H200)
        assert found is not None
        names = [name for name in code if name == "hlo_" + fusion.name.replace(".", "_")]
        way, time = found
        lanes = best_lanes(way, H200)
        width = LaneValues(way.parallel).width(lanes) if way.kind == "thread" else 1
        for name in names:
            written = 2 if "#pragma unroll 2" in source.split(f" {name}(")[1] else 1
            run = sass.loop_run(code[name], latencies, -(-width // written))
            if run is None:
                continue
            scheduled = run.cycles / H200.clock_ghz / written
            yield (
                f"{path.name} %{fusion.name} {way.kind}: predicted chain {time.chain_ns:.0f} issue"
                f" {time.issue_ns:.0f} ns, scheduled {scheduled:.0f} ns of"
                f" {sum(run.units.values()) / written:.0f} instructions ({time.instructions:.0f} predicted);"
                f" {lanes} lanes, {width} trips at once"
            )


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvdisasm", required=True)
    parser.add_argument("modules", nargs="+", type=Path)
    chosen = parser.parse_args()
    for path in chosen.modules:
        for line in compared(path, chosen.nvdisasm):
            print(line)


if __name__ == "__main__":
    main()
