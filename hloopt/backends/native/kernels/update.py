"""In-place updates on the native device: only changed elements are written, into the operand's buffer.

``native-update``   a dynamic-update-slice, under the conditions of ``in_place_update``
``native-scatter``  a scatter: one update after the other, in their order
"""

from __future__ import annotations

from hloopt.kernels.families.in_place_update import (
    arguments_of,
    fitting,
    update_of,
    updated_pairs,
)
from hloopt.kernels.families.loop import operands_read, result_groups
from hloopt.kernels.families.scatter import pairs_in_place, scatter_problem
from hloopt.kernels.kernel import NO, YES, Kernel, Site, Verdict, always, no_tile
from hloopt.kernels.spec import (
    Argument,
    Copy,
    KernelPart,
    KernelSpec,
    Launch,
    LeafPlace,
    Tile,
    written,
)

__all__ = ["KERNELS"]


def _update_spec(site: Site, tile: Tile) -> KernelSpec:
    region = site.region
    pairs = updated_pairs(region)
    arguments = arguments_of(region, pairs)
    steps: list[KernelPart] = []
    rest = [number for number in range(len(region.results)) if number not in pairs]
    # Other results are computed first: they may read the buffer that the update overwrites.
    for at, group in enumerate(result_groups(region, rest)):
        steps.append(Launch.linear(f"_rest{at}", 1, 1, (*arguments, *written(group))))
    for at, number in enumerate(pairs):
        update = update_of(region, number)
        assert update is not None
        if update.operands[1].array.elements:
            name = f"_update{at}" if len(pairs) > 1 or rest else ""
            changed = written([number], "update")
            steps.append(Launch.linear(name, 1, 1, (*arguments, *changed)))
    in_place = tuple((operand, number) for number, operand in pairs.items())
    return KernelSpec("native-update", tile, tuple(steps), in_place=in_place)


def _scatter_fits(site: Site) -> Verdict:
    scatter = scatter_problem(site)
    if isinstance(scatter, Verdict):
        return scatter
    if site.region.is_fusion and len(site.region.body) > 1:
        return NO("the fusion has other ops")
    return YES("one update after the other")


def _scatter_spec(site: Site, tile: Tile) -> KernelSpec:
    region = site.region
    scatter = scatter_problem(site)
    assert not isinstance(scatter, Verdict)
    pairs = pairs_in_place(region)
    arguments = tuple(
        part for part in operands_read(region) if part.place.number not in pairs.values()
    )
    steps: list[KernelPart] = []
    results = [LeafPlace("result", number) for number in range(len(region.results))]
    apart = [place for place in results if place.number not in pairs]
    elements = region.results[0].shape.elements
    copied = [place for place in apart if region.inlined(_operand(site, place.number)) is None]
    steps += [Copy(LeafPlace("operand", _operand(site, one.number)), one) for one in copied]
    filled = [Argument(place, "out") for place in apart if place not in copied]
    if filled and elements:
        steps.append(Launch.linear("_begin", 1, 1, tuple(filled)))
    if scatter.operands[-1].array.elements and elements:
        updated = (Argument(place, "update") for place in results)
        steps.append(Launch.linear("_scatter", 1, 1, (*arguments, *updated)))
    in_place = tuple((operand, number) for number, operand in pairs.items())
    return KernelSpec("native-scatter", tile, tuple(steps), in_place=in_place)


def _operand(site: Site, number: int) -> int:
    """The operand leaf that a result of a scatter begins as."""
    region = site.region
    scatter = scatter_problem(site)
    assert not isinstance(scatter, Verdict)
    operand = scatter.operands[number]
    return region.canonical(region.inputs[operand])


KERNELS = (
    Kernel(
        "native-update",
        "writes the elements of an update into the buffer it changes",
        fitting,
        always("writes only what changes"),
        no_tile,
        _update_spec,
        device="native",
    ),
    Kernel(
        "native-scatter",
        "combines one update after the other into the buffer they change",
        _scatter_fits,
        always("one update after the other"),
        no_tile,
        _scatter_spec,
        device="native",
    ),
)
