"""Checks of kernel IR: mistakes of emitters, found before a compiler or a device meets them.

types     operators take numbers; what is declared or set gets a value of its type, or a number that C
          converts without losing its meaning: no float for an integer, no double for a float
names     each is declared once, and used in its block behind its declaration; only variables are set
loops     ``Break`` stands in one
barriers  all threads of a block reach one, or none does (``uniformity.py``), and so with what warps do
matrices  a step has the registers that ``MATRIX_STEPS`` says; rows lie in an array aligned to 16 bytes
copies    each is in a group, and groups are waited for: in the order of the statements, loops taken twice
places    an element lies in its array: one that is certainly outside, where the tests around may hold, is
          an error; one that may be outside for all that is known is counted
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from math import prod
from typing import Final

from hloopt.analysis.index import symbols_of
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import (
    TRUE,
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
    subexpressions,
)
from hloopt.kernel_ir.matrix_steps import MATRIX_STEPS
from hloopt.kernel_ir.printer import statement_text
from hloopt.kernel_ir.ranges import Ranges
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
    Return,
    Set,
    Statement,
    Wait,
    While,
    bodies_of,
    expressions_of,
)
from hloopt.kernel_ir.types import BOOL, UINT, Type
from hloopt.kernel_ir.uniformity import split_barriers

__all__ = ["ElementPlaces", "KernelError", "verify"]

_BUILTINS: Final = frozenset(
    f"{word}.{axis}" for word in ("threadIdx", "blockIdx", "blockDim", "gridDim") for axis in "xyz"
)
_OF_INTEGERS: Final = frozenset({"%", "<<", ">>", "&", "|", "^"})


class KernelError(ValueError):
    """Kernel IR breaks a rule: the function, the statement, and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class ElementPlaces:
    """How many elements certainly lie in their arrays, and how many may not, for all that is known."""

    certain: int = 0
    unknown: int = 0


def verify(function: Function) -> ElementPlaces:
    """Check a function; raises ``KernelError`` for the first rule that it breaks."""
    checks = _Checks(function)
    with checks.block():
        for parameter in function.parameters:
            checks.declare(parameter.target)
            if isinstance(parameter.target, Array) and parameter.is_read:
                checks.fixed.add(parameter.target.name)
        checks.body(function.body, in_loop=False)
    checks.complete()
    for barrier, parts in split_barriers(function):
        checks.at = barrier
        checks.fail(f"some threads may not reach it: they part at {_text(parts)}")
    return ElementPlaces(checks.certain, checks.unknown)


class _Checks(Ranges):
    """The rules that need no data flow, statement by statement.

    names   what can be seen
    taken   what was declared anywhere, and whether it counts a loop
    fixed   what is never set
    aligned  arrays that begin at a multiple of 16 bytes
    copies  asynchronous copies, their groups and waits so far
    runs    whether the statements can be reached: a test around them may hold for no value of its variables
    """

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function
        self.at: Statement | None = None
        self.names: dict[str, Var | Array] = {}
        self.taken: dict[str, bool] = {}
        self.fixed: set[str] = set()
        self.runs = True
        self.aligned: set[str] = set()
        self.copies: list[Copy | Commit | Wait] = []
        self.certain = self.unknown = 0

    def fail(self, words: str) -> None:
        where = f"{_text(self.at)}: " if self.at is not None else ""
        raise KernelError(f"{self.function.name}: {where}{words}")

    def need(self, holds: bool, words: str) -> None:
        if not holds:
            self.fail(words)

    def complete(self) -> None:
        """Whether copies are waited for."""
        behind: set[type] = set()
        for one in reversed(self.copies):
            self.at = one
            if isinstance(one, Copy):
                self.need(Commit in behind, "its group is never committed")
                self.need(Wait in behind, "nothing waits for it")
            behind.add(type(one))

    # ---- names --------------------------------------------------------------------------------------

    @contextmanager
    def block(self) -> Iterator[None]:
        """A block, with which what is declared in it ends."""
        around = self.names
        self.names = dict(around)
        yield
        self.names = around

    def declare(self, target: Var | Array, *, is_fixed: bool = False, counts: bool = False) -> None:
        name = target.name
        again = counts and self.taken.get(name, False) and name not in self.names
        self.need(again or name not in self.taken, f"{name} is declared twice")
        self.known(target.type if isinstance(target, Var) else target.element, name)
        self.taken[name] = counts
        self.names[name] = target
        self.ranges.pop(name, None)
        if is_fixed:
            self.fixed.add(name)

    def named(self, one: Var | Array) -> None:
        if one.name not in _BUILTINS:
            found = self.names.get(one.name)
            self.need(found is not None, f"{one.name} is not declared here")
            self.need(found == one, f"{one.name} is declared as {found!r}, not as {one!r}")

    # ---- statements ---------------------------------------------------------------------------------

    def body(self, body: Sequence[Statement], *, in_loop: bool) -> None:
        with self.block():
            for statement in body:
                self.at = statement
                for expr in expressions_of(statement):
                    self.expression(expr)
                with self.block() if bodies_of(statement) else nullcontext():
                    self.statement(statement, in_loop=in_loop)
                    loops = in_loop or isinstance(statement, For | While)
                    runs, begun = self.runs, len(self.copies)
                    for number, inner in enumerate(bodies_of(statement)):
                        self.runs = runs and (number > 0 or not self.never(_entry(statement)))
                        self.body(inner, in_loop=loops)
                    self.runs = runs
                    if isinstance(statement, For | While):
                        # What is copied at the end of an iteration may be waited for in the next one.
                        self.copies += _next_iteration(self.copies[begun:])

    def statement(self, statement: Statement, *, in_loop: bool) -> None:
        match statement:
            case Let(var, value):
                self.given(value.type, var.type)
                self.declare(var, is_fixed=True)
                self.bound(var, self.range(value))
            case Declare():
                self.declaration(statement)
            case Set(target, value, sign):
                self.settable(target)
                if sign:
                    self.operator(Binary.of(sign, target, value))
                self.given(value.type, target.type)
            case Do(call):
                self.need(isinstance(call, Call), "only a call does something")
            case For():
                self.counts(statement)
            case If(test) | While(test):
                self.truth(test)
            case Break():
                self.need(in_loop, "there is no loop to leave")
            case Copy(target, source, count, test):
                self.need(count in (4, 8, 16), f"{count} bytes are not copied at once")
                into, out = _memory(target), _memory(source)
                self.need(into == "shared" and out == "global", "copies go to shared memory")
                self.truth(test)
                self.copies.append(statement)
            case Commit():
                self.copies.append(statement)
            case Wait(groups):
                self.need(groups >= 0, "a number of groups is not negative")
                is_there = any(isinstance(one, Commit) for one in self.copies)
                self.need(is_there, "no group of copies was committed before")
                self.copies.append(statement)
            case LoadMatrices():
                self.loads(statement)
            case MultiplyMatrices():
                self.multiplies(statement)
            case Barrier(scope):
                self.need(scope in ("block", "warp"), f"{scope} is not a group of threads")
            case Agree(var, test):
                self.truth(test)
                self.need(var.type == BOOL, f"what a block agrees on is no {var.type}")
                self.declare(var, is_fixed=True)
            case Block() | Return():
                pass
            case _:
                raise TypeError(f"{type(statement).__name__} is not a statement of the kernel IR")

    def loads(self, load: LoadMatrices) -> None:
        count, place = len(load.registers), load.source.element
        self.need(count in (1, 2, 4), f"{count} matrices are not loaded at once")
        self.private(load.registers, UINT)
        is_shared = isinstance(place, Element) and place.array.space == "shared"
        self.need(is_shared, "matrices come from shared memory")
        if isinstance(place, Element):
            name = place.array.name
            self.need(name in self.aligned, f"{name} is not aligned to 16 bytes")

    def multiplies(self, multiply: MultiplyMatrices) -> None:
        step = MATRIX_STEPS.get(multiply.step)
        if step is None:
            self.fail(f"{multiply.step} is none of {', '.join(MATRIX_STEPS)}")
            return
        given = (multiply.sums, multiply.left, multiply.right)
        wanted = (step.sums, step.left, step.right)
        for registers, count in zip(given, wanted, strict=True):
            self.need(
                len(registers) == count, f"{len(registers)} registers where {count} are needed"
            )
        for one in (*multiply.left, *multiply.right):
            self.need(one.type == step.register, f"a register of {step.name} is no {one.type}")
        self.private(multiply.sums, step.sum)

    def private(self, targets: Sequence[Var | Element], kind: Type) -> None:
        """What each lane sets for itself."""
        for target in targets:
            self.settable(target)
            is_own = isinstance(target, Var) or target.array.space == "local"
            self.need(is_own, f"{target} is not a lane's own")
            self.need(target.type == kind, f"{kind} is not given to {target.type}")
        self.need(len(set(targets)) == len(targets), "a register is set twice")

    def declaration(self, declared: Declare) -> None:
        target, values = declared.target, declared.values
        kind = target.type if isinstance(target, Var) else target.element
        room = 1 if isinstance(target, Var) else prod(target.dims)
        self.need(len(values) <= room, f"{len(values)} values for {room}")
        for value in values:
            self.given(value.type, kind)
        is_constant = isinstance(target, Array) and target.space == "constant"
        can_stay = is_constant or not self.function.threads
        self.need(can_stay or not declared.is_static, "only a table of constants is static")
        self.declare(target, is_fixed=is_constant)
        in_launch = declared.offset is not None and declared.offset % 16 == 0
        if in_launch or (declared.align and declared.align % 16 == 0):
            self.aligned.add(target.name)

    def settable(self, target: Expr) -> None:
        while isinstance(target, Member):
            target = target.operand
        if not isinstance(target, Var | Element):
            self.fail("it is neither a variable nor an element")
            return
        name = target.name if isinstance(target, Var) else target.array.name
        self.need(name not in self.fixed | _BUILTINS, f"{name} never changes")

    def counts(self, loop: For) -> None:
        for part in (loop.var, loop.first, loop.stop, loop.step):
            self.need(part.type.is_integer, f"a loop does not count by {part.type}")
        self.need(loop.test in ("<", "<=", ">", ">="), f"a loop does not end by {loop.test}")
        self.need(
            loop.change in ("+=", "-=", "*=", "/="), f"a loop does not go on by {loop.change}"
        )
        self.declare(loop.var, is_fixed=True, counts=True)
        first, stop, step = map(self.range, (loop.first, loop.stop, loop.step))
        if first and stop and step and loop.change == "+=" and step[0] > 0:
            self.bound(loop.var, (first[0], max(first[0], stop[1] - (loop.test == "<"))))

    # ---- types --------------------------------------------------------------------------------------

    def known(self, kind: Type, what: str) -> None:
        self.need(kind.kind != "void", f"{what} is of type {kind}")

    def given(self, value: Type, target: Type) -> None:
        self.need(_converts(value, target), f"{value} is not given to {target}")

    def truth(self, test: Expr) -> None:
        holds = test.type.is_integer or test.type == BOOL
        self.need(holds, f"a test is not {test.type}")

    def operator(self, expr: Unary | Binary) -> None:
        """The operands that C's operators take."""
        operands = (expr.operand,) if isinstance(expr, Unary) else (expr.left, expr.right)
        kinds = [operand.type for operand in operands]
        if kinds[0].kind == "pointer":
            # What an array begins with, or what lies some elements behind that.
            fits = expr.sign == "*" if len(kinds) == 1 else expr.sign == "+" and kinds[1].is_integer
        else:
            only = expr.sign in _OF_INTEGERS or expr.sign == "~"
            fits = all(one.is_number and not (only and one.kind == "float") for one in kinds)
            fits = fits and (len(kinds) == 2 or expr.sign != "*")
        self.need(fits, f"{expr.sign} takes no {' and '.join(map(str, kinds))}")

    def expression(self, expr: Expr) -> None:
        for one in subexpressions(expr):
            self.node(one)

    def node(self, expr: Expr) -> None:
        match expr:
            case Var():
                self.named(expr)
            case IndexValue(index):
                for symbol in symbols_of([index]):
                    found = self.names.get(symbol.name)
                    is_there = isinstance(found, Var) and found.type.is_integer
                    self.need(is_there, f"{symbol.name} is not an integer declared here")
            case Unary():
                self.operator(expr)
            case Binary(sign, left, right, kind):
                self.operator(expr)
                self.need(kind == Binary.of(sign, left, right).type, f"{sign} gives no {kind}")
            case Select(test, chosen, other):
                self.truth(test)
                alike = chosen.type == other.type or (
                    chosen.type.is_number and other.type.is_number
                )
                self.need(alike, f"either {chosen.type} or {other.type}")
            case Cast(kind, operand):
                both = (kind, operand.type)
                fits = all(one.is_number for one in both) or all(
                    one.kind == "pointer" for one in both
                )
                self.need(fits, f"{operand.type} does not become {kind}")
            case Member(operand, name, kind):
                self.need(
                    operand.type.kind in ("struct", "vector"), f"{operand.type} has no {name}"
                )
                self.known(kind, name)
            case Make(kind, parts):
                self.need(kind.kind in ("struct", "vector"), f"{kind} has no parts")
                if kind.element is not None:
                    self.need(len(parts) == kind.lanes, f"{len(parts)} parts of {kind}")
                for part in parts:
                    self.known(part.type, f"a part of {kind}")
                    self.given(part.type, kind.element or part.type)
            case Call(function, arguments):
                for argument in arguments:
                    self.known(argument.type, f"an argument of {function}")
            case Element():
                self.element(expr)
            case ArrayValue(array):
                self.named(array)
            case Number() | Address():
                pass
            case _:
                raise TypeError(f"{type(expr).__name__} is not an expression of the kernel IR")

    # ---- places -------------------------------------------------------------------------------------

    def element(self, element: Element) -> None:
        array, at = element.array, element.at
        self.named(array)
        for one in at:
            self.need(one.type.is_integer, f"{array.name} has no place {one.type}")
        if not array.dims:
            self.need(len(at) == 1, f"{array.name} has one dimension")
            return
        self.need(len(at) == len(array.dims), f"{array.name} has {len(array.dims)} dimensions")
        is_certain = True
        for one, size in zip(at, array.dims, strict=True):
            found = self.range(one)
            if found is None:
                is_certain = False
                continue
            low, high = found
            outside = high < 0 or low >= size or low > high
            self.need(
                not (outside and self.runs),
                f"{low} to {high} is outside of the {size} of {array.name}",
            )
            is_certain = is_certain and low >= 0 and high < size
        self.certain += is_certain
        self.unknown += not is_certain


def _next_iteration(copies: Sequence[Copy | Commit | Wait]) -> list[Commit | Wait]:
    """The groups that are made and waited for once more, the last of each."""
    again = [one for one in copies if not isinstance(one, Copy)]
    last = {type(one): at for at, one in enumerate(again)}
    return [again[at] for at in sorted(last.values())]


def _entry(statement: Statement) -> Expr:
    """What holds where the first block of a statement is entered."""
    match statement:
        case If(test) | While(test):
            return test
        case For():
            return Binary.of(statement.test, statement.first, statement.stop)
    return TRUE


def _converts(value: Type, target: Type) -> bool:
    """Whether C makes a value of one type one of another by itself, as it is meant."""
    if value == target:
        return value.kind not in ("unknown", "void")
    if value.kind == target.kind == "pointer":
        return target.name == f"const {value.name}"
    if not (value.is_number and target.is_number):
        return False
    return value.kind != "float" or (target.kind == "float" and target.bits > value.bits)


def _memory(place: Address) -> str:
    return place.element.array.space if isinstance(place.element, Element) else "register"


def _text(statement: Statement) -> str:
    """A statement's first line that says what it does."""
    lines = statement_text(statement).splitlines()
    return next(line for line in lines if not line.startswith("#")).rstrip(" {;")
