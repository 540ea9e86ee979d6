"""``hloopt explain`` about fusion: names and patterns, JSON, what it refuses to guess."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.support import invoke

TEXT = """HloModule m

sum { p = f32[] parameter(0) q = f32[] parameter(1) ROOT s = f32[] add(p, q) }

ENTRY main {
  x = f32[64,64] parameter(0)
  y = f32[64,64] parameter(1)
  zero = f32[] constant(0)
  a = f32[64,64] add(x, y), metadata={op_name="jit(f)/add" source_file="net.py" source_line=3}
  e = f32[64,64] log(a), metadata={op_name="jit(f)/log" source_file="net.py" source_line=4}
  b = f32[64,64] multiply(e, x)
  total = f32[64] reduce(e, zero), dimensions={1}, to_apply=sum
  ROOT out = (f32[64,64], f32[64]) tuple(b, total)
}
"""
PASSES = ("--passes", "instruction-fusion")


@pytest.fixture(autouse=True)
def _file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.hlo").write_text(TEXT)


def explained(*words: str) -> Any:
    """The JSON about the one module."""
    passes = () if "--passes" in words else PASSES
    result = invoke("explain", "m.hlo", *words, *passes, "--json")
    assert result.exit_code == 0, result.stderr
    (module,) = json.loads(result.stdout)["modules"]
    return module


def test_a_pair_as_json() -> None:
    """Every figure and name of the text, with its code; the form is for scripts."""
    (pair,) = explained("e", "b")["fusion"]["pairs"]
    assert pair["together"] is False
    assert pair["relation"] == "path"
    assert pair["first"] == {
        "computation": "main",
        "name": "e",
        "opcode": "log",
        "shape": "f32[64,64]",
        "op_name": "jit(f)/log",
        "place": "m.hlo:10:3",
        "source": "net.py:4",
        "sources": ["net.py:4"],
    }
    (edge,) = pair["edges"]
    (refusal,) = edge["refusals"]
    assert refusal["code"] == "expensive-to-duplicate"
    assert refusal["pass"] == "instruction-fusion"
    assert refusal["advisable"] is True
    assert refusal["model"] == "xla-2026, h200"
    assert refusal["unfused_us"] > 2
    assert set(refusal) == {
        "pass", "run", "producer", "consumer", "code", "reason", "limit", "actual", "options",
        "advisable", "model", "unfused_us", "fused_us",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("%e", "%b"),
        ("op:log", "op:multiply"),
        ("op_name:*/log", "b"),
        ("/^e$/", "/^b$/"),
        ("b", "e"),
    ],
)
def test_patterns_mean_instructions_of_the_file(first: str, second: str) -> None:
    """By name, opcode, ``op_name`` or expression, in either order."""
    (pair,) = explained(first, second)["fusion"]["pairs"]
    assert (pair["first"]["name"], pair["second"]["name"]) == ("e", "b")


def test_a_pattern_of_several_shows_those_that_read_each_other() -> None:
    """``e`` has two users; other pairs are not worth a word."""
    pairs = explained("op:log", "*")["fusion"]["pairs"]
    names = {(pair["first"]["name"], pair["second"]["name"]) for pair in pairs}
    assert names == {("a", "e"), ("e", "b"), ("e", "total")}


def test_one_instruction() -> None:
    """Its kernel, who joined it, which neighbours did not, and the choice of its kernel."""
    module = explained("a")
    (found,) = module["fusion"]["instructions"]
    (kernel,) = found["kernels"]
    assert kernel["members"] == ["a", "e"]
    assert [step["producer"] for step in found["joined"]] == ["a"]
    (choice,) = module["choices"]
    assert choice["instruction"] == kernel["now"]
    text = invoke("explain", "m.hlo", "a", *PASSES).stdout
    assert "%a: add at m.hlo:9:3, from net.py:3 (jit(f)/add)" in text


def test_a_kernel_is_explained_by_its_own_name() -> None:
    """A fusion that was made: its results stand for it."""
    (found,) = explained("a")["fusion"]["instructions"]
    (kernel,) = found["kernels"]
    (same,) = explained(kernel["name"])["fusion"]["instructions"]
    assert same["instruction"]["name"] == "e"


def test_no_name() -> None:
    """What costs most, with the user's line, then the summary."""
    module = explained("--passes", "priority-fusion{max_operands=2}")
    assert module["summary"]
    row = module["fusion"]["refusals"][0]
    assert (row["code"], row["source"]) == ("operands", "net.py:3")
    assert row["lost_us"] == pytest.approx(row["unfused_us"] - row["fused_us"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("e", "bb"), "no instruction or file is called 'bb'; did you mean 'b'?"),
        (("op:dot", "b"), "no instruction matches 'op:dot'"),
        (("e", "e"), "%e is given twice: a pair is two instructions"),
        (("e", "/(/"), "'/(/' is not a regular expression"),
        (("s", "b"), "%s (add) is part of %sum of %total, reduce: not a separate kernel"),
        (("x",), "%x (parameter) has no separate kernel"),
    ],
)
def test_names_that_mean_nothing(words: tuple[str, ...], message: str) -> None:
    """Exit code 2, one line, nothing on stdout."""
    result = invoke("explain", "m.hlo", *words, *PASSES)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not result.stdout


def test_a_file_that_is_not_there() -> None:
    """Two words are not taken for two instructions where the first looks like a file."""
    result = invoke("explain", "gone.hlo", "e")
    assert result.exit_code == 2
    assert "gone.hlo: no such file or directory" in result.stderr


def test_lines_of_the_answer_make_it_so(tmp_path: Path) -> None:
    """What ``explain`` offers for a lock file is one, and does what it says."""
    text = invoke("explain", "m.hlo", "e", "b", *PASSES).stdout
    rows = text[text.index("  [[fuse]]") :]
    Path("wish.toml").write_text("version = 1\n" + rows)
    lock = ("--lock", "wish.toml", "--frozen")
    result = invoke("explain", "m.hlo", "e", "b", *PASSES, *lock)
    assert result.stdout.startswith("%e and %b are in one kernel\n")


def test_more_than_two_names() -> None:
    """Words that look like no file are names, and there are too many."""
    result = invoke("explain", "m.hlo", "a", "e", "b", *PASSES)
    assert result.exit_code == 2
    told = "one instruction is explained, or two; no such file: a, e, b"
    assert told in result.stderr


def test_what_the_user_keeps_apart_is_not_to_be_asked_for() -> None:
    """The line that says no comes first in its file: one that says yes below it would not be heard."""
    Path("no.toml").write_text('version = 1\n[[nofuse]]\nproducer = "a"\nconsumer = "e"\n')
    text = invoke("explain", "m.hlo", "a", "e", *PASSES, "--lock", "no.toml").stdout
    assert "without that rule or line of a lock file the strategies decide" in text
    assert "[[fuse]]" not in text


def test_times_of_a_kernel_with_the_results_of_both() -> None:
    """What a multi-output fusion would save is what it saves: the producer is not computed twice."""
    Path("n.hlo").write_text("""HloModule n
sum { p = f32[] parameter(0) q = f32[] parameter(1) ROOT s = f32[] add(p, q) }
ENTRY main {
  x = f32[64,512] parameter(0)
  w = f32[512,512] parameter(1)
  zero = f32[] constant(0)
  a = f32[64,512] exponential(x)
  d = f32[64,512] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[64] reduce(a, zero), dimensions={1}, to_apply=sum
  ROOT r = (f32[64], f32[64,512]) tuple(c, d)
}
""")
    Path("no.toml").write_text('version = 1\n[[nofuse]]\nproducer = "a"\nconsumer = "c"\n')
    found = []
    for lock in ((), ("--lock", "no.toml")):
        words = ("explain", "n.hlo", "a", "c", "--passes", "priority-fusion,multi-output-fusion")
        result = invoke(*words, *lock, "--json")
        (module,) = json.loads(result.stdout)["modules"]
        (edge,) = module["fusion"]["pairs"][0]["edges"]
        row = (edge["joined"] or edge["refusals"])[-1]
        assert row["pass"] == "multi-output-fusion"
        found.append((edge["together"], row["unfused_us"], row["fused_us"]))
    (together, *made), (apart, *refused) = found
    assert together
    assert not apart
    assert refused == pytest.approx(made)


def test_no_line_of_a_lock_file_is_offered_for_what_no_fusion_holds() -> None:
    """A strategy may stop at another user before it comes to this one, which cannot be fused either."""
    Path("n.hlo").write_text("""HloModule n
ENTRY main {
  x = f32[64,64] parameter(0)
  a = f32[64,64] exponential(x)
  d = f32[64,64] dot(a, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[64,64] dot(x, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[64,64] negate(a)
  ROOT r = (f32[64,64], f32[64,64], f32[64,64]) tuple(d, e, c)
}
""")
    passes = ("--passes", "priority-fusion")
    for name in ("d", "e"):
        text = invoke("explain", "n.hlo", "a", name, *passes).stdout
        assert "no rule and no [[fuse]] of a lock file changes that" in text
    assert "[[fuse]]" in invoke("explain", "n.hlo", "a", "c", *passes).stdout


def test_it_fits_a_terminal() -> None:
    """Tables fold at the width that there is."""
    result = invoke("explain", "m.hlo", "e", "b", *PASSES, columns=80)
    table = [line for line in result.stdout.splitlines() if line.startswith(("result", "%e  "))]
    assert len(table) == 2
    assert max(map(len, table)) <= 80


def test_strategies_decide_for_the_target() -> None:
    """``--target`` is for fusing, too; a strategy that names a device of its own keeps it."""
    found = {}
    for key, strategy, target in (
        ("target", "priority-fusion", "v100"),
        ("option", "priority-fusion{target=v100}", "h200"),
        ("both", "priority-fusion{target=a100}", "v100"),
        ("alone", "priority-fusion{target=a100}", "a100"),
    ):
        pair = explained("a", "e", "--passes", strategy, "--target", target)["fusion"]["pairs"][0]
        found[key] = [step["unfused_us"] for edge in pair["edges"] for step in edge["joined"]]
    assert found["target"] == found["option"]
    assert found["both"] == found["alone"] != found["target"]


def test_fusion_for_a_device_without_kernels() -> None:
    """AMD's GPUs and TPUs get fusion explained, as far as a strategy is for them, and no kernels."""
    passes = ("--passes", "priority-fusion")
    result = invoke("explain", "m.hlo", "a", *passes, "--target", "mi200", "--json")
    assert result.exit_code == 0, result.stderr
    assert "for mi200 fusion alone is explained" in result.stderr
    (module,) = json.loads(result.stdout)["modules"]
    assert module["choices"] == []
    assert module["fusion"]["instructions"][0]["kernels"]

    text = invoke("explain", "m.hlo", "e", "b", *PASSES, "--target", "tpu-v4")
    assert text.exit_code == 0
    assert "expensive-to-duplicate" in text.stdout
    about_kernels = invoke("explain", "m.hlo", "--target", "mi200", "--kernel", "op:dot=loop")
    assert about_kernels.exit_code == 2
    assert "kernels are CUDA, and mi200 is of kind rocm" in about_kernels.stderr


def test_a_long_path_is_told_by_its_end() -> None:
    """In the table, which has to fit; scripts get all of it."""
    path = "/home/somebody/work/projects/models/language/layers/attention/net.py"
    Path("n.hlo").write_text(TEXT.replace("net.py", path))
    words = ("explain", "n.hlo", "--passes", "priority-fusion{max_operands=2}")
    text = invoke(*words, columns=160).stdout
    assert ".../models/language/layers/attention/net.py:3" in text
    (module,) = json.loads(invoke(*words, "--json").stdout)["modules"]
    assert module["fusion"]["refusals"][0]["source"] == f"{path}:3"


GEMM = """HloModule gemm
less { p = bf16[] parameter(0) q = bf16[] parameter(1) ROOT l = pred[] compare(p, q), direction=LT }
ENTRY main {
  x = bf16[512,256]{1,0} parameter(0)
  w = bf16[256,512]{1,0} parameter(1)
  c = bf16[512]{0} parameter(2)
  d = bf16[512,512]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  wide = bf16[512,512]{1,0} broadcast(c), dimensions={1}
  a = bf16[512,512]{1,0} add(d, wide)
  s = bf16[512,512]{1,0} sort(a), dimensions={1}, to_apply=less
  ROOT r = bf16[512,512]{1,0} negate(s)
}
"""


def test_another_pass_that_makes_one_kernel_is_named_and_does() -> None:
    """A matrix product with what follows; what it is told to run gives one kernel."""
    Path("g.hlo").write_text(GEMM)
    text = invoke("explain", "g.hlo", "d", "a").stdout
    assert "--passes gemm-fusion,O2 makes one kernel of both" in text
    assert "no rule and no [[fuse]]" in text
    again = invoke("explain", "g.hlo", "d", "a", "--passes", "gemm-fusion,O2").stdout
    assert again.startswith("%d and %a are in one kernel")
    result = invoke("explain", "g.hlo", "d", "a", "--json")
    (pair,) = json.loads(result.stdout)["modules"][0]["fusion"]["pairs"]
    assert pair["passes"] == ["gemm-fusion,O2"]


def test_no_pass_is_named_that_leaves_the_two_apart() -> None:
    """A dot is between them, or none is: nothing that was tried makes one kernel."""
    Path("g.hlo").write_text(GEMM)
    for pair in (("d", "r"), ("s", "r")):
        text = invoke("explain", "g.hlo", *pair).stdout
        assert "are not in one kernel" in text
        assert "makes one kernel" not in text


def test_names_of_strategies_are_told_by_names_of_the_files() -> None:
    """What is called ``fusion`` for a while is in neither; the user that refuses is told by its own name, too."""
    Path("n.hlo").write_text("""HloModule n
less { p = f32[] parameter(0) q = f32[] parameter(1) ROOT l = pred[] compare(p, q), direction=LT }
ENTRY main {
  x = f32[64,512] parameter(0)
  y = f32[64,512] parameter(1)
  a = f32[64,512] exponential(x)
  b = f32[64,512] add(a, y)
  d = f32[64,512] multiply(b, x)
  s = f32[64,512] sort(b), dimensions={1}, to_apply=less
  ROOT t = (f32[64,512], f32[64,512]) tuple(d, s)
}
""")
    optimized = invoke("optimize", "n.hlo", "--passes", "priority-fusion,rename-fusions").stdout
    for names in (["b", "d"], ["b"], ["a", "d"], []):
        passes = ("--passes", "priority-fusion,rename-fusions")
        text = invoke("explain", "n.hlo", *names, *passes, columns=200).stdout
        known = set(re.findall(r"[\w.-]+", optimized + Path("n.hlo").read_text()))
        assert set(re.findall(r"%([\w.-]*\w)", text)) <= known
        if names == ["b", "d"]:
            assert "%s" not in text
            assert "and s cannot take it" in text
