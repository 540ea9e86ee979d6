"""Windows that slide over arrays: every field in use."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from tests.semantics.elements import entry, shape_of

__all__ = ["Slide", "reduce_window_text", "slides", "window_text"]


@dataclass(frozen=True)
class Slide:
    """A window along one dimension of ``size`` elements."""

    size: int
    window: int
    stride: int
    low: int
    high: int
    base: int
    dilation: int

    @property
    def output(self):
        """How many places the window has: it starts every ``stride`` elements of the padded base."""
        spread = (self.size - 1) * self.base + 1 if self.size else 0
        reach = (self.window - 1) * self.dilation + 1 if self.window else 0
        count = 0
        while count * self.stride + reach <= self.low + spread + self.high:
            count += 1
        return count

    def element(self, place, position):
        """Which element lies at a position of the window's ``place``-th place; None: there is none."""
        at = place * self.stride + position * self.dilation - self.low
        if at % self.base or not 0 <= at // self.base < self.size:
            return None
        return at // self.base


@st.composite
def slides(draw, smallest=0, most=3):
    """A window over every dimension of a small array, each field in use."""
    return tuple(
        Slide(
            draw(st.integers(smallest, 5)),
            draw(st.integers(1, 4)),
            draw(st.integers(1, 3)),
            draw(st.integers(-2, 3)),
            draw(st.integers(-2, 3)),
            draw(st.integers(1, 3)),
            draw(st.integers(1, 3)),
        )
        for _ in range(draw(st.integers(0, most)))
    )


def window_text(slides_):
    """The attribute; fields that say nothing are left out as XLA leaves them out."""
    if not slides_:
        return ""

    def field(name, parts, plain):
        return "" if all(part == plain for part in parts) else f" {name}={'x'.join(parts)}"

    text = "size=" + "x".join(str(s.window) for s in slides_)
    text += field("stride", [str(s.stride) for s in slides_], "1")
    text += field("pad", [f"{s.low}_{s.high}" for s in slides_], "0_0")
    text += field("lhs_dilate", [str(s.base) for s in slides_], "1")
    text += field("rhs_dilate", [str(s.dilation) for s in slides_], "1")
    return f"window={{{text}}}, "


def reduce_window_text(slides_, combiner):
    count = len(combiner.kinds)
    dims, output = [s.size for s in slides_], [s.output for s in slides_]
    operands = ", ".join(f"p{number}" for number in range(2 * count))
    results = [shape_of(kind, output) for kind in combiner.kinds]
    result = results[0] if count == 1 else f"({', '.join(results)})"
    text = f"{result} reduce-window({operands}), {window_text(slides_)}to_apply=combine"
    shapes = [shape_of(kind, dims) for kind in combiner.kinds]
    return entry(text, shapes + [shape_of(kind, ()) for kind in combiner.kinds], combiner.text)
