"""Shared arrays: their declarations, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hloopt.errors import DeviceError
from hloopt.runtime.emulator.tokens import Function, Token, closing, join

__all__ = ["SharedArray", "SharedLayout", "declare_shared", "shared_declarations"]


@dataclass(frozen=True, slots=True)
class SharedArray:
    """``__shared__ element name[sizes]...``; no sizes make a single element."""

    name: str
    element: str
    sizes: tuple[str, ...]


def shared_declarations(
    tokens: Sequence[Token],
) -> Iterator[tuple[int, int, tuple[SharedArray, ...]]]:
    """Where each declaration begins, what is behind it, and the arrays it declares."""
    for begin, token in enumerate(tokens):
        if token.text == "__shared__":
            end = next(i for i in range(begin, len(tokens)) if tokens[i].text == ";") + 1
            first = begin + 1
            if tokens[first].text == "__align__":  # every array begins at a multiple of 16 bytes
                first = closing(tokens, first + 1) + 1
            yield begin, end, tuple(_declarators(tokens[first : end - 1]))


def _declarators(tokens: Sequence[Token]) -> Iterator[SharedArray]:
    depth = 0
    parts: list[list[Token]] = [[]]
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


def declare_shared(function: Function, tokens: Sequence[Token]) -> str:
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
    """Where the arrays of a kernel lie, one behind the other; the compiler knows their sizes."""

    kernel: str
    behind: str = "0"

    def place(self, array: SharedArray) -> str:
        """Declarations of the array's type and offset, with a refusal of more than there is."""
        sizes = "".join(f"[{size}]" for size in array.sizes)
        name = array.name
        at = self.behind
        self.behind = f"({name}__at + ((int)sizeof({name}__type) + 15) / 16 * 16)"
        return (
            f"typedef {array.element} {name}__type{sizes}; constexpr int {name}__at = {at}; "
            f"static_assert({name}__at + sizeof({name}__type) <= hloopt::kSharedBytes, "
            f'"{self.kernel}: more than 48 KiB of shared memory"); '
        )
