"""Mutations of generated CUDA C: one line of a kernel changed so that it is probably wrong.

Generated source has a statement a line, so that each kind is a few patterns on lines.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hloopt.backends.emulator.tokens import SourceFunction, find_functions, join, tokenize

__all__ = ["KINDS", "Mutation", "kernel_texts", "mutations", "sample"]

KINDS = (
    "index", "dims", "guard", "guard-removed", "return-dropped", "barrier", "initial", "store-dropped",
    "shuffle", "shared-index", "atomic", "operator", "operands", "loop-bound", "loop-begin", "narrow",
    "lane", "update-dropped", "pointer",
)  # fmt: skip
"""What can be mutated, in the order in which samples take turns."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """Line ``line`` of a kernel's text (from 0) becomes ``after``; empty where it is dropped."""

    kind: str
    line: int
    before: str
    after: str

    def apply(self, text: str, name: str, new_name: str) -> str:
        """The kernel's text with the mutation, under another name."""
        lines = text.split("\n")
        assert lines[self.line] == self.before
        lines[self.line] = self.after
        return re.sub(rf"\b{name}\b", new_name, "\n".join(lines), count=1)

    def __str__(self) -> str:
        return f"{self.kind}: {self.before.strip()}  =>  {self.after.strip() or '(dropped)'}"


def kernel_texts(source: str) -> dict[str, str]:
    """The text of each ``__global__`` function by name, comments before it left out."""
    tokens = tokenize(source)
    return {
        function.name: _text(function) for function in find_functions(tokens) if function.is_kernel
    }


def _text(function: SourceFunction) -> str:
    text = join(function.tokens[function.begin : function.end])
    return text[text.index('extern "C"') :]


_TYPES = r"(?:bool|signed char|unsigned char|short|unsigned short|int|unsigned|long long|unsigned long long|float|double)"
_INITIAL = re.compile(rf"^(\s*)({_TYPES}) (\w+) = ([^;]+);$")
_CONSTANT = re.compile(r"^(\s*)const (int|long long) (\w+) = (.+);$")
_LOOP = re.compile(r"^(\s*)for \((int|long long) (\w+) = (.+?); (.+?); (.+?)\) (\{?.*)$")
_GUARD = re.compile(r"^(\s*)if \((.*)\) (return;|continue;|\{)$")
_STORE = re.compile(r"^\s*(?:(\w+)(?:\[.+?\])+ = .*|store_vector\(.*|store_\w+\(.*);$")
_ATOMIC = re.compile(r"^(\s*)atomic(Add|Min|Max|And|Or|Xor)\(&(\w+\[.*\]), (\w+)\);$")
_ASSIGNMENT = re.compile(r"^\s*(\w+)(?:\[[^=]*\])? (?:\+|-|\*|\||&|\^)?= .*;$")
_LITERALS = re.compile(r"^[-()\s]*(?:[\d.]+(?:[xXeEpP][-+\w.]*)?[fuUlL]*|true|false|\(?-?(?:__uint_as_float|__longlong_as_double)\(\w+\))[)\s]*$")  # fmt: skip
_OPERATORS = {" + ": " - ", " - ": " + ", " * ": " + ", " / ": " * ", " && ": " || ", " || ": " && ",
              " == ": " != ", " != ": " == ", " | ": " & ", " & ": " | ", " ^ ": " | ",
              " << ": " >> ", " >> ": " << "}  # fmt: skip
_CALLS = {"minimum_": "maximum_", "maximum_": "minimum_", "expf(": "expm1f(", "sqrtf(": "fabsf("}
_EDGES = {" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > "}


def mutations(text: str) -> Iterator[Mutation]:
    """All mutations of a kernel's text, in order of lines."""
    lines = text.split("\n")
    begin = next(at for at, line in enumerate(lines) if line.rstrip().endswith(") {"))
    shared = set(re.findall(r"__shared__ [\w ()]+? (\w+)\[", text))
    for at in range(begin + 1, len(lines)):
        line = lines[at]
        seen = {line}
        for kind, after in _of_line(line, shared):
            if after not in seen:
                seen.add(after)
                yield Mutation(kind, at, line, after)


def _of_line(line: str, shared: set[str]) -> Iterator[tuple[str, str]]:
    if not line.strip() or line.strip().startswith(("//", "#", "__shared__", "}")):
        return
    if re.search(r"__sync(threads|warp)\(\);", line):
        yield "barrier", re.sub(r"__sync(threads|warp)\(\);", "", line)
        return
    loop = _LOOP.match(line)
    if loop:
        yield from _loops(line, loop)
        return
    guard = _GUARD.match(line)
    if guard:
        yield from _guards(line, guard)
        return
    yield from _shuffles(line)
    yield from _indices(line, shared)
    yield from _constants(line)
    yield from _values(line)
    yield from _dropped(line)


def _loops(line: str, loop: re.Match[str]) -> Iterator[tuple[str, str]]:
    space, kind, name, begin, test, step, rest = loop.groups()
    what = "shuffle" if "distance" in name else "loop-bound"

    def written(begin: str = begin, test: str = test, step: str = step) -> str:
        return f"{space}for ({kind} {name} = {begin}; {test}; {step}) {rest}"

    yield "loop-begin", written(begin=f"{begin} + 1")
    if "distance" in name and begin.isdecimal():
        yield "shuffle", written(begin=str(int(begin) // 2))
        yield "shuffle", written(begin=str(int(begin) * 2))
    for edge, other in _EDGES.items():
        if edge in test:
            left, right = test.split(edge, 1)
            yield what, written(test=f"{left}{other}{right}")
            yield what, written(test=f"{left}{edge}{right} - 1")
            yield what, written(test=f"{left}{edge}{right} + 1")
    if step.startswith("++"):
        yield what, written(step=f"{name} += 2")
    elif step[-1:].isdecimal():
        yield what, written(step=f"{step}+1" if "+=" in step else f"{step} * 2")


def _guards(line: str, guard: re.Match[str]) -> Iterator[tuple[str, str]]:
    space, test, then = guard.groups()
    if then == "{":
        yield "guard-removed", f"{space}if (true) {{"
    else:
        yield "return-dropped", ""
    for edge, other in _EDGES.items():
        for found in re.finditer(re.escape(edge), test):
            left, right = test[: found.start()], test[found.end() :]
            yield "guard", f"{space}if ({left}{other}{right}) {then}"
            number = re.match(r"(\d+)\b", right)
            if number:
                more, tail = int(number[1]) + 1, right[number.end() :]
                yield "guard", f"{space}if ({left}{edge}{more}{tail}) {then}"
    for operator in (" == ", " && ", " || ", "!"):
        if operator in test:
            other = _OPERATORS.get(operator, "")
            yield "guard", f"{space}if ({test.replace(operator, other, 1)}) {then}"


def _shuffles(line: str) -> Iterator[tuple[str, str]]:
    found = re.search(r"\bshuffle_(down|up|xor|index)\((.*), ([^,]+)\);", line)
    if found:
        how, value, distance = found.groups()
        other = {"down": "up", "up": "down", "xor": "down", "index": "xor"}[how]
        begin, end = line[: found.start()], line[found.end() :]
        yield "shuffle", f"{begin}shuffle_{other}({value}, {distance});{end}"
        yield "shuffle", f"{begin}shuffle_{how}({value}, {distance} + 1);{end}"


def _indices(line: str, shared: set[str]) -> Iterator[tuple[str, str]]:
    for name, begin, end in _subscripts(line):
        inner = line[begin:end]
        kind = "shared-index" if name in shared else "index"
        yield kind, f"{line[:begin]}{inner} + 1{line[end:]}"
        yield kind, f"{line[:begin]}{inner} - 1{line[end:]}"
        for factor in re.finditer(r"(?<=[*/%] )(\d+)", inner):
            other = int(factor[1]) + 1
            place = begin + factor.start()
            yield kind, f"{line[:place]}{other}{line[place + len(factor[1]) :]}"
        for operator, other_one in ((" / ", " % "), (" % ", " / ")):
            if operator in inner:
                yield "dims", f"{line[:begin]}{inner.replace(operator, other_one, 1)}{line[end:]}"
        if name in shared and line[end : end + 2] == "][":
            second = line.index("]", end + 2)
            yield "shared-index", f"{line[:begin]}{line[end + 2 : second]}][{inner}{line[second:]}"
        if ".lane" in line[:begin][-6:] or name == "lane":
            continue
    lane = re.search(r"\.lane\[(\d+)\]", line)
    if lane:
        yield "lane", line.replace(lane[0], f".lane[{int(lane[1]) ^ 1}]", 1)
    vector = re.search(r"(load_vector<\d+>|store_vector)\((\w+) \+ \(", line)
    if vector:
        place = vector.end()
        yield "pointer", f"{line[:place]}1 + {line[place:]}"
        if vector[1].startswith("load"):
            factor = re.search(r"\* (\d+)", line[place:])
            if factor:
                at = place + factor.start(1)
                yield "pointer", f"{line[:at]}{int(factor[1]) * 2}{line[at + len(factor[1]) :]}"


def _subscripts(line: str) -> Iterator[tuple[str, int, int]]:
    """The name and the inside of each ``name[...]``; of ``name[a][b]`` the name stands for both."""
    for found in re.finditer(r"(\w+)\[", line):
        name, at = found[1], found.end()
        while True:
            depth, end = 1, at
            while depth and end < len(line):
                depth += {"[": 1, "]": -1}.get(line[end], 0)
                end += 1
            if depth:
                return
            if name != "lane":
                yield name, at, end - 1
            if line[end : end + 1] != "[":
                break
            at = end + 1


def _constants(line: str) -> Iterator[tuple[str, str]]:
    found = _CONSTANT.match(line)
    if not found:
        return
    space, kind, name, value = found.groups()
    if re.search(r"\w\[", value):
        return
    if not re.fullmatch(r"\(int\)(blockIdx|threadIdx)\.\w", value):
        yield "index", f"{space}const {kind} {name} = {value} + 1;"
        yield "narrow", f"{space}const {kind} {name} = (signed char)({value});"
    for factor in re.finditer(r"(?<=[*/%] )(\d+)", value):
        other = int(factor[1]) - 1 or 2
        yield (
            "index",
            f"{space}const {kind} {name} = {value[: factor.start()]}{other}{value[factor.end() :]};",
        )
    for operator, other_one in ((" / ", " % "), (" % ", " / ")):
        if operator in value:
            yield "dims", f"{space}const {kind} {name} = {value.replace(operator, other_one, 1)};"


def _values(line: str) -> Iterator[tuple[str, str]]:
    atomic = _ATOMIC.match(line)
    if atomic:
        space, how, place, value = atomic.groups()
        operator = {"Add": "+", "And": "&", "Or": "|", "Xor": "^"}.get(how)
        if operator:
            yield "atomic", f"{space}{place} = {place} {operator} {value};"
        else:
            edge = "<" if how == "Min" else ">"
            yield "atomic", f"{space}{place} = {value} {edge} {place} ? {value} : {place};"
        return
    initial = _INITIAL.match(line)
    if initial and _LITERALS.match(initial[4]):
        space, kind, name, value = initial.groups()
        other = "false" if "true" in value else "true" if "false" in value else f"({kind})1"
        yield "initial", f"{space}{kind} {name} = {other};"
    if "(int)blockIdx" in line or "(int)threadIdx" in line:
        return
    equals = line.find(" = ")
    if equals < 0 or "[" in line[:0]:
        return
    value, head = line[equals:], line[:equals]
    for operator, other in _OPERATORS.items():
        for found in re.finditer(re.escape(operator), value):
            if not _inside_subscript(value, found.start()):
                yield "operator", f"{head}{value[: found.start()]}{other}{value[found.end() :]}"
                break
    for edge, other in ((" < ", " > "), (" > ", " < "), (" >= ", " < "), (" <= ", " > ")):
        if edge in value:
            yield "operator", head + value.replace(edge, other, 1)
    for call, other in _CALLS.items():
        if call in value:
            yield "operator", head + value.replace(call, other, 1)
    swapped = re.search(r"\((\w+) ([-/%]|<|>|<<|>>) (\w+)\)", value)
    if swapped and swapped[1] != swapped[3]:
        begin, end = swapped.span()
        yield (
            "operands",
            f"{head}{value[:begin]}({swapped[3]} {swapped[2]} {swapped[1]}){value[end:]}",
        )
    choice = re.search(r" \? ([\w.]+) : ([\w.]+)", value)
    if choice:
        begin, end = choice.span()
        yield "operands", f"{head}{value[:begin]} ? {choice[2]} : {choice[1]}{value[end:]}"


def _inside_subscript(text: str, at: int) -> bool:
    return text[:at].count("[") > text[:at].count("]")


def _dropped(line: str) -> Iterator[tuple[str, str]]:
    store = _STORE.match(line)
    if store:
        yield "store-dropped", ""
    elif _ASSIGNMENT.match(line):
        yield "update-dropped", ""


def sample(texts: dict[str, str], count: int, seed: int) -> list[tuple[str, Mutation]]:
    """Up to ``count`` mutations of kernels, kinds taking turns, drawn by a seed."""
    rng = random.Random(seed)
    by_kind: dict[str, list[tuple[str, Mutation]]] = {kind: [] for kind in KINDS}
    for name, text in texts.items():
        for mutation in mutations(text):
            by_kind[mutation.kind].append((name, mutation))
    for found in by_kind.values():
        rng.shuffle(found)
    kinds: Sequence[str] = [kind for kind in KINDS if by_kind[kind]]
    chosen: list[tuple[str, Mutation]] = []
    while len(chosen) < count and kinds:
        for kind in kinds:
            if len(chosen) < count:
                chosen.append(by_kind[kind].pop())
        kinds = [kind for kind in kinds if by_kind[kind]]
    return chosen
