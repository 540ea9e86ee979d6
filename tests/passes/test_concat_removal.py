"""Concatenates that are read in pieces: random stacks, loops, and where the whole is needed."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.passes.concat_removal import ConcatRemoval
from hloopt.pipelines import optimize_module
from hloopt.rewrite import PassLog
from tests.helpers.rarely import one_in
from tests.passes import proof

HEAD = """HloModule m
less { l = f32[] parameter(0)
  r = f32[] parameter(1)
  ROOT s = f32[] add(l, r) }
most { l = s32[] parameter(0)
  r = s32[] parameter(1)
  ROOT s = s32[] maximum(l, r) }
"""


def entry(body: str) -> str:
    return f"{HEAD}ENTRY e {{\n{body}\n}}\n"


def opcodes(module: Module) -> list[str]:
    return [instruction.opcode for instruction in module.instructions()]


def moves(rng: random.Random, lines: list[str], dims: tuple[int, int], dim: int) -> int:
    """Ops that keep an array in pieces, from ``v`` on; the last one's number."""
    number = 0
    for _ in range(rng.randint(0, 4)):
        shape, old, number = f"s32[{dims[0]},{dims[1]}]", f"v{number}", number + 1
        match rng.choice(["unary", "self", "splat", "other", "reverse", "copy", "count"]):
            case "unary":
                text = f"negate({old})"
            case "self":
                text = f"multiply({old}, {old})"
            case "splat":
                text = f"add({old}, {old}s)"
                lines.append(f"{old}k = s32[] constant({rng.randint(-3, 3)})")
                lines.append(f"{old}s = {shape} broadcast({old}k), dimensions={{}}")
            case "other":
                text = f"maximum({old}, o)"
            case "reverse":
                text = f"reverse({old}), dimensions={{{rng.choice(['', '0', '1', '0,1'])}}}"
            case "copy":
                text = f"copy({old})"
            case _:
                text = f"xor({old}, {old}i)"
                lines.append(f"{old}i = {shape} iota(), iota_dimension={rng.randint(0, 1)}")
        lines.append(f"v{number} = {shape} {text}")
    return number


def stack(rng: random.Random, sizes: list[int], width: int, dim: int) -> list[str]:
    """``v0``: a concatenate, updates of zeros, or a sum of pads, along ``dim``."""
    total = sum(sizes)

    def shape(size: int) -> str:
        return f"s32[{size},{width}]" if dim == 0 else f"s32[{width},{size}]"

    lines = [f"p{k} = {shape(size)} parameter({k})" for k, size in enumerate(sizes)]
    lines.append(f"o = {shape(total)} parameter({len(sizes)})")
    form = rng.choice(["concatenate", "concatenate", "update", "pad"])
    if form == "concatenate":
        names = ", ".join(f"p{k}" for k in range(len(sizes)))
        return [*lines, f"v0 = {shape(total)} concatenate({names}), dimensions={{{dim}}}"]
    lines.append("z = s32[] constant(0)")
    lines.append(f"w = {shape(total)} broadcast(z), dimensions={{}}")
    before, offset = "w", 0
    for k, size in enumerate(sizes):
        after = "v0" if k == len(sizes) - 1 else f"step{k}"
        if form == "update":
            lines.append(f"at{k} = s32[] constant({offset})")
            starts = f"at{k}, z" if dim == 0 else f"z, at{k}"
            text = f"dynamic-update-slice({before}, p{k}, {starts})"
        else:
            edge = f"{offset}_{total - offset - size}"
            padding = f"{edge}x0_0" if dim == 0 else f"0_0x{edge}"
            lines.append(f"pad{k} = {shape(total)} pad(p{k}, z), padding={padding}")
            text = f"add({before}, pad{k})"
        lines.append(f"{after} = {shape(total)} {text}")
        before, offset = after, offset + size
    return lines


def cut(rng: random.Random, whole: str, sizes: list[int], width: int, dim: int) -> list[str]:
    """Readers of the whole: slices at the pieces' ends and inside them, a reduce."""
    bounds = [sum(sizes[:k]) for k in range(len(sizes) + 1)]
    lines = []
    for k, (first, limit) in enumerate(pairwise(bounds)):
        end = rng.choice(bounds[k + 1 :]) if rng.random() < 0.2 else limit
        start = rng.randint(first, limit - 1) if rng.random() < 0.2 else first
        ranges = [f"[{start}:{end}]", f"[0:{width}]"]
        dims = [end - start, width]
        if dim == 1:
            ranges, dims = ranges[::-1], dims[::-1]
        lines.append(
            f"r{k} = s32[{dims[0]},{dims[1]}] slice({whole}), slice={{{', '.join(ranges)}}}"
        )
    shape = f"s32[{width}]"
    lines.append("least = s32[] constant(-7)")
    lines.append(
        f"r{len(sizes)} = {shape} reduce({whole}, least), dimensions={{{dim}}}, to_apply=most"
    )
    return lines


@pytest.mark.parametrize("seed", one_in(3, range(80)))
def test_random_stacks_read_in_pieces(seed: int) -> None:
    """A stack that ops and slices follow gives the same results in pieces."""
    rng = random.Random(seed)
    dim, width = rng.randint(0, 1), rng.randint(1, 3)
    sizes = [rng.randint(1, 3) for _ in range(rng.randint(2, 4))]
    lines = stack(rng, sizes, width, dim)
    dims = (sum(sizes), width) if dim == 0 else (width, sum(sizes))
    last = moves(rng, lines, dims, dim)
    lines += cut(rng, f"v{last}", sizes, width, dim)
    results = ", ".join(f"r{k}" for k in range(len(sizes) + 1))
    lines.append(f"ROOT t = ({_shapes(lines, len(sizes) + 1)}) tuple({results})")
    proof.check(entry("\n".join(lines)), ConcatRemoval(), draws=3, changes=None)


def _shapes(lines: list[str], count: int) -> str:
    shapes = {line.split(" = ")[0]: line.split()[2] for line in lines}
    return ", ".join(shapes[f"r{k}"] for k in range(count))


LOOP = """
body { s = (s32[], f32[3,4], f32[3,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  n = s32[] add(i, one)
  x = f32[3,4] get-tuple-element(s), index=1
  k = f32[3,4] get-tuple-element(s), index=2
  a = f32[1,4] slice(x), slice={[0:1], [0:4]}
  b = f32[1,4] slice(x), slice={[1:2], [0:4]}
  c = f32[1,4] slice(x), slice={[2:3], [0:4]}
  ab = f32[1,4] add(a, b)
  bc = f32[1,4] multiply(b, c)
  all = f32[3,4] concatenate(ab, bc, a), dimensions={0}
  PLUS
  ROOT r = (s32[], f32[3,4], f32[3,4]) tuple(n, y, k) }
test { s = (s32[], f32[3,4], f32[3,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  five = s32[] constant(5)
  ROOT go = pred[] compare(i, five), direction=LT }
ENTRY e { x = f32[3,4] parameter(0)
  k = f32[3,4] parameter(1)
  zero = s32[] constant(0)
  t = (s32[], f32[3,4], f32[3,4]) tuple(zero, x, k)
  w = (s32[], f32[3,4], f32[3,4]) while(t), condition=test, body=body
  ROOT out = f32[3,4] get-tuple-element(w), index=1 }
"""


def loop(plus: str) -> str:
    return HEAD + LOOP.replace("PLUS", plus)


def test_loop_carries_pieces() -> None:
    """A state rebuilt by a concatenate is carried as separate arrays and put together after the loop."""
    module, _ = proof.check(loop("y = f32[3,4] negate(all)"), ConcatRemoval())
    body = module.computations["body"]
    assert "concatenate" not in {instruction.opcode for instruction in body}
    assert [instruction.opcode for instruction in module.entry][-1] == "concatenate"
    assert module.entry.root.name == "out"


def test_loop_keeps_the_place_of_other_state() -> None:
    """The counter and what is not cut keep their tuple indices; new pieces are at the end."""
    module, _ = proof.check(loop("y = f32[3,4] add(all, k)"), ConcatRemoval())
    state = module.computations["body"].root
    assert state.operands[0].name == "n"
    assert state.operands[2].name == "k"
    assert len(state.operands) == 5


def test_loop_whose_body_needs_the_whole_stays() -> None:
    """Where an op in the body needs the whole array, separate arrays would cost another concatenate."""
    plus = """q = f32[3,3] dot(all, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  m = f32[3,4] dot(q, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = f32[3,4] add(all, m)"""
    proof.check(loop(plus), ConcatRemoval(), changes=False)


def test_float_sums_of_pieces_need_fast_math() -> None:
    """A sum over the pieces may be split only where its order does not matter."""
    text = entry("""x = f32[4] parameter(0)
      y = f32[6] parameter(1)
      z = f32[] constant(0)
      c = f32[10] concatenate(x, y), dimensions={0}
      ROOT r = f32[] reduce(c, z), dimensions={0}, to_apply=less""")
    proof.check(text, ConcatRemoval(), changes=False)
    module, _ = proof.check(text, ConcatRemoval(fast_math=True), rtol=1e-5)
    assert "concatenate" not in opcodes(module)


@pytest.mark.parametrize(
    "reader",
    [
        "ROOT r = f32[3] slice(c), slice={[3:6]}",
        "ROOT r = f32[10] sort(c), dimensions={0}, to_apply=before",
        "i = s32[] parameter(2)\n ROOT r = f32[2] dynamic-slice(c, i), dynamic_slice_sizes={2}",
        "ROOT r = f32[5] slice(c), slice={[0:10:2]}",
    ],
)
def test_readers_across_pieces_need_the_whole(reader: str) -> None:
    """A slice across an end of a piece, a sort, a slice at an unknown place: nothing changes."""
    text = entry(f"""x = f32[4] parameter(0)
      y = f32[6] parameter(1)
      c = f32[10] concatenate(x, y), dimensions={{0}}
      {reader}""").replace(
        "ENTRY",
        "before { l = f32[] parameter(0)\n r = f32[] parameter(1)\n"
        " ROOT s = pred[] compare(l, r), direction=LT, type=TOTALORDER }\nENTRY",
    )
    proof.check(text, ConcatRemoval(), changes=False)


def test_control_edges_and_shardings_stay() -> None:
    """A concatenate with a control edge or a sharding is left alone."""
    text = entry("""x = f32[4] parameter(0)
      y = f32[6] parameter(1)
      c = f32[10] concatenate(x, y), dimensions={0}, MARK
      ROOT r = f32[4] slice(c), slice={[0:4]}""")
    for mark in ("sharding={replicated}", "control-predecessors={x}"):
        proof.check(text.replace("MARK", mark), ConcatRemoval(), changes=False)
    proof.check(text.replace(", MARK", ""), ConcatRemoval())


def test_reshapes_and_broadcasts_are_followed() -> None:
    """A stack of rows that is flattened, widened and turned is still made of its rows."""
    text = entry("""x = f32[1,3] parameter(0)
      y = f32[1,3] parameter(1)
      c = f32[2,3] concatenate(x, y), dimensions={0}
      flat = f32[6] reshape(c)
      wide = f32[2,6] broadcast(flat), dimensions={1}
      turned = f32[6,2] transpose(wide), dimensions={1,0}
      low = f32[3,2] slice(turned), slice={[0:3], [0:2]}
      high = f32[3,2] slice(turned), slice={[3:6], [0:2]}
      ROOT r = f32[3,2] subtract(low, high)""")
    module, _ = proof.check(text, ConcatRemoval())
    assert not {"concatenate", "slice"} & set(opcodes(module))


def test_fuel_stops_between_regions() -> None:
    """Two stacks are two rewrites."""
    part = """x{0} = f32[1,3] parameter({0})
      c{0} = f32[2,3] concatenate(x{0}, x{0}), dimensions={{0}}
      r{0} = f32[1,3] slice(c{0}), slice={{[0:1], [0:3]}}
    """
    text = entry(part.format(0) + part.format(1) + "ROOT r = f32[1,3] add(r0, r1)")
    module = hloopt.parse(text)
    assert ConcatRemoval().run(module, PassLog(fuel=1))
    hloopt.verify(module)
    assert opcodes(module).count("concatenate") == 1


@pytest.mark.parametrize(("algorithm", "words"), [("rng_three_fry", 2), ("rng_philox", 3)])
def test_random_rollout_has_neither_concatenate_nor_rng_in_its_loop(
    algorithm: str, words: int
) -> None:
    """A rollout that draws bits and rebuilds its state by a stack: the loop keeps none of the two."""
    text = ROLLOUT.replace("ALGORITHM", algorithm).replace("u64[2]", f"u64[{words}]")
    given = hloopt.parse(text)
    better = optimize_module(given, ROLLOUT_PIPELINE)
    hloopt.verify(better)
    for loop in better.instructions():
        if loop.opcode == "while":
            left = {one.opcode for name in ("body", "condition") for one in loop.attributes[name]}
            assert not {"concatenate", "rng-bit-generator", "call"} & left
    for seed in range(3):
        arrays = proof.inputs(given, seed)
        results = zip(hloopt.evaluate(given, arrays), hloopt.evaluate(better, arrays), strict=True)
        assert all(proof.identical(one, other) for one, other in results)


def test_pieces_is_at_least_two() -> None:
    """One piece is no cut."""
    with pytest.raises(UsageError, match="pieces must be at least 2, got"):
        ConcatRemoval(pieces=1)


ROLLOUT_PIPELINE = "simplify,rng-expander{concatenate=false},simplify,concat-removal,dce"
ROLLOUT = """HloModule rollout
body {
  state = (s32[], u64[2]{0}, f32[4,8]{1,0}) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  key = u64[2]{0} get-tuple-element(state), index=1
  x = f32[4,8]{1,0} get-tuple-element(state), index=2
  rbg = (u64[2]{0}, u32[4,8]{1,0}) rng-bit-generator(key), algorithm=ALGORITHM
  newkey = u64[2]{0} get-tuple-element(rbg), index=0
  bits = u32[4,8]{1,0} get-tuple-element(rbg), index=1
  rbg2 = (u64[2]{0}, u32[8]{0}) rng-bit-generator(newkey), algorithm=ALGORITHM
  newkey2 = u64[2]{0} get-tuple-element(rbg2), index=0
  act = u32[8]{0} get-tuple-element(rbg2), index=1
  k9 = u32[] constant(9)
  k9b = u32[4,8]{1,0} broadcast(k9), dimensions={}
  sh = u32[4,8]{1,0} shift-right-logical(bits, k9b)
  fl = f32[4,8]{1,0} convert(sh)
  sc = f32[] constant(1.1920929e-07)
  scb = f32[4,8]{1,0} broadcast(sc), dimensions={}
  reset = f32[4,8]{1,0} multiply(fl, scb)
  uno = u32[] constant(1)
  unob = u32[8]{0} broadcast(uno), dimensions={}
  low = u32[8]{0} and(act, unob)
  force = f32[8]{0} convert(low)
  c0 = f32[1,8]{1,0} slice(x), slice={[0:1], [0:8]}
  r0 = f32[8]{0} reshape(c0)
  c1 = f32[1,8]{1,0} slice(x), slice={[1:2], [0:8]}
  r1 = f32[8]{0} reshape(c1)
  c2 = f32[1,8]{1,0} slice(x), slice={[2:3], [0:8]}
  r2 = f32[8]{0} reshape(c2)
  c3 = f32[1,8]{1,0} slice(x), slice={[3:4], [0:8]}
  r3 = f32[8]{0} reshape(c3)
  n0 = f32[8]{0} add(r0, r1)
  n1 = f32[8]{0} add(r1, force)
  n2 = f32[8]{0} add(r2, r3)
  sn = f32[8]{0} sine(r2)
  n3 = f32[8]{0} add(r3, sn)
  lim = f32[] constant(2.4)
  limb = f32[8]{0} broadcast(lim), dimensions={}
  done = pred[8]{0} compare(n0, limb), direction=GT
  t0 = f32[1,8]{1,0} reshape(n0)
  t1 = f32[1,8]{1,0} reshape(n1)
  t2 = f32[1,8]{1,0} reshape(n2)
  t3 = f32[1,8]{1,0} reshape(n3)
  stack = f32[4,8]{1,0} concatenate(t0, t1, t2, t3), dimensions={0}
  doneb = pred[4,8]{1,0} broadcast(done), dimensions={1}
  newx = f32[4,8]{1,0} select(doneb, reset, stack)
  ROOT result = (s32[], u64[2]{0}, f32[4,8]{1,0}) tuple(next, newkey2, newx)
}
test {
  state = (s32[], u64[2]{0}, f32[4,8]{1,0}) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  ten = s32[] constant(10)
  ROOT go = pred[] compare(i, ten), direction=LT
}
ENTRY main {
  x = f32[4,8]{1,0} parameter(0)
  key = u64[2]{0} parameter(1)
  zero = s32[] constant(0)
  start = (s32[], u64[2]{0}, f32[4,8]{1,0}) tuple(zero, key, x)
  loop = (s32[], u64[2]{0}, f32[4,8]{1,0}) while(start), condition=test, body=body
  out = f32[4,8]{1,0} get-tuple-element(loop), index=2
  k = u64[2]{0} get-tuple-element(loop), index=1
  ROOT r = (f32[4,8]{1,0}, u64[2]{0}) tuple(out, k)
}
"""


RING = """
more { s = (s32[], f32[16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(40)
  ROOT c = pred[] compare(i, n), direction=LT }
turn { s = (s32[], f32[16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[16] get-tuple-element(s), index=1
  front = f32[1] slice(x), slice={[0:1]}
  back = f32[15] slice(x), slice={[1:16]}
  turned = f32[16] concatenate(back, front), dimensions={0}
  last = f32[1] slice(x), slice={[15:16]}
  rest = f32[15] slice(x), slice={[0:15]}
  other = f32[16] concatenate(last, rest), dimensions={0}
  near = f32[16] add(turned, other)
  y = f32[16] add(x, near)
  ROOT t = (s32[], f32[16]) tuple(j, y) }
"""


@pytest.mark.parametrize(("growth", "whole"), [(10, True), (256, False)])
def test_growth_keeps_a_ring_in_one_piece(growth: int, whole: bool) -> None:
    """An array turned in a loop falls into its elements, unless that adds more instructions than allowed."""
    body = """  x = f32[16] parameter(0)
  zero = s32[] constant(0)
  first = (s32[], f32[16]) tuple(zero, x)
  loop = (s32[], f32[16]) while(first), condition=more, body=turn
  ROOT y = f32[16] get-tuple-element(loop), index=1"""
    module = hloopt.parse(f"{HEAD}{RING}ENTRY e {{\n{body}\n}}\n")
    log = PassLog()
    assert ConcatRemoval(growth=growth).run(module, log) is not whole
    (loop,) = (entry for entry in module.entry if entry.opcode == "while")
    assert (len(loop.shape.elements) == 2) is whole


def test_growth_is_positive() -> None:
    """A bound that forbids everything is a mistake."""
    with pytest.raises(UsageError, match="growth must be at least 1, got"):
        ConcatRemoval(growth=0)
