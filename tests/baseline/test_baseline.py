"""The baseline: what it records of a small module, and that it sees what is otherwise."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hloopt.backends.nvrtc import compile_cuda
from hloopt.workers.records import NoAnswer
from tests.baseline import baseline
from tests.baseline.baseline_child import Examined, Subject, answer, array_digest, text_digest
from tests.baseline.baseline_compare import Comparison, compare, report
from tests.baseline.baseline_items import ARCHITECTURES, KINDS, Item, random_items, sample_items
from tests.baseline.baseline_store import Record, Store
from tests.baseline.machine_code import instruction_counts
from tests.baseline.product_tokens import python_figures

TEXT = """HloModule m

ENTRY main {
  x = f32[8] parameter(0)
  one = f32[] constant(1)
  ones = f32[8] broadcast(one), dimensions={}
  y = f32[8] multiply(x, ones)
  ROOT z = f32[8] exponential(y)
}
"""


# ---- how large the product is -----------------------------------------------------------------------------------


def test_tokens_are_those_that_say_something() -> None:
    """No docstring, comment, import or line end; of strings in the middle of a body the quotes are tokens."""
    text = '''"""A file."""

import os
from a import (
    b,
)

__all__ = ["f"]


def f(x):
    """Of three
    lines: ``x``.
    """
    # why
    return x + 1, f"{x} and {x!r:>{x}}", "no docstring"
'''
    said = [
        "__all__",
        "=",
        "[",
        '"f"',
        "]",
        "def",
        "f",
        "(",
        "x",
        ")",
        ":",
        "return",
        "x",
        "+",
        "1",
        ",",
        "FSTRING",
        ",",
        "STRING",
    ]
    assert python_figures(text) == {"tokens": len(said), "docstring lines": 4, "public names": 1}


# ---- machine code -------------------------------------------------------------------------------------------------


def _elf(code: dict[str, bytes]) -> bytes:
    names, bodies, headers = b"\0", b"", []
    for name, body in {**code, ".shstrtab": b""}.items():
        at = len(names)
        names += name.encode() + b"\0"
        headers.append([at, 1, 0, 0, 64 + len(bodies), len(body)])
        bodies += body
    headers[-1][4:] = [64 + len(bodies), len(names)]
    table = b"".join(struct.pack("<IIQQQQIIQQ", *header, 0, 0, 0, 0) for header in headers)
    start = 64 + len(bodies) + len(names)
    head = b"\x7fELF\x02\x01\x01".ljust(0x28, b"\0") + struct.pack("<Q", start)
    head = head.ljust(0x3A, b"\0") + struct.pack("<HHH", 64, len(headers), len(headers) - 1)
    return head + bodies + names + table


def test_what_fills_a_section_up_is_no_instruction() -> None:
    """One that does nothing in between is."""
    add, nop = b"\x21\x72".ljust(16, b"\1"), b"\x18\x79".ljust(16, b"\0")
    image = _elf({".text.f": add + nop + add + 5 * nop, ".nv.info": add, ".text.g": nop})
    assert instruction_counts(image) == {"f": 3, "g": 0}
    with pytest.raises(ValueError, match="no 64-bit ELF file"):
        instruction_counts(b"PTX")


def test_longer_kernels_have_more_instructions() -> None:
    """By the compiler's own code."""
    head = 'extern "C" __global__ void {}(float* p) {{ float x = p[threadIdx.x]; {} p[threadIdx.x] = x; }}\n'
    text = head.format("one", "x += 1;") + head.format("more", "x = sinf(x) + expf(x) / x;")
    counts = instruction_counts(compile_cuda(text, "sm_90").image)
    assert counts["one"] >= 5
    assert counts["more"] > 2 * counts["one"]


# ---- what is recorded of a module -----------------------------------------------------------------------------


def test_a_digest_of_results_is_of_type_dimensions_and_bits() -> None:
    """Which NaN it is does not count."""
    base = np.array([0.0, 1.0, np.nan], np.float32)
    other_nan = base.copy()
    other_nan.view(np.uint32)[2] ^= 0x80000001
    assert array_digest(base) == array_digest(other_nan)
    others = [np.array([-0.0, 1.0, np.nan], np.float32), base.astype(np.float64), base[:, None]]
    assert len({array_digest(one) for one in (base, *others)}) == 4
    pair = np.array([complex(np.nan, 1), complex(np.nan, 2)], np.complex64)
    assert array_digest(pair[:1]) != array_digest(pair[1:])


def test_every_kind_answers() -> None:
    """A text by its digest, a result by its bits, a kernel by its figures."""
    examined = Examined(Subject("m", text=TEXT, seed=1))
    found = {
        (kind, word): answer(examined, [kind, *word.split()], "h200")
        for kind, word in (
            ("text", "O2"), ("plan", "gpu O2"), ("plan", "native O2"), ("bits", "interpreter given"),
            ("bits", "cpu O2"), ("code", "sm_90 O2"),
        )
    }  # fmt: skip
    text = found["text", "O2"]
    assert text["texts"] == {text["value"]: text["texts"][text["value"]]}
    assert "exponential(%x)" in text["texts"][text["value"]]
    assert found["plan", "gpu O2"]["value"] != found["plan", "native O2"]["value"]
    (bits,) = found["bits", "interpreter given"]["value"]
    assert len(bits) == 16
    kernels = found["code", "sm_90 O2"]["value"]["kernels"]
    ((registers, spills, stack, instructions),) = kernels.values()
    assert (spills, stack) == (0, 0)
    assert registers > 3
    assert instructions > 10


def test_what_is_no_answer_is_said() -> None:
    """By words that no digest has."""
    wrong = Examined(Subject("wrong", text="HloModule m\nENTRY e { ROOT x = f32[] nonsense"))
    assert answer(wrong, ["text", "O1"], "h200")["value"].startswith("refused: wrong:2")
    large = TEXT.replace("8]", "100000000]")
    examined = Examined(Subject("large", text=large, seed=1))
    said = answer(examined, ["bits", "interpreter", "given"], "h200")["value"]
    assert said.startswith("skipped: ")
    assert answer(examined, ["bits", "nobody", "given"], "h200")["value"].startswith(
        "failed: KeyError"
    )


def test_what_is_asked_of_a_part() -> None:
    """Everything of samples; of random modules what compilers take long for once."""
    samples = Item("samples", Subject("s"))
    drawn = Item("random", Subject("r"))
    assert "emulator O3" in samples.aspects("bits")
    assert [word for word in drawn.aspects("bits") if word.startswith("native")] == ["native O2"]
    assert drawn.aspects("code") == [f"{arch} O2" for arch in ARCHITECTURES]
    assert Item("models", Subject("m")).aspects("bits") == []
    assert Item("messages", Subject("c")).aspects("text") == []
    assert len({item.name for item in sample_items()}) == len(list(sample_items())) > 30


# ---- comparing ------------------------------------------------------------------------------------------------


def _record(folder: Path, name: str, found: dict[str, dict[str, Any]]) -> Record:
    record = Record(folder / f"{name}.jsonl")
    for kind, values in found.items():
        record.add({"item": "a", "kind": kind, "part": "samples", "state": name, "found": values})
    return record


def _differences(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> Comparison:
    return compare(_record(folder, "old", old), _record(folder, "new", new), lambda *_: True)


SAME: dict[str, dict[str, Any]] = {
    "text": {"O1": "aa", "O2": "bb"},
    "bits": {"cpu given": ["11", "22"]},
    "code": {"sm_90 O2": {"source": "cc", "kernels": {"f": [32, 0, 0, 100], "g": [9, 8, 8, 50]}}},
}


def _changed(kind: str, word: str, value: Any) -> dict[str, dict[str, Any]]:
    return {**SAME, kind: {**SAME[kind], word: value}}


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (_changed("text", "O2", "bc"), "a  text O2: another text"),
        (
            _changed("text", "O1", "refused: no"),
            "a  text O1: refused: no; before: an answer",
        ),
        (_changed("bits", "cpu given", ["11", "23"]), "a  bits cpu given: other bits in result 1"),
        (_changed("bits", "cpu given", ["11"]), "a  bits cpu given: 1 results, not 2"),
        (
            _changed("code", "sm_90 O2", {"source": "cc", "kernels": {"f": [32, 0, 0, 103], "g": [9, 8, 8, 50]}}),
            "a  code sm_90 O2: f has 103 instructions, before 100: +3.0%",
        ),
        (
            _changed("code", "sm_90 O2", {"source": "cc", "kernels": {"f": [32, 4, 0, 100], "g": [9, 8, 8, 50]}}),
            "a  code sm_90 O2: f spills 4 bytes, before 0",
        ),
        (
            _changed("code", "sm_90 O2", {"source": "cc", "kernels": {"f": [32, 0, 0, 100]}}),
            "a  code sm_90 O2: kernel g is gone",
        ),
        ({"text": SAME["text"], "bits": SAME["bits"]}, "a  code sm_90 O2: not in the new record"),
    ],
)  # fmt: skip
def test_what_is_otherwise_is_told(tmp_path: Path, new: dict[str, Any], said: str) -> None:
    found = _differences(tmp_path, SAME, new)
    assert [str(one) for one in found.differences] == [said]
    assert said in "\n".join(report(found))


def test_what_may_be_otherwise_is_not_told(tmp_path: Path) -> None:
    """Two percent more, fewer spills, another source, more that is recorded, and what never had an answer."""
    kernels = {"f": [40, 0, 0, 102], "g": [9, 0, 8, 20]}
    new = _changed("code", "sm_90 O2", {"source": "cd", "kernels": kernels})
    old = _changed("text", "O3", "no answer: too much processor time")
    new["text"] = {**SAME["text"], "O3": "zz", "xla": "yy"}
    found = _differences(tmp_path, old, new)
    assert found.differences == []
    assert found.silent == {("samples", "text"): 1}
    assert found.instructions == [150, 122]


def test_only_what_is_wanted_is_compared(tmp_path: Path) -> None:
    old, new = _record(tmp_path, "old", SAME), _record(tmp_path, "new", {})
    assert len(compare(old, new, baseline.Chosen(kinds=("bits",)).wants).differences) == 1
    assert compare(old, new, baseline.Chosen(parts=("jax",)).wants).differences == []
    assert compare(old, new, baseline.Chosen(names=("b*",)).wants).differences == []


# ---- from a file to a verdict -------------------------------------------------------------------------------------


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A single item, asked for few things by a real child."""
    path = tmp_path / "small.hlo"
    path.write_text(TEXT)

    def items(_store: Store, _chosen: baseline.Chosen) -> list[Item]:
        return [Item("samples", Subject("samples/small", str(path)))]

    words = {"text": ["O2"], "bits": ["interpreter O2", "cpu O2"]}
    monkeypatch.setattr(baseline, "items", items)
    monkeypatch.setattr(baseline, "size", lambda: {"tokens": 7})
    monkeypatch.setattr(Item, "aspects", lambda _item, kind: words.get(kind, []))
    return path


def _run(folder: Path, *words: str) -> int:
    return baseline.main([*words, "--store", str(folder / "store")])


def test_a_changed_text_is_reported_and_shown(
    sample: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is recorded twice is equal; a module that becomes another text is not, and the difference is shown."""
    assert _run(tmp_path, "record", "--name", "first", "--only", "text", "--only", "bits") == 0
    assert _run(tmp_path, "compare", "first", "--name", "again", "--anew") == 0
    sample.write_text(TEXT.replace("exponential", "tanh"))
    capsys.readouterr()
    assert _run(tmp_path, "compare", "first", "--name", "second") == 1
    out = capsys.readouterr().out
    assert "samples/small  text O2: another text" in out
    assert "samples/small  bits cpu O2: other bits in result 0" in out
    assert _run(tmp_path, "show", "samples/small", "first", "second", "--only", "text") == 0
    shown = capsys.readouterr().out.splitlines()
    assert "-  ROOT %z = f32[8] exponential(%x)" in shown
    assert "+  ROOT %z = f32[8] tanh(%x)" in shown
    assert _run(tmp_path, "compare", "third", "second") == 2


def test_two_records_are_compared_wherever_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which state the product is in does not matter, nor whether there is a repository."""
    store = tmp_path / "store"
    for name, found in (("first", SAME), ("same", SAME), ("other", _changed("text", "O1", "zz"))):
        _record(store, name, found)
    monkeypatch.delattr(baseline, "_git")
    assert [_run(tmp_path, "compare", "first", name) for name in ("same", "other")] == [0, 1]


def test_a_state_that_is_known_is_not_asked_again(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor where another record has it; what a child says nothing to is recorded as that."""
    asked: list[list[str]] = []

    def ask(_worker: baseline.Worker, task: tuple[Any, list[str]]) -> dict[str, Any]:
        asked.append(task[1])
        if task[1][1] == "cpu":
            raise NoAnswer("the process died")
        return {"value": "ab", "texts": {"ab": "text"}, "cpu": 0.1}

    monkeypatch.setattr(baseline.Worker, "ask", ask)
    for name in ("first", "first", "second"):
        assert _run(tmp_path, "record", "--name", name) == 0
    assert asked == [["text", "O2"], ["bits", "interpreter", "O2"], ["bits", "cpu", "O2"]]
    store = Store(tmp_path / "store")
    first, second = store.record("first"), store.record("second")
    assert first.rows.keys() == second.rows.keys() > {("product", "tokens")}
    bits = second.rows["samples/small", "bits"]["found"]
    assert bits == {"interpreter O2": "ab", "cpu O2": "no answer: the process died"}
    assert store.text("ab") == "text"
    with pytest.raises(ValueError, match="several records begin with ''"):
        store.named("")
    store.close()


def test_a_row_that_was_cut_off_is_asked_again(tmp_path: Path) -> None:
    """The run was ended while it wrote."""
    record = _record(tmp_path, "cut", SAME)
    content = record.path.read_text()
    record.path.write_text(content[: len(content) - 20])
    assert Record(record.path).rows.keys() == {("a", "text"), ("a", "bits")}


def test_check_compares_with_the_oldest_ancestor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that many steps of two percent do not add up."""
    commits = [f"{number}".ljust(40, "0") for number in range(3)]
    monkeypatch.setattr(baseline, "_git", lambda *_: "\n".join(commits))
    store = Store(tmp_path)
    assert baseline.oldest_ancestor(store, commits[0][:10]) is None
    for commit in (*commits[:2], "f" * 40):
        store.record(commit[:10]).begin({"product": "p"})
    store.record(commits[2][:10]).begin({"product": "p"})
    assert baseline.oldest_ancestor(store, commits[0][:10]) == commits[2][:10]
    store.close()


def test_random_modules_are_drawn_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A generator that draws others changes nothing of what is compared."""
    store = Store(tmp_path)
    before = [item.subject for item in random_items(store, 3)]
    monkeypatch.setattr("tests.campaigns.campaign_modules.campaign_module", lambda *_: "another")
    assert [item.subject for item in random_items(store, 3)] == before
    assert len({subject.text for subject in before}) == 3
    assert store.text(text_digest(before[0].text)) == before[0].text
    assert list(random_items(store, 4))[3].subject.text == "another"
    store.close()


def test_every_kind_is_listed() -> None:
    """Restricting a run by each is possible, and no kind is without a part that has it."""
    parts = [Item(part, Subject("x")) for part in ("samples", "messages")]
    assert all(any(item.aspects(kind) for item in parts) for kind in KINDS)
