"""The parts of the scoreboard about fusion: what is counted of one program, and what a broken file costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.corpus.fusion_stages import (
    FUSED,
    LOG,
    PARTITION_STAGES,
    PIPELINE_STAGES,
    PREFUSION,
    REFUSED_STAGES,
    TIMES_STAGES,
    sums,
)
from tests.corpus.parts import tasks
from tests.corpus.pipeline_beside import compare_kernels
from tests.corpus.score import file_key
from tests.corpus.stages import examine

PAIR = """HloModule m
ENTRY e {
  x = f32[64] parameter(0)
  a = f32[64] abs(x)
  b = f32[64] negate(a)
  c = f32[64] custom-call(b), custom_call_target="f"
  ROOT r = f32[64] custom-call(c, a), custom_call_target="g"
}
"""
TOGETHER = """HloModule other
f { p = f32[64] parameter(0) q = f32[64] abs(p) n = f32[64] negate(q) ROOT s = (f32[64], f32[64]) tuple(n, q) }
ENTRY e {
  x = f32[64] parameter(0)
  t = (f32[64], f32[64]) fusion(x), kind=kLoop, calls=f
  n = f32[64] get-tuple-element(t), index=0
  q = f32[64] get-tuple-element(t), index=1
  c = f32[64] custom-call(n), custom_call_target="f"
  ROOT r = f32[64] custom-call(c, q), custom_call_target="g"
}
"""
VERDICTS = """fusion_steps { producer_ineligible { producer_name: "a" reason: "the consumer is not fusible" } }
fusion_steps { producer_ineligible { producer_name: "c" reason: "No users to fuse" } }
fusion_steps { update_priority { producer_name: "b" consumer_names: "c" us_fused: 1 us_unfused: 2 } }
"""


FINAL = """HloModule m, is_scheduled=true
f { p = f32[64] parameter(0) q = f32[64] abs(p) ROOT n = f32[64] negate(q) }
ENTRY e {
  x = f32[64]{0} parameter(0)
  y = f32[64]{0} copy(x)
  a = f32[64]{0} fusion(y), kind=kLoop, calls=f
  b = f32[8,8]{1,0} bitcast(a)
  ROOT c = f32[8,8]{0,1} copy(b)
}
"""


@pytest.fixture(name="corpus")
def _corpus(tmp_path: Path, root: Path) -> Path:
    """A corpus of one program, with the log of another."""
    folder = tmp_path / "jax"
    folder.mkdir()
    (tmp_path / "models").mkdir()
    (tmp_path / "xla-tests").mkdir()
    (tmp_path / "xla-tests" / "index.jsonl").touch()
    steps = root / "tests" / "fusion" / "xla" / "steps.priority_fusion_dump.txt"
    (folder / f"m{LOG}").write_text(steps.read_text())
    (folder / f"m{PREFUSION}").write_text(PAIR)
    (folder / f"m{FUSED}").write_text(PAIR)
    return tmp_path


def test_times_are_counted(corpus: Path) -> None:
    """Each step that prices; one that XLA's log has otherwise is near to ours no more."""
    path = corpus / "jax" / f"m{LOG}"
    assert examine(path, TIMES_STAGES) == dict.fromkeys(TIMES_STAGES, "ok: 13 of 13")
    text = path.read_text()
    path.write_text(text.replace("us_unfused: 2.0285", "us_unfused: 2.1", 1))
    assert examine(path, TIMES_STAGES) == {
        "priced": "ok: 13 of 13",
        "exact": "ok: 12 of 13",
        "within_2": "ok: 12 of 13",
        "within_10": "ok: 13 of 13",
    }


def test_refusals_are_counted(corpus: Path) -> None:
    """Refused alike, for the same reason, and allowed alike: each by its own count."""
    path = corpus / "jax" / f"m{LOG}"
    path.write_text(VERDICTS)
    assert examine(path, REFUSED_STAGES) == {
        "refused": "ok: 2 of 2",
        "reason": "ok: 1 of 2",
        "allowed": "ok: 0 of 1",
    }


def test_kernels_of_the_whole_pipeline_are_counted(tmp_path: Path) -> None:
    """Those of our preset and of XLA's final module: a transfer of memory is none, a change of layout is."""
    path = tmp_path / "m.before.hlo"
    path.write_text(PAIR)
    (tmp_path / "m.h200.hlo").write_text(FINAL)
    found = compare_kernels(PAIR, FINAL)
    assert [one.opcode for one in found.theirs] == ["fusion", "copy"]
    assert len(found.ours) == 3
    assert found.surplus() == "custom-call:2 | copy:1"
    assert examine(path, PIPELINE_STAGES) == {
        "preset": "ok",
        "as_many": "failed: ours 3, theirs 2",
    }
    path.write_text("HloModule m\nENTRY e { x = f32[64] parameter(0)\n ROOT a = f32[64] abs(x) }\n")
    (tmp_path / "m.h200.hlo").write_text(FINAL.replace("{0,1}", "{1,0}"))
    assert examine(path, PIPELINE_STAGES)["as_many"] == "ok: ours 1, theirs 1"


def test_kernels_are_counted(corpus: Path) -> None:
    """Where XLA leaves others, those that both have count, and more of ours than of theirs fail."""
    path, after = (corpus / "jax" / f"m{end}" for end in (PREFUSION, FUSED))
    assert examine(path, PARTITION_STAGES) == {
        "fused": "ok",
        "same": "failed: ours 3, theirs 4, the same 2",
        "kernels": "ok: ours 3, theirs 4",
        "common": "ok: 2 of 4",
    }
    after.write_text(TOGETHER)
    assert examine(path, PARTITION_STAGES) == {
        "fused": "ok",
        "same": "ok",
        "kernels": "ok: ours 3, theirs 3",
        "common": "ok: 3 of 3",
    }
    after.write_text(TOGETHER)
    path.write_text(PAIR.replace("abs(x)", 'custom-call(x), custom_call_target="h"'))
    found = examine(path, PARTITION_STAGES)
    assert found["kernels"] == "failed: ours 4, theirs 3"
    assert sums([found["kernels"], "ok: ours 1, theirs 1"]) == {"ours": 5, "theirs": 4}


@pytest.mark.parametrize(
    ("stages", "end"),
    [(TIMES_STAGES, LOG), (REFUSED_STAGES, LOG), (PARTITION_STAGES, PREFUSION)],
)
def test_a_broken_file_is_told(corpus: Path, stages: tuple[str, ...], end: str) -> None:
    """Its first stage fails with what is wrong, and brings no counts."""
    path = corpus / "jax" / f"m{end}"
    path.write_text("fusion_steps {" if end == LOG else "HloModule m\n")
    found = examine(path, stages)
    assert list(found) == [stages[0]]
    assert found[stages[0]].startswith("failed: ")
    assert sums(found.values()) == {}


def test_a_program_is_examined_by_what_is_beside_it(corpus: Path) -> None:
    """No log, no part about it; the file it is compared with changes what is known of it."""
    found = {task.part: task for task in tasks(corpus, xla=False) if task.part[:7] == "fusion."}
    assert set(found) == {"fusion.times", "fusion.refusals", "fusion.partition"}
    keys = {part: file_key(task) for part, task in found.items()}
    assert len(set(keys.values())) == 3
    after = corpus / "jax" / f"m{FUSED}"
    after.write_text(PAIR + "\n")
    assert file_key(found["fusion.partition"]) != keys["fusion.partition"]
    assert file_key(found["fusion.refusals"]) == keys["fusion.refusals"]
    after.unlink()
    (corpus / "jax" / f"m{LOG}").unlink()
    assert not [task for task in tasks(corpus, xla=False) if task.part[:7] == "fusion."]
