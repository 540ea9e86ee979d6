"""Transposes through tiles of shared memory, so that both reading and writing run along memory.

The fusion may compute anything element by element before the transpose and after it.  The tilings are XLA's
(``analysis/emitters/transposes.py``).
"""

from __future__ import annotations

from types import MappingProxyType

from hloopt.analysis.emitters.transposes import (
    TransposeOptions,
    TransposeTiling,
    classic_tiling,
    transpose_tiling,
)
from hloopt.analysis.layout import is_descending
from hloopt.analysis.region import Region
from hloopt.analysis.transpose import TiledTranspose, tiled_transpose
from hloopt.errors import UsageError
from hloopt.ir import Instruction
from hloopt.kernels.families.loop import operands_read
from hloopt.kernels.kernel import NO, YES, Kernel, Site, Verdict, always, elemental_problem
from hloopt.kernels.spec import KernelSpec, Launch, Tile, written

__all__ = ["KERNELS", "heroes_of", "tiling_of"]


def heroes_of(region: Region) -> tuple[Instruction, ...] | str:
    """The transpose behind each result, all of one normal form, or why there is none."""
    heroes = []
    forms = set()
    for number, result in enumerate(region.results):
        hero = region.hero(result)
        form = tiled_transpose(hero)
        if hero in region.inputs or form is None:
            return f"result {number} has no transpose of rows and columns that a tile is worth having for"
        if result.shape.elements != hero.array.elements:
            return f"result {number} has {result.shape.elements} elements, its transpose {hero.array.elements}"
        if not is_descending(result.shape):
            return f"result {number} is not row-major"
        heroes.append(hero)
        forms.add((form.dims, form.permutation))
    if len(forms) > 1:
        return "the results have transposes of different dimensions"
    return tuple(heroes) or "there are no results"


def _form(heroes: tuple[Instruction, ...]) -> TiledTranspose:
    form = tiled_transpose(heroes[0])
    assert form is not None
    return form


def _bits(heroes: tuple[Instruction, ...]) -> list[int]:
    return [hero.array.dtype.bits for hero in dict.fromkeys(heroes)]


def tiling_of(site_region: Region, spec_tile: Tile, *, packed: bool) -> TransposeTiling:
    """The tiling that a tile stands for."""
    heroes = heroes_of(site_region)
    assert not isinstance(heroes, str), heroes
    options = TransposeOptions(tile=spec_tile["tile"], rows=spec_tile["rows"])
    if packed:
        found = _packed(heroes, options)
        assert found is not None
        return found
    form = _form(heroes)
    if form.permutation[-1] == len(form.dims) - 1:
        return classic_tiling(form, 1, options)
    return classic_tiling(form, spec_tile["vector"], options)


def _packed(heroes: tuple[Instruction, ...], options: TransposeOptions) -> TransposeTiling | None:
    found = transpose_tiling(_form(heroes), _bits(heroes), None, options)
    return found if found.form == "packed" else None


def _problem(site: Site) -> str:
    heroes = heroes_of(site.region)
    if isinstance(heroes, str):
        return heroes
    for hero in heroes:
        if hero.array.dtype.bits < 8:
            return f"elements of {hero.array.dtype.name} share bytes with their neighbours"
    for result in site.region.results:
        if result.shape.dtype.bits < 8:
            return f"elements of {result.shape.dtype.name} share bytes with their neighbours"
    return elemental_problem(site.region)


def _fits(site: Site) -> Verdict:
    problem = _problem(site)
    if problem:
        return NO(problem)
    needed = _shared(site, _tile(site), packed=False)
    limit = site.target.shared_per_block
    if needed > limit:
        return NO(f"tiles need {needed} bytes of shared memory, a block has {limit}")
    return YES(f"tiles of {needed} bytes of shared memory")


def _shared(site: Site, tile: Tile, *, packed: bool) -> int:
    heroes = heroes_of(site.region)
    assert not isinstance(heroes, str)
    return tiling_of(site.region, tile, packed=packed).shared_bytes(_bits(heroes))


def _fits_packed(site: Site) -> Verdict:
    problem = _problem(site)
    if problem:
        return NO(problem)
    heroes = heroes_of(site.region)
    assert not isinstance(heroes, str)
    if _packed(heroes, TransposeOptions()) is None:
        return NO(
            "elements are not of one width below 32 bits, or rows and columns do not divide into their pairs"
        )
    return YES("several elements of a thread fill a bank of shared memory")


def _tile(site: Site) -> Tile:
    heroes = heroes_of(site.region)
    assert not isinstance(heroes, str)
    form = _form(heroes)
    options = TransposeOptions()
    vector = 1
    if form.permutation[-1] != len(form.dims) - 1:
        best = transpose_tiling(form, _bits(heroes), site.target, options)
        vector = best.vector if best.form == "classic" else 1
    return MappingProxyType({"tile": options.tile, "rows": options.rows, "vector": vector})


def _packed_tile(site: Site) -> Tile:
    heroes = heroes_of(site.region)
    assert not isinstance(heroes, str)
    options = TransposeOptions()
    found = _packed(heroes, options)
    assert found is not None
    return MappingProxyType({"tile": options.tile, "rows": options.rows, "vector": found.vector})


def _spec(name: str, site: Site, tile: Tile) -> KernelSpec:
    packed = name == "packed-transpose"
    if tile["tile"] != 32 or tile["rows"] not in (1, 2, 4, 8, 16, 32):
        raise UsageError(f"{name}: a tile has 32 columns, and 1, 2, 4, 8, 16 or 32 rows at a time")
    if packed and tile["vector"] != _packed_tile(site)["vector"]:
        raise UsageError(
            f"{name}: a bank holds {_packed_tile(site)['vector']} elements, not another vector"
        )
    if not packed and tile["vector"] not in (1, 2, 4):
        raise UsageError(f"{name}: a vector has 1, 2 or 4 elements")
    region = site.region
    needed, limit = _shared(site, tile, packed=packed), site.target.shared_per_block
    if needed > limit:
        raise UsageError(f"{name}: tiles need {needed} bytes of shared memory, a block has {limit}")
    tiling = tiling_of(region, tile, packed=packed)
    results = written(range(len(region.results)))
    launch = Launch.linear(
        "",
        tiling.block_count,
        tiling.threads,
        (*operands_read(region), *results),
    )
    return KernelSpec(name, tile, (launch,))


KERNELS = (
    Kernel(
        "packed-transpose",
        "blocks move tiles through shared memory, several narrow elements to a bank",
        _fits_packed,
        always("reads and writes run along memory"),
        _packed_tile,
        lambda site, tile: _spec("packed-transpose", site, tile),
    ),
    Kernel(
        "transpose",
        "blocks move tiles through shared memory",
        _fits,
        always("reads and writes run along memory"),
        _tile,
        lambda site, tile: _spec("transpose", site, tile),
    ),
)
