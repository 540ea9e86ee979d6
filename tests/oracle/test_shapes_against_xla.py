"""The tables of broken and sound instructions, and of dynamic dimensions, against XLA's shape inference.

XLA infers when a text leaves the result shape out.  It does not for every op, and its verifier asks more
than inference does: what only that refuses is listed here by op.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from hloopt.types import Shape, compatible, without_layout
from tests.ops.one import module_text, opcode_of, rows, shape_of
from tests.oracle.oracle import CHILD, available, python

pytestmark = [
    pytest.mark.xla,
    pytest.mark.skipif(not available(), reason="no jaxlib: install the extra xla"),
    pytest.mark.timeout(300),
]

OPS = Path(__file__).resolve().parents[1] / "ops"
ROWS = [row for table in sorted((OPS / "constraints").glob("*.txt")) for row in rows(table)]
DYNAMIC = [
    line
    for line in (OPS / "dynamic.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
NOT_INFERRED = "cannot infer shape for opcode"

ONLY_VERIFIED = {
    **dict.fromkeys(("add", "compare"), "no broadcasts; the comparison's type fits"),
    "add-dependency": "a token",
    "broadcast": "sizes that agree",
    **dict.fromkeys(("map", "reduce", "reduce-window", "scatter"), "float types are not mixed"),
    **dict.fromkeys(("batch-norm-grad", "batch-norm-training"), "float types are not mixed"),
    "scan": "the computation's signature",
    "sort": "the comparator's signature",
}
HERE_ALONE = {
    **dict.fromkeys(("clamp", "compare", "maximum"), "complex numbers have no order"),
    **dict.fromkeys(("mulhi", "shift-right-logical"), "floats have no bits to shift"),
    "gather": "a dimension has one meaning",
    "ragged-dot": "sizes of groups are integers",
    "batch-norm-inference": "the variance is a vector",
}
# Their written shape may be another one than inference gives: in its element type; in its sizes.
WRITTEN = {"broadcast", "convolution", "dot"}
# The reader asks inference wrongly: for one input, with operands in another order, for arrays alone.
MISREAD = {"map", "opt-barrier", "reduce-window", "scaled-dot"}


Answers = dict[str, "str | Shape"]


def root_shape(text: str) -> Shape:
    """The shape of the entry's root: the first one of its body, others belong to what it calls."""
    return shape_of(text.partition("ENTRY")[2].partition("ROOT ")[2].partition(" = ")[2])


def inferences(lines: list[str], folder: Path) -> Answers:
    """What XLA makes of instructions without their shapes: a shape, or why it makes none."""
    waiting = dict.fromkeys(lines)
    found: Answers = {}
    while waiting:
        questions = []
        for number, line in enumerate(waiting):
            path = folder / f"{number}.hlo"
            path.write_text(module_text(line, shape=False))
            questions.append(json.dumps({"path": str(path), "again": False}))
        answers = subprocess.run(
            [python(), str(CHILD), "answer"],
            input="\n".join(questions) + "\n",
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        ).stdout.splitlines()
        asked = list(waiting)
        for line, answer in zip(asked, answers, strict=False):
            said = json.loads(answer)
            found[line] = said["error"] or root_shape(said["module"])
        if len(answers) < len(asked):
            found[asked[len(answers)]] = "XLA ended the process"
        waiting = dict.fromkeys(line for line in asked if line not in found)
    return found


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    lines = [line for row in ROWS for line in (row.bad, row.good)] + DYNAMIC
    return inferences(lines, tmp_path_factory.mktemp("shapes"))


def test_xla_infers_the_shapes_of_what_is_sound(answers: Answers) -> None:
    wrong = []
    for good in dict.fromkeys(row.good for row in ROWS):
        said = answers[good]
        if isinstance(said, str):
            if NOT_INFERRED not in said and opcode_of(good) not in MISREAD:
                wrong.append((good, said))
        elif not compatible(said, shape_of(good)) and opcode_of(good) not in WRITTEN:
            wrong.append((good, str(said)))
    assert wrong == []


def test_xla_refuses_what_is_broken_or_infers_another_shape(answers: Answers) -> None:
    listed = {*ONLY_VERIFIED, *HERE_ALONE}
    wrong = [
        row.bad
        for row in ROWS
        if not isinstance(said := answers[row.bad], str)
        and compatible(said, shape_of(row.bad))
        and opcode_of(row.bad) not in listed
    ]
    assert wrong == []


def test_what_is_listed_is_needed(answers: Answers) -> None:
    accepted = {
        opcode_of(row.bad)
        for row in ROWS
        if not isinstance(said := answers[row.bad], str) and compatible(said, shape_of(row.bad))
    }
    assert {*ONLY_VERIFIED, *HERE_ALONE} - accepted == set()


def test_xla_gives_dynamic_dimensions_to_the_same_results(answers: Answers) -> None:
    wrong = [
        (line, str(said))
        for line in DYNAMIC
        if not isinstance(said := answers[line], str)
        and not line.startswith(f"{without_layout(said)} ")
    ]
    assert wrong == []
