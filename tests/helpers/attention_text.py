"""Attention as text: forms of its mask, its normalisation and its layout, and its gradient by hand."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AttentionText"]

_REGIONS = """max_{k} {{ a = {k}[] parameter(0) b = {k}[] parameter(1) ROOT m = {k}[] maximum(a, b) }}
sum_f32 {{ c = f32[] parameter(0) d = f32[] parameter(1) ROOT s = f32[] add(c, d) }}
"""


@dataclass(frozen=True)
class AttentionText:
    """Attention of ``batch`` times ``rows`` queries with ``columns`` keys.

    depth, wide  elements of a query and of a value
    kind         of the operands
    softmax      the type of scores and weights until they are multiplied
    mask         ``none``, ``causal``, ``given`` (an operand), ``bias`` (an operand added)
    low          what a masked score becomes
    late         whether the context is divided and not the weights
    turned       whether the values are the left operand, so that the result lies transposed
    outer        a product of another axis: queries that share keys, at the end of the rows; 1 for none
    """

    batch: int = 2
    rows: int = 32
    columns: int = 32
    depth: int = 16
    wide: int = 16
    kind: str = "bf16"
    softmax: str = "f32"
    mask: str = "causal"
    low: str = "-1e30"
    late: bool = False
    turned: bool = False
    outer: int = 1

    def text(self, *, gradient: bool = False) -> str:
        """A module; with ``gradient`` it returns the context and the gradients of its three operands."""
        b, r, c, d, w, k, s = (
            self.batch,
            self.rows,
            self.columns,
            self.depth,
            self.wide,
            self.kind,
            self.softmax,
        )
        g = f",{self.outer}" if self.outer > 1 else ""
        dims, row = f"{b},{r}{g},{c}", f"{b},{r}{g}"
        last = 2 + (self.outer > 1)
        over = ",".join(map(str, range(last)))
        lines = [
            f"q = {k}[{row},{d}] parameter(0)",
            f"k = {k}[{b},{c},{d}] parameter(1)",
            f"v = {k}[{b},{c},{w}] parameter(2)",
            (
                f"raw = {s}[{dims}] dot(q, k), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, "
                f"lhs_contracting_dims={{{last}}}, rhs_contracting_dims={{2}}"
            ),
            f"factor = {s}[] constant(0.25)",
            f"factors = {s}[{dims}] broadcast(factor), dimensions={{}}",
            f"scaled = {s}[{dims}] multiply(raw, factors)",
            *self._masked(dims, last),
            f"least = {s}[] constant(-inf)",
            f"m = {s}[{row}] reduce(x, least), dimensions={{{last}}}, to_apply=max_{s}",
            f"mb = {s}[{dims}] broadcast(m), dimensions={{{over}}}",
            f"below = {s}[{dims}] subtract(x, mb)",
            f"e = {s}[{dims}] exponential(below)",
            f"wide_e = f32[{dims}] convert(e)",
            "zero = f32[] constant(0)",
            f"l = f32[{row}] reduce(wide_e, zero), dimensions={{{last}}}, to_apply=sum_f32",
        ]
        if not self.late:
            lines += [
                f"lb = f32[{dims}] broadcast(l), dimensions={{{over}}}",
                f"p = f32[{dims}] divide(wide_e, lb)",
                f"weights = {k}[{dims}] convert(p)",
            ]
        else:
            lines.append(f"weights = {k}[{dims}] convert(e)")
        lines += self._context(row, last)
        if gradient:
            lines += self._gradient(dims, row)
        return (
            f"HloModule attention\n{_REGIONS.format(k=s)}ENTRY main {{\n  "
            + "\n  ".join(lines)
            + "\n}\n"
        )

    def _masked(self, dims: str, last: int) -> list[str]:
        s, c, k = self.softmax, self.columns, self.kind
        if self.mask == "none":
            return [f"x = {s}[{dims}] copy(scaled)"]
        if self.mask == "bias":
            return [
                f"bias = {k}[{dims}] parameter(3)",
                f"biases = {s}[{dims}] convert(bias)",
                f"x = {s}[{dims}] add(scaled, biases)",
            ]
        if self.mask == "given":
            made = [
                f"keep = pred[{self.batch},{c}] parameter(3)",
                f"mask = pred[{dims}] broadcast(keep), dimensions={{0,{last}}}",
            ]
        else:
            made = [
                f"row_at = s32[{self.rows},{c}] iota(), iota_dimension=0",
                f"column_at = s32[{self.rows},{c}] iota(), iota_dimension=1",
                f"may = pred[{self.rows},{c}] compare(row_at, column_at), direction=GE",
                f"mask = pred[{dims}] broadcast(may), dimensions={{1,{last}}}",
            ]
        return [
            *made,
            f"low = {s}[] constant({self.low})",
            f"lows = {s}[{dims}] broadcast(low), dimensions={{}}",
            f"x = {s}[{dims}] select(mask, scaled, lows)",
        ]

    def _context(self, row: str, last: int) -> list[str]:
        b, w, k = self.batch, self.wide, self.kind
        f32 = "f32" if self.late else k
        places = ",".join(map(str, range(2, last + 1)))
        if self.turned:
            made = [
                (
                    f"turned = {f32}[{b},{w},{row.partition(',')[2]}] dot(v, weights), lhs_batch_dims={{0}}, "
                    f"rhs_batch_dims={{0}}, lhs_contracting_dims={{1}}, rhs_contracting_dims={{{last}}}"
                ),
                f"o = {f32}[{row},{w}] transpose(turned), dimensions={{0,{places},1}}",
            ]
        else:
            made = [
                (
                    f"o = {f32}[{row},{w}] dot(weights, v), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, "
                    f"lhs_contracting_dims={{{last}}}, rhs_contracting_dims={{1}}"
                ),
            ]
        if not self.late:
            return made
        over = ",".join(map(str, range(last)))
        return [
            *made,
            f"lo = f32[{row},{w}] broadcast(l), dimensions={{{over}}}",
            f"divided = f32[{row},{w}] divide(o, lo)",
            f"out = {k}[{row},{w}] convert(divided)",
        ]

    def _gradient(self, dims: str, row: str) -> list[str]:
        """Of one outer axis and weights that are divided: as automatic differentiation writes it."""
        b, r, c, d, w, k = self.batch, self.rows, self.columns, self.depth, self.wide, self.kind
        batches = "lhs_batch_dims={0}, rhs_batch_dims={0}"
        return [
            f"ct = {k}[{row},{w}] parameter({4 if self.mask in ('given', 'bias') else 3})",
            f"dp = {k}[{dims}] dot(ct, v), {batches}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}",
            f"dpw = f32[{dims}] convert(dp)",
            f"share = f32[{dims}] divide(dpw, lb)",
            f"ll = f32[{row}] multiply(l, l)",
            "one = f32[] constant(1)",
            f"ones = f32[{row}] broadcast(one), dimensions={{}}",
            f"inverse = f32[{row}] divide(ones, ll)",
            f"inverses = f32[{dims}] broadcast(inverse), dimensions={{0,1}}",
            f"t1 = f32[{dims}] multiply(dpw, inverses)",
            f"t2 = f32[{dims}] multiply(t1, wide_e)",
            f"delta = f32[{row}] reduce(t2, zero), dimensions={{2}}, to_apply=sum_f32",
            f"minus = f32[{row}] negate(delta)",
            f"minuses = f32[{dims}] broadcast(minus), dimensions={{0,1}}",
            f"both = f32[{dims}] add(share, minuses)",
            f"dx = f32[{dims}] multiply(both, wide_e)",
            f"ds = f32[{dims}] multiply(dx, factors)",
            f"kw = f32[{b},{c},{d}] convert(k)",
            f"qw = f32[{b},{r},{d}] convert(q)",
            f"dq = f32[{row},{d}] dot(ds, kw), {batches}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}",
            f"dk = f32[{b},{c},{d}] dot(ds, qw), {batches}, lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}",
            f"dv = {k}[{b},{w},{c}] dot(ct, weights), {batches}, lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}",
            f"ROOT all = ({k}[{row},{w}], f32[{row},{d}], f32[{b},{c},{d}], {k}[{b},{w},{c}]) tuple(o, dq, dk, dv)",
        ]
