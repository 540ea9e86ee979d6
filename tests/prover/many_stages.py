"""How long does ``bisect`` take on a dump of many stages?

    python -m tests.prover.many_stages --stages 400 --instructions 2000 --wrong 287

Makes a dump whose stages are all different: each writes one more instruction with its operands the other way round; from stage
``--wrong`` on, one instruction is a wrong one.  Without ``--wrong`` all agree.  Prints the seconds and what was found.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path
from time import monotonic

import hloopt


def dumped(folder: Path, stages: int, instructions: int, wrong: int | None) -> None:
    """Write the stages of a module."""
    chance = random.Random(0)
    operands: list[tuple[str, str, str]] = []
    names = ["x", "y"]
    for number in range(instructions):
        opcode = chance.choice(["add", "multiply", "maximum", "minimum"])
        operands.append((opcode, *chance.sample(names[-40:], 2)))
        names.append(f"v{number}")
    order = chance.sample(range(instructions), min(stages, instructions))
    for stage in range(stages):
        if stage:
            opcode, one, other = operands[order[stage - 1]]
            operands[order[stage - 1]] = (opcode, other, one)
        if stage == wrong:
            opcode, one, other = operands[-1]
            operands[-1] = ("subtract", one, other)
        lines = [
            f"  {'ROOT ' if number == instructions - 1 else ''}v{number} = f32[16,16] {opcode}({one}, {other}), "
            f'metadata={{op_name="jit(f)/{opcode}" source_file="model.py" source_line={number + 10}}}'
            for number, (opcode, one, other) in enumerate(operands)
        ]
        inputs = ["  x = f32[16,16] parameter(0)", "  y = f32[16,16] parameter(1)"]
        text = "\n".join(["HloModule jit_f", "", "ENTRY main {", *inputs, *lines, "}", ""])
        label = f"{stage:04d}.simplification.after_algsimp.before_cse"
        label = label if stage else "before_optimizations"
        (folder / f"module_0001.jit_f.{label}.txt").write_text(text)


def main(arguments: list[str]) -> int:
    """Measure; 1 where the stage is not the one that was made wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--stages", type=int, default=400)
    parser.add_argument("--instructions", type=int, default=2000)
    parser.add_argument("--wrong", type=int)
    parser.add_argument("--check", help="a command that decides")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        dumped(Path(folder), given.stages, given.instructions, given.wrong)
        start = monotonic()
        found = hloopt.bisect(folder, check=given.check)
        print(f"{monotonic() - start:.2f} s: {found.summary}")
    named = [culprit.where[:4] for culprit in found.culprits]
    return int(named != ([] if given.wrong is None else [f"{given.wrong:04d}"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
