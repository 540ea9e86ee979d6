"""Tiles: what a block is said to read is what its results change with."""

from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

import hloopt
from hloopt.analysis.index import Index, Quotient, Symbol
from hloopt.cost_models.block_level.distinct import distinct
from hloopt.cost_models.block_level.indices import read_places
from hloopt.cost_models.block_level.kernel import TiledKernel
from hloopt.cost_models.block_level.tiling import (
    BlockTile,
    BlockTiles,
    Untiled,
    candidates,
    padded,
    tile,
)
from hloopt.ir import Module

ADD = "sum { a = f64[] parameter(0) b = f64[] parameter(1) ROOT c = f64[] add(a, b) }"

# Bodies that are linear in x: every element that a result is computed from changes it.
LINEAR = {
    "row sums beside their rows": """x = f64[4,6] parameter(0)
  z = f64[] constant(0)
  r = f64[4] reduce(x, z), dimensions={1}, to_apply=sum
  w = f64[4,6] broadcast(r), dimensions={0}
  ROOT y = f64[4,6] add(x, w)""",
    "sums of the outer dimension": """x = f64[3,4,2] parameter(0)
  z = f64[] constant(0)
  ROOT r = f64[4,2] reduce(x, z), dimensions={0}, to_apply=sum""",
    "transpose and slices": """x = f64[6,9] parameter(0)
  t = f64[9,6] transpose(x), dimensions={1,0}
  ROOT s = f64[4,5] slice(t), slice={[1:8:2], [1:6]}""",
    "a broadcast in the middle": """x = f64[2,6] parameter(0)
  ROOT w = f64[2,4,6] broadcast(x), dimensions={0,2}""",
    "two dimensions made one": """x = f64[4,8] parameter(0)
  ROOT y = f64[32] reshape(x)""",
    "one dimension made two": """x = f64[32] parameter(0)
  ROOT y = f64[4,8] reshape(x)""",
    "regrouped dimensions": """x = f64[2,4,4] parameter(0)
  ROOT y = f64[8,4] reshape(x)""",
    "a bitcast of a transposed array": """x = f64[4,6]{0,1} parameter(0)
  ROOT y = f64[6,4]{1,0} bitcast(x)""",
    "a bitcast to one dimension": """x = f64[4,6]{0,1} parameter(0)
  ROOT y = f64[24]{0} bitcast(x)""",
    "dimensions of one element": """x = f64[1,6,1] parameter(0)
  b = f64[6] reshape(x)
  ROOT y = f64[1,1,6] reshape(b)""",
    "dimensions of one element beside others": """x = f64[2,4,1,6] parameter(0)
  ROOT y = f64[8,1,6] reshape(x)""",
    "one value under two indices": """x = f64[8] parameter(0)
  s = f64[4] slice(x), slice={[2:6]}
  u = f64[4] slice(x), slice={[0:4]}
  ROOT y = f64[4] subtract(s, u)""",
}  # fmt: skip


def _module(body: str, shape: str, arguments: str = "x") -> Module:
    return hloopt.parse(f"""HloModule m
{ADD}
body {{
  {body}
}}
ENTRY e {{
  x = {body.split(" parameter", maxsplit=1)[0].split("= ")[1]} parameter(0)
  ROOT f = {shape} fusion({arguments}), kind=kCustom, calls=body
}}
""")


def _fusion(body: str) -> Module:
    root = body.split("ROOT ")[1]
    return _module(body, root.split("= ")[1].split(" ")[0])


def _tiles(module: Module) -> tuple[TiledKernel, BlockTiles]:
    fusion = module.entry.root
    kernel = TiledKernel(fusion)
    found = tile(kernel, kernel.roots[0], candidates(fusion.array.dims, 1e6))
    assert isinstance(found, BlockTiles)
    return kernel, found


def _value(index: Index, values: dict[Symbol, int]) -> int:
    """An index at a point, worked out without any simplification."""
    total = index.constant
    for atom, factor in index.terms:
        if isinstance(atom, Symbol):
            total += factor * values.get(atom, 0)
        else:
            inner = _value(atom.dividend, values)
            divided = isinstance(atom, Quotient)
            total += factor * (inner // atom.divisor if divided else inner % atom.divisor)
    return total


def _elements(found: BlockTile, tiling: int, origin: dict[Symbol, int]) -> set[tuple[int, ...]]:
    """The elements of a tile that begins where the result's tile begins at ``origin``."""
    ranges = []
    for index, size, stride in zip(
        found.view.place, found.view.sizes, found.view.strides, strict=True
    ):
        start = _value(index, origin)
        ranges.append([start + step * int(stride[tiling]) for step in range(int(size[tiling]))])
    return set(product(*ranges))


def _dependence(module: Module) -> npt.NDArray[np.bool_]:
    """[results..., elements of x]: which results change with which element, asked of the interpreter."""
    dims = module.entry.parameters[0].array.dims
    start = np.zeros(dims)
    base = hloopt.evaluate(module, [start])[0]
    changes = []
    for element in np.ndindex(*dims):
        changed = start.copy()
        changed[element] = 1.0
        changes.append(hloopt.evaluate(module, [changed])[0] != base)
    return np.stack(changes, axis=-1)


@pytest.mark.parametrize("name", LINEAR)
def test_a_block_reads_what_its_results_depend_on(name: str) -> None:
    """For each tiling and block within the result: neither more elements nor fewer."""
    module = _fusion(LINEAR[name])
    kernel, tiles = _tiles(module)
    outside = module.entry.parameters[0]
    depends = _dependence(module)
    dims = module.entry.root.array.dims
    asked = 0
    for tiling in np.flatnonzero(tiles.fits):
        sizes = [int(size[tiling]) for size in tiles.sizes]
        for block in product(*[range(dim // size) for dim, size in zip(dims, sizes, strict=True)]):
            starts = [at * size for at, size in zip(block, sizes, strict=True)]
            origin = dict(zip(tiles.symbols, starts, strict=True))
            region = tuple(
                slice(start, start + size) for start, size in zip(starts, sizes, strict=True)
            )
            needed = depends[region].reshape(-1, depends.shape[-1]).any(axis=0)
            want = {
                element
                for element, flag in zip(np.ndindex(*outside.array.dims), needed, strict=True)
                if flag
            }
            read = [found for found in tiles.nodes if found.node is outside]
            assert set().union(*(_elements(one, int(tiling), origin) for one in read)) == want
            asked += 1
    assert asked > 1
    assert outside not in kernel


def test_a_value_under_two_indices_is_one_tile_where_they_agree() -> None:
    """The row itself and the row that is summed are the same once the result's tile is a whole row."""
    module = _fusion(LINEAR["row sums beside their rows"])
    _, tiles = _tiles(module)
    unique = distinct(tiles)
    outside = module.entry.parameters[0]
    first, second = (found for found in tiles.nodes if found.node is outside)
    assert unique[first] is None
    again = unique[second]
    assert again is not None
    whole_row = tiles.sizes[1] == 6
    assert whole_row.any()
    assert (again == ~whole_row).all()


def test_tiles_agree_where_sizes_divide_indices() -> None:
    """Where tiles of 4 begin, i % 4 is 0: the row of four that is read is the row that is summed."""
    module = _fusion("""x = f64[2,3,4] parameter(0)
  z = f64[] constant(0)
  r = f64[2,3] reduce(x, z), dimensions={2}, to_apply=sum
  w = f64[2,3,4] broadcast(r), dimensions={0,1}
  a = f64[2,3,4] add(x, w)
  t = f64[2,4,3] transpose(a), dimensions={0,2,1}
  ROOT y = f64[8,3] reshape(t)""")
    _, tiles = _tiles(module)
    outside = module.entry.parameters[0]
    unique = distinct(tiles)
    first, second = (found for found in tiles.nodes if found.node is outside)
    assert unique[first] is None
    again = unique[second]
    assert again is not None
    assert (again[tiles.fits] == (tiles.sizes[0] % 4 != 0)[tiles.fits]).all()
    assert (tiles.sizes[0][tiles.fits] == 4).any()


def test_tiles_of_equal_size_that_begin_elsewhere_are_two() -> None:
    """Two slices of one array are read one by one in every tiling."""
    module = _fusion(LINEAR["one value under two indices"])
    _, tiles = _tiles(module)
    unique = distinct(tiles)
    outside = module.entry.parameters[0]
    assert all(
        flags is None or flags.all() for found, flags in unique.items() if found.node is outside
    )


UNTILED = {
    "a reduced dimension cut in two": (
        """x = f64[4,6,3] parameter(0)
  b = f64[24,3] reshape(x)
  z = f64[] constant(0)
  ROOT r = f64[3] reduce(b, z), dimensions={0}, to_apply=sum""",
        "b reads no tile, at ((s0 / 6), (s0 % 6), d0)",
    ),
    "dimensions that do not divide each other": (
        """x = f64[4,6] parameter(0)
  ROOT y = f64[3,8] reshape(x)""",
        "no tile of reshape y is one at (((d0 * 8 + d1) / 6), ((d0 * 8 + d1) % 6))",
    ),
    "padding": (
        """x = f64[4] parameter(0)
  z = f64[] constant(0)
  ROOT y = f64[6] pad(x, z), padding=0_2""",
        "no tiles are known of pad y",
    ),
    "a concatenate": (
        """x = f64[4] parameter(0)
  ROOT y = f64[8] concatenate(x, x), dimensions={0}""",
        "no tiles are known of concatenate y",
    ),
    "elements of another width": (
        """x = f64[4,2] parameter(0)
  ROOT y = f32[4,2,2] bitcast(x)""",
        "bitcast y changes the width of elements",
    ),
    "a reduce of two operands": (
        """x = f64[4,2] parameter(0)
  z = f64[] constant(0)
  t = (f64[4], f64[4]) reduce(x, x, z, z), dimensions={1}, to_apply=two
  ROOT y = f64[4] get-tuple-element(t), index=1""",
        "no tiles are known of get-tuple-element y",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNTILED)
def test_what_has_no_tiles_says_why(name: str) -> None:
    """The instruction that stands in the way, and the index it is read at."""
    body, words = UNTILED[name]
    root = body.split("ROOT ")[1].split("= ")[1].split(" ")[0]
    module = hloopt.parse(f"""HloModule m
{ADD}
two {{ a = f64[] parameter(0) b = f64[] parameter(1) c = f64[] parameter(2) d = f64[] parameter(3)
  e = f64[] add(a, c) f = f64[] add(b, d) ROOT t = (f64[], f64[]) tuple(e, f) }}
body {{
  {body}
}}
ENTRY e {{
  x = {body.split(" parameter")[0].split("= ")[1]} parameter(0)
  ROOT f = {root} fusion(x), kind=kCustom, calls=body
}}
""")
    kernel = TiledKernel(module.entry.root)
    found = tile(kernel, kernel.roots[0], candidates(module.entry.root.array.dims, 1e6))
    assert found == Untiled(words)


def test_a_padded_tile_must_be_a_tile_of_a_reshape() -> None:
    """Whole rows of 6 make one of 24 indices, padded to 8 they do not: Triton takes single rows alone."""
    module = _fusion("x = f64[24] parameter(0)\n  ROOT y = f64[4,6] reshape(x)")
    _, tiles = _tiles(module)
    rows, columns = tiles.sizes
    assert (tiles.fits == ((rows == 1) | (columns == 6) | (columns == 1))).all()
    assert (tiles.fine & tiles.fits == (rows == 1) | (columns == 1)).all()


def test_candidates_are_powers_of_two_and_the_whole() -> None:
    """In every dimension; the last one varies fastest, and tiles too large to be one are left out."""
    found = candidates((3, 5), 1e6).tolist()
    assert found == [[one, two] for one in (1, 2, 3) for two in (1, 2, 4, 5)]
    assert candidates((3, 5), 8).tolist() == [[1, 1], [1, 2], [1, 4], [1, 5], [2, 1], [2, 2], [2, 4],
                                              [3, 1], [3, 2]]  # fmt: skip
    assert candidates((), 4).tolist() == [[]]


def test_padding_is_to_the_next_power_of_two() -> None:
    """A power of two stays."""
    assert padded(np.array([0, 1, 2, 3, 4, 5, 1000, 1 << 40])).tolist() == [
        1, 1, 2, 4, 4, 8, 1024, 1 << 40,
    ]  # fmt: skip


def test_a_producer_and_its_consumer_are_one_kernel() -> None:
    """Parameters of either body lead to the operands outside; the producer's value is computed inside."""
    module = hloopt.parse("""HloModule m
first { a = f32[8] parameter(0) b = f32[8] parameter(1) ROOT c = f32[8] add(a, b) }
second { a = f32[8] parameter(0) b = f32[8] parameter(1) ROOT c = f32[8] multiply(a, b) }
ENTRY e {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  p = f32[8] fusion(x, y), kind=kLoop, calls=first
  ROOT q = f32[8] fusion(y, p), kind=kLoop, calls=second
}
""")
    named = module.entry.by_name
    kernel = TiledKernel(named["q"], named["p"])
    (root,) = kernel.roots
    left, right = kernel.operands(root)
    assert (root.opcode, left.name, right.opcode) == ("multiply", "y", "add")
    assert [node.name for node in kernel.operands(right)] == ["x", "y"]
    assert root in kernel
    assert right in kernel
    assert left not in kernel


def test_scalars_of_a_clamp_have_no_index() -> None:
    """Its bounds may be single numbers, and so may the choice of a select."""
    module = hloopt.parse("""HloModule m
ENTRY e {
  low = f32[] parameter(0)
  x = f32[4] parameter(1)
  high = f32[] parameter(2)
  ROOT c = f32[4] clamp(low, x, high)
}
""")
    place = (Symbol("d0", 0, 3).index,)
    assert read_places(module.entry.root, place) == [(), place, ()]
