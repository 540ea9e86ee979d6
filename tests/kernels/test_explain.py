"""``hloopt explain`` and ``hloopt kernels --list``, with kernels made up so that no family's words are pinned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hloopt.kernels import registry
from hloopt.kernels.kernel import NO, YES
from hloopt.kernels.limits import Limits
from hloopt.kernels.selection import selection
from hloopt.report.explain import options_that_matter
from tests.helpers.support import invoke
from tests.kernels.selecting import DEVICE, MADE_UP, TEXT


@pytest.fixture(autouse=True)
def _made_up_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_own", lambda: MADE_UP)
    monkeypatch.setattr(selection, "find_gpu", lambda _: DEVICE)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The module of ``selecting``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.hlo").write_text(TEXT)
    return "m.hlo"


def test_the_whole_explanation(file: str) -> None:
    """Where it stands, what decided, every candidate with its verdict and estimate, what would change it."""
    result = invoke("explain", "-O0", file, "minus", "--all")
    assert result.exit_code == 0
    wanted = """%minus = f32[1024] negate
where       m.hlo:7:3, in main
kernel      quick{threads=128}
decided by  rules
because     none is wanted; the cheapest that fits, by estimate
launch      8 x 128
predicted   1.01 us: 4 KiB read, 4 KiB written, 1.02 k flops, by xla-2026
estimate    1.02 us of this kernel and tile, to compare the candidates below
assumed     1.0 of the bandwidth

candidate  verdict                                                   bytes   flops  estimate
slow       fits; not wanted: it is slow                              8 KiB  1.02 k   1.03 us
quick      chosen; not wanted: nobody asked                          8 KiB  1.02 k   1.02 us
never      does not fit: 1024 elements are more than loop_unroll, 4
adder      does not fit: negate is no add

--kernel 'minus=slow' runs it by slow
kernel-selection{loop_unroll=...}, now 4, would change it
"""
    assert [line.rstrip() for line in result.stdout.splitlines()] == wanted.splitlines()


def test_near_misses_come_first(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal with a figure in it stands above those that say that the op is another one."""
    monkeypatch.setattr(registry, "_own", lambda: MADE_UP[::-1])
    lines = invoke("explain", "-O0", file, "minus", "--all").stdout.splitlines()
    refused = [line.split()[0] for line in lines if "does not fit" in line]
    assert refused == ["never", "adder"]


def test_what_the_user_decided_is_named(file: str) -> None:
    """The option stands where the rules stand otherwise."""
    result = invoke("explain", "-O0", file, "%minus", "--kernel", "/in/=slow{threads=64}")
    assert "decided by  --kernel '/in/=slow{threads=64}'" in result.stdout
    assert "kernel      slow{threads=64}" in result.stdout


def test_the_same_as_json(file: str) -> None:
    """With the options that would change a verdict, and their values."""
    result = invoke("explain", "-O0", file, "sum", "--json")
    (module,) = json.loads(result.stdout)["modules"]
    (choice,) = module["choices"]
    assert (choice["kernel"], choice["by"], choice["reason"]) == (
        "adder",
        "rules",
        "additions go there",
    )
    found = {row["kernel"]: row for row in choice["candidates"]}
    assert list(found) == ["never", "adder", "slow", "quick"]
    assert found["never"]["fits"] is False
    assert found["never"]["options"] == {"loop_unroll": 4}
    assert found["never"]["estimate"] is None
    assert found["adder"]["wanted"] is True
    assert found["slow"]["wanted_reason"] == "it is slow"
    assert found["slow"]["estimate"]["bytes_read"] == 8192


def test_a_summary_counts_by_reason(file: str) -> None:
    """A row for each opcode, kernel and reason; what fits nothing tells the reasons."""
    result = invoke("explain", "-O0", file, "--json")
    (module,) = json.loads(result.stdout)["modules"]
    rows = {row["opcode"]: row for row in module["summary"]}
    assert (rows["add"]["kernel"], rows["add"]["count"]) == ("adder", 1)
    assert rows["negate"]["reason"] == "none is wanted; the cheapest that fits, by estimate"


def test_without_any_kernel_the_reasons_remain(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who say the same are told together, in the explanation and in the summary."""
    monkeypatch.setattr(registry, "_own", lambda: MADE_UP[:1])
    told = invoke("explain", "-O0", file, "minus").stdout
    assert "kernel   no kernel fits" in told
    assert "never      does not fit: 1024 elements are more than loop_unroll, 4" in told
    summary = invoke("explain", "-O0", file).stdout
    assert summary.count("none fits") == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("explain", "-O0", "m.hlo", "mines"),
            "no instruction or file is called 'mines'; did you mean",
        ),
        (("explain", "-O0", "m.hlo", "x"), "%x (parameter) has no separate kernel"),
        (("explain", "-O0", "m.hlo", "m.hlo", "sum"), "an INSTRUCTION belongs to one module"),
        (("kernels", "-O0", "m.hlo", "--kernel", "sum=slwo"), "did you mean 'slow'?"),
        (("kernels", "-O0", "m.hlo", "--kernel", "sum=slow{thread=1}"), "the tile of slow has no"),
        (
            ("kernels", "m.hlo", "--passes", "kernel-selection{selector=csot}"),
            "no selector is called 'csot'",
        ),
        (("kernels", "-O0", "m.hlo", "--target", "h20"), "unknown target 'h20'"),
        (("kernels", "-O0", "m.hlo", "--kernel", "x"), "not of the form PATTERN=KERNEL"),
        (("kernels", "-O0", "m.hlo", "--kernel", "gone.py"), "gone.py: no such file"),
        (("kernels", "-O0", "m.hlo", "--lock", "gone.toml"), "gone.toml: No such file"),
        (
            ("kernels", "-O0", "m.hlo", "--source", "--plan"),
            "give only one of --plan, --source and --ir, or --json",
        ),
    ],
)
@pytest.mark.usefixtures("file")
def test_usage_errors(words: tuple[str, ...], message: str) -> None:
    """Exit code 2 and one line, nothing on stdout."""
    result = invoke(*words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not result.stdout


@pytest.mark.usefixtures("file")
def test_behind_a_file_a_plain_word_is_an_instruction() -> None:
    """Even where a directory is called so, which is named with a slash."""
    Path("sum").mkdir()
    assert invoke("explain", "-O0", "m.hlo", "sum").stdout.startswith("%sum")
    result = invoke("explain", "-O0", "m.hlo", "./sum")
    assert (result.exit_code, result.stderr) == (
        2,
        "hloopt: error: sum: no HLO modules in this directory\n",
    )


@pytest.mark.usefixtures("file")
def test_each_of_several_modules_is_named(tmp_path: Path) -> None:
    """Before what is said about it."""
    Path("n.hlo").write_text(Path("m.hlo").read_text())
    lines = invoke("explain", "-O0", "m.hlo", "n.hlo").stdout.splitlines()
    assert [line for line in lines if line.split("  ")[0] in {"m.hlo", "n.hlo"}] == [
        "m.hlo  m",
        "n.hlo  m",
    ]
    assert "m.hlo  m" not in invoke("explain", "-O0", "m.hlo").stdout


def test_the_list_of_kernels() -> None:
    """In order of preference, with what each does; as JSON, too."""
    lines = invoke("kernels", "--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["kernel", "never", "adder", "slow", "quick"]
    rows = json.loads(invoke("kernels", "--list", "--json").stdout)["kernels"]
    assert rows[0] == {
        "kernel": "never",
        "device": "gpu",
        "summary": "made up: never",
        "owner": None,
    }


def test_options_are_found_in_words() -> None:
    """By the field a verdict names, or by the name in its reason; other words are no options."""
    assert options_that_matter(NO("9 rows", option="loop_threads")) == ("loop_threads",)
    assert options_that_matter(NO("9 threads are more than loop_threads, 8")) == ("loop_threads",)
    assert options_that_matter(YES("a loop of threads")) == ()
    assert Limits.loop_threads
