"""Modules that grow with a number: the shapes that cost most where a pass looks at everything again.

Each function gives the text of a module whose instructions (or bytes) are in proportion to ``n``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

__all__ = ["SHAPES", "doubled_calls"]

_UNARY: Final = ("sine", "cosine", "tanh", "sqrt", "logistic")
_SUM: Final = "{name} {{ a = {t} parameter(0) b = {t} parameter(1) ROOT r = {t} add(a, b) }}"
_V: Final = "f32[64]"


def _module(entry: Iterable[str], computations: Iterable[str] = ()) -> str:
    before = "\n".join(computations)
    return f"HloModule grown\n\n{before}\n\nENTRY main {{\n  " + "\n  ".join(entry) + "\n}\n"


def _tuple(parts: list[str], shape: str) -> str:
    return f"ROOT all = ({', '.join([shape] * len(parts))}) tuple({', '.join(parts)})"


def chain(n: int) -> str:
    """A long chain of elementwise instructions."""
    lines = [f"x0 = {_V} parameter(0)"]
    lines += [f"x{i + 1} = {_V} {_UNARY[i % 5]}(x{i})" for i in range(n)]
    return _module([*lines, f"ROOT r = {_V} negate(x{n})"])


def binary_chain(n: int) -> str:
    """A long chain where every instruction reads a parameter as well."""
    ops = ("add", "multiply", "maximum", "subtract", "atan2")
    lines = [f"x0 = {_V} parameter(0)", f"y = {_V} parameter(1)"]
    lines += [f"x{i + 1} = {_V} {ops[i % 5]}(x{i}, y)" for i in range(n)]
    return _module([*lines, f"ROOT r = {_V} negate(x{n})"])


def fan_out(n: int) -> str:
    """One producer, n readers."""
    lines = [f"p = {_V} parameter(0)", f"x = {_V} exponential(p)"]
    for i in range(n):
        lines += [
            f"k{i} = f32[] constant({i + 2})",
            f"b{i} = {_V} broadcast(k{i}), dimensions={{}}",
        ]
        lines += [f"y{i} = {_V} atan2(x, b{i})"]
    return _module([*lines, _tuple([f"y{i}" for i in range(n)], _V)])


def concatenate(n: int) -> str:
    """A concatenate of n products of slices."""
    lines = [f"p = f32[{n},64] parameter(0)"]
    for i in range(n):
        at = n - 1 - i
        lines += [f"h{i} = f32[1,64] slice(p), slice={{[{at}:{at + 1}], [0:64]}}"]
        lines += [f"m{i} = f32[1,64] multiply(h{i}, h{i})"]
    parts = ", ".join(f"m{i}" for i in range(n))
    return _module([*lines, f"ROOT r = f32[{n},64] concatenate({parts}), dimensions={{0}}"])


def joined_slices(n: int) -> str:
    """A concatenate of n slices of one array, each with an op of its own."""
    lines = [f"p = f32[{n},64] parameter(0)", f"e = f32[{n},64] exponential(p)"]
    for i in range(n):
        at = 7 * i % n
        lines += [f"h{i} = f32[1,64] slice(e), slice={{[{at}:{at + 1}], [0:64]}}"]
        lines += [f"m{i} = f32[1,64] {_UNARY[i % 5]}(h{i})"]
    parts = ", ".join(f"m{i}" for i in range(n))
    return _module([*lines, f"ROOT r = f32[{n},64] concatenate({parts}), dimensions={{0}}"])


def joined_parameters(n: int) -> str:
    """A concatenate of n ops of separate parameters, and one op of it."""
    lines = [f"p{i} = f32[1,64] parameter({i})" for i in range(n)]
    lines += [f"m{i} = f32[1,64] {_UNARY[i % 5]}(p{i})" for i in range(n)]
    parts = ", ".join(f"m{i}" for i in range(n))
    lines += [f"c = f32[{n},64] concatenate({parts}), dimensions={{0}}"]
    return _module([*lines, f"ROOT r = f32[{n},64] negate(c)"])


def wide_reduce(n: int) -> str:
    """One reduce of n arrays."""
    lines = [f"p{i} = f32[8,64] parameter({i})" for i in range(n)]
    lines += [f"e{i} = f32[8,64] {_UNARY[i % 5]}(p{i})" for i in range(n)]
    sides = [f"{side}{i} = f32[] parameter({at})" for at, (side, i) in enumerate(_both_sides(n))]
    sides += [f"t{i} = f32[] add(a{i}, b{i})" for i in range(n)]
    sums = (
        "sums {\n  " + "\n  ".join([*sides, _tuple([f"t{i}" for i in range(n)], "f32[]")]) + "\n}"
    )
    arrays, zeros = ", ".join(f"e{i}" for i in range(n)), ", ".join(["z"] * n)
    whole = f"({', '.join(['f32[8]'] * n)})"
    lines += ["z = f32[] constant(0)"]
    lines += [f"ROOT r = {whole} reduce({arrays}, {zeros}), dimensions={{1}}, to_apply=sums"]
    return _module(lines, [sums])


def _both_sides(n: int) -> list[tuple[str, int]]:
    return [(side, i) for side in "ab" for i in range(n)]


def slices(n: int) -> str:
    """A tuple of n slices of one array."""
    lines = [f"p = f32[{n},64] parameter(0)", f"e = f32[{n},64] exponential(p)"]
    for i in range(n):
        lines += [f"h{i} = f32[1,64] slice(e), slice={{[{i}:{i + 1}], [0:64]}}"]
        lines += [f"m{i} = f32[1,64] sine(h{i})"]
    return _module([*lines, _tuple([f"m{i}" for i in range(n)], "f32[1,64]")])


def diamonds(n: int) -> str:
    """Each step reads the one before twice: n shared diamonds."""
    lines = [f"x0 = {_V} parameter(0)"]
    for i in range(n):
        lines += [f"h{i} = {_V} sine(x{i})", f"k{i} = {_V} cosine(x{i})"]
        lines += [f"x{i + 1} = {_V} add(h{i}, k{i})"]
    return _module([*lines, f"ROOT r = {_V} negate(x{n})"])


def ladder(n: int) -> str:
    """Each step reads the two before."""
    lines = [f"x0 = {_V} parameter(0)", f"x1 = {_V} parameter(1)"]
    lines += [f"x{i + 2} = {_V} atan2(x{i}, x{i + 1})" for i in range(n)]
    return _module([*lines, f"ROOT r = {_V} negate(x{n + 1})"])


def backward(n: int) -> str:
    """n steps and what a gradient does with them: the last step's values come first."""
    lines = [f"x0 = {_V} parameter(0)"]
    for i in range(n):
        lines += [
            f"h{i} = {_V} {_UNARY[i % 5]}(x{i})",
            f"x{i + 1} = {_V} multiply(h{i}, x{i})",
        ]
    lines += [f"g{n} = {_V} negate(x{n})"]
    for i in reversed(range(n)):
        lines += [f"a{i} = {_V} multiply(h{i}, g{i + 1})", f"d{i} = {_V} cosine(x{i})"]
        lines += [f"g{i} = {_V} atan2(d{i}, a{i})"]
    return _module([*lines, f"ROOT r = {_V} negate(g0)"])


def skips(n: int) -> str:
    """A chain whose every value is a result as well."""
    lines = [f"x0 = {_V} parameter(0)"]
    lines += [f"x{i + 1} = {_V} {_UNARY[i % 5]}(x{i})" for i in range(n)]
    return _module([*lines, _tuple([f"x{i + 1}" for i in range(n)], _V)])


def independent(n: int) -> str:
    """n small programs beside each other, each with a parameter of its own."""
    lines = []
    for i in range(n):
        lines += [f"p{i} = {_V} parameter({i})", f"h{i} = {_V} sine(p{i})"]
        lines += [f"y{i} = {_V} multiply(h{i}, p{i})"]
    return _module([*lines, _tuple([f"y{i}" for i in range(n)], _V)])


def summed(n: int) -> str:
    """The sum of n parameters."""
    lines = [f"p{i} = {_V} parameter({i})" for i in range(n)]
    lines += [f"x{i} = {_V} atan2({f'x{i - 1}' if i > 1 else 'p0'}, p{i})" for i in range(1, n)]
    return _module([*lines, f"ROOT r = {_V} negate(x{n - 1})"])


def reduces(n: int) -> str:
    """n reduces of one array, each with a computation of its own."""
    sums = [_SUM.format(name=f"sum{i}", t="f32[]") for i in range(n)]
    lines = ["p = f32[8,64] parameter(0)", "zero = f32[] constant(0)"]
    for i in range(n):
        lines += [
            f"k{i} = f32[] constant({i + 2})",
            f"b{i} = f32[8,64] broadcast(k{i}), dimensions={{}}",
        ]
        lines += [f"y{i} = f32[8,64] atan2(p, b{i})"]
        lines += [f"r{i} = f32[8] reduce(y{i}, zero), dimensions={{1}}, to_apply=sum{i}"]
    return _module([*lines, _tuple([f"r{i}" for i in range(n)], "f32[8]")], sums)


def column_reduces(n: int) -> str:
    """n large reduces of separate arrays along their first dimension, with one computation."""
    lines = ["zero = f32[] constant(0)"]
    for i in range(n):
        lines += [f"p{i} = f32[512,64] parameter({i})", f"y{i} = f32[512,64] sine(p{i})"]
        lines += [f"r{i} = f32[64] reduce(y{i}, zero), dimensions={{0}}, to_apply=sum"]
    total = [_SUM.format(name="sum", t="f32[]")]
    return _module([*lines, _tuple([f"r{i}" for i in range(n)], "f32[64]")], total)


def all_reduces(n: int) -> str:
    """n all-reduces."""
    lines = []
    for i in range(n):
        lines += [f"p{i} = {_V} parameter({i})"]
        lines += [f"r{i} = {_V} all-reduce(p{i}), replica_groups={{}}, to_apply=sum"]
    return _module(
        [*lines, _tuple([f"r{i}" for i in range(n)], _V)], [_SUM.format(name="sum", t="f32[]")]
    )


def calls(n: int) -> str:
    """n calls in a row, each of a computation of its own."""
    bodies = [
        f"fn{i} {{ a = {_V} parameter(0) b = {_V} sine(a) ROOT r = {_V} multiply(a, b) }}"
        for i in range(n)
    ]
    lines = [f"x0 = {_V} parameter(0)"]
    lines += [f"x{i + 1} = {_V} call(x{i}), to_apply=fn{i}" for i in range(n)]
    return _module([*lines, f"ROOT r = {_V} negate(x{n})"], bodies)


def deep_calls(n: int) -> str:
    """n computations, each of which calls the one before."""
    bodies = [f"fn0 {{ a = {_V} parameter(0) ROOT r = {_V} sine(a) }}"]
    for i in range(1, n):
        bodies += [
            (
                f"fn{i} {{ a = {_V} parameter(0) b = {_V} call(a), to_apply=fn{i - 1} "
                f"ROOT r = {_V} multiply(a, b) }}"
            )
        ]
    entry = [f"p = {_V} parameter(0)", f"ROOT r = {_V} call(p), to_apply=fn{n - 1}"]
    return _module(entry, bodies)


def doubled_calls(n: int) -> str:
    """n computations, each of which calls the one before twice: 2^n instructions if all were inlined."""
    bodies = [f"fn0 {{ a = {_V} parameter(0) ROOT r = {_V} sine(a) }}"]
    for i in range(1, n):
        bodies += [
            (
                f"fn{i} {{ a = {_V} parameter(0) b = {_V} call(a), to_apply=fn{i - 1} "
                f"ROOT r = {_V} call(b), to_apply=fn{i - 1} }}"
            )
        ]
    entry = [f"p = {_V} parameter(0)", f"ROOT r = {_V} call(p), to_apply=fn{n - 1}"]
    return _module(entry, bodies)


def _loop(name: str, inner: str, iterations: int = 5) -> list[str]:
    """A loop that counts to ``trips``; ``inner`` makes ``y`` of ``x``."""
    state = f"(s32[], {_V})"
    return [
        (
            f"{name}.body {{ t = {state} parameter(0) i = s32[] get-tuple-element(t), index=0 "
            f"x = {_V} get-tuple-element(t), index=1 one = s32[] constant(1) "
            f"j = s32[] add(i, one) {inner} ROOT r = {state} tuple(j, y) }}"
        ),
        (
            f"{name}.condition {{ t = {state} parameter(0) i = s32[] get-tuple-element(t), index=0 "
            f"n = s32[] constant({iterations}) ROOT r = pred[] compare(i, n), direction=LT }}"
        ),
    ]


def _call_loop(name: str, value: str, result: str) -> str:
    return (
        f"{name}.zero = s32[] constant(0) {name}.t = (s32[], {_V}) tuple({name}.zero, {value}) "
        f"{name}.w = (s32[], {_V}) while({name}.t), condition={name}.condition, body={name}.body "
        f"{result} = {_V} get-tuple-element({name}.w), index=1"
    )


def loops(n: int) -> str:
    """n loops in a row."""
    bodies = [line for i in range(n) for line in _loop(f"w{i}", f"y = {_V} sine(x)", 7 + i % 5)]
    lines = [f"x0 = {_V} parameter(0)"]
    lines += [_call_loop(f"w{i}", f"x{i}", f"x{i + 1}") for i in range(n)]
    return _module([*lines, f"ROOT r = {_V} negate(x{n})"], bodies)


def deep_loops(n: int) -> str:
    """n loops within each other."""
    bodies = _loop("w0", f"y = {_V} sine(x)")
    for i in range(1, n):
        bodies += _loop(f"w{i}", _call_loop(f"w{i - 1}", "x", "y"), 7)
    return _module([f"x = {_V} parameter(0)", _call_loop(f"w{n - 1}", "x", "ROOT y")], bodies)


def carried(n: int) -> str:
    """A loop that carries n arrays: some changed, some handed on, some unused."""
    state = f"(s32[], {', '.join([_V] * n)})"
    body = [f"t = {state} parameter(0)", "i = s32[] get-tuple-element(t), index=0"]
    body += ["one = s32[] constant(1)", "j = s32[] add(i, one)"]
    results = ["j"]
    for i in range(n):
        body += [f"x{i} = {_V} get-tuple-element(t), index={i + 1}"]
        before = f"x{max(i - 1, 0)}"
        body += [f"y{i} = {_V} atan2(x{i}, {before})"] if i % 3 else []
        results += [f"y{i}" if i % 3 else f"x{i}"]
    body += [f"ROOT r = {state} tuple({', '.join(results)})"]
    condition = (
        f"c {{ t = {state} parameter(0) i = s32[] get-tuple-element(t), index=0 "
        "n = s32[] constant(9) ROOT r = pred[] compare(i, n), direction=LT }"
    )
    lines = [f"p{i} = {_V} parameter({i})" for i in range(n)]
    lines += [
        "z = s32[] constant(0)",
        f"t = {state} tuple(z, {', '.join(f'p{i}' for i in range(n))})",
    ]
    lines += [f"ROOT w = {state} while(t), condition=c, body=b"]
    return _module(lines, ["b {\n  " + "\n  ".join(body) + "\n}", condition])


def conditionals(n: int) -> str:
    """n conditionals in a row."""
    bodies, lines = [], [f"x0 = {_V} parameter(0)", "p = pred[] parameter(1)"]
    for i in range(n):
        bodies += [f"t{i} {{ a = {_V} parameter(0) ROOT r = {_V} sine(a) }}"]
        bodies += [f"fn{i} {{ a = {_V} parameter(0) ROOT r = {_V} cosine(a) }}"]
        lines += [
            f"x{i + 1} = {_V} conditional(p, x{i}, x{i}), true_computation=t{i}, false_computation=fn{i}"
        ]
    return _module([*lines, f"ROOT r = {_V} negate(x{n})"], bodies)


def deep_conditionals(n: int) -> str:
    """n conditionals within each other."""
    state = f"(pred[], {_V})"
    bodies = [f"t0 {{ a = {state} parameter(0) ROOT x = {_V} get-tuple-element(a), index=1 }}"]
    for i in range(1, n):
        bodies += [
            (
                f"fn{i} {{ a = {state} parameter(0) x = {_V} get-tuple-element(a), index=1 "
                f"ROOT s = {_V} sine(x) }}"
            ),
            (
                f"t{i} {{ a = {state} parameter(0) p = pred[] get-tuple-element(a), index=0 "
                f"ROOT c = {_V} conditional(p, a, a), true_computation=t{i - 1}, false_computation=fn{i} }}"
            ),
        ]
    entry = [f"a = {state} parameter(0)", f"ROOT c = {_V} call(a), to_apply=t{n - 1}"]
    return _module(entry, bodies)


def updates(n: int) -> str:
    """A chain of dynamic-update-slices."""
    lines = [
        f"x0 = f32[{n},64] parameter(0)",
        "u = f32[1,64] parameter(1)",
        "z = s32[] constant(0)",
    ]
    for i in range(n):
        lines += [f"k{i} = s32[] constant({i})", f"v{i} = f32[1,64] {_UNARY[i % 5]}(u)"]
        lines += [f"x{i + 1} = f32[{n},64] dynamic-update-slice(x{i}, v{i}, k{i}, z)"]
    return _module([*lines, f"ROOT r = f32[{n},64] negate(x{n})"])


def updates_read(n: int) -> str:
    """A chain of updates at known places, of which n slices are read."""
    lines = [f"x0 = f32[{n},64] parameter(0)", "u = f32[1,64] parameter(1)"]
    lines += ["z = s32[] constant(0)"]
    for i in range(n):
        lines += [f"k{i} = s32[] constant({i})", f"v{i} = f32[1,64] {_UNARY[i % 5]}(u)"]
        lines += [f"x{i + 1} = f32[{n},64] dynamic-update-slice(x{i}, v{i}, k{i}, z)"]
    for i in range(n):
        lines += [f"h{i} = f32[1,64] slice(x{n}), slice={{[{i}:{i + 1}], [0:64]}}"]
        lines += [f"w{i} = f32[1,64] {_UNARY[(i + 1) % 5]}(h{i})"]
    return _module([*lines, _tuple([f"w{i}" for i in range(n)], "f32[1,64]")])


def places(n: int) -> str:
    """A chain of updates and slices at places that are not known."""
    lines = [f"x0 = f32[{n},64] parameter(0)", "k = s32[] parameter(1)", "z = s32[] constant(0)"]
    for i in range(n):
        lines += [f"h{i} = f32[1,64] dynamic-slice(x{i}, k, z), dynamic_slice_sizes={{1,64}}"]
        lines += [f"v{i} = f32[1,64] {_UNARY[i % 5]}(h{i})"]
        lines += [f"x{i + 1} = f32[{n},64] dynamic-update-slice(x{i}, v{i}, k, z)"]
    return _module([*lines, f"ROOT r = f32[{n},64] negate(x{n})"])


def tuples(n: int) -> str:
    """A chain of tuples that swap their elements."""
    pair = f"({_V}, {_V})"
    lines = [f"x0 = {pair} parameter(0)"]
    for i in range(n):
        lines += [f"a{i} = {_V} get-tuple-element(x{i}), index=0"]
        lines += [f"b{i} = {_V} get-tuple-element(x{i}), index=1"]
        lines += [f"x{i + 1} = {pair} tuple(b{i}, a{i})"]
    return _module([*lines, f"ROOT r = {_V} get-tuple-element(x{n}), index=0"])


def nested_tuples(n: int) -> str:
    """Tuples within tuples; the text, not the number of tuples, grows with ``n``."""
    shape, lines, depth = _V, [f"x0 = {_V} parameter(0)"], 0
    while sum(map(len, lines)) < 40 * n:
        shape, depth = f"({shape}, {shape})", depth + 1
        lines += [f"x{depth} = {shape} tuple(x{depth - 1}, x{depth - 1})"]
    return _module([*lines, f"ROOT r = ({shape}) tuple(x{depth})"])


def wide_tuple(n: int) -> str:
    """A parameter that is a tuple of n arrays."""
    whole = f"({', '.join([_V] * n)})"
    lines = [f"t = {whole} parameter(0)"]
    for i in range(n):
        lines += [f"x{i} = {_V} get-tuple-element(t), index={i}", f"y{i} = {_V} sine(x{i})"]
    return _module([*lines, _tuple([f"y{i}" for i in range(n)], _V)])


def control_chain(n: int) -> str:
    """n instructions, each of which waits for the one before."""
    lines = [f"p{i} = {_V} parameter({i})" for i in range(n)]
    for i in range(n):
        wait = f", control-predecessors={{y{i - 1}}}" if i else ""
        lines += [f"y{i} = {_V} sine(p{i}){wait}"]
    return _module([*lines, _tuple([f"y{i}" for i in range(n)], _V)])


def control_fan(n: int) -> str:
    """One instruction that waits for n others, and n others that wait for it."""
    lines = [f"p = {_V} parameter(0)", *(f"q{i} = {_V} parameter({i + 1})" for i in range(n))]
    lines += [f"a{i} = {_V} sine(q{i})" for i in range(n)]
    waits = ", ".join(f"a{i}" for i in range(n))
    lines += [f"m = {_V} tanh(p), control-predecessors={{{waits}}}"]
    lines += [f"b{i} = {_V} cosine(q{i}), control-predecessors={{m}}" for i in range(n)]
    parts = ["m", *(f"{side}{i}" for i in range(n) for side in "ab")]
    return _module([*lines, _tuple(parts, _V)])


def movement(n: int) -> str:
    """A chain of broadcasts, reshapes, transposes and reduces."""
    lines = ["x0 = f32[8,16] parameter(0)", "zero = f32[] constant(0)"]
    for i in range(n):
        lines += [f"t{i} = f32[16,8] transpose(x{i}), dimensions={{1,0}}"]
        lines += [f"h{i} = f32[16,8] sine(t{i})", f"v{i} = f32[128] reshape(h{i})"]
        lines += [f"b{i} = f32[4,128] broadcast(v{i}), dimensions={{1}}"]
        lines += [f"r{i} = f32[128] reduce(b{i}, zero), dimensions={{0}}, to_apply=sum"]
        lines += [f"x{i + 1} = f32[8,16] reshape(r{i})"]
    return _module(
        [*lines, f"ROOT r = f32[8,16] negate(x{n})"], [_SUM.format(name="sum", t="f32[]")]
    )


def views(n: int) -> str:
    """A chain of transposes and reshapes alone."""
    lines = ["x0 = f32[8,16] parameter(0)"]
    for i in range(n):
        lines += [f"t{i} = f32[16,8] transpose(x{i}), dimensions={{1,0}}"]
        lines += [f"x{i + 1} = f32[8,16] reshape(t{i})"]
    return _module([*lines, f"ROOT r = f32[8,16] negate(x{n})"])


def layouts(n: int) -> str:
    """A chain of copies between layouts and ops in both."""
    lines = ["x0 = f32[8,16]{1,0} parameter(0)"]
    for i in range(n):
        lines += [f"k{i} = f32[8,16]{{0,1}} copy(x{i})", f"h{i} = f32[8,16]{{0,1}} sine(k{i})"]
        lines += [f"x{i + 1} = f32[8,16]{{1,0}} copy(h{i})"]
    return _module([*lines, f"ROOT r = f32[8,16]{{1,0}} negate(x{n})"])


def dots(n: int) -> str:
    """A network of n layers."""
    lines = ["x0 = f32[32,64] parameter(0)"]
    for i in range(n):
        lines += [f"w{i} = f32[64,64] parameter({i + 1})"]
        lines += [
            f"d{i} = f32[32,64] dot(x{i}, w{i}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        ]
        lines += [f"x{i + 1} = f32[32,64] tanh(d{i})"]
    return _module([*lines, f"ROOT r = f32[32,64] negate(x{n})"])


def dots_of_one(n: int) -> str:
    """n dots that share an operand."""
    lines = ["x = f32[32,64] parameter(0)"]
    for i in range(n):
        lines += [f"w{i} = f32[64,64] parameter({i + 1})"]
        lines += [
            f"d{i} = f32[32,64] dot(x, w{i}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        ]
    return _module([*lines, _tuple([f"d{i}" for i in range(n)], "f32[32,64]")])


def converts(n: int) -> str:
    """A chain that changes between two types."""
    lines = [f"x0 = {_V} parameter(0)"]
    for i in range(n):
        lines += [f"b{i} = bf16[64] convert(x{i})", f"h{i} = bf16[64] {_UNARY[i % 5]}(b{i})"]
        lines += [f"x{i + 1} = {_V} convert(h{i})"]
    return _module([*lines, f"ROOT r = {_V} negate(x{n})"])


def constants(n: int) -> str:
    """n constants of a few elements, some of them equal, each with a reader."""
    lines = ["p = f32[4] parameter(0)"]
    for i in range(n):
        lines += [f"k{i} = f32[4] constant({{{i % 50}, 1, 2, 3}})", f"y{i} = f32[4] atan2(p, k{i})"]
        lines += [f"z{i} = f32[4] sine(y{i})"]
    return _module([*lines, _tuple([f"z{i}" for i in range(n)], "f32[4]")])


def long_constant(n: int) -> str:
    """One constant of 20 n elements."""
    values = ", ".join(str(i * 7 % 1000) for i in range(20 * n))
    lines = [f"c = s32[{20 * n}] constant({{{values}}})", f"p = s32[{20 * n}] parameter(0)"]
    return _module([*lines, f"ROOT r = s32[{20 * n}] add(c, p)"])


def growing_concatenates(n: int) -> str:
    """Each step joins one row to what there is."""
    lines = ["x0 = f32[1,64] parameter(0)", "p = f32[1,64] parameter(1)"]
    for i in range(n):
        lines += [f"v{i} = f32[1,64] {_UNARY[i % 5]}(p)"]
        lines += [f"x{i + 1} = f32[{i + 2},64] concatenate(x{i}, v{i}), dimensions={{0}}"]
    return _module([*lines, f"ROOT r = f32[{n + 1},64] negate(x{n})"])


def pads(n: int) -> str:
    """A chain of pads and slices."""
    lines = [f"x0 = {_V} parameter(0)", "z = f32[] constant(0)"]
    for i in range(n):
        lines += [f"q{i} = f32[66] pad(x{i}, z), padding=1_1", f"h{i} = f32[66] sine(q{i})"]
        lines += [f"x{i + 1} = {_V} slice(h{i}), slice={{[2:66]}}"]
    return _module([*lines, f"ROOT r = {_V} negate(x{n})"])


def selects(n: int) -> str:
    """A chain of selects by comparisons."""
    lines = [f"x0 = {_V} parameter(0)", "k = s32[64] parameter(1)"]
    for i in range(n):
        lines += [f"k{i} = s32[] constant({i})", f"b{i} = s32[64] broadcast(k{i}), dimensions={{}}"]
        lines += [f"e{i} = pred[64] compare(k, b{i}), direction=EQ", f"h{i} = {_V} sine(x{i})"]
        lines += [f"x{i + 1} = {_V} select(e{i}, h{i}, x{i})"]
    return _module([*lines, f"ROOT r = {_V} negate(x{n})"])


def sums(n: int) -> str:
    """A chain of additions of constants and of what was there before, in integers."""
    lines = ["x0 = s32[64] parameter(0)"]
    for i in range(n):
        lines += [
            f"k{i} = s32[] constant({i + 3})",
            f"b{i} = s32[64] broadcast(k{i}), dimensions={{}}",
        ]
        op = ("add", "multiply", "xor", "subtract")[i % 4]
        lines += [f"x{i + 1} = s32[64] {op}(x{i}, b{i})"]
    return _module([*lines, f"ROOT r = s32[64] negate(x{n})"])


def gathers(n: int) -> str:
    """A chain of gathers and scatters."""
    lines = ["x0 = f32[16,8] parameter(0)", "k = s32[4,1] parameter(1)"]
    for i in range(n):
        lines += [
            (
                f"g{i} = f32[4,8] gather(x{i}, k), offset_dims={{1}}, collapsed_slice_dims={{0}}, "
                "start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}"
            )
        ]
        lines += [f"h{i} = f32[4,8] sine(g{i})"]
        lines += [
            (
                f"x{i + 1} = f32[16,8] scatter(x{i}, k, h{i}), update_window_dims={{1}}, "
                "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum"
            )
        ]
    return _module(
        [*lines, f"ROOT r = f32[16,8] negate(x{n})"], [_SUM.format(name="sum", t="f32[]")]
    )


def sorts(n: int) -> str:
    """n sorts, each with a comparator of its own."""
    orders = [
        f"less{i} {{ a = f32[] parameter(0) b = f32[] parameter(1) "
        "ROOT r = pred[] compare(a, b), direction=LT }"
        for i in range(n)
    ]
    lines = [f"x0 = {_V} parameter(0)"]
    for i in range(n):
        lines += [f"h{i} = {_V} sort(x{i}), dimensions={{0}}, to_apply=less{i}"]
        lines += [f"x{i + 1} = {_V} sine(h{i})"]
    return _module([*lines, f"ROOT r = {_V} negate(x{n})"], orders)


def fusions(n: int) -> str:
    """A chain of n fusions."""
    bodies = [
        f"fn{i} {{ a = {_V} parameter(0) b = {_V} parameter(1) h{i} = {_V} sine(a) "
        f"ROOT r{i} = {_V} atan2(h{i}, b) }}"
        for i in range(n)
    ]
    lines = [f"x0 = {_V} parameter(0)", f"p = {_V} parameter(1)"]
    lines += [f"x{i + 1} = {_V} fusion(x{i}, p), kind=kLoop, calls=fn{i}" for i in range(n)]
    return _module([*lines, f"ROOT r = {_V} negate(x{n})"], bodies)


def sibling_fusions(n: int) -> str:
    """n fusions that read the same two arrays."""
    bodies = [
        f"fn{i} {{ a = {_V} parameter(0) b = {_V} parameter(1) c = f32[] constant({i}) "
        f"d = {_V} broadcast(c), dimensions={{}} s = {_V} atan2(a, d) ROOT r = {_V} atan2(s, b) }}"
        for i in range(n)
    ]
    lines = [f"x = {_V} parameter(0)", f"p = {_V} parameter(1)"]
    lines += [f"y{i} = {_V} fusion(x, p), kind=kLoop, calls=fn{i}" for i in range(n)]
    return _module([*lines, _tuple([f"y{i}" for i in range(n)], _V)], bodies)


def layers(n: int) -> str:
    """n fusions that read the same two arrays, each the result of the one before as well."""
    lines = [f"w = {_V} parameter(0)", f"b = {_V} parameter(1)", f"x0 = {_V} parameter(2)"]
    lines += [f"x{i + 1} = {_V} fusion(x{i}, w, b), kind=kLoop, calls=fn{i}" for i in range(n)]
    bodies = [
        f"fn{i} {{ a = {_V} parameter(0) w = {_V} parameter(1) b = {_V} parameter(2) "
        f"m = {_V} multiply(a, w) s = {_V} add(m, b) ROOT r = {_V} tanh(s) }}"
        for i in range(n)
    ]
    return _module([*lines, f"ROOT r = {_V} negate(x{n})"], bodies)


def long_fusion(n: int) -> str:
    """One fusion of n instructions."""
    body = [f"x0 = {_V} parameter(0)", f"y = {_V} parameter(1)"]
    for i in range(n):
        body += [f"h{i} = {_V} {_UNARY[i % 5]}(x{i})", f"x{i + 1} = {_V} atan2(h{i}, y)"]
    body += [f"ROOT r = {_V} negate(x{n})"]
    lines = [f"a = {_V} parameter(0)", f"b = {_V} parameter(1)"]
    lines += [f"ROOT f = {_V} fusion(a, b), kind=kLoop, calls=fused"]
    return _module(lines, ["fused {\n  " + "\n  ".join(body) + "\n}"])


def wide_fusion(n: int) -> str:
    """One fusion with n results."""
    body = [f"x = {_V} parameter(0)", f"y = {_V} parameter(1)"]
    for i in range(n):
        body += [f"k{i} = f32[] constant({i})", f"b{i} = {_V} broadcast(k{i}), dimensions={{}}"]
        body += [f"z{i} = {_V} atan2({'xy'[i % 2]}, b{i})"]
    body += [_tuple([f"z{i}" for i in range(n)], _V)]
    whole = f"({', '.join([_V] * n)})"
    lines = [f"a = {_V} parameter(0)", f"b = {_V} parameter(1)"]
    lines += [f"f = {whole} fusion(a, b), kind=kLoop, calls=fused"]
    for i in range(n):
        lines += [f"g{i} = {_V} get-tuple-element(f), index={i}", f"h{i} = {_V} sine(g{i})"]
    return _module(
        [*lines, _tuple([f"h{i}" for i in range(n)], _V)],
        ["fused {\n  " + "\n  ".join(body) + "\n}"],
    )


def custom_calls(n: int) -> str:
    """A chain of custom calls."""
    lines = [f"x0 = {_V} parameter(0)"]
    lines += [f'x{i + 1} = {_V} custom-call(x{i}), custom_call_target="t{i}"' for i in range(n)]
    return _module([*lines, f"ROOT r = {_V} negate(x{n})"])


def tokens(n: int) -> str:
    """n infeeds and outfeeds in a row."""
    lines = ["k0 = token[] after-all()"]
    for i in range(n):
        lines += [
            f"i{i} = ({_V}, token[]) infeed(k{i})",
            f"d{i} = {_V} get-tuple-element(i{i}), index=0",
        ]
        lines += [f"t{i} = token[] get-tuple-element(i{i}), index=1", f"h{i} = {_V} sine(d{i})"]
        lines += [f"k{i + 1} = token[] outfeed(h{i}, t{i}), outfeed_shape={_V}"]
    return _module([*lines, f"ROOT r = (token[]) tuple(k{n})"])


def copies(n: int) -> str:
    """n copies of one array, and a chain of them."""
    lines = [f"x0 = {_V} parameter(0)"]
    for i in range(n):
        lines += [f"k{i} = {_V} copy(x0)", f"x{i + 1} = {_V} copy(x{i})"]
    return _module([*lines, _tuple([f"x{n}", *(f"k{i}" for i in range(n))], _V)])


def windows(n: int) -> str:
    """A ladder of shifted sums, as cumulative results are written."""
    lines = ["x0 = f32[1024] parameter(0)", "z = f32[] constant(0)"]
    for i in range(n):
        lines += [f"h{i} = f32[1023] slice(x{i}), slice={{[0:1023]}}"]
        lines += [f"q{i} = f32[1024] pad(h{i}, z), padding=1_0"]
        lines += [f"x{i + 1} = f32[1024] add(x{i}, q{i})"]
    return _module([*lines, f"ROOT r = f32[1024] negate(x{n})"])


def softmaxes(n: int) -> str:
    """n rows of a softmax, one after the other."""
    most = "most { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }"
    lines = [
        "x0 = f32[16,64] parameter(0)",
        "low = f32[] constant(-inf)",
        "zero = f32[] constant(0)",
    ]
    for i in range(n):
        lines += [f"m{i} = f32[16] reduce(x{i}, low), dimensions={{1}}, to_apply=most"]
        lines += [f"mb{i} = f32[16,64] broadcast(m{i}), dimensions={{0}}"]
        lines += [
            f"d{i} = f32[16,64] subtract(x{i}, mb{i})",
            f"e{i} = f32[16,64] exponential(d{i})",
        ]
        lines += [f"h{i} = f32[16] reduce(e{i}, zero), dimensions={{1}}, to_apply=sum"]
        lines += [f"sb{i} = f32[16,64] broadcast(h{i}), dimensions={{0}}"]
        lines += [f"x{i + 1} = f32[16,64] divide(e{i}, sb{i})"]
    total = _SUM.format(name="sum", t="f32[]")
    return _module([*lines, f"ROOT r = f32[16,64] negate(x{n})"], [most, total])


SHAPES: Final[Mapping[str, Callable[[int], str]]] = {
    shape.__name__: shape
    for shape in (
        chain, binary_chain, fan_out, concatenate, joined_slices, joined_parameters, wide_reduce, slices, diamonds, ladder, backward, skips, independent, summed,
        reduces, column_reduces, all_reduces, calls, deep_calls, loops, deep_loops, carried, conditionals,
        deep_conditionals, updates, updates_read, places, tuples, nested_tuples, wide_tuple, control_chain, control_fan,
        movement, views, layouts, dots, dots_of_one, converts, constants, long_constant,
        growing_concatenates, pads, selects, sums, gathers, sorts, fusions, sibling_fusions, layers,
        long_fusion,        wide_fusion, custom_calls, tokens, copies, windows, softmaxes,
    )
}  # fmt: skip
