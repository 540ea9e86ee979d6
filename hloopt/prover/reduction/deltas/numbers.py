"""Numbers in attributes: windows, paddings, strides and starts that say as little as possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from hloopt.ir import Instruction, edit
from hloopt.prover.reduction.case import Case, CaseDraft
from hloopt.prover.reduction.deltas.agreeing import AgreeingDimensions, LeafDimension
from hloopt.prover.reduction.deltas.dimensions import resize
from hloopt.prover.reduction.deltas.resizing import shrunk
from hloopt.prover.reduction.recording import Delta, Site, ValueRecorder
from hloopt.types import ConvNumbers, PaddingDim, SliceRange, Window, WindowDim, dilated

__all__ = ["NUMBERS"]

_PLAIN_WINDOW: Final = WindowDim(1)
_PLAIN_PADDING: Final = PaddingDim(0, 0)


def _sites(case: Case) -> list[Site]:
    """Of each dimension all numbers at once, and each number: the attribute, the dimension, what it becomes."""
    return [
        (one.home.name, one.name, *change)
        for one in case.module.instructions()
        for change in _of(one)
    ]


def _of(one: Instruction) -> Iterator[tuple[Any, ...]]:
    attributes = one.attributes
    if attributes.get("feature_group_count", 1) > 1 or attributes.get("batch_group_count", 1) > 1:
        yield "groups", 0, 1
    window: Window | None = attributes.get("window")
    for dim, part in enumerate(window.dims if window is not None else ()):
        for smaller in _windows(part):
            yield "window", dim, smaller
    for dim, padding in enumerate(attributes.get("padding", ())):
        fields = ({"low": 0}, {"high": 0}, {"interior": 0})
        for less in (_PLAIN_PADDING, *(replace(padding, **change) for change in fields)):
            if less != padding:
                yield "padding", dim, less
    for dim, taken in enumerate(attributes.get("slice", ())):
        count = taken.size
        for plain in (
            SliceRange(0, count),
            replace(taken, start=0, limit=taken.limit - taken.start),
        ):
            if plain != taken:
                yield "slice", dim, plain


def _windows(part: WindowDim) -> list[WindowDim]:
    """Simpler windows, smaller ones padded less."""
    fields: list[dict[str, Any]] = [
        {"pad_low": 0, "pad_high": 0}, {"pad_low": 0}, {"pad_high": 0}, {"stride": 1}, {"base_dilation": 1},
        {"window_dilation": 1}, {"reversal": False},
    ]  # fmt: skip
    found = [_PLAIN_WINDOW, *(replace(part, **change) for change in fields)]
    found += [shrunk(part, size) for size in (1, 2, -(-part.size // 2)) if size < part.size]
    return [one for one in dict.fromkeys(found) if one != part]


def _apply(draft: CaseDraft, sites: Sequence[Site], _: ValueRecorder) -> None:
    """Change the numbers; shapes follow."""
    classes = AgreeingDimensions(draft.module)
    sizes: dict[LeafDimension, int] = {}
    for home, name, kind, dim, value in sites:
        one = draft.find((home, name))
        if one is None:
            continue
        if kind == "groups":
            _ungroup(one, classes, sizes)
        elif kind == "window":
            _set_window(one, dim, value, classes, sizes)
        else:
            whole = list(one.attributes[kind])
            whole[dim] = value
            edit.set_attribute(one, kind, tuple(whole))
    resize(draft, classes, sizes)


def _set_window(
    one: Instruction,
    dim: int,
    value: WindowDim,
    classes: AgreeingDimensions,
    sizes: dict[LeafDimension, int],
) -> None:
    """A window with as many places as it had, on an operand that is as much smaller as that needs."""
    parts = list(one.window.dims)
    before, parts[dim] = parts[dim], value
    edit.set_attribute(one, "window", Window(tuple(parts)))
    source, at = one.operands[0], dim
    if one.opcode == "convolution":
        labels = ConvNumbers.of(one.attributes).labels
        at = labels.input_spatial[dim]
        kernel = one.operands[1], 0, labels.kernel_spatial[dim]
        if value.size != before.size:
            sizes[classes.of(kernel)] = value.size
    size = source.array.dims[at]
    places = before.positions(size)
    needed = dilated(places, value.stride) - 1 + value.reach - value.pad_low - value.pad_high
    needed = max(-(-(needed - 1) // value.base_dilation) + 1, 1)
    if places and needed < size:
        sizes[classes.of((source, 0, at))] = needed


def _ungroup(
    one: Instruction, classes: AgreeingDimensions, sizes: dict[LeafDimension, int]
) -> None:
    """A convolution of one group, of as many features or batches as a group had."""
    numbers = ConvNumbers.of(one.attributes)
    labels, source = numbers.labels, one.operands[0]
    for dim, groups in (
        (labels.input_feature, numbers.feature_groups),
        (labels.input_batch, numbers.batch_groups),
    ):
        if groups > 1:
            sizes[classes.of((source, 0, dim))] = source.array.dims[dim] // groups
    edit.set_attribute(one, "feature_group_count", None)
    edit.set_attribute(one, "batch_group_count", None)


NUMBERS: Final = Delta("numbers in attributes", _sites, _apply)
