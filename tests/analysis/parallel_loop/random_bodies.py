"""Random loops: a counter, a few arrays of s32, and a body of all kinds of ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

__all__ = ["REDUCERS", "TRIPS", "Body", "Choose", "Dims", "kind", "random_body"]

Choose = Callable[[int], int]
"""A number below its argument."""

Dims = tuple[int, ...]
TRIPS = 3

REDUCERS = """
add {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = s32[] add(a, b)
}
later {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  two = s32[] constant(2)
  twice = s32[] multiply(a, two)
  ROOT r = s32[] add(twice, b)
}
or {
  a = pred[] parameter(0)
  b = pred[] parameter(1)
  ROOT r = pred[] or(a, b)
}
and {
  a = pred[] parameter(0)
  b = pred[] parameter(1)
  ROOT r = pred[] and(a, b)
}
max {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = s32[] maximum(a, b)
}
min {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = s32[] minimum(a, b)
}
less {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT
}
"""


def kind(dims: Sequence[int], element: str = "s32") -> str:
    """A shape in text."""
    return f"{element}[{','.join(map(str, dims))}]"


def braces(numbers: Sequence[int]) -> str:
    """``{1,2}``."""
    return "{" + ",".join(map(str, numbers)) + "}"


class Body:
    """Lines of a body, and the values there are."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self.lines: list[str] = []
        self.pool: list[tuple[str, Dims]] = []
        self.called: list[str] = []

    def emit(self, dims: Sequence[int], text: str, element: str = "s32") -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"  {name} = {kind(dims, element)} {text}")
        return name

    def add(self, dims: Sequence[int], text: str) -> str:
        name = self.emit(dims, text)
        self.pool.append((name, tuple(dims)))
        return name

    def any(self, least_rank: int = 0) -> tuple[str, Dims]:
        found = [one for one in self.pool if len(one[1]) >= least_rank]
        return found[self.choose(len(found))]

    def like(self, dims: Dims) -> str:
        found = [name for name, other in self.pool if other == dims]
        return found[self.choose(len(found))]

    def constant(self, value: int) -> str:
        return self.emit((), f"constant({value})")

    # ---- one op each --------------------------------------------------------------------------------

    def elementwise(self) -> None:
        name, dims = self.any()
        opcode = ("add", "subtract", "multiply", "maximum")[self.choose(4)]
        self.add(dims, f"{opcode}({name}, {self.like(dims)})")

    def select(self) -> None:
        name, dims = self.any()
        test = self.emit(dims, f"compare({name}, {self.like(dims)}), direction=GT", "pred")
        self.add(dims, f"select({test}, {self.like(dims)}, {self.like(dims)})")

    def broadcast(self) -> None:
        name, dims = self.any()
        if len(dims) < 3:
            at, size = self.choose(len(dims) + 1), (4, 3)[self.choose(2)]
            result = (*dims[:at], size, *dims[at:])
            kept = [dim for dim in range(len(result)) if dim != at]
            self.add(result, f"broadcast({name}), dimensions={braces(kept)}")

    def transpose(self) -> None:
        name, dims = self.any(2)
        order = list(range(len(dims)))
        order = order[1:] + order[:1]
        self.add([dims[dim] for dim in order], f"transpose({name}), dimensions={braces(order)}")

    def reverse(self) -> None:
        name, dims = self.any(1)
        self.add(dims, f"reverse({name}), dimensions={braces([self.choose(len(dims))])}")

    def slice(self) -> None:
        name, dims = self.any(1)
        dim = self.choose(len(dims))
        low = self.choose(dims[dim])
        high = low + 1 + self.choose(dims[dim] - low)
        parts = ", ".join(
            f"[{low}:{high}]" if at == dim else f"[0:{size}]" for at, size in enumerate(dims)
        )
        result = [high - low if at == dim else size for at, size in enumerate(dims)]
        self.add(result, f"slice({name}), slice={{{parts}}}")

    def concatenate(self) -> None:
        name, dims = self.any(1)
        dim = self.choose(len(dims))
        if dims[dim] <= 4:
            result = [2 * size if at == dim else size for at, size in enumerate(dims)]
            self.add(result, f"concatenate({name}, {self.like(dims)}), dimensions={{{dim}}}")

    def shift(self) -> None:
        name, dims = self.any(1)
        dim = self.choose(len(dims))
        low = self.choose(2)
        parts = "x".join(f"{low}_{-low}" if at == dim else "0_0" for at in range(len(dims)))
        self.add(dims, f"pad({name}, {self.constant(0)}), padding={parts}")

    def reduce(self) -> None:
        name, dims = self.any(1)
        dim = self.choose(len(dims))
        reduced = [dim] if self.choose(2) else list(range(len(dims)))
        result = [size for at, size in enumerate(dims) if at not in reduced]
        reducer = ("add", "max", "later")[self.choose(3)]
        begin = self.constant(0)
        self.add(
            result, f"reduce({name}, {begin}), dimensions={braces(reduced)}, to_apply={reducer}"
        )

    def dot(self) -> None:
        left, a = self.any(1)
        right, b = self.any(1)
        pairs = [(i, j) for i in range(len(a)) for j in range(len(b)) if a[i] == b[j]]
        if not pairs or len(a) + len(b) > 4:
            return
        i, j = pairs[self.choose(len(pairs))]
        rest = [(p, q) for p, q in pairs if p != i and q != j]
        text = f"dot({left}, {right}), lhs_contracting_dims={{{i}}}, rhs_contracting_dims={{{j}}}"
        batch: list[tuple[int, int]] = []
        if rest and self.choose(2):
            batch = [rest[self.choose(len(rest))]]
            p, q = batch[0]
            text += f", lhs_batch_dims={{{p}}}, rhs_batch_dims={{{q}}}"
        result = [a[p] for p, _ in batch]
        result += [size for at, size in enumerate(a) if at not in (i, *(p for p, _ in batch))]
        result += [size for at, size in enumerate(b) if at not in (j, *(q for _, q in batch))]
        self.add(result, text)

    def dynamic_slice(self) -> None:
        name, dims = self.any(1)
        dim = self.choose(len(dims))
        zero = self.constant(0)
        starts = ", ".join("i" if at == dim else zero for at in range(len(dims)))
        result = [1 if at == dim else size for at, size in enumerate(dims)]
        text = f"dynamic-slice({name}, {starts}), dynamic_slice_sizes={braces(result)}"
        self.add(result, text)

    def update(self) -> None:
        name, dims = self.any(1)
        dim = self.choose(len(dims))
        part = [1 if at == dim else size for at, size in enumerate(dims)]
        source = self.like(dims)
        zero = self.constant(0)
        taken = self.emit(
            part,
            f"dynamic-slice({source}, {', '.join([zero] * len(dims))}),"
            f" dynamic_slice_sizes={braces(part)}",
        )
        starts = ", ".join("i" if at == dim else zero for at in range(len(dims)))
        self.add(dims, f"dynamic-update-slice({name}, {taken}, {starts})")

    def gather(self) -> None:
        name, dims = self.any(1)
        index, places = self.any(1)
        if len(places) != 1 or len(dims) > 2:
            return
        sizes = [1, *dims[1:]]
        offsets = list(range(1, len(dims)))
        column = self.emit((*places, 1), f"reshape({index})")
        self.add(
            (*places, *dims[1:]),
            f"gather({name}, {column}), offset_dims={braces(offsets)}, collapsed_slice_dims={{0}},"
            f" start_index_map={{0}}, index_vector_dim=1, slice_sizes={braces(sizes)}",
        )

    def gather_rows(self) -> None:
        name, dims = self.any(2)
        if len(dims) != 2 or not any(other == dims[:1] for _, other in self.pool):
            return
        column = self.emit((dims[0], 1), f"reshape({self.like(dims[:1])})")
        self.add(
            dims[:1],
            f"gather({name}, {column}), offset_dims={{}}, collapsed_slice_dims={{1}},"
            " start_index_map={1}, operand_batching_dims={0}, start_indices_batching_dims={0},"
            " index_vector_dim=1, slice_sizes={1,1}",
        )

    def scatter(self) -> None:
        name, dims = self.any(1)
        index, places = self.any(1)
        if len(places) != 1 or len(dims) != 1:
            return
        column = self.emit((*places, 1), f"reshape({index})")
        self.add(
            dims,
            f"scatter({name}, {column}, {self.like(places)}), update_window_dims={{}},"
            " inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1,"
            " to_apply=add",
        )

    def sort(self) -> None:
        name, dims = self.any(1)
        self.add(dims, f"sort({name}), dimensions={{{self.choose(len(dims))}}}, to_apply=less")

    def iota(self) -> None:
        _, dims = self.any(1)
        self.add(dims, f"iota(), iota_dimension={self.choose(len(dims))}")

    def running_sum(self) -> None:
        name, dims = self.any(1)
        dim = self.choose(len(dims))
        size = "x".join(str(n) if at == dim else "1" for at, n in enumerate(dims))
        pad = "x".join(f"{n - 1}_0" if at == dim else "0_0" for at, n in enumerate(dims))
        begin = self.constant(0)
        text = f"reduce-window({name}, {begin}), window={{size={size} pad={pad}}}, to_apply=add"
        self.add(dims, text)

    def reshape(self) -> None:
        name, dims = self.any(1)
        options = [(prod(dims),), (1, *dims), (*dims, 1)]
        if len(dims) > 1:
            options.append((dims[0] * dims[1], *dims[2:]))
        if dims[0] % 2 == 0 and len(dims) < 3:
            options.append((2, dims[0] // 2, *dims[1:]))
        result = options[self.choose(len(options))]
        if len(result) <= 3:
            self.add(result, f"reshape({name})")

    def branch(self) -> None:
        name, dims = self.any()
        number = len(self.called)
        shape = kind(dims)
        self.called.append(f"""
yes{number} {{
  x = {shape} parameter(0)
  ROOT r = {shape} multiply(x, x)
}}
no{number} {{
  x = {shape} parameter(0)
  ROOT r = {shape} negate(x)
}}
""")
        two = self.constant(1)
        test = self.emit((), f"compare(i, {two}), direction=EQ", "pred")
        other = self.like(dims)
        text = f"conditional({test}, {name}, {other}), true_computation=yes{number},"
        self.add(dims, f"{text} false_computation=no{number}")

    def inner_loop(self) -> None:
        name, dims = self.any(1)
        number = len(self.called)
        shape = kind(dims)
        state = f"(s32[], {shape})"
        last = self.choose(2)
        step = (
            f"reverse(x), dimensions={{{last % len(dims)}}}" if self.choose(3) == 0 else "negate(x)"
        )
        self.called.append(f"""
again{number} {{
  s = {state} parameter(0)
  j = s32[] get-tuple-element(s), index=0
  n = s32[] constant(2)
  ROOT r = pred[] compare(j, n), direction=LT
}}
step{number} {{
  s = {state} parameter(0)
  j = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  k = s32[] add(j, one)
  x = {shape} get-tuple-element(s), index=1
  y = {shape} {step}
  z = {shape} add(x, y)
  ROOT r = {state} tuple(k, z)
}}
""")
        begin = self.constant(0)
        first = f"t{len(self.lines)}"
        self.lines.append(f"  {first} = {state} tuple({begin}, {name})")
        self.lines.append(
            f"  {first}w = {state} while({first}), condition=again{number}, body=step{number}"
        )
        self.add(dims, f"get-tuple-element({first}w), index=1")

    def parts_loop(self) -> None:
        """A loop inside of which each element stops by itself."""
        name, dims = self.any(1)
        number = len(self.called)
        shape = kind(dims)
        state = f"({shape}, {shape})"
        every = braces(range(len(dims)))
        self.called.append(f"""
any{number} {{
  s = {state} parameter(0)
  k = {shape} get-tuple-element(s), index=0
  zero = s32[] constant(0)
  zeros = {shape} broadcast(zero), dimensions={{}}
  more = {kind(dims, "pred")} compare(k, zeros), direction=GT
  no = pred[] constant(false)
  ROOT r = pred[] reduce(more, no), dimensions={every}, to_apply=or
}}
one{number} {{
  s = {state} parameter(0)
  k = {shape} get-tuple-element(s), index=0
  zero = s32[] constant(0)
  zeros = {shape} broadcast(zero), dimensions={{}}
  more = {kind(dims, "pred")} compare(k, zeros), direction=GT
  x = {shape} get-tuple-element(s), index=1
  m = {shape} convert(more)
  left = {shape} subtract(k, m)
  y = {shape} multiply(x, x)
  z = {shape} subtract(y, k)
  w = {shape} select(more, z, x)
  ROOT r = {state} tuple(left, w)
}}
""")
        three = self.constant(3)
        threes = self.emit(dims, f"broadcast({three}), dimensions={{}}")
        count = self.emit(dims, f"minimum({name}, {threes})")
        first = f"t{len(self.lines)}"
        self.lines.append(f"  {first} = {state} tuple({count}, {self.like(dims)})")
        self.lines.append(
            f"  {first}w = {state} while({first}), condition=any{number}, body=one{number}"
        )
        self.add(dims, f"get-tuple-element({first}w), index=1")

    def stream(self, number: int, dims: Dims) -> str:
        """What a state element that is written a part a trip becomes."""
        part = (1, *dims)
        row = self.emit(part, f"reshape({self.like(dims)})")
        zero = self.constant(0)
        starts = ", ".join(["i", *[zero] * len(dims)])
        return self.emit((TRIPS, *dims), f"dynamic-update-slice(x{number}, {row}, {starts})")


_OPS = (
    Body.elementwise, Body.elementwise, Body.elementwise, Body.select, Body.broadcast, Body.transpose,
    Body.reverse, Body.slice, Body.concatenate, Body.shift, Body.reduce, Body.reduce, Body.dot,
    Body.dynamic_slice, Body.update, Body.gather, Body.gather_rows, Body.scatter, Body.sort, Body.iota,
    Body.running_sum, Body.reshape, Body.branch, Body.inner_loop, Body.parts_loop,
)  # fmt: skip

_STATES: tuple[Dims, ...] = ((4,), (4, 3), (3,), (3, 4), (4, 4), (1, 4), (4, 1), (2, 3))


def random_body(choose: Choose) -> str:
    """A module: all elements of the state but the counter are its parameters, and its results."""
    body = Body(choose)
    states = [_STATES[choose(len(_STATES))] for _ in range(1 + choose(3))]
    streams = [states[0], ()][: choose(3)]
    for number, dims in enumerate(states, 1):
        body.pool.append((f"x{number}", dims))
    for _ in range(choose(9)):
        body_op = _OPS[choose(len(_OPS))]
        if body_op in (Body.transpose, Body.gather_rows) and not any(
            len(dims) > 1 for _, dims in body.pool
        ):
            continue
        body_op(body)
    following = []
    for number, dims in enumerate(states, 1):
        name = body.like(dims)
        following.append(
            body.emit(dims, f"add({name}, {body.like(dims)})") if choose(4) else f"x{number}"
        )
    for number, dims in enumerate(streams, len(states) + 1):
        if not any(other == dims for _, other in body.pool):
            value, whole = body.any(1)
            begin = body.constant(0)
            every = braces(range(len(whole)))
            body.add((), f"reduce({value}, {begin}), dimensions={every}, to_apply=add")
        following.append(body.stream(number, dims))
    shapes = [*map(kind, states), *(kind((TRIPS, *dims)) for dims in streams)]
    return _module(shapes, "\n".join(body.lines), following, "".join(body.called))


def _module(shapes: Sequence[str], body: str, following: Sequence[str], called: str) -> str:
    state = f"(s32[], {', '.join(shapes)})"
    reads = "\n".join(
        f"  x{n} = {shape} get-tuple-element(s), index={n}" for n, shape in enumerate(shapes, 1)
    )
    parameters = "\n".join(
        f"  p{n} = {shape} parameter({n - 1})" for n, shape in enumerate(shapes, 1)
    )
    results = "\n".join(
        f"  r{n} = {shape} get-tuple-element(w), index={n}" for n, shape in enumerate(shapes, 1)
    )
    names = range(1, len(shapes) + 1)
    return f"""HloModule random_loop
{REDUCERS}{called}
condition {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({TRIPS})
  ROOT r = pred[] compare(i, n), direction=LT
}}
body {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
{reads}
  one = s32[] constant(1)
  k = s32[] add(i, one)
{body}
  ROOT r = {state} tuple(k, {", ".join(following)})
}}
ENTRY main {{
{parameters}
  zero = s32[] constant(0)
  first = {state} tuple(zero, {", ".join(f"p{n}" for n in names)})
  w = {state} while(first), condition=condition, body=body
{results}
  ROOT all = ({", ".join(shapes)}) tuple({", ".join(f"r{n}" for n in names)})
}}
"""
