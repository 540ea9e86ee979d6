"""Study files: what they mean, and where they are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from hloopt.errors import FileError, UsageError
from hloopt.study.plan import StudyPlan
from hloopt.study.study_file import named_strategies, read_study

MODULE = "HloModule m\nENTRY e { ROOT p = f32[] parameter(0) }\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two modules, arrays and a lock file."""
    for name in ("naive.hlo", "unrolled.hlo"):
        (tmp_path / name).write_text(MODULE)
    (tmp_path / "mine.toml").write_text("version = 1\n[[nofuse]]\nproducer='a'\nconsumer='b'\n")
    return tmp_path


def read(folder: Path, text: str) -> StudyPlan:
    """What a study file of this text asks for."""
    path = folder / "s.toml"
    path.write_text(text)
    return read_study(str(path))


def test_a_study_names_modules_devices_and_strategies(folder: Path) -> None:
    """Files are relative to the study file; the first strategy is the baseline where none is named."""
    plan = read(
        folder,
        """
title = "t"
devices = ["cpu", "h200"]
cost_model = "xla-2023"
[[module]]
file = "naive.hlo"
[[module]]
file = "unrolled.hlo"
name = "unrolled by 10"
variant_of = "naive"
[[strategy]]
name = "plain"
passes = "O1"
[[strategy]]
name = "own"
passes = ["O1", { pass = "simplify", fast_math = true }, { fix = ["cse", "dce"] }]
modules = "unrolled*"
kernels = ["op:add=loop{unroll=2}"]
selector = "cost"
""",
    )
    assert (plan.title, plan.baseline, plan.devices) == ("t", "plain", ("cpu", "h200"))
    assert plan.cost_model == "xla-2023"
    assert [(row.file, row.name, row.variant_of) for row in plan.modules] == [
        (str(folder / "naive.hlo"), "naive", ""),
        (str(folder / "unrolled.hlo"), "unrolled by 10", "naive"),
    ]
    own = plan.strategy("own")
    assert str(own.pipeline).endswith("simplify{fast_math=true},fix(cse,dce)")
    assert (own.selection.kernel, own.selection.selector) == (("op:add=loop{unroll=2}",), "cost")
    assert own.chooses_kernels
    assert own.is_for("unrolled by 10")
    assert not own.is_for("naive")


def test_a_ladder_puts_the_steps_back_in_their_places(folder: Path) -> None:
    """The first rung has none of the steps, the last is the whole and has the strategy's name."""
    plan = read(
        folder,
        """
[[strategy]]
name = "s"
passes = "rng-expander,fix(simplify,cse),dce,tuple-simplifier"
ladder = ["cse", ["rng-expander", "dce"]]
ablation = ["simplify", ["cse", "dce"]]
""",
    )
    assert [(one.name, one.label, str(one.pipeline)) for one in plan.strategies] == [
        ("s base", "s, base", "fix(simplify),tuple-simplifier"),
        ("s + cse", "+ cse", "fix(simplify,cse),tuple-simplifier"),
        ("s", "+ rng-expander + dce", "rng-expander,fix(simplify,cse),dce,tuple-simplifier"),
        ("s less simplify", "less simplify", "rng-expander,fix(cse),dce,tuple-simplifier"),
        ("s less cse + dce", "less cse + dce", "rng-expander,fix(simplify),tuple-simplifier"),
    ]
    assert [one.before for one in plan.strategies] == ["", "s base", "s + cse", "", ""]
    assert [one.whole for one in plan.strategies] == ["", "", "", "s", "s"]


def test_a_ladder_over_a_base_adds_at_the_end(folder: Path) -> None:
    """Steps are pipelines; what follows in the end stays there."""
    plan = read(
        folder,
        """
[[strategy]]
name = "s"
base = "simplify"
ladder = ["cse", "fix(simplify,dce)"]
then = "priority-fusion"
""",
    )
    assert [str(one.pipeline).partition("{")[0] for one in plan.strategies] == [
        "simplify,priority-fusion",
        "simplify,cse,priority-fusion",
        "simplify,cse,fix(simplify,dce),priority-fusion",
    ]
    assert [one.name for one in plan.strategies] == ["s base", "s + cse", "s"]


def test_an_ablation_of_everything_leaves_each_pass_out(folder: Path) -> None:
    """``ablation = true`` takes each name once, wherever it stands."""
    plan = read(
        folder, '[[strategy]]\nname="s"\npasses="cse,fix(simplify,cse),dce"\nablation=true\n'
    )
    assert [(one.name, str(one.pipeline)) for one in plan.strategies[1:]] == [
        ("s less cse", "fix(simplify),dce"),
        ("s less simplify", "cse,fix(cse),dce"),
        ("s less dce", "cse,fix(simplify,cse)"),
    ]


HEAD = '[[strategy]]\nname = "s"\n'


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ('tilte = "x"\n', 1, 1, "a study has no 'tilte'; did you mean 'title'"),
        ("title = 3\n", 1, 9, "'title' is a text"),
        ('title = "x"\n', 1, 1, "there is no [[strategy]] in it"),
        ('[strategy]\nname = "s"\n', 1, 2, "write [[strategy]]"),
        ("[[strategy]]\n", 1, 3, "a strategy needs a name"),
        (HEAD, 1, 3, "nothing says what 's' runs: give one of passes, pipeline, base"),
        (f'{HEAD}passes = "O1"\nbase = "O1"\n', 4, 1, "passes and base each say what 's' runs"),
        (f'{HEAD}paces = "O1"\n', 3, 1, "a strategy has no 'paces'; did you mean 'passes'"),
        (f'{HEAD}passes = "simplfy"\n', 3, 10, "no pass is called 'simplfy'; did you mean"),
        (f'{HEAD}passes = ["O1", "cse{{x=1}}"]\n', 3, 17, "cse has no option 'x'"),
        (f"{HEAD}passes = [{{ fast_math = true }}]\n", 3, 11, "a table has the key 'pass'"),
        (f'{HEAD}pipeline = "gone.toml"\n', 3, 12, "No such file"),
        (f'{HEAD}passes = "cse,dce"\nladder = ["cse", "cxe"]\n', 4, 18, "no pass of the pipeline"),
        (f'{HEAD}passes = "cse"\nladder = ["cse", "cse"]\n', 4, 18, "'cse' is a step already"),
        (f'{HEAD}passes = "cse"\nladder = [["cse", 3]]\n', 4, 19, "no pass of the pipeline"),
        (f'{HEAD}passes = "cse"\nladder = "cse"\n', 4, 10, "steps are a list"),
        (f'{HEAD}passes = "cse"\nthen = "dce"\n', 4, 1, "'then' follows the steps over a 'base'"),
        (f'{HEAD}base = "cse"\n', 3, 1, "a 'base' is that of a 'ladder'"),
        (f'{HEAD}base = "cse"\nladder = ["dec"]\n', 4, 11, "no pass is called 'dec'"),
        (f'{HEAD}base="cse"\nladder=["dce"]\nablation=["dce"]\n', 5, 1, "leaves steps out of"),
        (f'{HEAD}passes = "cse"\nkernels = ["op:add"]\n', 4, 12, "'op:add' is not of the form"),
        (f'{HEAD}passes = "cse"\nselector = "rles"\n', 4, 12, "did you mean 'rules'"),
        (f'{HEAD}passes = "O2"\nlock = "gone.toml"\n', 4, 8, "No such file"),
        (f'{HEAD}passes = "cse"\nlock = "mine.toml"\n', 4, 1, "no pass of 's' fuses anything"),
        (f'{HEAD}passes = "O2"\nrules = ["r.py:f"]\n', 4, 10, "give --fusion-rule r.py:f"),
        (f'{HEAD}passes = "O1"\nmodules = [1]\n', 4, 12, "'modules' holds texts"),
        (f'{HEAD}passes="O1"\n{HEAD}passes="O2"\n', 5, 8, "two strategies are called 's'"),
        (f'baseline = "t"\n{HEAD}passes = "O1"\n', 1, 12, "no strategy is called 't'"),
        (f'devices = ["cpu", "h20"]\n{HEAD}passes = "O1"\n', 1, 19, "did you mean 'h200'"),
        (f'devices = ["cpu", "cpu"]\n{HEAD}passes = "O1"\n', 1, 19, "'cpu' is listed twice"),
        (f"devices = []\n{HEAD}passes = 'O1'\n", 1, 11, "the list has no device"),
        (f'cost_model = "xla"\n{HEAD}passes = "O1"\n', 1, 14, "no cost model is called 'xla'"),
        (f'[[module]]\nname = "x"\n{HEAD}passes = "O1"\n', 1, 3, "a module needs a file"),
        (f'[[module]]\nfile="naive.hlo"\natol=-1\n{HEAD}passes="O1"\n', 3, 6, "a number from 0"),
        (f'[[module]]\nfile="naive.hlo"\nrtol=nan\n{HEAD}passes="O1"\n', 3, 6, "a number from 0"),
        (f'[[module]]\nfile="naive.hlo"\nrtol=true\n{HEAD}passes="O1"\n', 3, 6, "a number from 0"),
        (f'[[module]]\nfile = "x.hlo"\n{HEAD}passes="O1"\n', 2, 8, "there is no file"),
        (
            f'[[module]]\nfile = "naive.hlo"\ninputs = "x.npz"\n{HEAD}passes="O1"\n',
            3,
            10,
            "there is no file",
        ),
        (
            f'[[module]]\nfile = "naive.hlo"\nvariant_of = "naive"\n{HEAD}passes="O1"\n',
            3,
            14,
            "no other module is called 'naive'",
        ),
        (
            f'[[module]]\nfile="naive.hlo"\n[[module]]\nfile="naive.hlo"\n{HEAD}passes="O1"\n',
            3,
            3,
            "two modules are called 'naive'",
        ),
    ],
)
def test_mistakes_have_their_place(
    folder: Path, text: str, line: int, column: int, message: str
) -> None:
    """Every mistake is told at its line and column, with what was meant."""
    with pytest.raises(FileError) as caught:
        read(folder, text)
    assert message in caught.value.message
    assert (caught.value.line, caught.value.column) == (line, column)


def test_a_file_never_brings_code(folder: Path) -> None:
    """A rule counts that the command line brought; a file alone cannot name one."""
    path = folder / "s.toml"
    path.write_text(f'{HEAD}passes = "O2"\nrules = ["rules.py:once"]\n')
    plan = read_study(str(path), rules=("rules.py:once",))
    assert plan.strategies[0].rules == ("rules.py:once",)


def test_a_study_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file and bytes that are no text are usage errors with the name."""
    with pytest.raises(UsageError, match=r"gone\.toml: No such file"):
        read_study(str(tmp_path / "gone.toml"))
    (tmp_path / "s.toml").write_bytes(b"title = '\xff'")
    with pytest.raises(UsageError, match="byte 9 is not UTF-8"):
        read_study(str(tmp_path / "s.toml"))


def test_strategies_of_the_command_line() -> None:
    """``NAME=PASSES`` has a name; a ``=`` within braces is an option's."""
    made = named_strategies(["O1", "my own=simplify,dce", "simplify{fast_math=true}"])
    assert [(one.name, one.text) for one in made] == [
        ("O1", "O1"),
        ("my own", "simplify,dce"),
        ("simplify{fast_math=true}", "simplify{fast_math=true}"),
    ]
    with pytest.raises(UsageError, match="two strategies are called 'O1'"):
        named_strategies(["O1", "O1=dce"])
    with pytest.raises(UsageError, match="no pass is called 'simplfy'"):
        named_strategies(["x=simplfy"])
