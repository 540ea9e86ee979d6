"""Linear algebra in its cheapest form: what each identity becomes, and that any plan keeps the results."""

from __future__ import annotations

import random
from math import prod

import numpy as np
import pytest

import hloopt
from hloopt.analysis.cost import instruction_cost
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.linear_algebra import LinearAlgebra, planning
from hloopt.linear_algebra.clusters import Cluster
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite import PassLog, Pipeline
from tests.helpers.rarely import one_in
from tests.oracle import saturation
from tests.passes.proof import check, identical, inputs

N = 1024
MATRIX, VECTOR = f"f32[{N},{N}]", f"f32[{N}]"
ADD = "add { p = TYPE[] parameter(0)\nq = TYPE[] parameter(1)\nROOT s = TYPE[] add(p, q) }\n"
PRODUCT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def module(body: str, *parameters: str, element: str = "f32") -> str:
    """``a``, ``b``, ... are the parameters."""
    lines = [f"{'abcdefgh'[at]} = {shape} parameter({at})" for at, shape in enumerate(parameters)]
    text = "\n".join(lines) + "\n" + body
    return f"HloModule m\n{ADD.replace('TYPE', element)}ENTRY e {{\n{text}\n}}\n"


def flops(given: Module) -> int:
    """Of dots and sums."""
    return sum(
        instruction_cost(one).flops
        for computation in given.computations.values()
        for one in computation
        if one.opcode in ("dot", "reduce")
    )


EYE = f"""rows = s32[{N},{N}] iota(), iota_dimension=0
columns = s32[{N},{N}] iota(), iota_dimension=1
mask = pred[{N},{N}] compare(rows, columns), direction=EQ
"""
IDENTITIES = {
    "(AB)x = A(Bx)": (
        f"""ab = {MATRIX} dot(a, b), {PRODUCT}
        ROOT r = {VECTOR} dot(ab, c), {PRODUCT}""",
        (MATRIX, MATRIX, VECTOR),
        4 * N**2,
    ),
    "(BA)' = A'B', once": (
        f"""ab = {MATRIX} dot(a, b), {PRODUCT}
        ba = {MATRIX} dot(b, a), lhs_contracting_dims={{0}}, rhs_contracting_dims={{1}}
        t = {MATRIX} transpose(ba), dimensions={{1,0}}
        ROOT r = ({MATRIX}, {MATRIX}) tuple(ab, t)""",
        (MATRIX, MATRIX),
        2 * N**3,
    ),
    "A(BC) and (AB)D share AB": (
        f"""bc = {MATRIX} dot(b, c), {PRODUCT}
        abc = {MATRIX} dot(a, bc), {PRODUCT}
        ab = {MATRIX} dot(a, b), {PRODUCT}
        abd = {MATRIX} dot(ab, d), {PRODUCT}
        ROOT r = ({MATRIX}, {MATRIX}) tuple(abc, abd)""",
        (MATRIX,) * 4,
        6 * N**3,
    ),
    "AB + AC = A(B + C)": (
        f"""ab = {MATRIX} dot(a, b), {PRODUCT}
        ac = {MATRIX} dot(a, c), {PRODUCT}
        ROOT r = {MATRIX} add(ab, ac)""",
        (MATRIX,) * 3,
        2 * N**3,
    ),
    "AB - (CB')' = (A - ...)": (
        f"""ab = {MATRIX} dot(a, b), {PRODUCT}
        cb = {MATRIX} dot(b, c), lhs_contracting_dims={{0}}, rhs_contracting_dims={{1}}
        t = {MATRIX} transpose(cb), dimensions={{1,0}}
        ROOT r = {MATRIX} subtract(ab, t)""",
        (MATRIX,) * 3,
        2 * N**3,
    ),
    "(A - BB)x = Ax - B(Bx)": (
        f"""bb = {MATRIX} dot(b, b), {PRODUCT}
        less = {MATRIX} subtract(a, bb)
        ROOT r = {VECTOR} dot(less, c), {PRODUCT}""",
        (MATRIX, MATRIX, VECTOR),
        6 * N**2,
    ),
    "diag(d) A": (
        EYE
        + f"""zero = f32[] constant(0)
        zeros = {MATRIX} broadcast(zero), dimensions={{}}
        spread = {MATRIX} broadcast(a), dimensions={{0}}
        diagonal = {MATRIX} select(mask, spread, zeros)
        ROOT r = {MATRIX} dot(diagonal, b), {PRODUCT}""",
        (VECTOR, MATRIX),
        0,
    ),
    "A(B + diag(d)) beside AB": (
        EYE
        + f"""ab = {MATRIX} dot(a, b), {PRODUCT}
        zero = f32[] constant(0)
        zeros = {MATRIX} broadcast(zero), dimensions={{}}
        spread = {MATRIX} broadcast(c), dimensions={{0}}
        diagonal = {MATRIX} select(mask, spread, zeros)
        sum = {MATRIX} add(b, diagonal)
        p = {MATRIX} dot(a, sum), {PRODUCT}
        ROOT r = ({MATRIX}, {MATRIX}) tuple(ab, p)""",
        (MATRIX, MATRIX, VECTOR),
        2 * N**3,
    ),
    "(AB)x in another order": (
        f"""ab = {MATRIX} dot(a, b), {PRODUCT}
        x = {VECTOR} dot(ab, c), {PRODUCT}
        ROOT r = {VECTOR} gather(x, d), offset_dims={{}}, collapsed_slice_dims={{0}}, start_index_map={{0}},
          index_vector_dim=1, slice_sizes={{1}}""",
        (MATRIX, MATRIX, VECTOR, f"s32[{N}]"),
        4 * N**2,
    ),
    "ABC + ABD = AB(C + D)": (
        f"""ab = {MATRIX} dot(a, b), {PRODUCT}
        abc = {MATRIX} dot(ab, c), {PRODUCT}
        abd = {MATRIX} dot(ab, d), {PRODUCT}
        ROOT r = {MATRIX} add(abc, abd)""",
        (MATRIX,) * 4,
        4 * N**3,
    ),
    "I A = A": (
        EYE
        + f"""one = {MATRIX} convert(mask)
        p = {MATRIX} dot(one, a), {PRODUCT}
        ROOT r = {MATRIX} negate(p)""",
        (MATRIX,),
        0,
    ),
    "(AB)[i,:] = A[i,:] B": (
        f"""ab = {MATRIX} dot(a, b), {PRODUCT}
        ROOT r = f32[1,{N}] slice(ab), slice={{[3:4], [0:{N}]}}""",
        (MATRIX, MATRIX),
        2 * N**2,
    ),
    "(AB)[start:start+2]": (
        f"""ab = {MATRIX} dot(a, b), {PRODUCT}
        zero = s32[] constant(0)
        ROOT r = f32[2,{N}] dynamic-slice(ab, c, zero), dynamic_slice_sizes={{2,{N}}}""",
        (MATRIX, MATRIX, "s32[]"),
        4 * N**2,
    ),
    "trace(AB)": (
        EYE
        + f"""ab = {MATRIX} dot(a, b), {PRODUCT}
        zero = f32[] constant(0)
        zeros = {MATRIX} broadcast(zero), dimensions={{}}
        diagonal = {MATRIX} select(mask, ab, zeros)
        ROOT r = f32[] reduce(diagonal, zero), dimensions={{0,1}}, to_apply=add""",
        (MATRIX, MATRIX),
        N**2,
    ),
    "diag(AB)": (
        f"""ab = {MATRIX} dot(a, b), {PRODUCT}
        places = s32[{N},1] iota(), iota_dimension=0
        ROOT r = {VECTOR} gather(ab, places), offset_dims={{}}, collapsed_slice_dims={{1}},
          start_index_map={{1}}, index_vector_dim=1, slice_sizes={{1,1}}, operand_batching_dims={{0}},
          start_indices_batching_dims={{0}}""",
        (MATRIX, MATRIX),
        N**2,
    ),
    "sum(AB)": (
        f"""ab = {MATRIX} dot(a, b), {PRODUCT}
        zero = f32[] constant(0)
        ROOT r = f32[] reduce(ab, zero), dimensions={{0,1}}, to_apply=add""",
        (MATRIX, MATRIX),
        2 * N**2 + 2 * N,
    ),
    "2(AB)x": (
        f"""ab = {MATRIX} dot(a, b), {PRODUCT}
        two = f32[] constant(2)
        twos = {MATRIX} broadcast(two), dimensions={{}}
        double = {MATRIX} multiply(twos, ab)
        ROOT r = {VECTOR} dot(double, c), {PRODUCT}""",
        (MATRIX, MATRIX, VECTOR),
        4 * N**2,
    ),
    "(A kron B) x = vec(A X B')": (
        f"""left = f32[32,32,32,32] broadcast(a), dimensions={{0,2}}
        right = f32[32,32,32,32] broadcast(b), dimensions={{1,3}}
        both = f32[32,32,32,32] multiply(left, right)
        kron = {MATRIX} reshape(both)
        ROOT r = {VECTOR} dot(kron, c), {PRODUCT}""",
        ("f32[32,32]", "f32[32,32]", VECTOR),
        4 * 32**3,
    ),
    "sum of products of slices": (
        f"""a1 = f32[{N},512] slice(a), slice={{[0:{N}], [0:512]}}
        a2 = f32[{N},512] slice(a), slice={{[0:{N}], [512:{N}]}}
        b1 = f32[512,{N}] slice(b), slice={{[0:512], [0:{N}]}}
        b2 = f32[512,{N}] slice(b), slice={{[512:{N}], [0:{N}]}}
        p = {MATRIX} dot(a1, b1), {PRODUCT}
        q = {MATRIX} dot(a2, b2), {PRODUCT}
        ROOT r = {MATRIX} add(p, q)""",
        (MATRIX, MATRIX),
        2 * N**3,
    ),
    "batch of chains": (
        """ab = f32[8,512,512] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
          rhs_contracting_dims={1}
        ROOT r = f32[8,512] dot(ab, c), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
          rhs_contracting_dims={1}""",
        ("f32[8,512,512]", "f32[8,512,512]", "f32[8,512]"),
        4 * 8 * 512**2,
    ),
    "sum((AB)^2) takes AB": (
        f"""ab = {MATRIX} dot(a, b), {PRODUCT}
        ba = {MATRIX} dot(b, a), lhs_contracting_dims={{0}}, rhs_contracting_dims={{1}}
        t = {MATRIX} transpose(ba), dimensions={{1,0}}
        squares = {MATRIX} multiply(ab, t)
        zero = f32[] constant(0)
        ROOT r = f32[] reduce(squares, zero), dimensions={{0,1}}, to_apply=add""",
        (MATRIX, MATRIX),
        2 * N**3 + N**2,
    ),
    "x(A + UV) = xA + (xU)V, few rows": (
        f"""uv = {MATRIX} dot(c, d), {PRODUCT}
        sum = {MATRIX} add(b, uv)
        ROOT r = f32[16,{N}] dot(a, sum), {PRODUCT}""",
        (f"f32[16,{N}]", MATRIX, f"f32[{N},8]", f"f32[8,{N}]"),
        2 * 16 * N**2 + 4 * 16 * 8 * N,
    ),
    "what shares a sum keeps it": (
        f"""ab = {MATRIX} dot(a, b), {PRODUCT}
        aba = {MATRIX} dot(ab, a), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
        sum = {MATRIX} add(aba, c)
        rows = f32[64,{N}] dot(d, sum), {PRODUCT}
        inner = f32[64,64] dot(rows, d), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
        columns = f32[{N},64] dot(sum, d), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
        gain = f32[{N},64] dot(columns, e), {PRODUCT}
        share = {MATRIX} dot(gain, d), {PRODUCT}
        change = {MATRIX} dot(share, sum), {PRODUCT}
        less = {MATRIX} subtract(sum, change)
        ROOT r = (f32[64,64], {MATRIX}) tuple(inner, less)""",
        (MATRIX, MATRIX, MATRIX, f"f32[64,{N}]", "f32[64,64]"),
        4 * N**3 + 3 * 2 * 64 * N**2 + 2 * 2 * 64 * 64 * N,
    ),
    "linear attention": (
        """qk = f32[4096,4096] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}
        ROOT r = f32[4096,64] dot(qk, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
        ("f32[4096,64]",) * 3,
        4 * 4096 * 64 * 64,
    ),
}


@pytest.mark.parametrize("name", IDENTITIES)
@pytest.mark.parametrize("target", ["h200", "host"])
def test_identity_has_the_best_known_flops(name: str, target: str) -> None:
    body, parameters, best = IDENTITIES[name]
    given = hloopt.parse(module(body, *parameters), name)
    hloopt.verify(given)
    better = clone_module(given)
    report = Pipeline((LinearAlgebra(reassociate=True, target=target),)).run(better)
    parse_pipeline("dce").run(better, verify_each=True)
    if target == "h200" and ("kron" in name or "few rows" in name):
        # A launch more takes longer than the larger product.
        assert not report.changed
        return
    assert report.changed
    assert flops(better) <= best < flops(given) or len(list(better.entry)) < len(list(given.entry))
    again = clone_module(better)
    assert not Pipeline((LinearAlgebra(reassociate=True, target=target),)).run(again).changed


def small(text: str) -> str:
    """The same with sizes that the interpreter computes at once."""
    for old, new in ((f"{N}", "12"), ("512", "6"), ("4096", "24"), ("32,32", "4,3")):
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    "name", [name for name in IDENTITIES if "kron" not in name and "[i,:]" not in name]
)
def test_identity_keeps_integers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the prices say, what would be written has the same bits."""
    monkeypatch.setattr(Cluster, "gains", lambda self, uses: True)
    body, parameters, _ = IDENTITIES[name]
    text = small(module(body, *parameters)).replace("f32", "s32")
    _same_bits(hloopt.parse(text, name))


def _same_bits(given: Module) -> None:
    hloopt.verify(given)
    better = clone_module(given)
    Pipeline((LinearAlgebra(),)).run(better)
    hloopt.verify(better)
    for seed in range(3):
        arrays = inputs(given, seed)
        for one, other in zip(
            hloopt.evaluate(given, arrays), hloopt.evaluate(better, arrays), strict=True
        ):
            assert identical(one, other), better.to_text()


def test_updates_are_multiplied_out_where_they_would_go_through_memory() -> None:
    """On the host nothing fuses into a product; sums of two matrices stay, for they may cancel."""
    update = f"""left = {MATRIX} broadcast(b), dimensions={{0}}
    right = {MATRIX} broadcast(c), dimensions={{1}}
    outer = {MATRIX} multiply(left, right)
    sum = {MATRIX} add(a, outer)
    ROOT r = {VECTOR} dot(sum, c), {PRODUCT}"""
    both = f"""sum = {MATRIX} add(a, b)
    ROOT r = {VECTOR} dot(sum, c), {PRODUCT}"""
    for body, given, target, changes in (
        (update, (MATRIX, VECTOR, VECTOR), "host", True),
        (update, (MATRIX, VECTOR, VECTOR), "h200", False),
        (both, (MATRIX, MATRIX, VECTOR), "host", False),
    ):
        read = hloopt.parse(module(body, *given), "m")
        assert LinearAlgebra(reassociate=True, target=target).run(read, PassLog()) is changes
        if changes:
            assert flops(read) < 2 * N**2 + 4 * N


def test_a_diagonal_is_summed_in_one_step() -> None:
    n = 3
    given = hloopt.parse(
        module(
            f"""ab = f32[{n},{n}] dot(a, b), {PRODUCT}
            turned = f32[{n},{n}] dot(b, a), lhs_contracting_dims={{0}}, rhs_contracting_dims={{1}}
            both = f32[{n},{n}] add(ab, turned)
            rows = s32[{n},{n}] iota(), iota_dimension=0
            columns = s32[{n},{n}] iota(), iota_dimension=1
            mask = pred[{n},{n}] compare(rows, columns), direction=EQ
            zero = f32[] constant(0)
            zeros = f32[{n},{n}] broadcast(zero), dimensions={{}}
            diagonal = f32[{n},{n}] select(mask, both, zeros)
            trace = f32[] reduce(diagonal, zero), dimensions={{0,1}}, to_apply=add
            ROOT r = (f32[{n},{n}], f32[]) tuple(both, trace)""",
            *[f"f32[{n},{n}]"] * 2,
        )
    )
    assert LinearAlgebra(reassociate=True).run(given, PassLog())
    parse_pipeline("dce").run(given)
    kinds = [one.opcode for one in given.entry]
    assert kinds.count("dot") == kinds.count("reduce") == 1


def test_floats_need_leave() -> None:
    body, parameters, _ = IDENTITIES["(AB)x = A(Bx)"]
    given = hloopt.parse(module(body, *parameters), "m")
    log = PassLog(kinds=frozenset({"missed"}))
    assert not LinearAlgebra().run(given, log)
    (remark,) = log.remarks
    assert "sums of f32 would round otherwise" in remark.reason
    assert "us predicted on h200" in remark.reason
    assert LinearAlgebra(fast_math=True).run(given, PassLog())


KEPT = {
    "a square of a difference is not multiplied out": (
        f"""x = f32[{N},64,64] broadcast(a), dimensions={{0,2}}
        y = f32[{N},64,64] broadcast(b), dimensions={{1,2}}
        d = f32[{N},64,64] subtract(x, y)
        s = f32[{N},64,64] multiply(d, d)
        zero = f32[] constant(0)
        ROOT r = f32[{N},64] reduce(s, zero), dimensions={{2}}, to_apply=add""",
        (f"f32[{N},64]", "f32[64,64]"),
    ),
    "a product that is read whole is not made again for its row": (
        f"""ab = {MATRIX} dot(a, b), {PRODUCT}
        row = f32[1,{N}] slice(ab), slice={{[3:4], [0:{N}]}}
        ROOT r = ({MATRIX}, f32[1,{N}]) tuple(ab, row)""",
        (MATRIX, MATRIX),
    ),
    "a low rank is not worth the error of a sum multiplied out": (
        f"""x = {MATRIX} broadcast(b), dimensions={{0}}
        y = {MATRIX} broadcast(c), dimensions={{1}}
        xy = {MATRIX} multiply(x, y)
        sum = {MATRIX} add(a, xy)
        ROOT r = {VECTOR} dot(sum, d), {PRODUCT}""",
        (MATRIX, VECTOR, VECTOR, VECTOR),
    ),
    "a mask beside the diagonal is no identity": (
        EYE.replace("direction=EQ", "direction=NE")
        + f"""one = {MATRIX} convert(mask)
        ROOT r = {MATRIX} dot(one, a), {PRODUCT}""",
        (MATRIX,),
    ),
    "dots of other precision stay apart": (
        f"""ab = {MATRIX} dot(a, b), {PRODUCT}, operand_precision={{highest,highest}}
        ROOT r = {VECTOR} dot(ab, c), {PRODUCT}""",
        (MATRIX, MATRIX, VECTOR),
    ),
    "nothing has a nonlinear function within": (
        f"""ab = {MATRIX} dot(a, b), {PRODUCT}
        t = {MATRIX} tanh(ab)
        ROOT r = {VECTOR} dot(t, c), {PRODUCT}""",
        (MATRIX, MATRIX, VECTOR),
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_stays(name: str) -> None:
    body, parameters = KEPT[name]
    given = hloopt.parse(module(body, *parameters), name)
    hloopt.verify(given)
    assert not LinearAlgebra(reassociate=True).run(given, PassLog())


def test_fuel_counts_clusters() -> None:
    one = f"ab = {MATRIX} dot(a, b), {PRODUCT}\nx = {VECTOR} dot(ab, c), {PRODUCT}"
    two = f"ea = {MATRIX} dot(e, a), {PRODUCT}\ny = {VECTOR} dot(ea, d), {PRODUCT}"
    body = f"{one}\n{two}\nROOT r = ({VECTOR}, {VECTOR}) tuple(x, y)"
    given = hloopt.parse(module(body, MATRIX, MATRIX, VECTOR, VECTOR, MATRIX), "m")
    log = PassLog(fuel=1)
    assert LinearAlgebra(reassociate=True).run(given, log)
    assert sum(log.hits.values()) == 1
    assert flops(given) == 2 * N**3 + 2 * N**2 + 4 * N**2


def test_dots_keep_their_precision() -> None:
    """Of two that multiply the same matrices, neither becomes the other."""
    high, highest = (f"operand_precision={{{word},{word}}}" for word in ("high", "highest"))
    body = f"""p = {MATRIX} dot(a, b), {PRODUCT}, {high}
    q = {MATRIX} dot(a, b), {PRODUCT}, {highest}
    x = {VECTOR} dot(p, c), {PRODUCT}, {high}
    y = {VECTOR} dot(q, c), {PRODUCT}, {highest}
    ROOT r = ({VECTOR}, {VECTOR}) tuple(x, y)"""
    given = hloopt.parse(module(body, MATRIX, MATRIX, VECTOR), "m")
    assert LinearAlgebra(reassociate=True).run(given, PassLog())
    hloopt.verify(given)
    for root, word in zip(given.entry.root.operands, ("high,", "highest,"), strict=True):
        for dot in (root, *(one for one in root.operands if one.opcode == "dot")):
            assert word in str(dot.attributes["operand_precision"])


def test_sides_of_different_precision_are_not_exchanged() -> None:
    mixed = "operand_precision={highest,default}"
    body = f"""ab = {MATRIX} dot(a, b), {PRODUCT}, {mixed}
    ROOT r = {VECTOR} dot(ab, c), {PRODUCT}, {mixed}"""
    given = hloopt.parse(module(body, MATRIX, MATRIX, VECTOR), "m")
    assert not LinearAlgebra(reassociate=True).run(given, PassLog())


def test_a_part_of_computed_start_and_one_of_steps_stay_two() -> None:
    """The start is planned, too, and is another instruction afterwards."""
    body = """i = s32[12] dot(c, d), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    start = s32[] dot(i, d), lhs_contracting_dims={0}, rhs_contracting_dims={0}
    zero = s32[] constant(0)
    ab = s32[12,12] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    rows = s32[2,12] dynamic-slice(ab, start, zero), dynamic_slice_sizes={2,12}
    ROOT r = s32[2,4] slice(rows), slice={[0:2], [1:12:3]}"""
    square = "s32[12,12]"
    text = module(body, square, square, square, "s32[12]", element="s32")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "gains", lambda self, uses: True)
        _same_bits(hloopt.parse(text, "m"))


@pytest.mark.parametrize("reassociate", [False, True])
def test_what_is_read_again_and_again_has_a_budget(reassociate: bool) -> None:
    """A value that is added to itself 60 times over, and positions behind 3,000 conversions."""
    sums = "\n".join(f"v{at + 1} = {MATRIX} add(v{at}, v{at})" for at in range(60))
    positions = f"s32[{N},{N}]"
    views = "\n".join(f"i{at + 1}x = {positions} convert(i{at}x)" for at in range(3000))
    body = f"""two = f32[] constant(2)
    zero = f32[] constant(0)
    v0 = {MATRIX} broadcast(two), dimensions={{}}
    {sums}
    i0x = {positions} iota(), iota_dimension=0
    j = {positions} iota(), iota_dimension=1
    {views}
    mask = pred[{N},{N}] compare(i3000x, j), direction=EQ
    zeros = {MATRIX} broadcast(zero), dimensions={{}}
    s = {MATRIX} select(mask, a, zeros)
    p = {MATRIX} dot(v60, s), {PRODUCT}
    ROOT r = {MATRIX} dot(p, a), {PRODUCT}"""
    given = hloopt.parse(module(body, MATRIX), "m")
    LinearAlgebra(reassociate=reassociate).run(given, PassLog())
    hloopt.verify(given)


@pytest.mark.parametrize(
    ("start", "count", "stride", "is_diagonal"),
    [
        (0, 12, 21, True),
        (3, 12, 21, True),
        (40, 10, 21, True),
        (12, 8, 21, True),
        (12, 9, 21, False),  # the last one is in the next row
        (0, 12, 20, False),
        (0, 6, 42, False),
    ],
)
def test_a_slice_of_rows_laid_out_one_after_the_other(
    start: int, count: int, stride: int, is_diagonal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JAX takes a diagonal by a gather, of which simplification makes such a slice."""
    body = f"""ab = s32[12,20] dot(a, b), {PRODUCT}
    flat = s32[240] reshape(ab)
    ROOT r = s32[{count}] slice(flat), slice={{[{start}:{start + (count - 1) * stride + 1}:{stride}]}}"""
    given = hloopt.parse(module(body, "s32[12,16]", "s32[16,20]", element="s32"), "m")
    better = clone_module(given)
    assert LinearAlgebra(target="host").run(better, PassLog()) == is_diagonal
    if is_diagonal:
        assert flops(better) < flops(given) / 5
    monkeypatch.setattr(Cluster, "gains", lambda self, uses: True)
    _same_bits(given)


def test_what_is_not_followed_may_be_written_anew() -> None:
    """The slice is no part of the product; its operand is replaced before it is planned."""
    body = f"""ab = s32[64,64] dot(a, b), {PRODUCT}
    abx = s32[64,8] dot(ab, c), {PRODUCT}
    flat = s32[512] reshape(abx)
    ROOT r = s32[74] slice(flat), slice={{[0:512:7]}}"""
    given = hloopt.parse(module(body, *["s32[64,64]"] * 2, "s32[64,8]", element="s32"), "m")
    better = clone_module(given)
    assert LinearAlgebra(target="host").run(better, PassLog())
    assert flops(better) < flops(given) / 3
    values = inputs(given, 0)
    (before,), (after,) = (hloopt.evaluate(one, values) for one in (given, better))
    assert identical(before, after)


def test_a_polynomial_of_a_polynomial_is_not_written_out() -> None:
    """Newton and Schulz: of three steps the last one is two products of a matrix and a vector."""
    lines, x = [], "a"
    for at in range(3):
        lines += [
            f"g{at} = {MATRIX} dot({x}, {x}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}",
            f"c{at} = {MATRIX} dot(g{at}, {x}), {PRODUCT}",
            f"x{at} = {MATRIX} subtract({x}, c{at})",
        ]
        x = f"x{at}"
    body = "\n".join(lines) + f"\nROOT r = {VECTOR} dot({x}, b), {PRODUCT}"
    given = hloopt.parse(module(body, MATRIX, VECTOR), "m")
    assert LinearAlgebra(reassociate=True, target="host").run(given, PassLog())
    assert flops(given) < 8.1 * N**3


def test_many_products_with_a_common_factor() -> None:
    count = 30
    products = "\n".join(
        f"d{at} = {MATRIX} dot(a, {'bcdefgh'[at % 7]}), {PRODUCT}\n"
        + (f"t{at} = {MATRIX} add({f't{at - 1}' if at > 1 else 'd0'}, d{at})" if at else "")
        for at in range(count)
    )
    body = f"{products}\nROOT r = {MATRIX} negate(t{count - 1})"
    given = hloopt.parse(module(body, *[MATRIX] * 8), "m")
    assert LinearAlgebra(reassociate=True).run(given, PassLog())
    assert flops(given) == 2 * N**3


class Expression:
    """A random module of integers: dots, sums, products and views of a few matrices and vectors."""

    def __init__(self, seed: int) -> None:
        self.chooser = random.Random(seed)
        self.lines = ["zero = s32[] constant(0)", "three = s32[] constant(3)"]
        self.values: list[tuple[str, tuple[int, ...]]] = []
        self.sizes = (3, 4, 5)
        for at in range(4):
            dims = tuple(self.chooser.choices(self.sizes, k=self.chooser.choice((1, 2, 2, 3))))
            self.lines.append(f"p{at} = {self.shape(dims)} parameter({at})")
            self.values.append((f"p{at}", dims))
        for _ in range(self.chooser.randint(4, 12)):
            self.step()

    @staticmethod
    def shape(dims: tuple[int, ...]) -> str:
        return f"s32[{','.join(map(str, dims))}]"

    def put(self, dims: tuple[int, ...], text: str) -> None:
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {self.shape(dims)} {text}")
        self.values.append((name, dims))

    def step(self) -> None:
        name, dims = self.chooser.choice(self.values)
        kind = self.chooser.choice(
            ("dot", "dot", "dot", "add", "view", "scale", "sum", "part", "eye")
        )
        numbers = list(range(len(dims)))
        if kind == "dot":
            self.dot(name, dims)
        elif kind == "add":
            other, _ = self.chooser.choice([one for one in self.values if one[1] == dims])
            self.put(
                dims, f"{self.chooser.choice(('add', 'subtract', 'multiply'))}({name}, {other})"
            )
        elif kind == "view":
            self.chooser.shuffle(numbers)
            order = "{" + ",".join(map(str, numbers)) + "}"
            self.put(tuple(dims[dim] for dim in numbers), f"transpose({name}), dimensions={order}")
        elif kind == "scale":
            self.put(dims, "broadcast(three), dimensions={}")
            self.put(dims, f"multiply({name}, {self.values[-1][0]})")
        elif kind == "sum" and dims:
            gone = self.chooser.randrange(len(dims))
            rest = tuple(size for dim, size in enumerate(dims) if dim != gone)
            self.put(rest, f"reduce({name}, zero), dimensions={{{gone}}}, to_apply=add")
        elif kind == "part" and dims:
            at = self.chooser.randrange(len(dims))
            start = self.chooser.randrange(dims[at])
            ends = [(start, dims[at]) if dim == at else (0, dims[dim]) for dim in numbers]
            cut = ", ".join(f"[{low}:{high}]" for low, high in ends)
            self.put(tuple(high - low for low, high in ends), f"slice({name}), slice={{{cut}}}")
        elif kind == "eye" and len(dims) == 2 and dims[0] == dims[1]:
            square = f"[{dims[0]},{dims[0]}]"
            mark = f"m{len(self.lines)}"
            self.lines += [
                f"{mark}r = s32{square} iota(), iota_dimension=0",
                f"{mark}c = s32{square} iota(), iota_dimension=1",
                f"{mark} = pred{square} compare({mark}r, {mark}c), direction=EQ",
                f"{mark}z = s32{square} broadcast(zero), dimensions={{}}",
            ]
            self.put(dims, f"select({mark}, {name}, {mark}z)")

    def dot(self, name: str, dims: tuple[int, ...]) -> None:
        other, theirs = self.chooser.choice(self.values)
        pairs = [(i, j) for i, one in enumerate(dims) for j, two in enumerate(theirs) if one == two]
        self.chooser.shuffle(pairs)
        taken: list[tuple[int, int]] = []
        for pair in pairs:
            if all(pair[0] != one and pair[1] != two for one, two in taken):
                taken.append(pair)
        batch = sorted(taken[1:2]) if self.chooser.random() < 0.3 else []
        contracted = taken[:1]
        used = batch + contracted
        left = [size for dim, size in enumerate(dims) if dim not in [one for one, _ in used]]
        right = [size for dim, size in enumerate(theirs) if dim not in [two for _, two in used]]
        result = (*(dims[one] for one, _ in batch), *left, *right)
        if prod(result) > 400 or len(result) > 4:
            return
        lists = (
            ("lhs_batch_dims", [one for one, _ in batch]),
            ("rhs_batch_dims", [two for _, two in batch]),
            ("lhs_contracting_dims", [one for one, _ in contracted]),
            ("rhs_contracting_dims", [two for _, two in contracted]),
        )
        numbers = [f"{key}={{{','.join(map(str, value))}}}" for key, value in lists if value]
        self.put(result, ", ".join([f"dot({name}, {other})", *numbers]))

    def text(self) -> str:
        roots = self.values[-3:]
        shapes = ", ".join(self.shape(dims) for _, dims in roots)
        names = ", ".join(name for name, _ in roots)
        body = "\n".join([*self.lines, f"ROOT r = ({shapes}) tuple({names})"])
        return f"HloModule m\n{ADD.replace('TYPE', 's32')}ENTRY e {{\n{body}\n}}\n"


@pytest.mark.parametrize("seed", one_in(3, range(150)))
def test_any_plan_has_the_same_bits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cluster, "gains", lambda self, uses: True)
    _same_bits(hloopt.parse(Expression(seed).text(), f"seed {seed}"))


@pytest.mark.parametrize("seed", one_in(3, range(60)))
def test_a_second_run_changes_nothing(seed: int) -> None:
    check(Expression(seed).text(), LinearAlgebra(target="host"), changes=None, draws=1)


@pytest.mark.parametrize("seed", one_in(3, range(60)))
def test_multiplying_out_keeps_bits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every form that has fewer flops, however little that gains."""
    monkeypatch.setattr(Cluster, "gains", lambda self, uses: True)
    monkeypatch.setattr(planning, "_DISTRIBUTED", 1)
    monkeypatch.setattr(saturation, "SIZES", (1, 3, 4, 6))
    text = saturation.expression(seed).text().replace("f32", "s32")
    _same_bits(hloopt.parse(text, f"expression {seed}"))


def test_a_broadcast_of_a_number_may_name_no_dimensions() -> None:
    """XLA reads it as ``dimensions={}``; O2 takes it as a matrix of equal rows."""
    text = """HloModule m

ENTRY e {
  x = f32[70,30] parameter(0)
  c = f32[] constant(4321)
  b = f32[30,5] broadcast(c)
  ROOT d = f32[70,5] dot(x, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    module = hloopt.parse(text)
    better = hloopt.optimize(module, "O2")
    x = np.ones((70, 30), np.float32)
    np.testing.assert_array_equal(hloopt.evaluate(better, [x])[0], hloopt.evaluate(module, [x])[0])
