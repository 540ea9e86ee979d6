"""Lock files of fusion: the same kernels again, pairs by pattern, and what is told when a file does not suit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import hloopt
from hloopt.errors import FileError, UsageError
from hloopt.fusion.advice import Advice, advised
from hloopt.fusion.history import Histories
from hloopt.fusion.lock_adviser import LockAdviser, LockWatcher
from hloopt.fusion.lock_file import (
    Decisions,
    LockedGroup,
    PairRow,
    Unfused,
    decisions_text,
    head_text,
    read_decisions,
)
from hloopt.ir import Module
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite import Controls
from hloopt.rewrite.naming import NamePattern, parse_pattern
from tests.helpers.programs import programs, results
from tests.helpers.rarely import examples
from tests.helpers.support import invoke

TEXT = """HloModule m
sum { p = f32[] parameter(0) q = f32[] parameter(1) ROOT s = f32[] add(p, q) }

ENTRY main {
  x = f32[64,128] parameter(0)
  y = f32[64,128] parameter(1)
  zero = f32[] constant(0)
  a = f32[64,128] multiply(x, y), metadata={op_name="jit(f)/mul"}
  b = f32[64,128] add(a, x), metadata={op_name="jit(f)/add"}
  w = f32[64,128] log(b)
  total = f32[64] reduce(w, zero), dimensions={1}, to_apply=sum
  c = f32[64,128] subtract(w, y)
  d = f32[64,128] negate(c)
  ROOT out = (f32[64], f32[64,128]) tuple(total, d)
}
"""


def run(module: Module, passes: str, decisions: Decisions | None = None) -> tuple[str, list[str]]:
    """What a lock file would hold after the passes, and the notes; the module is changed."""
    pipeline, advice = advised(parse_pipeline(passes), (), decisions)
    watcher = LockWatcher(advice.histories)
    controls = Controls(advice=advice, verify_each=True)
    report = pipeline.run(module, controls=controls, watchers=(watcher,))
    return decisions_text(watcher.groups, watcher.unfused), report.notes


def kernels(module: Module) -> set[frozenset[str]]:
    """The fusions of the entry by what they hold, copies counted once."""
    return {
        frozenset(
            inner.name.partition(".")[0]
            for inner in entry.attributes["calls"]
            if inner.opcode not in ("parameter", "constant", "tuple")
        )
        for entry in module.entry
        if entry.opcode == "fusion"
    }


def outcome(module: Module) -> list[bytes]:
    """What the module computes, of ordinary numbers."""
    source = np.random.default_rng(1)
    shapes = [parameter.array for parameter in module.entry.parameters]
    inputs = [source.uniform(0.5, 2, shape.dims).astype("f4") for shape in shapes]
    return [array.tobytes() for array in hloopt.evaluate(module, inputs)]


def read(folder: Path, text: str) -> Decisions:
    """The decisions of a file with this text after its head."""
    path = folder / "d.toml"
    path.write_text(head_text({}) + text)
    return read_decisions(str(path))


STRATEGIES = (
    "priority-fusion",
    "instruction-fusion",
    "instruction-fusion,fusion-merger",
    "instruction-fusion,multi-output-fusion",
    "priority-fusion,multi-output-fusion",
)


@pytest.mark.parametrize("first", STRATEGIES)
@pytest.mark.parametrize("second", ["priority-fusion", "instruction-fusion"])
def test_any_strategy_makes_the_same_kernels_again(first: str, second: str, tmp_path: Path) -> None:
    """The file that the second one writes is, byte for byte, the one it was given."""
    module = hloopt.parse(TEXT)
    text, _ = run(module, first)
    assert "[[fusion]]" in text
    again = hloopt.parse(TEXT)
    assert run(again, second, read(tmp_path, text)) == (text, [])
    assert kernels(again) == kernels(module)
    assert outcome(again) == outcome(hloopt.parse(TEXT))


@settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(text=programs())
def test_random_programs_have_the_same_kernels_again(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With another strategy, and with the same results."""
    module = hloopt.parse(text)
    before = results(module)
    locked, _ = run(module, "instruction-fusion")
    again = hloopt.parse(text)
    folder = tmp_path_factory.mktemp("lock")
    assert run(again, "priority-fusion", read(folder, locked)) == (locked, [])
    assert results(again) == before


PAIRS = [
    ('producer = "a"\nconsumer = "b"', True),
    ('producer = "%a"\nconsumer = "%b"', True),
    ('producer = "/^a$/"\nconsumer = "/b/"', True),
    ('producer = "op:multiply"\nconsumer = "op:add"', True),
    ('producer = "op_name:*/mul"\nconsumer = "op_name:*/add"', True),
    ('producer = "a"\nconsumer = "b"\nmodule = "m"\ncomputation = "main"', True),
    ('producer = "a"\nconsumer = "c"', False),
    ('producer = "b"\nconsumer = "a"', False),
    ('producer = "a"\nconsumer = "b"\nmodule = "n"', False),
    ('producer = "a"\nconsumer = "b"\ncomputation = "sum"', False),
]


@pytest.mark.parametrize(("row", "means"), PAIRS)
@pytest.mark.parametrize("passes", ["instruction-fusion", "priority-fusion"])
def test_a_pair_is_found_within_fusions(row: str, means: bool, passes: str, tmp_path: Path) -> None:
    """``b`` is the first of a larger fusion when ``a`` comes to it: the use within counts, no other."""
    module = hloopt.parse(TEXT)
    run(module, passes, read(tmp_path, f"[[nofuse]]\n{row}\n"))
    assert any({"a", "b"} <= names for names in kernels(module)) is not means
    free = hloopt.parse(TEXT)
    run(free, passes)
    assert any({"a", "b"} <= names for names in kernels(free))


def test_a_reason_is_told(tmp_path: Path) -> None:
    """With the place in the file."""
    row = '[[nofuse]]\nproducer = "a"\nconsumer = "b"\nreason = "measured alone"\n'
    pipeline, advice = advised(parse_pipeline("instruction-fusion"), (), read(tmp_path, row))
    report = pipeline.run(hloopt.parse(TEXT), controls=Controls(advice=advice, remarks=True))
    told = [remark.remark.reason for remark in report.remarks()]
    assert any(f"measured alone ({tmp_path / 'd.toml'}: nofuse[0])" in line for line in told)


def test_what_must_not_be_goes_before_what_shall_be(tmp_path: Path) -> None:
    """Whatever their order in the file."""
    pair = 'producer = "a"\nconsumer = "b"\n'
    module = hloopt.parse(TEXT)
    run(module, "instruction-fusion", read(tmp_path, f"[[fuse]]\n{pair}[[nofuse]]\n{pair}"))
    assert not any({"a", "b"} <= names for names in kernels(module))


def test_a_fusion_of_several_results(tmp_path: Path) -> None:
    """Written by hand, without a signature: ``outputs`` are the results."""
    row = """[[fusion]]
module = "m"
computation = "main"
name = "both"
kind = "kInput"
instructions = ["b", "w", "total", "zero"]
outputs = ["w", "total"]
"""
    module = hloopt.parse(TEXT)
    _, notes = run(module, "instruction-fusion", read(tmp_path, row))
    assert notes == []
    made = module.entry.by_name["both"]
    assert str(made.shape).count("f32") == 2
    assert made.attributes["kind"] == "kInput"
    assert outcome(module) == outcome(hloopt.parse(TEXT))


def group(**changed: str) -> str:
    """A fusion of ``w``, ``c`` and ``d`` with some of its lines changed."""
    rows = {
        "module": '"m"', "computation": '"main"', "name": '"f"', "kind": '"kLoop"',
        "instructions": '["w", "c", "d"]', **changed,
    }  # fmt: skip
    return "[[fusion]]\n" + "".join(f"{key} = {value}\n" for key, value in rows.items())


STALE = [
    (group(instructions='["w", "gone"]'), "f: main has no %gone"),
    (group(computation='"gone"'), "f: the module has no computation gone"),
    (group(signature='"0000"'), "f: its instructions have changed"),
    (group(instructions='["x", "w"]'), "f: %x (parameter) cannot be part of a fusion"),
    (group(instructions='["a", "d"]'), "f: %a stays apart: nothing uses the producer"),
    (
        group(instructions='["w", "total", "zero", "d"]', outputs='["w", "d"]'),
        "f: %total stays apart: nothing uses the producer (and 2 more)",
    ),
    (group(module='"other"'), "it has no fusion of m"),
    ('[[fuse]]\nproducer = "gone"\nconsumer = "b"\n', "fuse[0]: nothing is called 'gone'"),
    (
        '[[nofuse]]\nproducer = "a"\nconsumer = "d"\n',
        "nofuse[0]: no 'd' reads a 'a', nor do both read the same",
    ),
]


@pytest.mark.parametrize(("row", "message"), STALE)
def test_what_does_not_suit_is_told(row: str, message: str, tmp_path: Path) -> None:
    """In a note; frozen it is an error; the module computes the same in any case."""
    decisions = read(tmp_path, row)
    module = hloopt.parse(TEXT)
    _, (note,) = run(module, "instruction-fusion", decisions)
    told = f"{decisions.name} does not suit this module: {message}"
    assert note == f"locked-fusion: {told}"
    assert outcome(module) == outcome(hloopt.parse(TEXT))
    pipeline, advice = advised(parse_pipeline("instruction-fusion"), (), decisions, frozen=True)
    with pytest.raises(UsageError) as caught:
        pipeline.run(hloopt.parse(TEXT), controls=Controls(advice=advice))
    assert caught.value.message == told


def test_a_cycle_is_not_made(tmp_path: Path) -> None:
    """Results of one kernel cannot need each other through another one."""
    text = """HloModule m
ENTRY main {
  x = f32[8] parameter(0)
  a = f32[8] negate(x)
  between = f32[8] custom-call(a), custom_call_target="f"
  b = f32[8] add(a, between)
  ROOT out = (f32[8], f32[8]) tuple(a, b)
}
"""
    module = hloopt.parse(text)
    row = group(instructions='["a", "b"]', outputs='["a", "b"]')
    _, (note,) = run(module, "instruction-fusion", read(tmp_path, row))
    assert "f: %a stays apart: the fusion would need its own result" in note


WRONG = [
    ("[[fusion]\n", "d.toml:3:"),
    ("[[fuson]]\n", "'fuson' means nothing here; did you mean 'fusion'?"),
    ("[fusion]\n", "'fusion' is a list of tables: [[fusion]]"),
    (group(kind='"kLop"'), "fusion[0]: 'kind' is 'kLop'; did you mean 'kLoop'?"),
    (group(instructions='["b"]'), "fusion[0]: a fusion has two instructions at least"),
    (group(instructions='["b", "b"]'), "fusion[0]: b stands there twice"),
    (group(instructions='"b"'), "fusion[0]: 'instructions' is a list of names"),
    (group(outputs='["a"]'), "fusion[0]: the output a is none of its instructions"),
    (group(name="3"), "fusion[0]: 'name' has to be a text"),
    (group(nmae='"f"'), "fusion[0]: 'nmae' means nothing here; did you mean 'name'?"),
    ('[[fuse]]\nproducer = "a"\n', "fuse[0]: 'consumer' has to be a text"),
    ('[[fuse]]\nproducer = "/(/"\nconsumer = "b"\n', "fuse[0]: '/(/' is not a regular expression"),
    ('[[nofuse]]\nproducer = ""\nconsumer = "b"\n', "nofuse[0]: a pattern is empty"),
    ('[[unfused]]\nmodule = "m"\ncomputation = "c"\n', "unfused[0]: 'instructions' is a list"),
]


@pytest.mark.parametrize(("row", "message"), WRONG)
def test_a_file_that_makes_no_sense(row: str, message: str, tmp_path: Path) -> None:
    """The entry is named, or the place of what is no TOML."""
    with pytest.raises((UsageError, FileError)) as caught:
        read(tmp_path, row)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "d.toml"))


def test_other_versions_are_refused(tmp_path: Path) -> None:
    """A file of a later hloopt may mean something else."""
    path = tmp_path / "d.toml"
    path.write_text("version = 2\n")
    with pytest.raises(UsageError, match="version is 2; this hloopt reads 1"):
        read_decisions(str(path))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    """Names of any kind, lists of any length."""
    names = tuple(f'name."{number}"' for number in range(40))
    groups = (
        LockedGroup(
            "m", "main", "f", "kCustom", "", names, names[3:5], (), '{"kind":"__triton"}', "12"
        ),
        LockedGroup("m", "main", "g\\\x7f", "kLoop", "", ("a", "b"), ("b",)),
    )
    unfused = (Unfused("m", "main", ("c",)),)
    text = decisions_text(groups, unfused)
    found = read(tmp_path, text)
    assert (found.groups, found.unfused, found.pairs) == (groups, unfused, ())
    assert max(map(len, text.splitlines())) <= 100


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The module as a file of the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.hlo").write_text(TEXT)
    return "m.hlo"


def test_the_commands(file: str) -> None:
    """``optimize`` writes what was fused and no kernels, takes it again, and stops where it is frozen and stale."""
    words = ("optimize", file, "--passes", "priority-fusion")
    first = invoke(*words, "--write-lock", "a.toml")
    assert first.exit_code == 0, first.stderr
    text = Path("a.toml").read_text()
    assert "[[fusion]]" in text
    assert "[[kernel]]" not in text
    taken = ("--lock", "a.toml", "--frozen", "--write-lock", "b.toml")
    second = invoke("optimize", file, "--passes", "instruction-fusion", *taken)
    assert (second.exit_code, second.stderr) == (0, "")
    assert Path("b.toml").read_text() == text
    Path(file).write_text(TEXT.replace("subtract(w, y)", "subtract(w, x)"))
    stale = invoke(*words, "--lock", "a.toml", "--frozen")
    assert stale.exit_code == 2
    assert "a.toml does not suit this module" in stale.stderr
    told = invoke(*words, "--lock", "a.toml")
    assert told.exit_code == 0
    assert "note: locked-fusion: a.toml does not suit this module" in told.stderr


def test_kernels_and_fusions_in_one_file(file: str) -> None:
    """``kernels`` writes both, and takes both."""
    first = invoke("kernels", file, "--write-lock", "a.toml", "--json")
    assert first.exit_code == 0, first.stderr
    text = Path("a.toml").read_text()
    assert "[[fusion]]" in text
    assert "[[kernel]]" in text
    taken = ("--lock", "a.toml", "--frozen", "--write-lock", "b.toml", "--json")
    second = invoke("kernels", file, *taken)
    assert second.exit_code == 0, second.stderr
    assert Path("b.toml").read_text() == text


@pytest.mark.parametrize(
    ("name", "count"), [("attention", 2), ("while_loop", 2), ("mlp_train_step", 3)]
)
def test_names_by_heroes_are_what_they_were(
    name: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several fusions of one kind, in one computation or in several, are numbered in the order of making."""
    sample = Path(__file__).resolve().parents[2] / "samples" / f"{name}.hlo"
    monkeypatch.chdir(tmp_path)
    words = ("kernels", str(sample), "-O2", "--json")
    first = invoke(*words, "--write-lock", "a.toml")
    second = invoke(*words, "--lock", "a.toml", "--frozen")
    assert second.exit_code == 0, second.stderr
    kernels = [
        [
            (row["instruction"], row["shape"])
            for row in json.loads(result.stdout)["modules"][0]["choices"]
        ]
        for result in (first, second)
    ]
    assert sorted(kernels[0]) == sorted(kernels[1])
    assert sum("input_" in kernel for kernel, _ in kernels[0]) >= count


def test_run_takes_fusions_on_the_cpu(file: str) -> None:
    """Where options of kernels are refused, a file about fusion alone is not."""
    invoke("optimize", file, "--write-lock", "a.toml", "-o", "out.hlo")
    result = invoke("run", file, "--lock", "a.toml", "--repeat", "1")
    assert result.exit_code == 0, result.stderr


def test_a_lock_of_a_pipeline_that_fuses_nothing(file: str) -> None:
    """A note; frozen an error."""
    Path("a.toml").write_text(head_text({}) + '[[fuse]]\nproducer = "a"\nconsumer = "b"\n')
    told = "a.toml: no pass of the pipeline fuses anything"
    result = invoke("optimize", file, "-O1", "--lock", "a.toml")
    assert (result.exit_code, result.stderr) == (0, f"note: {told}\n")
    result = invoke("optimize", file, "-O1", "--lock", "a.toml", "--frozen")
    assert (result.exit_code, result.stderr) == (2, f"hloopt: error: {told}\n")


def test_the_python_api_takes_a_lock(file: str) -> None:
    """``optimize(lock=...)``."""
    invoke(
        "optimize", file, "--passes", "priority-fusion", "--write-lock", "a.toml", "-o", "out.hlo"
    )
    module = hloopt.parse(TEXT)
    wanted = hloopt.optimize(module, "priority-fusion")
    assert kernels(hloopt.optimize(module, "instruction-fusion", lock="a.toml")) == kernels(wanted)
    assert kernels(hloopt.optimize(module, "instruction-fusion")) != kernels(wanted)


def test_the_pass_by_its_name(file: str) -> None:
    """It needs its file; a pipeline's text has it."""
    invoke("optimize", file, "--write-lock", "a.toml", "-o", "out.hlo")
    result = invoke("optimize", file, "--passes", "locked-fusion{lock=a.toml}")
    assert "fusion(" in result.stdout
    result = invoke("optimize", file, "--passes", "locked-fusion")
    assert result.exit_code == 2
    assert "locked-fusion has no lock file: locked-fusion{lock=FILE}" in result.stderr


@pytest.mark.parametrize("passes", ["xla-gpu-2026", "xla-gpu-2022", "O2", "O3"])
def test_whole_pipelines_make_the_same_module_again(passes: str, tmp_path: Path) -> None:
    """Strategies, passes that name fusions anew, operands and results in their order: nothing differs."""
    module, again = hloopt.parse(TEXT), hloopt.parse(TEXT)
    text, _ = run(module, passes)
    assert "[[fusion]]" in text
    assert run(again, passes, read(tmp_path, text))[0] == text
    assert [
        (entry.opcode, [operand.opcode for operand in entry.operands], str(entry.shape))
        for entry in module.entry
        if entry.opcode == "fusion"
    ] == [
        (entry.opcode, [operand.opcode for operand in entry.operands], str(entry.shape))
        for entry in again.entry
        if entry.opcode == "fusion"
    ]


def test_operands_and_results_in_another_order(tmp_path: Path) -> None:
    """As the file has them; what reads the results reads the same."""
    row = """[[fusion]]
module = "m"
computation = "main"
name = "both"
kind = "kInput"
instructions = ["b", "w", "total", "zero"]
outputs = ["total", "w"]
operands = ["x", "a"]
"""
    module = hloopt.parse(TEXT)
    _, notes = run(module, "instruction-fusion{fuel=0}", read(tmp_path, row))
    assert notes == []
    made = module.entry.by_name["both"]
    assert [operand.name for operand in made.operands] == ["x", "a"]
    assert [parameter.name for parameter in made.attributes["calls"].parameters] == [
        "param_0",
        "param_1",
    ]
    assert [str(root.opcode) for root in made.attributes["calls"].root.operands] == [
        "reduce",
        "log",
    ]
    hloopt.verify(module)
    assert outcome(module) == outcome(hloopt.parse(TEXT))


def test_rows_that_name_others_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are: a row is looked at where a pair has its producer's name."""
    compared: list[str] = []
    means = NamePattern.means

    def counted(self: NamePattern, name: str, opcode: str, op_name: str) -> bool:
        compared.append(self.text)
        return means(self, name, opcode, op_name)

    monkeypatch.setattr(NamePattern, "means", counted)
    rows = [
        PairRow("other", False, parse_pattern(f"%other.{number}"), parse_pattern("c"))
        for number in range(200)
    ]
    keep = PairRow("kept", False, parse_pattern("%b"), parse_pattern("w"))
    histories = Histories()
    adviser = LockAdviser(Decisions("many", pairs=(*rows, keep)), histories)
    module = hloopt.parse(TEXT)
    parse_pipeline("O2").run(module, controls=Controls(advice=Advice((adviser,), histories)))
    assert set(compared) <= {"%b", "w"}
    assert compared
    assert not any({"b", "w"} <= members for members in kernels(module))
