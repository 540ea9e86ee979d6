"""Campaigns: what they draw, what they count, and a few cases of each."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

import hloopt
from hloopt.workers.records import NoAnswer
from tests.campaigns import campaign, campaign_checks
from tests.campaigns.campaign_checks import CAMPAIGNS, Answer
from tests.campaigns.campaign_modules import OPCODES, campaign_module, forms


def test_every_opcode_has_a_form_or_a_step() -> None:
    """One module for each: the opcode is in it, or is one of those that control flow and movement bring along."""
    seen = set()
    for number, opcode in enumerate(OPCODES):
        module = hloopt.parse(campaign_module(Random(number), opcode))
        hloopt.verify(module)
        seen |= {one.opcode for one in module.instructions()}
    assert seen >= forms().keys()
    assert set(OPCODES) - seen <= {"fusion", "while", "broadcast", "transpose", "reverse"}


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_a_case_follows_from_its_number(name: str) -> None:
    texts = [CAMPAIGNS[name].text(number) for number in range(4)]
    assert texts == [CAMPAIGNS[name].text(number) for number in range(4)]
    assert len(set(texts)) == 4


@pytest.mark.parametrize(("name", "count"), [("random", 16), ("pipelines", 24), ("mutations", 40)])
def test_a_few_cases_break_nothing(name: str, count: int) -> None:
    """Beyond those that compile: 0 to 2 of a hundred are asked natively, emulated and by XLA."""
    outcomes = [CAMPAIGNS[name].judge(number).outcome for number in range(3, 3 + count)]
    assert outcomes.count("equal") > count // 20


def test_a_wrong_result_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a level, of a spelling and of the executor."""
    optimize, evaluate = hloopt.optimize, hloopt.evaluate
    text = "e { x = f32[2] parameter(0) ROOT r = f32[2] negate(x) }"

    def wrong(module: hloopt.Module, level: str) -> hloopt.Module:
        return hloopt.parse(optimize(module, level).to_text().replace("negate", "abs"))

    drawn = hloopt.parse(text)
    monkeypatch.setattr(campaign_checks, "case", lambda index: (drawn, text, Random(index)))
    assert campaign_checks.judge_random(3) == Answer("equal", frozenset({"parameter", "negate"}))
    monkeypatch.setattr(hloopt, "optimize", wrong)
    answer = campaign.judged("random", 3)
    assert answer["outcome"].startswith("failed: AssertionError: O1: result 0 is")
    assert evaluate is hloopt.evaluate


def test_answers_are_counted(tmp_path: Path) -> None:
    """A finding ends a row of cases without one, until it is asked again and is none."""
    row = campaign.empty()
    good = {"outcome": "equal", "opcodes": ["add"]}
    for number, answer in enumerate(
        [
            good,
            good,
            {"outcome": "failed: x", "opcodes": []},
            good,
            {"outcome": "invalid", "opcodes": []},
        ]
    ):
        campaign.add(row, number, answer)
    assert row == {
        "next": 5, "executed": 3, "in_a_row": 1, "outcomes": {"equal": 3, "failed": 1, "invalid": 1},
        "opcodes": {"add": 3}, "findings": {"2": "failed: x"},
    }  # fmt: skip
    assert "5 cases, 3 executed, 1 in a row" in campaign.summary("random", row)
    campaign.asked_again(row, 2, good)
    assert (row["findings"], row["in_a_row"]) == ({}, 1)
    board = tmp_path / "board.json"
    campaign.write(board, "random", row)
    campaign.write(board, "pipelines", campaign.empty())
    assert json.loads(board.read_text()) == {"random": row, "pipelines": campaign.empty()}


def test_a_run_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In blocks, in the order of the cases, whoever answers first; findings are written down."""
    asked = []

    class Answering:
        def ask(self, index: int) -> campaign.Row:
            asked.append(index)
            if index == 3:
                raise NoAnswer("broken")
            return {"outcome": "equal", "opcodes": ["add"]}

        def stop(self) -> None:
            """Nothing waits."""

        close = stop

    monkeypatch.setattr(campaign, "worker", lambda name: Answering())
    monkeypatch.setattr(campaign, "FINDINGS", tmp_path / "findings")
    board = tmp_path / "board.json"
    campaign.run("random", 5, 2, board)
    row = campaign.run("random", 2, 1, board)
    assert sorted(asked) == [0, 1, 2, 3, 3, 4, 5, 6]
    assert (row["next"], row["executed"], row["in_a_row"]) == (7, 6, 3)
    assert json.loads(board.read_text())["random"] == row
    kept = tmp_path / "findings" / "random-3"
    assert (kept / "what.txt").read_text() == "failed: broken\n"
    assert (kept / "case.hlo").read_bytes() == CAMPAIGNS["random"].text(3).encode()
