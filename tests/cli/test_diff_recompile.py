"""``hloopt diff --why-recompile`` and ``hloopt diff LOG LOG``: inputs, JSON, exit codes, errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hloopt
from tests.helpers.support import invoke

ONE = (
    "HloModule jit_f\nENTRY e {\n"
    '  x = f32[8] parameter(0), metadata={op_name="x"}\n  ROOT y = f32[8] negate(x)\n}\n'
)
TWO = ONE.replace("f32[8]", "f32[9]")


def found(*words: str, code: int) -> dict[str, Any]:
    """The JSON of a command; the table says the same code, and Python gets the same."""
    result = invoke("diff", *words, "--json")
    assert result.exit_code == invoke("diff", *words).exit_code == code, result.output
    read: dict[str, Any] = json.loads(result.stdout)
    paths = [word for word in words if not word.startswith("--")]
    if "--module" not in words and "--stage" not in words:
        given = hloopt.diff(*paths, why_recompile="--why-recompile" in words)
        assert given.to_json().items() <= read.items()
        shown = given._repr_mimebundle_()["text/plain"]
        assert shown.split()[:2] == invoke("diff", *words).stdout.split()[:2]
    return read


def dump(folder: Path, *texts: str, name: str = "jit_f") -> str:
    folder.mkdir(exist_ok=True)
    for number, text in enumerate(texts):
        (folder / f"module_{number:04d}.{name}.before_optimizations.txt").write_text(
            text.replace("jit_f", name)
        )
    return str(folder)


def test_one_directory(tmp_path: Path) -> None:
    """The functions compiled several times, and the number of all compilations."""
    folder = dump(tmp_path, ONE, TWO, ONE)
    dump(tmp_path, ONE, name="jit_g")
    got = found("--why-recompile", folder, code=1)
    assert got["compilations"] == 4
    (function,) = got["functions"]
    assert (function["function"], function["compilations"]) == ("jit_f", 3)
    first, second = function["recompilations"]
    assert (first["after"], first["before"]) == ("module_0001.jit_f", "module_0000.jit_f")
    assert [row["reason"] for row in first["reasons"]] == ["shape"]
    assert (second["before"], second["same"], second["reasons"]) == ("module_0000.jit_f", True, [])
    assert found("--why-recompile", folder, "--module", "jit_g", code=0)["functions"] == []


def test_files_without_numbers_go_by_the_names_of_modules(tmp_path: Path) -> None:
    """A folder of texts that somebody saved."""
    for name, text in (("a.hlo", ONE), ("b.hlo", TWO), ("c.hlo", TWO.replace("jit_f", "jit_g"))):
        (tmp_path / name).write_text(text)
    (function,) = found("--why-recompile", str(tmp_path), code=1)["functions"]
    assert [row["after"] for row in function["recompilations"]] == ["b.hlo"]


def test_two_directories(tmp_path: Path) -> None:
    """Modules belong together by name; one without a partner was compiled for the first time."""
    before, after = dump(tmp_path / "a", ONE), dump(tmp_path / "b", TWO)
    got = found("--why-recompile", before, after, code=1)
    assert [row["reasons"][0]["what"] for row in got["pairs"]] == ["x"]
    assert found("--why-recompile", before, before, code=0)["same"]
    dump(tmp_path / "b", ONE)
    dump(tmp_path / "b", ONE.replace("negate", "tanh"), name="jit_h")
    more = found("--why-recompile", before, after, code=1)
    assert [row["same"] for row in more["pairs"]] == [True]
    assert len(more["only_after"]) == 1
    assert "only after: jit_h" in invoke("diff", "--why-recompile", before, after).stdout
    assert found("--why-recompile", after, before, code=0)["only_before"] == more["only_after"]


def test_a_protocol_buffer_beside_a_text_has_its_values(tmp_path: Path) -> None:
    """Elided constants are read from there, so that they can differ."""
    text = ONE.replace("negate(x)", "add(x, c)").replace(
        "  ROOT", "  c = f32[8] constant({0, 1, 2, 3, 4, 5, 6, 7})\n  ROOT"
    )
    for at, values in enumerate((text, text.replace("6, 7", "6, 8"))):
        folder = tmp_path / str(at)
        dump(folder, values.replace(values[values.index("({") : values.index("})") + 1], "({...}"))
        written = folder / "module_0000.jit_f.before_optimizations.hlo.pb"
        assert invoke(
            "optimize", "--passes", "", "--emit", "proto", "-o", str(written), stdin=values
        )
    got = found("--why-recompile", str(tmp_path / "0"), str(tmp_path / "1"), code=1)
    (reason,) = got["pairs"][0]["reasons"]
    assert (reason["reason"], reason["before"]) == ("constant", "7 at [7]")


def test_long_lists_are_cut(tmp_path: Path) -> None:
    """Of many reasons of one kind the table has the first; JSON has all."""
    lines = "".join(
        f'  p{at} = f32[8] parameter({at}), metadata={{op_name="w[{at}]"}}\n' for at in range(20)
    )
    text = f"HloModule jit_f\nENTRY e {{\n{lines}  ROOT y = f32[8] negate(p3)\n}}\n"
    for name, each in (("a", text), ("b", text.replace("f32[8]", "f32[9]"))):
        (tmp_path / name).write_text(each)
    words = ("--why-recompile", str(tmp_path / "a"), str(tmp_path / "b"))
    assert len(found(*words, code=1)["pairs"][0]["reasons"]) == 20
    shown = invoke("diff", *words, columns=80).stdout
    assert "w[11]" in shown
    assert "w[12]" not in shown
    assert "and 8 more (--json)" in shown


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("one",), 2, "Missing argument 'AFTER'"),
        (("--why-recompile", "one", "two", "--all"), 2, "are about kernels"),
        (("--why-recompile", "one", "none"), 2, "none: no such file or directory"),
        (("--why-recompile", "one", "bad"), 3, "bad:3:20: error: "),
        (("--why-recompile", "empty"), 2, "empty: no HLO modules"),
    ],
)
def test_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int, message: str
) -> None:
    """What makes no sense, and what cannot be read."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for name, text in (("one", ONE), ("two", TWO), ("bad", ONE.replace("parameter", "param eter"))):
        (tmp_path / name).write_text(text)
    result = invoke("diff", *words)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr


def test_malformed_options_beside_a_module(tmp_path: Path) -> None:
    """Their place is named; no reason is invented from half of them."""
    folder = dump(tmp_path, ONE, TWO)
    (tmp_path / "module_0001.jit_f.debug_options").write_text("xla_a: true\n}\n")
    result = invoke("diff", "--why-recompile", folder)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "module_0001.jit_f.debug_options:2:1: error: " in result.stderr


MODULE = """HloModule jit_f, is_scheduled=true
ENTRY e {
  x = f32[64] parameter(0)
  a = f32[64] negate(x)
  b = f32[64] exponential(a)
  c = f32[64] tanh(b)
  ROOT d = f32[64] sine(c)
}
"""


def priced(producer: str, consumer: str, fused: float) -> str:
    return (
        f'update_priority {{ producer_name: "{producer}" consumer_names: "{consumer}" '
        f"us_fused: {fused} us_unfused: 2.5 }}"
    )


def fused(producer: str, consumer: str, fusion: str) -> str:
    return (
        f'fusion {{ fusion_name: "{fusion}" producer_name: "{producer}" '
        f'consumer_name: "{consumer}" }}'
    )


def log(path: Path, *steps: str, module: str = MODULE, cores: int = 132) -> str:
    device = f"gpu_device_info {{ core_count: {cores} threads_per_warp: 32 }}\n"
    lines = "".join(f"fusion_steps {{ {step} }}\n" for step in steps)
    text = json.dumps(module)
    path.write_text(f"{lines}{device}hlo_module_before_fusion: {text}\n")
    return str(path)


STEPS = (
    priced("a", "b", 1.5),
    priced("b", "c", 1.25),
    priced("c", "d", 1.5),
    fused("b", "c", "fusion"),
    fused("a", "fusion", "fusion"),
    fused("fusion", "d", "fusion.1"),
)


def test_equal_logs(tmp_path: Path) -> None:
    """Other names of instructions and fusions change nothing."""
    renamed = MODULE
    for old, new in (("a =", "a.1 ="), ("(a)", "(a.1)"), ("b =", "b.1 ="), ("(b)", "(b.1)")):
        renamed = renamed.replace(old, new)
    steps = [
        step.replace('"a"', '"a.1"').replace('"b"', '"b.1"').replace('"fusion"', '"fusion.9"')
        for step in STEPS
    ]
    before = log(tmp_path / "a.txt", *STEPS)
    after = log(tmp_path / "b.txt", *steps, module=renamed)
    assert found(before, after, code=0)["steps_before"] == 6
    assert "the logs are the same: 6 steps" in invoke("diff", before, after).stdout


def test_the_first_step_that_differs(tmp_path: Path) -> None:
    """A price alone; then another order of the same decisions, and a fusion on one side only."""
    before = log(tmp_path / "a.txt", *STEPS)
    dearer = log(tmp_path / "b.txt", STEPS[0], priced("b", "c", 1.75), *STEPS[2:])
    got = found(before, dearer, code=1)
    assert (got["first"]["before"]["fused_us"], got["first"]["after"]["fused_us"]) == (1.25, 1.75)
    assert (got["first_decision"], got["repriced"], got["fused_otherwise"]) == (None, 1, [])
    assert got["first"]["before"]["place"].endswith("a.txt:2:32")

    less = log(
        tmp_path / "c.txt", STEPS[0], priced("b", "c", 3.5), STEPS[2], fused("c", "d", "fusion")
    )
    got = found(before, less, code=1)
    assert got["first"]["before"]["step"] == 2
    decision = got["first_decision"]
    assert (decision["before"]["producer"], decision["after"]["producer"]) == ("b", "c")
    assert (decision["last_word_before"]["gain_us"], decision["last_word_after"]["gain_us"]) == (
        1.25,
        1,
    )
    assert (got["only_before"], got["only_after"]) == (2, 0)
    assert [row["before"]["producer"] for row in got["fused_otherwise"]] == ["b", "a"]
    assert got["fused_otherwise"][0]["last_word_after"]["gain_us"] == -1
    shown = invoke("diff", before, less, columns=80).stdout
    assert "costs 1.000 us: 2.500 us apart, 3.500 us fused" in " ".join(shown.split())


def test_a_log_that_ends_earlier(tmp_path: Path) -> None:
    """The other log's step has no counterpart."""
    got = found(log(tmp_path / "a.txt", *STEPS), log(tmp_path / "b.txt", *STEPS[:5]), code=1)
    assert (got["first"]["before"]["step"], got["first"]["after"]) == (6, None)


def test_logs_of_other_devices_and_modules(tmp_path: Path) -> None:
    """Named before the steps, which are the same."""
    before = log(tmp_path / "a.txt", *STEPS)
    other = log(tmp_path / "b.txt", *STEPS, cores=78)
    assert found(before, other, code=1)["devices"] == [
        {"figure": "core_count", "before": "132", "after": "78"}
    ]
    assert "device: core_count 132 before, 78 after" in invoke("diff", before, other).stdout
    changed = log(tmp_path / "c.txt", *STEPS, module=MODULE.replace("sine", "cosine"))
    assert not found(before, changed, code=1)["same_module"]
    assert "all 6 steps are the same" in invoke("diff", before, changed).stdout


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (ONE, 2, "a.txt is a fusion log of XLA, "),
        ("fusion_steps { fusion { } }\n", 2, "b.txt:1:23: error: producer_name is not given"),
        ("fusion_steps { what { } }\n", 2, "b.txt:1:14: error: a step is one of"),
        ("fusion_steps: ", 2, "b.txt:1:15: error: "),
        ('hlo_module_before_fusion: ""\n', 2, "the log has no module before fusion"),
    ],
)
def test_errors_of_logs(tmp_path: Path, text: str, code: int, message: str) -> None:
    """Damaged logs at their places; a log and a module are not compared."""
    (tmp_path / "b.txt").write_text(text)
    result = invoke("diff", log(tmp_path / "a.txt", *STEPS), str(tmp_path / "b.txt"))
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr


def test_options_about_modules_are_refused_for_logs(tmp_path: Path) -> None:
    """A log has no kernels to gate."""
    before = log(tmp_path / "a.txt", *STEPS)
    result = invoke("diff", before, before, "--target", "h100")
    assert (result.exit_code, "not XLA's fusion logs" in result.stderr) == (2, True)
