"""Shared arrays: their declarations, and how these are rewritten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hloopt.backends.emulator.tokens import SourceFunction, SourceToken, closing, join
from hloopt.dataclass import dataclass
from hloopt.errors import DeviceError

__all__ = [
    "DYNAMIC",
    "SharedArray",
    "SharedLayout",
    "declare_shared",
    "dynamic_bytes",
    "shared_declarations",
]

DYNAMIC = "dynamic_shared"
"""The array of dynamic shared memory; arrays in it are references into it."""

_SIZES = {
    "bool": 1, "char": 1, "signed char": 1, "unsigned char": 1, "short": 2, "unsigned short": 2, "int": 4,
    "unsigned": 4, "unsigned int": 4, "float": 4, "long long": 8, "unsigned long long": 8, "double": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SharedArray:
    """``__shared__ element name[sizes]...``; no sizes make a single element.

    ``offset`` is that of an array in dynamic shared memory, empty for others.
    """

    name: str
    element: str
    sizes: tuple[str, ...]
    offset: str = ""


def shared_declarations(
    tokens: Sequence[SourceToken],
) -> Iterator[tuple[int, int, tuple[SharedArray, ...]]]:
    """Where each declaration begins and ends, and the arrays it declares.

    ``T (&name)[N] = *(T (*)[N])(dynamic_shared + OFFSET);`` declares one, too.
    """
    for begin, token in enumerate(tokens):
        if token.text == "extern" and _is_dynamic(tokens, begin + 1):
            yield begin, _behind(tokens, begin), ()
        elif token.text == DYNAMIC and tokens[begin + 1].text == "+":
            yield _reference(tokens, begin)
        elif token.text == "__shared__" and not _is_dynamic(tokens, begin):
            end = _behind(tokens, begin)
            first = begin + 1
            if tokens[first].text == "__align__":  # every array begins at a multiple of 16 bytes
                first = closing(tokens, first + 1) + 1
            yield begin, end, tuple(_declarators(tokens[first : end - 1]))


def _behind(tokens: Sequence[SourceToken], begin: int) -> int:
    """The position after a statement."""
    return next(i for i in range(begin, len(tokens)) if tokens[i].text == ";") + 1


def _is_dynamic(tokens: Sequence[SourceToken], at: int) -> bool:
    """Whether ``__shared__`` at ``at`` declares dynamic shared memory."""
    declared = tokens[at : _behind(tokens, at)]
    return declared[0].text == "__shared__" and any(one.text == DYNAMIC for one in declared)


def _reference(tokens: Sequence[SourceToken], at: int) -> tuple[int, int, tuple[SharedArray, ...]]:
    begin = next(i for i in range(at, 0, -1) if tokens[i - 1].text in (";", "{", "}"))
    end = _behind(tokens, at)
    opening = next(i for i in range(begin, at) if tokens[i].text == "(")
    behind = closing(tokens, opening) + 1
    size = join(tokens[behind + 1 : closing(tokens, behind)]).strip()
    offset = join(tokens[at + 2 : end - 2]).strip()
    element = join([replace(tokens[begin], before=""), *tokens[begin + 1 : opening]]).strip()
    return begin, end, (SharedArray(tokens[opening + 2].text, element, (size,), offset),)


def dynamic_bytes(tokens: Sequence[SourceToken]) -> int:
    """Bytes that a launch must give at least, as far as sizes of elements are known here."""
    return max(
        (
            int(array.offset) + int(array.sizes[0]) * _SIZES.get(array.element, 1)
            for _, _, arrays in shared_declarations(tokens)
            for array in arrays
            if array.offset
        ),
        default=0,
    )


def _declarators(tokens: Sequence[SourceToken]) -> Iterator[SharedArray]:
    depth = 0
    parts: list[list[SourceToken]] = [[]]
    for token in tokens:
        depth += token.text in ("<", "(", "[")
        depth -= token.text in (">", ")", "]")
        if token.text == "," and not depth:
            parts.append([])
        else:
            parts[-1].append(token)
    element = ""
    for number, part in enumerate(parts):
        bracket = next((i for i, token in enumerate(part) if token.text == "["), len(part))
        if not number:
            element = join(part[: bracket - 1]).strip()
        sizes = []
        at = bracket
        while at < len(part):
            end = closing(part, at)
            sizes.append(join(part[at + 1 : end]).strip())
            at = end + 1
        if not all(sizes):
            line = part[0].line
            raise DeviceError(f"line {line} of the generated code has a shared array of no size")
        yield SharedArray(part[bracket - 1].text, element, tuple(sizes))


def declare_shared(function: SourceFunction, tokens: Sequence[SourceToken]) -> str:
    """The function's text with shared arrays as references into the memory of the running block."""
    parts = []
    at = 0
    layout = SharedLayout(function.name)
    for begin, end, arrays in shared_declarations(tokens):
        if not function.is_kernel:
            line = tokens[begin].line
            raise DeviceError(f"line {line} of the generated code has __shared__ outside a kernel")
        parts.append(join(tokens[at:begin]) + tokens[begin].before)
        for array in arrays:
            where = layout.place(array)
            name = array.name
            parts.append(
                f"{where}{name}__type& {name} = "
                f"*({name}__type*)(hloopt::worker->shared + {name}__at); "
            )
        at = end
    return "".join(parts) + join(tokens[at:])


@dataclass
class SharedLayout:
    """The layout of a kernel's shared arrays, one after the other; the compiler computes their sizes."""

    kernel: str
    behind: str = "0"

    def place(self, array: SharedArray) -> str:
        """Declarations of the array's type and offset, with a refusal of more than there is."""
        sizes = "".join(f"[{size}]" for size in array.sizes)
        name = array.name
        at, most, limit = self.behind, "hloopt::kSharedBytes", "48 KiB"
        if array.offset:
            at = f"hloopt::kSharedBytes + {array.offset}"
            most, limit = "hloopt::kSharedBytes + hloopt::kDynamicBytes", "227 KiB"
        else:
            self.behind = f"({name}__at + ((int)sizeof({name}__type) + 15) / 16 * 16)"
        return (
            f"typedef {array.element} {name}__type{sizes}; constexpr int {name}__at = {at}; "
            f"static_assert({name}__at + sizeof({name}__type) <= {most}, "
            f'"{self.kernel}: more than {limit} of shared memory"); '
        )
