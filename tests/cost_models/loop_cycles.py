"""Holds predicted times of loops in one kernel against the schedules of their machine code; no GPU needed.

    python tests/cost_models/loop_cycles.py --nvdisasm PATH MODULE.hlo ...

Each loop that O3 makes a kernel of is generated, compiled for sm_90, disassembled, and its trip walked as one warp
alone executes it (``sass.py``).  A model of a model: what waits for memory or for other warps is not in it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import sass
from count_instructions import LATENCIES

import hloopt
from hloopt.analysis.parallel_loop import fused_loop
from hloopt.codegen.program import render
from hloopt.cost_models.fused_loops import fused_loop_time
from hloopt.kernels.limits import Limits
from hloopt.kernels.lowering import make_ready
from hloopt.kernels.planning import plan_program
from hloopt.kernels.selection import choose
from hloopt.pipelines import make_pipeline
from hloopt.runtime.nvrtc import TIMED, compile_cuda
from hloopt.targets import find_target

H200 = find_target("h200")


def compared(path: Path, tool: str) -> Iterator[str]:
    """A line for each loop: predicted, scheduled, their ratio."""
    module = hloopt.parse(path.read_text(), name=path.name)
    make_pipeline("O3").run(module)
    make_ready(module)
    plan = plan_program(module, lambda one: choose(one, H200, Limits()))
    compiled = compile_cuda(render(plan), "sm_90", TIMED)
    latencies = {**LATENCIES, "memory": 281, "control": 22}
    code = sass.disassemble(compiled.image, tool)
    for fusion in module.instructions():
        if fused_loop(fusion) is None:
            continue
        found = fused_loop_time(fusion, H200)
        assert found is not None
        names = [name for name in code if name == "hlo_" + fusion.name.replace(".", "_")]
        for name in names:
            run = sass.loop_run(code[name], latencies)
            if run is None:
                continue
            way, time = found
            scheduled = run.cycles / H200.clock_ghz
            yield (
                f"{path.name} %{fusion.name} {way.kind}: predicted chain {time.chain_ns:.0f} issue"
                f" {time.issue_ns:.0f} ns, scheduled {scheduled:.0f} ns a loop of"
                f" {sum(run.units.values())} instructions ({time.instructions:.0f} predicted a trip)"
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
