"""Loops with large bodies of small arrays, as unrolled solvers and rigid bodies have them; ``steps`` tells how large."""

from __future__ import annotations

__all__ = [
    "PROGRAMS",
    "chained_updates",
    "gradients",
    "looked_up",
    "loop_text",
    "matrices",
    "quaternions",
    "shuffled_halves",
    "stacked_products",
    "wavelet",
    "windows",
]


def loop_text(state: str, lines: list[str], results: list[str]) -> str:
    """A loop of three trips over ``state``; ``results`` are its next elements."""
    types = state.split(" ")
    whole = f"(s32[], {', '.join(types)})"
    gets = "".join(
        f"  x{at} = {kind} get-tuple-element(s), index={at + 1}\n" for at, kind in enumerate(types)
    )
    body = "".join(f"  {line}\n" for line in lines)
    given = "".join(f"  p{at} = {kind} parameter({at})\n" for at, kind in enumerate(types))
    names = ", ".join(f"p{at}" for at in range(len(types)))
    return f"""HloModule large
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}}
cond {{
  s = {whole} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT goes_on = pred[] compare(i, n), direction=LT
}}
body {{
  s = {whole} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  tenth = f32[] constant(0.1)
{gets}{body}  ROOT t = {whole} tuple(next, {", ".join(results)})
}}
ENTRY main {{
{given}  zero = s32[] constant(0)
  init = {whole} tuple(zero, {names})
  loop = {whole} while(init), condition=cond, body=body
  ROOT r = {types[0]} get-tuple-element(loop), index=1
}}
"""


def quaternions(steps: int) -> str:
    """Quaternions multiplied again and again, each put together of its four components."""
    lines = ["four = f32[4] broadcast(tenth), dimensions={}"]
    q = "x0"
    signs = ((0, 1, 2, 3), (1, 0, 3, 2), (2, 3, 0, 1), (3, 2, 1, 0))
    for step in range(steps):
        lines += [f"c{step}_{at} = f32[1] slice({q}), slice={{[{at}:{at + 1}]}}" for at in range(4)]
        for at, order in enumerate(signs):
            for term, other in enumerate(order):
                lines.append(
                    f"m{step}_{at}_{term} = f32[1] multiply(c{step}_{term}, c{step}_{other})"
                )
            lines.append(f"u{step}_{at} = f32[1] add(m{step}_{at}_0, m{step}_{at}_1)")
            lines.append(f"v{step}_{at} = f32[1] subtract(m{step}_{at}_2, m{step}_{at}_3)")
            lines.append(f"w{step}_{at} = f32[1] subtract(u{step}_{at}, v{step}_{at})")
        parts = ", ".join(f"w{step}_{at}" for at in range(4))
        lines.append(f"j{step} = f32[4] concatenate({parts}), dimensions={{0}}")
        lines.append(f"k{step} = f32[4] multiply(j{step}, four)")
        lines.append(f"q{step} = f32[4] sine(k{step})")
        q = f"q{step}"
    lines.append(f"wide = f32[8,4] broadcast({q}), dimensions={{1}}")
    lines.append("moved = f32[8,4] add(wide, x1)")
    return loop_text("f32[4] f32[8,4]", lines, [q, "moved"])


def stacked_products(steps: int) -> str:
    """A vector multiplied by matrices of 6x6 that are put together of pieces of the vector."""
    lines = [
        "nothing = f32[3,3] broadcast(tenth), dimensions={}",
        "sixth = f32[6] broadcast(tenth), dimensions={}",
    ]
    v = "x0"
    for step in range(steps):
        cells = []
        for at in range(9):
            first = at % 6
            lines.append(f"s{step}_{at} = f32[1] slice({v}), slice={{[{first}:{first + 1}]}}")
            lines.append(f"n{step}_{at} = f32[1] cosine(s{step}_{at})")
            cells.append(f"n{step}_{at}")
        lines.append(f"c{step} = f32[9] concatenate({', '.join(cells)}), dimensions={{0}}")
        lines.append(f"r{step} = f32[3,3] reshape(c{step})")
        lines.append(f"o{step} = f32[3,6] concatenate(r{step}, nothing), dimensions={{1}}")
        lines.append(f"z{step} = f32[3,6] concatenate(nothing, r{step}), dimensions={{1}}")
        lines.append(f"a{step} = f32[6,6] concatenate(o{step}, z{step}), dimensions={{0}}")
        lines.append(
            f"d{step} = f32[6] dot(a{step}, {v}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        )
        lines.append(f"v{step} = f32[6] multiply(d{step}, sixth)")
        v = f"v{step}"
    return loop_text("f32[6]", lines, [v])


def chained_updates(steps: int) -> str:
    """Gauss-Seidel: each step reads the whole vector and writes one element of it."""
    lines = []
    x = "x0"
    for step in range(steps):
        row = step % 6
        lines.append(f"a{step} = f32[1,6] slice(x1), slice={{[{row}:{row + 1}], [0:6]}}")
        lines.append(
            f"d{step} = f32[1] dot(a{step}, {x}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        )
        lines.append(f"e{step} = f32[1] tanh(d{step})")
        lines.append(f"i{step} = s32[] constant({row})")
        lines.append(f"x_{step} = f32[6] dynamic-update-slice({x}, e{step}, i{step})")
        x = f"x_{step}"
    return loop_text("f32[6] f32[6,6]", lines, [x, "x1"])


def shuffled_halves(steps: int) -> str:
    """Stages of a transform of 16 elements: sums and differences of the halves, interleaved."""
    lines, x = [], "x"
    for step in range(steps):
        lines.append(f"l{step} = f32[8] slice({x}), slice={{[0:8]}}")
        lines.append(f"h{step} = f32[8] slice({x}), slice={{[8:16]}}")
        lines.append(f"a{step} = f32[8] add(l{step}, h{step})")
        lines.append(f"g{step} = f32[8] subtract(l{step}, h{step})")
        lines.append(f"b{step} = f32[8,1] reshape(a{step})")
        lines.append(f"t{step} = f32[8,1] reshape(g{step})")
        lines.append(f"c{step} = f32[8,2] concatenate(b{step}, t{step}), dimensions={{1}}")
        lines.append(f"x{step} = f32[16] reshape(c{step})")
        x = f"x{step}"
    body = "".join(f"  {line}\n" for line in lines)
    return f"""HloModule halves
fused {{
  x = f32[16] parameter(0)
{body}  ROOT r = f32[16] negate({x})
}}
ENTRY main {{
  x = f32[16] parameter(0)
  ROOT r = f32[16] fusion(x), kind=kLoop, calls=fused
}}
"""


def matrices(steps: int) -> str:
    """Products of 4x4 matrices, of 16 elements with 4 terms each."""
    lines, x = [], "x0"
    for step in range(steps):
        lines.append(
            f"d{step} = f32[4,4] dot({x}, {x}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        )
        lines.append(f"t{step} = f32[4,4] tanh(d{step})")
        x = f"t{step}"
    return loop_text("f32[4,4]", lines, [x])


def windows(steps: int) -> str:
    """Sums over windows of sums over windows: each element is a loop."""
    lines = ["none = f32[] constant(0)"]
    x = "x0"
    for step in range(steps):
        lines.append(
            f"w{step} = f32[12] reduce-window({x}, none), window={{size=3 pad=1_1}}, to_apply=add"
        )
        lines.append(f"t{step} = f32[12] tanh(w{step})")
        x = f"t{step}"
    return loop_text("f32[12]", lines, [x])


def wavelet(levels: int, elements: int = 64) -> str:
    """Haar's transform: sums of neighbours before their differences, again and again.

    An element is in one of two branches and needs two others: of them there are 4^levels, in as many branches.
    """
    half = elements // 2
    lines, x = [f"part = f32[{half}] broadcast(seventh), dimensions={{}}"], "x"
    for level in range(levels):
        for name, at in (("e", 0), ("o", 1)):
            where = f"slice={{[{at}:{elements}:2]}}"
            lines.append(f"{name}{level} = f32[{half}] slice({x}), {where}")
        for name, op in (("sum", "add"), ("difference", "subtract")):
            lines.append(f"{name}{level} = f32[{half}] {op}(e{level}, o{level})")
            lines.append(f"{name}{level}_part = f32[{half}] multiply({name}{level}, part)")
        both = f"sum{level}_part, difference{level}_part"
        lines.append(f"x{level} = f32[{elements}] concatenate({both}), dimensions={{0}}")
        x = f"x{level}"
    return _plain(elements, ["seventh = f32[] constant(0.7)", *lines], x)


def looked_up(levels: int, elements: int = 64) -> str:
    """Each element and one at a place that data say, added, again and again: 2^levels of them."""
    dims = (
        "offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1,"
        " slice_sizes={1}"
    )
    lines, x = [], "x"
    for level in range(levels):
        lines.append(f"i{level} = s32[{elements}] parameter({level + 1})")
        lines.append(f"g{level} = f32[{elements}] gather({x}, i{level}), {dims}")
        lines.append(f"x{level} = f32[{elements}] add({x}, g{level})")
        x = f"x{level}"
    return _plain(elements, lines, x)


def _plain(elements: int, lines: list[str], result: str) -> str:
    """A module without fusions whose parameter 0 is ``x``."""
    body = "".join(f"  {line}\n" for line in lines)
    return f"""HloModule plain
ENTRY main {{
  x = f32[{elements}] parameter(0)
{body}  ROOT r = f32[{elements}] negate({result})
}}
"""


def gradients(steps: int) -> str:
    """A recurrent cell and the gradient of its weights, step by step.

    Every unit, an element of the gradient, needs all of what is carried, through concatenates and dots over them.
    """
    lines = []
    h = "x0"
    gradient = "x1"
    for step in range(steps):
        gates = []
        for at, op in enumerate(("tanh", "sine", "cosine", "negate")):
            lines.append(f"g{step}_{at} = f32[2,4] {op}({h})")
            gates.append(f"g{step}_{at}")
        lines.append(f"z{step} = f32[2,16] concatenate({', '.join(gates)}), dimensions={{1}}")
        lines.append(
            f"p{step} = f32[4,16] dot({h}, z{step}), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}"
        )
        lines.append(f"sum{step} = f32[4,16] add({gradient}, p{step})")
        lines.append(
            f"h{step} = f32[2,4] dot(z{step}, x2), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}"
        )
        h, gradient = f"h{step}", f"sum{step}"
    return loop_text("f32[2,4] f32[4,16] f32[4,16]", lines, [h, gradient, "x2"])


PROGRAMS = {
    "quaternions": quaternions,
    "stacked-products": stacked_products,
    "chained-updates": chained_updates,
    "matrices": matrices,
    "windows": windows,
}
"""Loops by name."""
