"""What is known not to hold, as rules: an opcode, type or form with its reason.

The corpus tier counts a file under ``excused`` when a rule covers its failure.  No rule names a file, and
none can match one: rules are held against what is said after ``file:line:col: error:``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.corpus.emulated import EMULATED_STAGES
from tests.corpus.native_stages import NATIVE_STAGES
from tests.corpus.reread import NOT_ITS_OWN
from tests.corpus.stages import ORDER_OPEN, WITHIN_SPREAD

__all__ = ["RULES", "Rule", "excuse"]


@dataclass(frozen=True)
class Rule:
    """A failure of one of ``stages`` whose message contains ``message`` is known, for ``reason``.

    ``form``, where it is given, is a pattern that must occur in the message as well: what is written in the
    line that XLA quotes.
    """

    stages: tuple[str, ...]
    message: str
    reason: str
    form: str = ""


NEWER = "a form of newer XLA than the one asked: "
REFUSED = ("refused",)

RUNS = ("evaluated", "excess", "ran", "evaluated_o2", "ran_o2", *NATIVE_STAGES)

RULES: tuple[Rule, ...] = (
    Rule(
        RUNS,
        "the value of this constant is left out of the text",
        "the constant was elided when the text was dumped: refused by name and line",
    ),
    Rule(
        ("compiled",),
        "XLA makes up values for constants left out",
        "the constant was elided when the text was dumped",
    ),
    Rule(
        RUNS,
        "not so with reductions in two steps",
        "XLA reduces long dimensions in windows, each from the init: it takes the init to be the reducer's "
        "identity, and the reducer to be associative",
    ),
    Rule(
        RUNS,
        "not so with sums that are rounded after every addition",
        "a bf16 sum that XLA's CPU compiler rounds at every step, its evaluator (and hloopt) once",
    ),
    Rule(
        RUNS,
        "not so with complex quotients that lose an infinity beside a NaN",
        "C's rules, and XLA's evaluator, make (nan+inf*i)/c infinite, XLA's CPU compiler NaN",
    ),
    Rule(
        RUNS,
        "not so with reductions of one element without their init",
        "XLA takes the init to be the reducer's identity, and leaves it out where there is one element",
    ),
    Rule(
        RUNS,
        "not so with a clamp for its maximum with its lower bound",
        "XLA takes it that a clamp's lower bound is not above its upper one",
    ),
    Rule(
        RUNS,
        "elements of the result lie in the padding of the operand's tiles",
        "the results were recorded without layouts; by these the bitcast reads what no element wrote",
    ),
    Rule(
        RUNS,
        "sparse convolutions cannot be evaluated",
        "our gap: what a sparse kernel selects is not written down; XLA's CPU compiler leaves it out",
    ),
    Rule(
        RUNS,
        "the loop does not end",
        "XLA takes it that every loop ends, and drops one whose result does not depend on its trips",
    ),
    Rule(
        RUNS,
        "no answer in time",
        "our defect: what does not change from trip to trip is computed on every trip of a loop",
    ),
    Rule(
        RUNS,
        "may be set to a size other than",
        "the result's shape has no dynamic dimension that could tell its size",
    ),
    Rule(RUNS, ORDER_OPEN, "ours is stable, XLA's need not be"),
    Rule(
        RUNS,
        "has no evaluation",
        "what a custom call computes is known to its target alone: refused by name and line",
        form=r"custom call to \S+ has",
    ),
    Rule(
        RUNS,
        "only one participant is run",
        "recorded with one participant, of shapes that several share",
        form=r"reduce-scatter of",
    ),
    Rule(
        RUNS,
        "operands of all-reduce-start for",
        "a result of two arrays for one operand: XLA's CPU compiler does not look",
    ),
    Rule(
        RUNS,
        "rng_default with state f32",
        "the state of a generator is of integers: XLA's CPU compiler does not look",
    ),
    Rule(
        RUNS,
        WITHIN_SPREAD,
        "the module is ill-conditioned: XLA's own result is no nearer to the true one",
    ),
    Rule(
        RUNS,
        "not so with reciprocals",
        "XLA multiplies by the reciprocal of a constant divisor, which rounds twice; in a loop that compares "
        "what it carries, one ULP chooses another branch",
    ),
    Rule(
        REFUSED,
        "AsyncUpdate and AsyncDone expect a single async op as their operand",
        NEWER + "an async-update brings operands of its own",
    ),
    Rule(
        REFUSED,
        "AsyncUpdate expects the op shape to be the same as the operand shape",
        NEWER + "the shape of an async-update has the operands that it brings, too",
    ),
    Rule(
        REFUSED,
        "expects nested array in rank 1, but sees 0",
        NEWER
        + "XLA's first complaint where an async-update brings a constant of this kind; alone it is read",
        form=r"= [a-z0-9]+\[[0-9]+\] constant\([^{]",
    ),
    Rule(
        REFUSED, 'unexpected attribute "debug_attributes"', NEWER + "the header's debug attributes"
    ),
    Rule(REFUSED, 'unexpected attribute "is_stable"', NEWER + "a stable topk", form=r" topk\("),
    Rule(
        REFUSED,
        "cannot parse as an instruction name or as a nested instruction",
        NEWER + "an operand that is an element of a tuple",
        form=r"%?[A-Za-z_][A-Za-z0-9_.-]*#[0-9]",
    ),
    Rule(
        REFUSED,
        "expects attribute name",
        NEWER + "what unreduced= adds up by",
        form=r"unreduced=max\{",
    ),
    Rule(
        REFUSED,
        "sub-attribute column is expected but not seen",
        NEWER + "a location without a column",
        form=r"^\s*[0-9]+ \{file_name_id=",
    ),
    Rule(
        EMULATED_STAGES,
        "the value of this constant is left out of the text",
        "the constant was elided when the text was dumped: refused by name and line",
    ),
    Rule(
        EMULATED_STAGES,
        "the loop does not end",
        "XLA drops a loop that nobody reads, though it never ends",
    ),
    Rule(
        EMULATED_STAGES,
        "did not end within",
        "too many elements for a look at every access",
    ),
    Rule(
        EMULATED_STAGES,
        "looks at the bytes of a tiled layout",
        "a device has the elements of an array in order",
    ),
    Rule(
        EMULATED_STAGES,
        "fits no kernel",
        "packed elements: places of a scatter or a sort may share a byte",
        form="share bytes with their neighbours",
    ),
    Rule(
        EMULATED_STAGES,
        "fits no kernel",
        "a map or fusion around control flow or a whole-matrix op",
        form="is a (conditional|while|triangular-solve|cholesky), which no thread computes alone",
    ),
    Rule(
        EMULATED_STAGES,
        "fits no kernel",
        "bounded dynamic shapes: kernels do not mask",
        form="is a set-dimension-size, which no thread computes alone",
    ),
    Rule(
        EMULATED_STAGES,
        "fits no kernel",
        "a scan whose step mixes the elements of its slices",
        form="of its computation, a [a-z-]+, is of whole slices",
    ),
    Rule(
        EMULATED_STAGES,
        "fits no kernel",
        "a factorisation of LAPACK's or cuSOLVER's",
        form="(lapack|cusolver|householder|geqrf)[a-z0-9_]*",
    ),
    Rule(("reread",), NOT_ITS_OWN, "no printing can help that"),
    Rule(
        ("same",),
        " constant(0) is read as ",
        "-0 of the original is read as -0.0 here, and printed so; XLA's own parser reads +0",
        form=r" is read as .* constant\(-0\)",
    ),
)


def excuse(stage: str, message: str) -> str:
    """The reason of the rule that covers a failure, or an empty string."""
    _, located, said = message.partition(": error: ")
    said = said if located else message
    for rule in RULES:
        found = stage in rule.stages and rule.message in said
        if found and re.search(rule.form, said, re.MULTILINE):
            return rule.reason
    return ""
