"""Every sample parses, prints, verifies, and runs optimised to its recorded outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

import hloopt
from tests.helpers.support import Sample, invoke, sample_table

FOLDER = Path(__file__).resolve().parent.parent / "samples"
SAMPLES = sample_table(FOLDER)
LONG = ("cartpole_rollout", "dropout_threefry")
"""What the interpreter, or the planner, takes seconds for.

Each run of the tests has all of them at O3, which does what O2 does and more, and every third of the others at O2.
"""
each_sample = pytest.mark.parametrize("sample", SAMPLES, ids=[row.name for row in SAMPLES])


def test_the_page_lists_every_sample() -> None:
    """samples/README.md and the folder agree."""
    assert [row.name for row in SAMPLES] == sorted(path.stem for path in FOLDER.glob("*.hlo"))
    assert len(SAMPLES) >= 12


@each_sample
def test_sample_text_survives(sample: Sample) -> None:
    """Printing what was read and reading it again gives the same module and the same text."""
    module = hloopt.parse((FOLDER / f"{sample.name}.hlo").read_text(), sample.name)
    hloopt.verify(module)
    text = module.to_text()
    again = hloopt.parse(text, sample.name)
    hloopt.verify(again)

    assert again.to_text() == text


@pytest.mark.parametrize(
    ("level", "sample"),
    [
        pytest.param(
            level,
            row,
            id=f"{level}-{row.name}",
            marks=[pytest.mark.slow] * (level == "-O2" and bool(number % 3 or row.name in LONG)),
        )
        for level in ("-O2", "-O3")
        for number, row in enumerate(SAMPLES)
    ],
)
def test_sample_runs_to_its_recorded_outputs(level: str, sample: Sample) -> None:
    """The interpreter, the program as given and the optimised one on the CPU give what XLA gave."""
    path = FOLDER / sample.name
    files = ["run", f"{path}.hlo", "--inputs", f"{path}.npz", "--expect", f"{path}.npz"]
    result = invoke(*files, level, "--repeat", "1", *sample.options)
    assert result.exit_code == 0, result.stdout + result.stderr
