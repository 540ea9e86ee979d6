"""Rewriting: what a pass is, rules and the driver that applies them, pipelines and their text."""

from hloopt.rewrite.driver import RulePass, apply_rules, same_layout
from hloopt.rewrite.entries import Fix
from hloopt.rewrite.outcome import FixRun, LoggedRemark, PassRun, PipelineReport
from hloopt.rewrite.pass_ import Pass, PassLog, Remark
from hloopt.rewrite.pattern import (
    Pattern,
    built,
    constant,
    op,
    same_op,
    splat,
    splat_literal,
    used_once,
    var,
    variables,
)
from hloopt.rewrite.rule import Maker, Match, Rewrite, Rule, RuleSet, own_attributes
from hloopt.rewrite.runner import Controls, Pipeline, Watcher

__all__ = [
    "Controls",
    "Fix",
    "FixRun",
    "LoggedRemark",
    "Maker",
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
    "RulePass",
    "RuleSet",
    "Watcher",
    "apply_rules",
    "built",
    "constant",
    "op",
    "own_attributes",
    "same_layout",
    "same_op",
    "splat",
    "splat_literal",
    "used_once",
    "var",
    "variables",
]
