"""XLA's buffer assignment: the heap, what may share a place, and the figures of its own dumps."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

import hloopt
from hloopt.analysis.assignment import assign_buffers
from hloopt.analysis.assignment.heap import HeapBuffer, pack
from hloopt.dumps.content import assigned_bytes
from hloopt.report.memory import memory_use

DUMP = Path(__file__).parents[2] / "samples" / "dump"
STAGES = sorted(DUMP.glob("*after_optimizations.txt"))


def buffer(number: int, size: int, *times: tuple[int, int]) -> HeapBuffer:
    return HeapBuffer(number, size, times)


def test_the_heap_fills_the_smallest_gap() -> None:
    """Largest first; a gap that fits better wins over a larger one, and over the end."""
    rows = [
        buffer(0, 100, (0, 9)),
        buffer(1, 60, (0, 4)),
        buffer(2, 50, (5, 9)),
        buffer(3, 8, (5, 9)),
    ]
    size, offsets = pack(rows, 1)
    assert (size, offsets) == (160, {0: 0, 1: 100, 2: 100, 3: 150})
    assert pack([], 64) == (0, {})


def test_offsets_are_aligned_sizes_are_not() -> None:
    assert pack([buffer(0, 65, (0, 1)), buffer(1, 3, (0, 1))], 64) == (131, {0: 0, 1: 128})


@pytest.mark.parametrize("seed", range(40))
def test_buffers_that_live_at_once_do_not_overlap(seed: int) -> None:
    """Nor is the heap smaller than what lives at once, or larger than all together."""
    random = Random(seed)
    rows = []
    for number in range(random.randint(1, 60)):
        starts = sorted(random.sample(range(80), random.choice((2, 2, 4))))
        times = tuple(zip(starts[::2], starts[1::2], strict=True))
        rows.append(HeapBuffer(number, random.choice((1, 8, 24, 100, 4096)), times))
    size, offsets = pack(rows, 16)
    assert all(offset % 16 == 0 for offset in offsets.values())
    assert size == max(offsets[row.number] + row.byte_size for row in rows)
    for one in rows:
        for other in rows[one.number + 1 :]:
            together = any(a <= d and c <= b for a, b in one.times for c, d in other.times)
            first, second = offsets[one.number], offsets[other.number]
            apart = first + one.byte_size <= second or second + other.byte_size <= first
            assert apart or not together
    alive = max(
        sum(row.byte_size for row in rows if any(a <= time <= b for a, b in row.times))
        for time in range(80)
    )
    assert alive <= size <= sum(row.byte_size + 16 for row in rows)


@pytest.mark.parametrize("path", STAGES, ids=[path.name.split(".")[1] for path in STAGES])
def test_the_memory_of_a_dump_is_what_xla_says(path: Path) -> None:
    """To the byte; the text beside the stage has XLA's own allocations."""
    found = memory_use(hloopt.read(path), xla_bytes=assigned_bytes(path))
    assert found.xla_bytes is not None
    assert found.byte_size == found.xla_bytes
    assert found.to_json()["bytes"] == found.xla_bytes


def memory(text: str, *, gpu: bool = False) -> dict[str, int]:
    module = hloopt.parse(text)
    hloopt.verify(module)
    found = assign_buffers(module, gpu=gpu)
    kinds = ("parameter", "result", "temporary", "constant")
    return {kind: found.bytes_of(kind) for kind in kinds}  # type: ignore[arg-type]


CHAIN = """HloModule m{alias}
ENTRY e {{
  x = f32[256] parameter(0)
  a = f32[256] {first}(x)
  b = f32[256] negate(a)
  ROOT c = f32[256] {last}(b)
}}
"""


@pytest.mark.parametrize(
    ("alias", "first", "last", "temporary", "result"),
    [
        ("", "abs", "abs", 0, 1024),  # all in the place of the result
        ("", "abs", "map", 0, 1024),  # to_apply of one element
        ("", "copy", "reverse", 1024, 1024),  # a reverse reads other places than it writes
        (", input_output_alias={ {}: (0, {}, must-alias) }", "abs", "abs", 0, 0),
    ],
)
def test_elementwise_ops_write_over_their_operand(
    alias: str, first: str, last: str, temporary: int, result: int
) -> None:
    """A donated parameter holds its result, and counts once."""
    text = CHAIN.format(alias=alias, first=first, last=last)
    text = text.replace("reverse(b)", "reverse(b), dimensions={0}")
    text = text.replace("map(b)", "map(b), dimensions={0}, to_apply=one")
    text = text.replace("ENTRY", "one { p = f32[] parameter(0) ROOT q = f32[] sine(p) }\nENTRY")
    found = memory(text)
    assert found == {"parameter": 1024, "result": result, "temporary": temporary, "constant": 0}


SORT = """HloModule m
less {{ a = f32[] parameter(0) b = f32[] parameter(1) {more}ROOT r = pred[] compare(a, b), direction=LT }}
ENTRY e {{
  x = f32[256] parameter(0)
  k = f32[256] negate(x)
{rows}
}}
"""
PAIRS = "c = f32[] parameter(2) d = f32[] parameter(3) "
PAIR = """  s = (f32[256], f32[256]) sort(k, k), dimensions={0}, to_apply=less
  a = f32[256] get-tuple-element(s), index=0
  b = f32[256] get-tuple-element(s), index=1
  ROOT r = f32[256] add(a, b)"""


def test_a_fusion_sorts_in_place_on_a_gpu() -> None:
    """With the numbers that keep a sort stable made in its kernel; another operand of it is not overwritten."""
    text = """HloModule m
less { a = f32[] parameter(0) b = f32[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT }
f { p = f32[256] parameter(0) i = s32[256] iota(), iota_dimension=0
  ROOT s = (f32[256], s32[256]) sort(p, i), dimensions={0}, to_apply=less }
ENTRY e { x = f32[256] parameter(0) k = f32[256] negate(x)
  s = (f32[256], s32[256]) fusion(k), kind=kCustom, calls=f
  ROOT a = f32[256] get-tuple-element(s), index=0 }
"""
    assert memory(text, gpu=True)["temporary"] == 1024 + 16  # the numbers, and the tuple's pointers
    assert memory(text)["temporary"] == 2 * 1024 + 16
    other = text.replace(
        "f32[256] parameter(0) i = s32[256] iota(), iota_dimension=0",
        "f32[256] parameter(0) i = s32[256] convert(p)",
    )
    assert memory(other, gpu=True)["temporary"] == 2 * 1024 + 16


@pytest.mark.parametrize(
    ("rows", "more", "temporary"),
    [
        ("  ROOT s = f32[256] sort(k), dimensions={0}, to_apply=less", "", 0),
        (
            PAIR.replace("sort(k, k)", "sort(k, v)").replace(
                "  s", "  v = f32[256] abs(x)\n  s", 1
            ),
            PAIRS,
            1024 + 16,  # one of the two is the result's; and the tuple's pointers
        ),
        (
            # What another op reads, too, is not sorted in its place.
            "  s = f32[256] sort(k), dimensions={0}, to_apply=less\n  ROOT r = f32[256] atan2(s, k)",
            "",
            1024,
        ),
        (
            # One array in two places is written twice.
            PAIR,
            PAIRS,
            2048 + 16,
        ),
    ],
)
def test_what_is_sorted_is_in_the_place_of_its_operand(
    rows: str, more: str, temporary: int
) -> None:
    """Each operand of a sort in that of its own result, where nothing else reads it."""
    found = memory(SORT.format(rows=rows, more=more))
    assert (found["temporary"], found["result"]) == (temporary, 1024)


LOOP = """HloModule m

c {
  s = (s32[], f32[256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  ten = s32[] constant(10)
  ROOT less = pred[] compare(i, ten), direction=LT
}

b {
  s = (s32[], f32[256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[256] get-tuple-element(s), index=1
  up = f32[256] STEP
  ROOT out = (s32[], f32[256]) tuple(next, up)
}

ENTRY e {
  x = f32[256] parameter(0)
  zero = s32[] constant(0)
  from = s32[] copy(zero)
  of = f32[256] copy(x)
  start = (s32[], f32[256]) tuple(from, of)
  loop = (s32[], f32[256]) while(start), condition=c, body=b
  ROOT left = f32[256] get-tuple-element(loop), index=1
}
"""


def test_a_loop_works_in_the_place_of_its_state() -> None:
    """What a loop carries, and what it returns, lies in one place; the counter and the table of the state beside."""
    found = memory(LOOP.replace("STEP", "negate(x)"))
    assert (found["parameter"], found["result"]) == (1024, 1024)
    # a table of two pointers for the state, then the counter and the comparison, each at a multiple of 64
    assert found["temporary"] == 64 + 64 + 1


FUSION = """HloModule m

f {
  p = f32[256] parameter(0)
  n = f32[256] negate(p)
  ROOT r = BODY
}

ENTRY e {
  x = f32[256] parameter(0)
  a = f32[256] reverse(x), dimensions={0}
  g = SHAPE fusion(a), kind=kLoop, calls=f
  ROOT z = f32[1] slice(g), slice={[0:1]}
}
"""


@pytest.mark.parametrize(
    ("body", "shape", "gpu", "temporary"),
    [
        ("f32[256] exponential(n)", "f32[256]", False, 1024),
        ("f32[256] exponential(n)", "f32[256]", True, 1024),
        ("s32[256] convert(n)", "s32[256]", False, 2048),  # on CPUs shapes must be equal
        ("s32[256] convert(n)", "s32[256]", True, 1024),
        ("f32[256] reverse(n), dimensions={0}", "f32[256]", True, 2048),
    ],
)
def test_fusions_write_over_an_operand(body: str, shape: str, gpu: bool, temporary: int) -> None:
    """Where they read it in the order in which they write."""
    text = FUSION.replace("BODY", body).replace("SHAPE", shape)
    text = text.replace("ROOT z = f32", f"ROOT z = {shape.removesuffix('[256]')}")
    assert memory(text, gpu=gpu)["temporary"] == temporary


def test_what_is_alive_where_most_is_needed() -> None:
    """Named with shape and kind, the largest first."""
    found = memory_use(hloopt.parse(CHAIN.format(alias="", first="copy", last="tanh")))
    assert [(one.label, one.byte_size, one.kind) for one in found.alive] == [
        ("%a", 1024, "result"), ("%x", 1024, "parameter"),
    ]  # fmt: skip
    assert found.at == "a"
