"""Attention and its gradients in one kernel: scores by tiles, weighted and multiplied again where they are.

A block has rows of one batch.  It goes over the columns tile by tile: multiplies, computes what follows element
by element in registers, folds each row, and multiplies the weights with the values of the tile.  Sums and
contexts wait for no greatest score: they are scaled when a greater one is met.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Final

from hloopt.analysis.attention import (
    Attention,
    Masking,
    attention_form,
    masking_of,
    matrix_unit,
)
from hloopt.analysis.contraction import accumulator
from hloopt.analysis.reduction import WARP_SIZE
from hloopt.analysis.region import Region
from hloopt.errors import UsageError
from hloopt.kernels.families.loop import operands_read
from hloopt.kernels.families.reductions import operands_of
from hloopt.kernels.kernel import (
    NO,
    YES,
    Efficiency,
    Kernel,
    Recognizer,
    Site,
    Verdict,
    elemental_problem,
)
from hloopt.kernels.spec import (
    Argument,
    KernelSpec,
    Launch,
    LeafPlace,
    ScratchBuffer,
    Tile,
    written,
)

__all__ = ["KERNELS", "TF32", "WARP_ROWS", "attention_of", "masking_in", "padded_row"]

WARP_ROWS: Final = 16
"""Rows of a warp: a lane has two of them, and two neighbouring columns of every eight."""

TF32: Final = 3
"""``units`` of products whose factors are rounded to TF32."""
_EIGHT: Final = 8
_MOST_ROWS: Final = 128
_MOST_INNER: Final = 256
_LEAST_ROWS: Final = 32
_WHOLE_STEPS: Final = (8, 0)
"""Devices whose matrix units multiply 16 elements deep; others 8 deep, in twice as many steps."""
_FIRST_COPIES: Final = (8, 0)
"""Devices that copy into shared memory beside the arithmetic: a second tile is filled so."""
_SIZE_THREADS: Final = 256
_SIZE_BLOCKS: Final = 256
_SIZE_RUNS: Final = 8
"""Times that a thread reads, where that many blocks are not needed."""
_ROOM: Final = {128: 64, 192: 32, 256: 16}
"""Up to how many columns of values a thread has registers for so many columns of scores at once."""


@Recognizer
def attention_of(region: Region) -> Attention | str:
    """The form of a region that such a kernel computes, or why it is none."""
    if "dot" not in region.opcodes:
        return "nothing is multiplied"
    problem = elemental_problem(region)
    if problem:
        return problem
    form = attention_form(region)
    if isinstance(form, str):
        return form
    return _type_problem(form) or _result_problem(region, form) or form


def _type_problem(form: Attention) -> str:
    for product in (*form.scores, *form.contexts):
        kind = accumulator(product.contraction.kind)
        if kind.name != "f32":
            return f"{product.hero.name} is summed in {kind.name}, not in f32"
        if not all(map(product.contraction.size, product.contraction.axes)):
            return f"{product.hero.name} has a dimension of no elements"
    for sweep in form.sweeps:
        for hero in sweep.heroes:
            kind = hero.array.dtype
            if not kind.is_float or kind.bits > 32:
                return f"{hero.name} reduces {kind.name}"
    return ""


def _result_problem(region: Region, form: Attention) -> str:
    """Why a result is neither a value a row nor one a row and column of the values."""
    outer = {*form.batch, *form.rows}
    for number, result in enumerate(region.results):
        along = form.along.get(result.instruction)
        if along is None:
            return f"result {number} does not depend on {form.scores[0].hero.name}"
        if None in along or result.shape.dtype.bits < 8:
            return f"result {number} is no array of rows"
        axes = {axis for part in along if part is not None for axis in part}
        if axes != outer and axes not in ({*outer, *inner} for inner in form.inner.values()):
            return f"result {number} has an element a score: these are never written"
    return ""


def _fits(site: Site) -> Verdict:
    problem = attention_of.problem(site.region)
    if problem:
        return NO(problem)
    form = attention_of(site.region)
    if max(_depths(form)) > _MOST_INNER or _wide(form) > _MOST_INNER:
        most = max(*_depths(form), _wide(form))
        return NO(f"products along {most} elements: a thread has registers for {_MOST_INNER}")
    tile = _tile(site)
    return _tile_verdict(site, form, tile)


def _tile_verdict(site: Site, form: Attention, tile: Tile) -> Verdict:
    shared = _shared_bytes(form, tile)
    if shared > _room(site):
        return NO(f"{shared} bytes of shared memory; a block has {_room(site)}")
    blocks = form.count(form.batch) * -(-form.count(form.rows) // tile["rows"])
    if blocks > site.target.grid_limit[0]:
        return NO(f"{blocks} blocks; the device's grid has {site.target.grid_limit[0]} at most")
    what = f"{form.count(form.rows)} rows of {form.count(form.columns)} scores"
    sweeps = f"{len(form.sweeps)} sweep{'s' * (len(form.sweeps) > 1)}"
    return YES(f"{form.count(form.batch)} times {what}, in {sweeps}")


def _depths(form: Attention) -> Iterable[int]:
    """How many elements are multiplied for a score, and how many columns values have."""
    yield from (one.contraction.size("k") for one in form.scores)
    yield from (one.contraction.size("n") for one in form.contexts)


def _wanted(site: Site) -> Verdict:
    form = attention_of(site.region)
    if not form.contexts:
        return NO("nothing is multiplied with what is computed from scores")
    return YES(f"{form.scores[0].hero.name} need not be written")


def padded_row(depth: int, units: int) -> int:
    """Elements from row to row of a tile in shared memory: neighbouring rows begin in other banks.

    Of TF32 eight words of four rows that lie two apart are in different ones, too.
    """
    if units == TF32:
        return -(-depth // WARP_ROWS) * WARP_ROWS + 4
    if units:
        return -(-depth // WARP_ROWS) * WARP_ROWS + 8
    return -(-depth // _EIGHT) * _EIGHT + 4


def _shared_bytes(form: Attention, tile: Tile) -> int:
    """Bytes of the tiles: rows of each product of scores, columns of one or two products, and weights."""
    rows, columns, units = tile["rows"], tile["columns"], tile["units"]
    own = sum(rows * padded_row(one.contraction.size("k"), units) for one in form.scores)
    other = columns * padded_row(max(_depths(form)), units) * (1 + tile["prefetch"])
    if units:
        size = 4 if units == TF32 else 2
        return size * (own + other) + 16 * (len(form.scores) + 1)
    weights = rows * padded_row(columns, units) if form.contexts else 0
    return 4 * (own + other + weights) + 16 * (len(form.scores) + 2)


def _room(site: Site) -> int:
    """Bytes of shared memory of a block, where two are to be on a core at a time."""
    target = site.target
    return max(
        target.shared_per_block, min(target.shared_per_block_optin, target.shared_per_core // 2)
    )


def _units(site: Site, form: Attention) -> tuple[int, ...]:
    """How matrix units of the device take all products, the best way first; none where they do not."""
    unit = matrix_unit(form, site.target)
    if unit == "f32":
        return (TF32,)
    ways = ((1,) if site.target.capability >= _WHOLE_STEPS else ()) + (
        (2,) if unit == "f16" else ()
    )
    return ways if unit else ()


def masking_in(form: Attention, tile: Tile) -> Masking | None:
    """The mask by which a kernel with this tile leaves tiles out; None where it computes all."""
    return masking_of(form) if tile["skip"] else None


def _is_worth_it(form: Attention, tile: Tile) -> bool:
    """Whether enough tiles are left out to test for them."""
    masking = masking_of(form)
    return masking is not None and masking.is_worth_it(tile["rows"], tile["columns"])


def _tile(site: Site) -> Tile:
    form = attention_of(site.region)
    count, batch = form.count(form.rows), form.count(form.batch)
    rows = _MOST_ROWS
    while rows > WARP_ROWS and (
        rows // 2 >= count or batch * -(-count // rows) < site.target.cores
    ):
        rows //= 2
    units = next(iter(_units(site, form)), 0)
    wide = _wide(form)
    tile = {"rows": rows, "columns": 0, "units": units, "skip": 0, "vector": 8, "prefetch": 0}
    for most, columns in _ROOM.items():
        if wide > most:
            continue
        tile.update(rows=rows, columns=columns)
        while tile["rows"] > _LEAST_ROWS and _shared_bytes(form, tile) > _room(site):
            tile["rows"] //= 2
        if _shared_bytes(form, tile) <= _room(site):
            break
    tile["skip"] = int(_is_worth_it(form, tile))
    if site.target.capability >= _FIRST_COPIES:
        prefetch = {**tile, "prefetch": 1}
        tile["prefetch"] = int(_shared_bytes(form, prefetch) <= _room(site))
    return MappingProxyType(tile)


def _wide(form: Attention) -> int:
    """Columns of the values of all contexts of a sweep: a thread holds half as many sums."""
    return max(sum(one.contraction.size("n") for one in sweep.contexts) for sweep in form.sweeps)


def _tile_problem(site: Site, form: Attention, tile: Tile) -> str:
    """Why there is no such tile; empty where there is one."""
    rows, columns, units = tile["rows"], tile["columns"], tile["units"]
    if rows % WARP_ROWS or not WARP_ROWS <= rows <= _MOST_ROWS:
        return f"rows={rows} must be a multiple of {WARP_ROWS}, at most {_MOST_ROWS}"
    if columns % WARP_ROWS or not WARP_ROWS <= columns <= _MOST_ROWS:
        return f"columns={columns} must be a multiple of {WARP_ROWS}, at most {_MOST_ROWS}"
    if units not in (0, *_units(site, form)):
        return f"units={units}: matrix units of {site.target.name} do not take these products"
    if tile["skip"] not in (0, 1) or (tile["skip"] and masking_of(form) is None):
        return f"skip={tile['skip']}: no mask of places takes whole tiles away"
    if tile["prefetch"] not in (0, 1):
        return f"prefetch={tile['prefetch']} must be 0 or 1"
    if tile["vector"] not in (1, 2, 4, 8):
        return f"vector={tile['vector']} must be 1, 2, 4 or 8"
    verdict = _tile_verdict(site, form, tile)
    return "" if verdict else verdict.reason


def _spec(site: Site, tile: Tile) -> KernelSpec:
    form = attention_of(site.region)
    problem = _tile_problem(site, form, tile)
    if problem:
        raise UsageError(f"attention: {problem}")
    blocks = form.count(form.batch) * -(-form.count(form.rows) // tile["rows"])
    threads = tile["rows"] // WARP_ROWS * WARP_SIZE
    results = range(len(site.region.results))
    shared = _shared_bytes(form, tile)
    arguments = (*operands_read(site.region), *written(results))
    masking = masking_in(form, tile)
    operands = () if masking is None else masking.sizes
    if not operands:
        launch = Launch.linear("", blocks, threads, arguments, shared=shared)
        return KernelSpec("attention", tile, (launch,))
    most = max(one.array.elements for one in operands)
    parts = min(_SIZE_BLOCKS, -(-most // (8 * _SIZE_THREADS * _SIZE_RUNS)))
    scratch = tuple(ScratchBuffer("f32", parts) for _ in operands)
    places = [LeafPlace("scratch", number) for number, _ in enumerate(operands)]
    sizes = Launch.linear(
        "_sizes",
        parts,
        _SIZE_THREADS,
        (
            *operands_of(site.region, operands),
            *(Argument(place, "out") for place in places),
        ),
    )
    read = (*arguments, *(Argument(place, "in") for place in places))
    main = Launch.linear("", blocks, threads, read, shared=shared)
    return KernelSpec("attention", tile, (sizes, main), scratch)


def _efficiency(site: Site, spec: KernelSpec) -> Efficiency:
    if spec.tile["units"]:
        unit = matrix_unit(attention_of(site.region), site.target)
        peak = site.target.peak_flops(unit, "matrix") or 0.0
        scalar = site.target.peak_flops("f32") or 1.0
        return Efficiency(compute=max(0.35, 0.44 * peak / scalar), reason="matrix units multiply")
    return Efficiency(compute=0.35, reason="factors come from shared memory")


KERNELS = (
    Kernel(
        "attention",
        "scores by tiles that are never written: weighted, folded and multiplied again in registers",
        _fits,
        _wanted,
        _tile,
        _spec,
        efficiency=_efficiency,
    ),
)
