"""Wrong kernels are noticed: a few of the mutants of ``make mutate-kernels``."""

from __future__ import annotations

import pytest

from hloopt.backends import check_device
from hloopt.errors import DeviceError
from tests.corpus.mutate_kernels import CAUGHT, Judged, judge, program_of
from tests.corpus.mutation_subjects import SUBJECTS, Subject
from tests.corpus.mutations import Mutation, kernel_texts, mutations, sample

SUBJECT = {subject.name: subject for subject in SUBJECTS}

NEGATE = Subject(
    "negate",
    """HloModule m
ENTRY main {
  x = f32[300] parameter(0)
  ROOT y = f32[300] negate(x)
}
""",
    "loop",
)


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    try:
        check_device("emulator")
    except DeviceError as error:
        pytest.skip(str(error))


def judged(subject: Subject, count: int, seed: int) -> list[Judged]:
    """What became of some mutants of a subject."""
    program = program_of(subject)
    return list(judge(subject, program, sample(kernel_texts(program.source), count, seed)))


@pytest.mark.parametrize("name", ["row-reduction", "block-sort", "scatter"])
def test_mutants_are_caught(name: str) -> None:
    """No mutant that changes a result gets by check mode, the interpreter and another order of blocks."""
    found = judged(SUBJECT[name], 6, seed=1)
    assert sum(row.verdict in CAUGHT for row in found) >= 3, [str(row) for row in found]
    assert not [row for row in found if row.verdict == "missed"]


def test_a_dropped_barrier_is_a_race() -> None:
    """Each barrier of a transpose through shared memory is missed in check mode, whatever the results are."""
    subject = SUBJECT["transpose"]
    program = program_of(subject)
    ((name, text),) = kernel_texts(program.source).items()
    barriers = [(name, found) for found in mutations(text) if found.kind == "barrier"]
    assert barriers
    assert {row.verdict for row in judge(subject, program, barriers)} == {"check"}


def test_mutants_that_change_nothing_do_not_count() -> None:
    """A mutant with the same results is equivalent, one the compiler refuses is no program, others are told apart."""
    program = program_of(NEGATE)
    ((name, text),) = kernel_texts(program.source).items()
    lines = text.split("\n")
    at = next(number for number, line in enumerate(lines) if "x[" in line)
    index = lines[at][lines[at].index("[") + 1 : lines[at].index("]")]

    def mutant(after: str) -> tuple[str, Mutation]:
        return name, Mutation("index", at, lines[at], lines[at].replace(f"[{index}]", after))

    chosen = [mutant(f"[{index} + 0]"), mutant("[nobody]"), mutant(f"[{index} + 1]"), mutant("[0]")]
    verdicts = {row.mutation: row.verdict for row in judge(NEGATE, program, chosen)}
    assert [verdicts[mutation] for _, mutation in chosen] == [
        "equivalent",
        "no program",
        "check",
        "compared",
    ]


def test_a_mutation_is_one_line() -> None:
    """Only the line in question and the function's name change."""
    program = program_of(NEGATE)
    ((name, text),) = kernel_texts(program.source).items()
    found = list(mutations(text))
    assert {mutation.kind for mutation in found} >= {"index", "return-dropped", "store-dropped"}
    for mutation in found:
        after = mutation.apply(text, name, "other").split("\n")
        changed = [
            number
            for number, (one, other) in enumerate(zip(text.split("\n"), after, strict=True))
            if one != other and " other(" not in other
        ]
        assert changed == [mutation.line]
        assert str(mutation).startswith(mutation.kind)
