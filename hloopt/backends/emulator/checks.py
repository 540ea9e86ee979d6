"""Check mode: pointers and shared arrays of a function become checked ones, and so does each access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hloopt.backends.emulator.shared import SharedArray, SharedLayout, shared_declarations
from hloopt.backends.emulator.tokens import (
    SourceFunction,
    SourceToken,
    closing,
    join,
    without_linkage,
)
from hloopt.dataclass import dataclass
from hloopt.errors import DeviceError

__all__ = ["check_function", "struct_names", "vector_overloads"]

_BUILTIN = frozenset(
    ["bool", "char", "double", "float", "int", "long", "short", "signed", "unsigned"]
)
_QUALIFIERS = frozenset(["const", "__restrict__", "__restrict"])
_ASSIGNMENTS = frozenset(["=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="])
_STEPS = frozenset(["++", "--"])
_VECTORS = frozenset(["load_vector", "store_vector"])


def check_function(
    function: SourceFunction, structs: frozenset[str], helpers: frozenset[str]
) -> str | None:
    """The function with checked accesses; None where it has no pointer and so needs no second form.

    ``structs`` are the types the program defines.  ``helpers`` are the device functions that synchronise:
    a kernel records its line when it calls one.
    """
    has_pointer = any(parameter.is_pointer for parameter in function.parameters)
    if function.name in _VECTORS or not (function.is_kernel or has_pointer):
        return None
    tokens = without_linkage(function.tokens[function.begin : function.end])
    if not function.is_kernel:  # a second form, after the first: without the blanks before that
        tokens[0] = replace(tokens[0], before="")
    types = structs | _type_parameters(function)
    declared, pointers = _declare_pointers(tokens, types)
    arrays = {array.name: array for _, _, found in shared_declarations(declared) for array in found}
    writer = _Writer(
        pointers,
        arrays,
        helpers if function.is_kernel else frozenset(),
        SharedLayout(function.name),
    )
    return writer.rewrite(declared)


def vector_overloads(names: Sequence[str]) -> str:
    """``load_vector`` and ``store_vector`` of checked pointers, where the program has them."""
    text = ""
    if "load_vector" in names:
        text += (
            "\ntemplate <int N, class T> Vector<T, N> load_vector("
            "const hloopt::Checked<const T>& from, int line = __builtin_LINE()) {"
            " return hloopt::load_whole<Vector<T, N>>(from, line); }\n"
        )
    if "store_vector" in names:
        text += (
            "\ntemplate <class T, int N> void store_vector("
            "const hloopt::Checked<T>& to, const Vector<T, N>& value, int line = __builtin_LINE()) {"
            " hloopt::store_whole(to, value, line); }\n"
            "\ntemplate <class A, class T, int N> void store_vector("
            "const hloopt::SharedPointer<A>& to, const Vector<T, N>& value) {"
            " hloopt::store_whole(to, value); }\n"
        )
    return text


def struct_names(tokens: Sequence[SourceToken]) -> frozenset[str]:
    """The structs of a program; ``alignas(...)`` may precede a name."""
    found = set()
    for index, token in enumerate(tokens):
        if token.text != "struct":
            continue
        at = index + 1
        if tokens[at].text == "alignas":
            at = closing(tokens, at + 1) + 1
        found.add(tokens[at].text)
    return frozenset(found)


def _type_parameters(function: SourceFunction) -> frozenset[str]:
    head = function.tokens[function.begin : function.parameters_begin]
    return frozenset(
        head[index + 1].text
        for index, token in enumerate(head)
        if token.text in ("class", "typename")
    )


def _declare_pointers(
    tokens: Sequence[SourceToken], types: frozenset[str]
) -> tuple[list[SourceToken], frozenset[str]]:
    """Tokens with ``hloopt::Checked<T>`` for each ``T*`` that declares a name, and those names."""
    written: list[SourceToken] = []
    names = set()
    at = 0
    while at < len(tokens):
        end = _pointer_type(tokens, at, types)
        if end is None:
            written.append(tokens[at])
            at += 1
            continue
        star = next(i for i in range(at, end) if tokens[i].text == "*")
        element = join([SourceToken(tokens[at].text, "word", "", 0), *tokens[at + 1 : star]])
        first = tokens[at]
        checked = SourceToken(
            f"hloopt::Checked<{element.strip()}>", "word", first.before, first.line
        )
        written.append(checked)
        names.add(tokens[end].text)
        at = end
    return written, frozenset(names)


def _pointer_type(tokens: Sequence[SourceToken], at: int, types: frozenset[str]) -> int | None:
    """Where the name is that a pointer type at ``at`` declares, or None."""
    index = at
    has_type = False
    while index < len(tokens):
        text = tokens[index].text
        if text in types and not has_type:
            has_type = True
            if tokens[index + 1].text == "<":
                index = _closing_angle(tokens, index + 1)
        elif text in _BUILTIN:
            has_type = True
        elif text != "const":
            break
        index += 1
    if not has_type or tokens[index].text != "*":
        return None
    index += 1
    while tokens[index].text in _QUALIFIERS:
        index += 1
    return index if tokens[index].kind == "word" else None


def _closing_angle(tokens: Sequence[SourceToken], opening: int) -> int:
    depth = 0
    for index in range(opening, len(tokens)):
        depth += tokens[index].text == "<"
        depth -= tokens[index].text == ">"
        if depth == 0:
            return index
    raise DeviceError(f"line {tokens[opening].line} of the generated code: '<' is not closed")


@dataclass
class _Writer:
    """Writes a function's tokens with each access of a pointer or shared array checked."""

    pointers: frozenset[str]
    arrays: Mapping[str, SharedArray]
    helpers: frozenset[str]
    layout: SharedLayout

    def rewrite(self, tokens: Sequence[SourceToken]) -> str:
        parts: list[str] = []
        declarations = {begin: (end, found) for begin, end, found in shared_declarations(tokens)}
        at = 0
        while at < len(tokens):
            token = tokens[at]
            if at in declarations:
                at, found = declarations[at]
                parts.append(token.before + "".join(map(self._declaration, found)))
            elif self._is_access(tokens, at):
                text, at = self._access(tokens, at, parts)
                parts.append(text)
            elif token.text in self.helpers and tokens[at + 1].text in ("(", "<"):
                is_definition = at and tokens[at - 1].kind == "word"
                is_call = not is_definition or tokens[at - 1].text == "return"
                place = "hloopt_at(__LINE__)->" if is_call else ""
                parts.append(token.before + place + token.text)
                at += 1
            else:
                parts.append(token.before + token.text)
                at += 1
        return "".join(parts)

    def _declaration(self, array: SharedArray) -> str:
        sizes = ", ".join(array.sizes or ("1",))
        checked = f"static hloopt::SharedArray<{array.element}, {sizes}> {array.name}; "
        return self.layout.place(array) + checked

    def _is_access(self, tokens: Sequence[SourceToken], at: int) -> bool:
        name = tokens[at].text
        if at and tokens[at - 1].text in (".", "->", "::"):
            return False
        if name in self.arrays:
            return True
        return name in self.pointers and at + 1 < len(tokens) and tokens[at + 1].text == "["

    def _access(self, tokens: Sequence[SourceToken], at: int, parts: list[str]) -> tuple[str, int]:
        """The access at ``at`` and the position after it; an ``&`` before it is removed from ``parts``."""
        token = tokens[at]
        name = token.text
        indices, behind = self._indices(tokens, at)
        if name in self.arrays:
            values = ", ".join(f"(int64_t)({index})" for index in indices)
            where = f'"{name}", {{{{{values}}}}}'
        else:
            where = indices[0]
        if _is_address(tokens, at):
            parts[-1] = parts[-1].removesuffix("&")
            text = f"{name}.pointer({where})" if name in self.arrays else f"({name} + ({where}))"
            return token.before + text, behind
        chain_end = _chain(tokens, behind)
        if chain_end > behind and _is_written(tokens, at, chain_end):
            chain = self.rewrite(tokens[behind:chain_end])
            select = f"[&](auto& whole) -> auto& {{ return whole{chain}; }}"
            return f"{token.before}{name}.member({where}, {select})", chain_end
        verb = "slot" if _is_written(tokens, at, behind) else "load"
        return f"{token.before}{name}.{verb}({where})", behind

    def _indices(self, tokens: Sequence[SourceToken], at: int) -> tuple[list[str], int]:
        name = tokens[at].text
        wanted = len(self.arrays[name].sizes) if name in self.arrays else 1
        indices = []
        behind = at + 1
        for _ in range(wanted):
            if behind >= len(tokens) or tokens[behind].text != "[":
                raise DeviceError(
                    f"line {tokens[at].line} of the generated code uses the shared array "
                    f"{name} without all of its {wanted} indices"
                )
            end = closing(tokens, behind)
            indices.append(self.rewrite(tokens[behind + 1 : end]))
            behind = end + 1
        return indices or ["0"], behind


def _is_address(tokens: Sequence[SourceToken], at: int) -> bool:
    """Whether an ``&`` before the access is the unary operator, which takes its address."""
    if at == 0 or tokens[at - 1].text != "&":
        return False
    if at == 1:
        return True
    left = tokens[at - 2]
    ends_operand = left.kind in ("word", "number") or left.text in (")", "]")
    return not ends_operand or left.text == "return"


def _chain(tokens: Sequence[SourceToken], at: int) -> int:
    """The position after the members and elements that follow an access."""
    while at + 1 < len(tokens) and (
        tokens[at].text == "[" or (tokens[at].text == "." and tokens[at + 1].kind == "word")
    ):
        at = closing(tokens, at) + 1 if tokens[at].text == "[" else at + 2
    return at


def _is_written(tokens: Sequence[SourceToken], at: int, behind: int) -> bool:
    if at and tokens[at - 1].text in _STEPS:
        return True
    return behind < len(tokens) and tokens[behind].text in _ASSIGNMENTS | _STEPS
