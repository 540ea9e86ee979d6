"""Kernel IR as C: expressions with the parentheses they need, statements as lines.

``Printer`` writes CUDA C; printers of other devices override what they write otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from hloopt.kernel_ir.expressions import (
    Address,
    Array,
    ArrayValue,
    Binary,
    Call,
    Cast,
    Element,
    Expr,
    IndexValue,
    Make,
    Member,
    Number,
    Select,
    Unary,
    Var,
)
from hloopt.kernel_ir.matrix_steps import device_functions
from hloopt.kernel_ir.statements import (
    Agree,
    Barrier,
    Block,
    Break,
    Commit,
    Copy,
    Declare,
    Do,
    For,
    Function,
    If,
    Let,
    LoadMatrices,
    MultiplyMatrices,
    Parameter,
    Return,
    Set,
    Statement,
    Target,
    Wait,
    While,
    expressions_of,
)

__all__ = ["Printer", "expression_text", "statement_text"]

_PRIMARY: Final = 16
_PREFIX: Final = 15
_CHOICE: Final = 3
_BINDING: Final[Mapping[str, int]] = {
    **dict.fromkeys(("*", "/", "%"), 13),
    **dict.fromkeys(("+", "-"), 12),
    **dict.fromkeys(("<<", ">>"), 11),
    **dict.fromkeys(("<", "<=", ">", ">="), 10),
    **dict.fromkeys(("==", "!="), 9),
    "&": 8,
    "^": 7,
    "|": 6,
    "&&": 5,
    "||": 4,
}
_INDENT: Final = "  "
_LINE: Final = 112
"""Characters; a longer head of a function has a line for each parameter."""


class Printer:
    """Writes CUDA C."""

    # ---- expressions --------------------------------------------------------------------------------

    def expression(self, expr: Expr) -> str:
        """An expression by itself."""
        return self._bound(expr)[0]

    def operand(self, expr: Expr, binding: int = _PREFIX) -> str:
        """An expression beside an operator of a given precedence."""
        text, own = self._bound(expr)
        return text if own >= binding else f"({text})"

    def _bound(self, expr: Expr) -> tuple[str, int]:
        """The text of an expression, and the precedence of its outermost operator."""
        match expr:
            case Var():
                return expr.name, _PRIMARY
            case Number():
                return expr.text, _PREFIX if expr.text.startswith("-") else _PRIMARY
            case IndexValue():
                return str(expr.index), _PRIMARY if expr.index.is_factor else _BINDING["+"]
            case Binary():
                return self._binary(expr)
            case Unary():
                binding = _PREFIX if isinstance(expr.operand, Cast) else _PRIMARY
                return f"{expr.sign}{self.operand(expr.operand, binding)}", _PREFIX
            case Cast():
                return f"({expr.type}){self.operand(expr.operand)}", _PREFIX
            case Select():
                test = self.operand(expr.test, _CHOICE + 1)
                chosen = self.operand(expr.chosen, _CHOICE + 1)
                return f"{test} ? {chosen} : {self.operand(expr.other, _CHOICE)}", _CHOICE
            case Call():
                return self.call(expr), _PRIMARY
            case Member():
                at = "" if expr.at is None else f"[{self.expression(expr.at)}]"
                return f"{self.operand(expr.operand, _PRIMARY)}.{expr.name}{at}", _PRIMARY
            case Make():
                parts = f"{{{', '.join(map(self.expression, expr.parts))}}}"
                is_vector = expr.type.kind == "vector"
                return f"{expr.type}{{{parts}}}" if is_vector else f"{expr.type}{parts}", _PRIMARY
            case Element():
                return self.element(expr), _PRIMARY
            case Address():
                if isinstance(expr.element, Var):
                    return f"&{expr.element.name}", _PREFIX
                return self.address(expr.element), _PREFIX
            case ArrayValue():
                return expr.array.name, _PRIMARY
        raise TypeError(f"{type(expr).__name__} is not a node of the kernel IR")

    def _binary(self, expr: Binary) -> tuple[str, int]:
        sign, own = expr.sign, _BINDING[expr.sign]
        left = self.operand(expr.left, self._beside(expr.left, sign, own))
        right = self.operand(expr.right, self._beside(expr.right, sign, own + 1))
        return f"{left} {sign} {right}", own

    @staticmethod
    def _beside(expr: Expr, sign: str, binding: int) -> int:
        """Operators of bits, and && beside ||, are hard to read without parentheses."""
        if not isinstance(expr, Binary) or expr.sign == sign:
            return binding
        if sign in ("&", "|", "^", "<<", ">>", "||"):
            return _PRIMARY if sign != "||" or expr.sign == "&&" else binding
        return binding

    def call(self, call: Call) -> str:
        """A call."""
        return f"{call.function}({', '.join(map(self.expression, call.arguments))})"

    def element(self, element: Element) -> str:
        """An element that is read."""
        return f"{element.array.name}{''.join(f'[{self.expression(at)}]' for at in element.at)}"

    def address(self, element: Element) -> str:
        """Where an element lies."""
        return f"&{self.element(element)}"

    # ---- statements ---------------------------------------------------------------------------------

    def body(self, statements: Sequence[Statement], depth: int = 0) -> Iterator[str]:
        """The lines of statements."""
        indent = _INDENT * depth
        for statement in statements:
            if isinstance(statement, For | While | If | Block):
                yield from self._block_of(statement, indent, depth)
            else:
                for line in self.lines(statement):
                    yield indent + line

    def _block_of(
        self, statement: For | While | If | Block, indent: str, depth: int
    ) -> Iterator[str]:
        match statement:
            case For():
                if (unroll := self.unroll(statement.unroll)) is not None:
                    yield indent + unroll
                if statement.is_simd:
                    yield f"{indent}#pragma omp simd"
                yield from self._block(self.header(statement), statement.body, indent, depth)
            case While():
                if (unroll := self.unroll(statement.unroll)) is not None:
                    yield indent + unroll
                header = f"while ({self.expression(statement.test)})"
                yield from self._block(header, statement.body, indent, depth)
            case If():
                yield from self._choice(statement, indent, depth)
            case Block():
                yield from self._block("", statement.body, indent, depth)

    def _block(
        self, header: str, body: Sequence[Statement], indent: str, depth: int
    ) -> Iterator[str]:
        yield f"{indent}{header} {{" if header else f"{indent}{{"
        yield from self.body(body, depth + 1)
        yield f"{indent}}}"

    def _choice(self, choice: If, indent: str, depth: int) -> Iterator[str]:
        leaves = len(choice.body) == 1 and isinstance(choice.body[0], Break | Return)
        if leaves and not choice.otherwise:
            (line,) = self.lines(choice.body[0])
            yield f"{indent}if ({self.expression(choice.test)}) {line}"
            return
        header = f"if ({self.expression(choice.test)})"
        while True:
            yield f"{indent}{header} {{"
            yield from self.body(choice.body, depth + 1)
            rest = choice.otherwise
            if not rest:
                break
            if len(rest) == 1 and isinstance(rest[0], If):
                choice = rest[0]
                header = f"}} else if ({self.expression(choice.test)})"
                continue
            yield f"{indent}}} else {{"
            yield from self.body(rest, depth + 1)
            break
        yield f"{indent}}}"

    def unroll(self, times: int | None) -> str | None:
        """The pragma that unrolls a loop."""
        if times is None:
            return None
        return f"#pragma unroll {times}" if times else "#pragma unroll"

    def header(self, loop: For) -> str:
        """The head of a counting loop."""
        name = loop.var.name
        step = self.expression(loop.step)
        change = f"{name} {loop.change} {step}"
        if step == "1" and loop.change in ("+=", "-="):
            change = f"{loop.change[0] * 2}{name}"
        return (
            f"for ({loop.var.type} {name} = {self.expression(loop.first)}; "
            f"{name} {loop.test} {self.operand(loop.stop, _BINDING['<'] + 1)}; {change})"
        )

    def lines(self, statement: Statement) -> Iterator[str]:
        """The lines of a statement that has no block."""
        match statement:
            case Let():
                var = statement.var
                yield f"const {var.type} {var.name} = {self.expression(statement.value)};"
            case Declare():
                yield from self.declaration(statement)
            case Set():
                target = self.target(statement.target)
                yield f"{target} {statement.sign}= {self.expression(statement.value)};"
            case Do():
                yield f"{self.expression(statement.call)};"
            case Barrier():
                yield "__syncthreads();" if statement.scope == "block" else "__syncwarp();"
            case Agree(var, test):
                yield f"const {var.type} {var.name} = __syncthreads_and({self.expression(test)});"
            case Break():
                yield "break;"
            case Return():
                value = "" if statement.value is None else f" {self.expression(statement.value)}"
                yield f"return{value};"
            case Copy() | Commit() | Wait() | LoadMatrices() | MultiplyMatrices():
                yield self.together(statement)
            case _:
                raise TypeError(f"{type(statement).__name__} is not a statement of the kernel IR")

    def together(self, statement: Copy | Commit | Wait | LoadMatrices | MultiplyMatrices) -> str:
        """The line of an asynchronous copy, or of what a warp does: a function of the device library."""
        (function,) = device_functions((statement,))
        return f"{function}({', '.join(map(self.expression, expressions_of(statement)))});"

    def target(self, target: Target) -> str:
        """What a statement sets."""
        return self.expression(target)

    def declaration(self, declared: Declare) -> Iterator[str]:
        """The lines that declare a variable or an array."""
        target = declared.target
        values = [self.expression(value) for value in declared.values]
        static = "static " * declared.is_static
        if isinstance(target, Var):
            yield f"{static}{target.type} {target.name}{f' = {values[0]}' if values else ''};"
            return
        if target.space == "shared":
            yield from self.shared(target, declared.offset, declared.align)
            return
        const = "const " * (target.space == "constant")
        align = f"{self.aligned(declared.align)} " if declared.align else ""
        places = "".join(f"[{size}]" for size in target.dims)
        text = f"{static}{const}{align}{target.element} {target.name}{places}"
        yield f"{text} = {{{', '.join(values)}}};" if values else f"{text};"

    def aligned(self, bytes: int) -> str:
        """The alignment specifier of an array."""
        return f"__align__({bytes})"

    def shared(self, array: Array, offset: int | None, align: int) -> Iterator[str]:
        """A shared array, of the function or in the memory that the launch gives."""
        places = "".join(f"[{size}]" for size in array.dims)
        kind = array.element
        if offset is None:
            word = f"{self.aligned(align)} " if align else ""
            yield f"__shared__ {word}{kind} {array.name}{places};"
            return
        if not offset:
            yield f"extern __shared__ {self.aligned(16)} unsigned char dynamic_shared[];"
        yield f"{kind} (&{array.name}){places} = *({kind} (*){places})(dynamic_shared + {offset});"

    # ---- functions ----------------------------------------------------------------------------------

    def function(self, function: Function) -> Iterator[str]:
        """The lines of a function."""
        parameters = [self.parameter(one) for one in function.parameters]
        head = self.head(function)
        first = f"{head}{', '.join(parameters)}) {{"
        if len(first) <= _LINE:
            yield first
        else:
            yield head
            yield from (f"    {text}," for text in parameters[:-1])
            yield f"    {parameters[-1]}) {{"
        yield from self.body(function.body, 1)
        yield "}"

    def head(self, function: Function) -> str:
        """A function's head up to its parameters."""
        bounds = f"{function.threads}"
        if function.blocks_per_core:
            bounds += f", {function.blocks_per_core}"
        return f'extern "C" __global__ void __launch_bounds__({bounds}) {function.name}('

    def parameter(self, parameter: Parameter) -> str:
        """The declaration of a parameter."""
        target = parameter.target
        if isinstance(target, Var):
            return f"{target.type} {target.name}"
        const = "const " if parameter.is_read else ""
        alone = " __restrict__" if parameter.is_alone else ""
        return f"{const}{target.element}*{alone} {target.name}"


_PLAIN: Final = Printer()


def expression_text(expr: Expr) -> str:
    """An expression in CUDA C."""
    return _PLAIN.expression(expr)


def statement_text(statement: Statement) -> str:
    """A statement in CUDA C, in one line where it has no block."""
    return "\n".join(_PLAIN.body([statement]))
