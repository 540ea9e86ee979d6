"""Rewriting: what a pass is, rules and the driver that applies them, pipelines and their text."""

from hloopt.rewrite.driver import apply_rules, same_layout
from hloopt.rewrite.pass_ import Pass, PassLog, Remark
from hloopt.rewrite.pattern import Pattern, constant, op, splat, splat_literal, var
from hloopt.rewrite.pipeline import Fix, PassRun, Pipeline, PipelineReport
from hloopt.rewrite.rule import Match, Rewrite, Rule, RuleSet

__all__ = [
    "Fix",
    "Match",
    "Pass",
    "PassLog",
    "PassRun",
    "Pattern",
    "Pipeline",
    "PipelineReport",
    "Remark",
    "Rewrite",
    "Rule",
    "RuleSet",
    "apply_rules",
    "constant",
    "op",
    "same_layout",
    "splat",
    "splat_literal",
    "var",
]
