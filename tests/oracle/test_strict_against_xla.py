"""Strict readings refuse what XLA's parser refuses, and nothing else but what is listed here."""

from __future__ import annotations

import json
import random
import re
import subprocess
from pathlib import Path

import pytest

from hloopt.errors import ParseError
from hloopt.text.parser import parse_module
from tests.oracle.oracle import CHILD, available, python

pytestmark = [
    pytest.mark.xla,
    pytest.mark.skipif(not available(), reason="no jaxlib: install the extra xla"),
    pytest.mark.timeout(300),
]

COUNT = 1000
TOKEN = re.compile(r'\s+|"[^"]*"|%?[A-Za-z_][\w.-]*=?|-?[0-9][0-9.x_]*|->|<=|.', re.DOTALL)
# XLA's parser goes on after an operand that it cannot read, and takes any numbers for a layout.
LENIENT = re.compile(
    r"the layout is not a permutation|expected a name, found '-|expected (?:an operand|a name or a shape)"
    r"|takes at least \d+ operands?, .* has 0|there is no instruction '(?:pred|[suf]\d+|bf16)'"
)
TEXT = """HloModule m, entry_computation_layout={(f32[4,2]{1,0}, s32[])->(f32[2]{0}, f32[4,2]{1,0})}, num_partitions=2
%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(f32[] %a, f32[] %b)
}
%one { x = f32[4,2] parameter(0) ROOT y = f32[4,2] negate(x) }
%two { x = f32[4,2] parameter(0) ROOT y = f32[4,2] abs(x) }
ENTRY %main (p: f32[4,2], i: s32[]) -> (f32[2], f32[4,2]) {
  %p = f32[4,2]{1,0} parameter(0), sharding={devices=[2,1]<=[2]}
  %i = s32[] parameter(1), metadata={op_name="i" source_line=3}
  %zero = f32[] constant(-2.5e-1)
  %k = s32[2,2]{1,0} constant({{1, 2}, {3, 4}}), frontend_attributes={a="b",c={"d":1}}
  %q = f32[6,2] pad(%p, %zero), padding=1_1x0_0
  %w = f32[3,2] reduce-window(%q, %zero), window={size=2x1 stride=2x1}, to_apply=%sum
  %s = f32[2,2] slice(%p), slice={[0:4:2], [0:2]}
  %d = f32[2,2] dot(%s, %s), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %n = ((f32[4,2]), f32[4,2], u32[]) negate-start(%p)
  %e = f32[4,2] negate-done(%n), control-predecessors={%d}
  %cc = f32[4,2] custom-call(%e), custom_call_target="Sharding", api_version=API_VERSION_ORIGINAL
  %ar = f32[4,2] all-reduce(%cc), replica_groups={{0,1}}, to_apply=%sum, channel_id=1
  %br = f32[4,2] conditional(%i, %ar, %p), branch_computations={%one, %two}
  %f = f32[4,2]{1,0:T(8,128)} fusion(%br), kind=kLoop, calls=%one
  %r = f32[2]{0} reduce(%f, %zero), dimensions={0}, to_apply=%sum
  ROOT %t = (f32[2]{0}, f32[4,2]{1,0}) tuple(%r, %f)
}
"""


def mutant(seed: int) -> str:
    """The text with a token dropped, doubled, swapped with the next, or replaced by another one."""
    chance = random.Random(seed)
    tokens = TOKEN.findall(TEXT)
    places = [at for at, token in enumerate(tokens) if token.strip()]
    at, other = chance.choice(places), chance.choice(places)
    change = chance.choice(["drop", "double", "swap", "replace"])
    if change == "drop":
        tokens[at] = ""
    elif change == "double":
        tokens[at] += " " + tokens[at]
    elif change == "swap":
        after = places[min(places.index(at) + 1, len(places) - 1)]
        tokens[at], tokens[after] = tokens[after], tokens[at]
    else:
        tokens[at] = tokens[other]
    return "".join(tokens)


def xla_says(paths: list[Path]) -> dict[Path, bool]:
    """Whether XLA reads each file; those are left out that abort it."""
    found: dict[Path, bool] = {}
    while paths:
        questions = "".join(
            json.dumps({"path": str(path), "again": False}) + "\n" for path in paths
        )
        answers = subprocess.run(
            [python(), str(CHILD), "answer"],
            input=questions,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        ).stdout.splitlines()
        for path, line in zip(paths, answers, strict=False):
            found[path] = json.loads(line)["error"] is None
        paths = paths[len(answers) + 1 :]
    return found


def test_strict_readings_agree_with_xla(tmp_path: Path) -> None:
    """Of damaged texts at most one in two hundred is read otherwise."""
    texts = {tmp_path / f"{seed}.hlo": mutant(seed) for seed in range(COUNT)}
    for path, text in texts.items():
        path.write_text(text)
    said = xla_says(list(texts))
    assert len(said) > 0.95 * COUNT
    assert 20 < sum(said.values()) < COUNT // 2

    wrong = []
    for path, accepted in said.items():
        try:
            parse_module(texts[path], path.name, strict=True)
        except ParseError as error:
            if accepted and not LENIENT.search(error.message):
                wrong.append(f"XLA reads it: {error}")
        else:
            if not accepted:
                wrong.append(f"XLA refuses it: {path.read_text()}")
    assert len(wrong) <= len(said) // 200, "\n".join(wrong)
