"""How much code a kernel would have, held against the code that is written."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.analysis import written_code
from hloopt.analysis.code_size import MOST_CODE, Room, executed_instructions
from hloopt.analysis.written_code import elements_of_thread, written
from hloopt.backends.device_compile import prepare
from hloopt.codegen.program import kernel_steps
from hloopt.ir import Instruction
from tests.helpers.large_bodies import looked_up, shuffled_halves, wavelet

FUSED = "priority-fusion,cse,dce"


def _rolled(steps: int) -> str:
    """A stencil: each element and both neighbours, around a ring."""
    lines, x = [], "x"
    for step in range(steps):
        for name, cut in (("l", 1), ("r", 15)):
            lines.append(f"{name}a{step} = f32[{16 - cut}] slice({x}), slice={{[{cut}:16]}}")
            lines.append(f"{name}b{step} = f32[{cut}] slice({x}), slice={{[0:{cut}]}}")
            both = f"{name}a{step}, {name}b{step}"
            lines.append(f"{name}{step} = f32[16] concatenate({both}), dimensions={{0}}")
        lines.append(f"s{step}x = f32[16] add(l{step}, r{step})")
        lines.append(f"x{step} = f32[16] subtract(s{step}x, {x})")
        x = f"x{step}"
    return _fusion(lines, x)


def _padded(steps: int) -> str:
    """Sums of an array with itself, moved by a pad and turned around."""
    lines, x = ["zero = f32[] constant(0)"], "x"
    for step in range(steps):
        lines.append(f"a{step} = f32[16] pad({x}, zero), padding=3_-3")
        lines.append(f"b{step} = f32[16] reverse({x}), dimensions={{0}}")
        lines.append(f"x{step} = f32[16] add(a{step}, b{step})")
        x = f"x{step}"
    return _fusion(lines, x)


def _updated(steps: int) -> str:
    """Updates at places that data say, each read where it was and turned around."""
    lines, x = ["n = s32[] constant(5)"], "x"
    for step in range(steps):
        lines.append(f"old{step} = f32[4] dynamic-slice({x}, n), dynamic_slice_sizes={{4}}")
        lines.append(f"new{step} = f32[4] sine(old{step})")
        lines.append(f"d{step} = f32[16] dynamic-update-slice({x}, new{step}, n)")
        lines.append(f"b{step} = f32[16] reverse(d{step}), dimensions={{0}}")
        lines.append(f"x{step} = f32[16] add(d{step}, b{step})")
        x = f"x{step}"
    return _fusion(lines, x)


def _fusion(lines: list[str], result: str) -> str:
    body = "".join(f"  {line}\n" for line in lines)
    return f"""HloModule fused
inner {{
  x = f32[16] parameter(0)
{body}  ROOT r = f32[16] negate({result})
}}
ENTRY main {{
  x = f32[16] parameter(0)
  ROOT r = f32[16] fusion(x), kind=kLoop, calls=inner
}}
"""


def _sizes(module: hloopt.Module) -> list[tuple[int, int]]:
    """Bytes of each fusion's function as they are, and as they are foretold."""
    prepared = prepare(module)
    found = []
    for step in kernel_steps(prepared.plan.steps):
        if step.instruction.opcode != "fusion":
            continue
        begin = prepared.source.index(f"{step.function}(")
        end = prepared.source.index("\n}\n", begin)
        found.append((end - begin, written(step.instruction, 10**6).size))
    return found


@pytest.mark.parametrize(
    "text",
    [_rolled(3), _rolled(6), _padded(6), _updated(4), shuffled_halves(4), wavelet(6), looked_up(6)],
    ids=["rolled", "rolled-far", "padded", "updated", "halves", "wavelet", "looked-up"],
)
def test_code_is_about_as_long_as_is_foretold(text: str) -> None:
    """Not only where values double: also where the same is read again and again."""
    module = hloopt.parse(text)
    is_fused = any(one.opcode == "fusion" for one in module.entry)
    sizes = _sizes(module if is_fused else hloopt.optimize(module, FUSED))
    assert max(actual for actual, _ in sizes) > 3000
    for actual, foretold in sizes:
        assert actual < 1000 or 0.8 * actual <= foretold <= 2 * actual


def _entry(text: str, *names: str) -> list[Instruction]:
    module = hloopt.parse(text)
    by_name = {one.name: one for one in module.entry}
    return [by_name[name] for name in names]


PAIR = """HloModule pair
one {
  x = f32[64] parameter(0)
  a = f32[64] sine(x)
  ROOT b = f32[64] negate(a)
}
two {
  y = f32[64] parameter(0)
  z = f32[64] parameter(1)
  c = f32[64] sine(z)
  d = f32[64] reverse(y), dimensions={0}
  e = f32[64] add(y, d)
  ROOT f = f32[64] multiply(e, c)
}
ENTRY main {
  x = f32[64] parameter(0)
  p = f32[64] fusion(x), kind=kLoop, calls=one
  ROOT q = f32[64] fusion(p, x), kind=kLoop, calls=two
}
"""


def test_a_reduce_of_several_arrays_is_written_at_an_index_of_its_results() -> None:
    """It has no index as a tuple: its results are of one form."""
    text = """HloModule largest
larger {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  is_larger = pred[] compare(a, b), direction=GE
  value = f32[] maximum(a, b)
  place = s32[] select(is_larger, i, j)
  ROOT both = (f32[], s32[]) tuple(value, place)
}
ENTRY main {
  x = f32[16,8] parameter(0)
  sine = f32[16,8] sine(x)
  at = s32[16,8] iota(), iota_dimension=1
  least = f32[] constant(-inf)
  none = s32[] constant(0)
  ROOT reduce = (f32[16], s32[16]) reduce(sine, at, least, none), dimensions={1}, to_apply=larger
}
"""
    entry = hloopt.parse(text).entry
    sine = next(one for one in entry if one.opcode == "sine")
    assert written(entry.root, 10**6).size < written(entry.root, 10**6, sine).size < 10**6


def test_what_a_pair_holds_twice_is_written_once() -> None:
    """The sine of x is in both; what follows from the two alone counts it twice, and is never less."""
    producer, consumer = _entry(PAIR, "p", "q")
    both = written(consumer, 10**6, producer)
    assert both.instructions == 6
    # x there and x there, a and b each at two places, d free, e and f.
    assert both.size == 8 * written_code.LINE_BYTES
    apart = written(consumer, 10**6)
    assert apart.reads == {producer: 2, consumer.operands[1]: 1}
    joined = apart.joined(producer, written(producer, 10**6), is_result=False)
    assert joined.size >= both.size
    assert joined.reads[producer.operands[0]] == 3


def test_a_producer_that_stays_a_result_is_written_for_it() -> None:
    producer, consumer = _entry(PAIR, "p", "q")
    alone = written(consumer, 10**6, producer)
    beside = written(consumer, 10**6, producer, is_result=True)
    # It is there at the consumer's own index already.
    assert beside.size == alone.size
    apart, ours = written(consumer, 10**6), written(producer, 10**6)
    with_result = apart.joined(producer, ours, is_result=True)
    assert with_result.size - apart.joined(producer, ours, is_result=False).size == ours.size


def test_counting_ends_where_there_is_no_room() -> None:
    """Of 4^20 elements nobody writes the code; what is counted says that it is too much."""
    module = hloopt.optimize(hloopt.parse(wavelet(3)), "instruction-fusion")
    assert any(one.opcode == "fusion" for one in module.entry)
    body = "".join(f"  {line}\n" for line in wavelet(20).splitlines()[2:-2] if "x = " not in line)
    text = f"""HloModule deep
inner {{
  x = f32[64] parameter(0)
{body}  ROOT r = f32[64] negate(x19)
}}
ENTRY main {{
  x = f32[64] parameter(0)
  ROOT f = f32[64] fusion(x), kind=kLoop, calls=inner
}}
"""
    (fusion,) = _entry(text, "f")
    most = 100_000
    assert most < written(fusion, most).size < 1.1 * most


def test_a_thread_computes_fewer_elements_where_code_for_each_would_be_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (fusion,) = _entry(PAIR, "q")
    size = written(fusion, 10**6).size
    assert elements_of_thread(fusion, 4) == 4
    for room, elements in ((4 * size, 4), (4 * size - 1, 2), (2 * size - 1, 1), (size - 1, 1)):
        monkeypatch.setattr(written_code, "MOST_CODE", Room(room, 0, 10**6))
        assert elements_of_thread(fusion, 4) == elements


def test_kernels_of_large_arrays_have_no_more_code_than_others() -> None:
    """Four elements a thread where there is room for their code, fewer elsewhere."""
    module = hloopt.optimize(
        hloopt.parse(wavelet(8, 1 << 22)), "priority-fusion{bounded_code=true},cse,dce"
    )
    prepared = prepare(module)
    for step in kernel_steps(prepared.plan.steps):
        begin = prepared.source.index(f"{step.function}(")
        size = prepared.source.index("\n}\n", begin) - begin
        assert size <= MOST_CODE.of(executed_instructions(step.instruction))
