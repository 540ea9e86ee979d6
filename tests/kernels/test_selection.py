"""Selection: who decides, in which order, and what is written down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hloopt
from hloopt.errors import UnsupportedError, UsageError
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.ir.canonical import fingerprint
from hloopt.kernels import registry
from hloopt.kernels.kernel import NO, YES
from hloopt.kernels.selection import (
    Choice,
    KernelSelection,
    choose,
    drop_choices,
    read_choice,
    selection,
    selectors,
)
from hloopt.kernels.selection.requests import parse_request, tile_text
from hloopt.rewrite import Controls, Pipeline
from hloopt.rewrite.outcome import PipelineReport
from hloopt.rewrite.spec import pass_text
from tests.kernels.selecting import DEVICE, MADE_UP, TEXT, by_name, made_up


@pytest.fixture(autouse=True)
def _made_up_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_own", lambda: MADE_UP)
    monkeypatch.setattr(selection, "find_gpu", lambda _: DEVICE)


def run(module: Module, instance: KernelSelection, **keywords: Any) -> PipelineReport:
    return Pipeline((instance,)).run(
        module, controls=Controls(verify_each=True, remarks=True, **keywords)
    )


def choices(report: PipelineReport) -> dict[str, Choice]:
    return {
        record.instruction: record
        for run in report.runs
        for record in run.records
        if isinstance(record, Choice)
    }


def chosen(text: str = TEXT, **options: Any) -> dict[str, str]:
    """Instruction -> ``kernel{tile}`` as it is written, after one run."""
    module = hloopt.parse(text)
    run(module, KernelSelection(**options))
    return {
        instruction.name: written[0] + tile_text(written[1])
        for instruction in module.instructions()
        if (written := read_choice(instruction)) is not None
    }


def test_the_first_that_is_wanted_else_the_cheapest() -> None:
    """The adder is wanted for additions; of those nobody wants, the quicker one runs the negation."""
    assert chosen() == {"sum": "adder{threads=128}", "minus": "quick{threads=128}"}


def test_the_selector_cost_asks_for_seconds_alone() -> None:
    """Of kernels that cost the same the first is taken; the slow one never is."""
    assert chosen(selector="cost") == {"sum": "adder{threads=128}", "minus": "quick{threads=128}"}


def test_the_module_is_the_same_but_for_the_configs() -> None:
    """Results stay, a second run changes nothing, and without the choices the module is what it was."""
    module = hloopt.parse(TEXT)
    before = fingerprint(module)
    assert run(module, KernelSelection()).changed
    assert 'backend_config={"hloopt":{"kernel":"adder","tile":{"threads":128}}}' in module.to_text()
    after = fingerprint(module)
    assert hloopt.parse(module.to_text()).to_text() == module.to_text()
    assert not run(module, KernelSelection()).changed
    assert fingerprint(module) == after
    assert drop_choices(module) == 2
    assert fingerprint(module) == before


def test_other_entries_of_the_config_stay() -> None:
    """Bare JSON stays bare and a string stays a string; what is not a JSON object is left alone and reported."""
    for given, wanted in (
        ('{"a":[1,"2"]}', '{"a":[1,"2"],"hloopt":{"kernel":"adder","tile":{"threads":128}}}'),
        (
            '"{\\"a\\":1}"',
            '"{\\"a\\":1,\\"hloopt\\":{\\"kernel\\":\\"adder\\",\\"tile\\":{\\"threads\\":128}}}"',
        ),
    ):
        text = TEXT.replace("add(x, y)", f"add(x, y), backend_config={given}")
        module = hloopt.parse(text)
        run(module, KernelSelection())
        assert str(by_name(module, "sum").attributes["backend_config"]) == wanted
        assert not run(module, KernelSelection()).changed
        drop_choices(module)
        assert str(by_name(module, "sum").attributes["backend_config"]) == given


@pytest.mark.parametrize("given", ['"opaque words"', "{diag = 78 : ui8}", '{"hloopt":3}', '"[1]"'])
def test_a_config_that_cannot_hold_a_choice_is_left_alone(given: str) -> None:
    """The text stays word for word, and a remark says why."""
    module = hloopt.parse(TEXT.replace("add(x, y)", f"add(x, y), backend_config={given}"))
    report = run(module, KernelSelection())
    assert str(by_name(module, "sum").attributes["backend_config"]) == given
    (missed,) = [told.remark for told in report.remarks() if told.remark.kind == "missed"]
    assert missed.instruction == "sum"
    assert missed.reason.startswith("adder is not written: its backend_config ")


def test_a_custom_call_keeps_its_argument() -> None:
    """The config of a call is what its function reads: only those that read it by names get a choice."""
    text = """HloModule m
ENTRY main {
  x = f32[4] parameter(0)
  a = f32[4] custom-call(x), custom_call_target="theirs", backend_config={"n":1}
  ROOT b = f32[4] custom-call(a), custom_call_target="__library$call", backend_config={"n":1}
}
"""
    module = hloopt.parse(text)
    run(module, KernelSelection())
    assert str(by_name(module, "a").attributes["backend_config"]) == '{"n":1}'
    assert read_choice(by_name(module, "b")) == ("quick", {"threads": 128})


def test_the_records_hold_every_candidate() -> None:
    """Verdicts with their reasons, estimates of those that fit, and what decided."""
    module = hloopt.parse(TEXT)
    found = choices(run(module, KernelSelection()))
    choice = found["minus"]
    assert (choice.kernel, choice.source) == ("quick", "rules")
    assert choice.reason == "none is wanted; the cheapest that fits, by estimate"
    names = [candidate.name for candidate in choice.candidates]
    assert names == ["never", "adder", "slow", "quick"]
    never, adder, slow, quick = choice.candidates
    assert not never.fits.ok
    assert adder.fits.reason == "negate is no add"
    assert slow.wanted == NO("it is slow")
    assert slow.estimate is not None
    assert quick.estimate is not None
    assert slow.estimate.seconds > quick.estimate.seconds
    assert quick.estimate.bytes_read == quick.estimate.bytes_written == 4096
    assert found["sum"].reason == "additions go there"
    assert set(found) == {"sum", "minus"}


def test_limits_are_options_and_reach_the_kernels() -> None:
    """``loop_threads`` is the made-up kernels' default tile; the text of the pass says so."""
    instance = KernelSelection(loop_threads=64)
    assert chosen(loop_threads=64)["minus"] == "quick{threads=64}"
    assert pass_text(instance) == "kernel-selection{loop_threads=64}"


@pytest.mark.parametrize(
    ("wish", "sum_", "minus"),
    [
        ("sum=slow", "slow{threads=128}", "quick{threads=128}"),
        ("%sum=slow{threads=32}", "slow{threads=32}", "quick{threads=128}"),
        ("m*=slow", "adder{threads=128}", "slow{threads=128}"),
        ("/^s|us$/=slow", "slow{threads=128}", "slow{threads=128}"),
        ("op:neg*=slow", "adder{threads=128}", "slow{threads=128}"),
        ("op_name:*/add=slow", "slow{threads=128}", "quick{threads=128}"),
    ],
)
def test_a_wish_is_granted(wish: str, sum_: str, minus: str) -> None:
    """By name, glob, regular expression, opcode or op_name; with a tile where one is given."""
    assert chosen(kernel=(wish,)) == {"sum": sum_, "minus": minus}


def test_the_last_wish_wins() -> None:
    """A general wish first, the exception after it."""
    wishes = ("*=slow", "sum=quick{threads=7}")
    assert chosen(kernel=wishes) == {"sum": "quick{threads=7}", "minus": "slow{threads=128}"}


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ("sum", "--kernel: 'sum' is not of the form PATTERN=NAME or PATTERN=NAME{key=N}"),
        ("/(/=slow", "'/(/' is not a regular expression"),
        ("sum=slow{threads}", "'threads' is not of the form key=integer"),
        ("sum=slow{threads=1,threads=2}", "the tile gives 'threads' twice"),
        ("sum=slwo", "no kernel is called 'slwo'; did you mean 'slow'?"),
        ("sun=slow", "no instruction is called 'sun'; did you mean 'sum'?"),
        ("both=slow", "%both has no separate kernel"),
        ("op:dot=slow", "no instruction that needs a kernel matches"),
        ("sum=slow{thread=1}", "the tile of slow has no 'thread'; did you mean 'threads'?"),
        ("sum=slow{threads=0}", "slow: threads=0; a tile's sizes are 1 or more"),
        ("sum=slow{threads=-32}", "slow: threads=-32; a tile's sizes are 1 or more"),
        ("sum=slow{threads=1025}", "slow: threads is 1025; a block has 1 to 1024"),
        ("minus=adder", "adder does not fit: negate is no add"),
        ("*=never", "never does not fit: 1024 elements are more than loop_unroll, 4"),
    ],
)
def test_a_wish_that_cannot_be_says_why(wish: str, message: str) -> None:
    """A usage error before anything is written, with the instruction's place where it is about one."""
    module = hloopt.parse(TEXT, name="m.hlo")
    before = module.to_text()
    with pytest.raises(UsageError) as caught:
        run(module, KernelSelection(kernel=(wish,)))
    assert message in str(caught.value)
    assert module.to_text() == before


def test_a_pattern_is_granted_where_it_can_be() -> None:
    """A kernel that fits some of what a pattern means runs those, and a note tells of the others."""
    module = hloopt.parse(TEXT, name="m.hlo")
    report = run(module, KernelSelection(kernel=("*=adder",)))
    assert choices(report)["sum"].source == "--kernel '*=adder'"
    (note,) = report.notes
    assert note == (
        "kernel-selection: --kernel '*=adder' is not granted to 1 of 2: "
        "%minus (m.hlo:7:3): adder does not fit: negate is no add"
    )


def test_a_choice_that_is_written_stays() -> None:
    """Unless ``keep`` is false; one that no longer fits is replaced, and a note says so."""
    text = TEXT.replace(
        "negate(sum)",
        'negate(sum), backend_config={"hloopt":{"kernel":"slow","tile":{"threads":8}}}',
    )
    assert chosen(text)["minus"] == "slow{threads=8}"
    assert chosen(text, keep=False)["minus"] == "quick{threads=128}"
    assert chosen(text, kernel=("minus=quick",))["minus"] == "quick{threads=128}"
    module = hloopt.parse(text.replace('"slow"', '"adder"'))
    report = run(module, KernelSelection())
    assert read_choice(by_name(module, "minus")) == ("quick", {"threads": 128})
    (note,) = report.notes
    assert note == (
        "kernel-selection: %minus: what was written is not kept: "
        "adder does not fit: negate is no add"
    )


def test_choose_honours_what_is_written() -> None:
    """Planning takes the written kernel and tile, and the rules' where nothing is written."""
    module = hloopt.parse(TEXT)
    run(module, KernelSelection(kernel=("sum=slow{threads=32}",)))
    kernel, spec = choose(by_name(module, "sum"), DEVICE)
    assert (kernel.name, dict(spec.tile)) == ("slow", {"threads": 32})
    drop_choices(module)
    kernel, spec = choose(by_name(module, "sum"), DEVICE)
    assert (kernel.name, dict(spec.tile)) == ("adder", {"threads": 128})


@pytest.mark.parametrize(
    ("kernel", "tile", "message"),
    [
        ("gone", {}, "has a backend_config that asks for 'gone', which is not a known kernel"),
        ("adder", {}, "asks for adder, which does not fit: negate is no add"),
        ("slow", {"threads": 0}, "that cannot be: slow: threads=0; a tile's sizes are 1 or more"),
    ],
)
def test_choose_refuses_what_is_written_and_cannot_be(
    kernel: str, tile: dict[str, int], message: str
) -> None:
    """At the instruction's line: a written choice is never replaced in silence."""
    config = json.dumps({"hloopt": {"kernel": kernel, "tile": tile}})
    module = hloopt.parse(
        TEXT.replace("negate(sum)", f"negate(sum), backend_config={config}"), name="m.hlo"
    )
    with pytest.raises(UnsupportedError) as caught:
        choose(by_name(module, "minus"), DEVICE)
    assert (caught.value.line, caught.value.column) == (7, 3)
    assert message in caught.value.message


def test_choose_tells_every_reason_where_nothing_fits() -> None:
    """Name, line, and what each candidate says; those that say the same are told together."""
    module = hloopt.parse(TEXT, name="m.hlo")
    known = (
        made_up("a", lambda site: NO("too long"), lambda site: YES()),
        made_up("b", lambda site: NO("no add"), lambda site: YES()),
        made_up("c", lambda site: NO("too long"), lambda site: YES()),
    )
    with pytest.raises(UnsupportedError) as caught:
        choose(by_name(module, "minus"), DEVICE, known=known)
    assert str(caught.value).splitlines()[0] == "m.hlo:7:3: error: minus: negate fits no kernel"
    assert caught.value.notes == ("a, c: too long", "b: no add")


def test_an_instruction_that_nothing_fits_is_recorded_and_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pass goes on with the others; the record has no kernel."""
    monkeypatch.setattr(registry, "_own", lambda: MADE_UP[:2])
    module = hloopt.parse(TEXT)
    found = choices(run(module, KernelSelection()))
    assert (found["sum"].kernel, found["minus"].kernel) == ("adder", "")
    assert found["minus"].reason == "no kernel fits"
    with pytest.raises(UsageError, match="no kernel fits it"):
        run(hloopt.parse(TEXT), KernelSelection(kernel=("minus=adder",)))


def test_what_waits_for_the_host_fits_no_kernel() -> None:
    """One reason, told once, whatever the kernels are."""
    text = """HloModule m
ENTRY main {
  k = token[] after-all()
  ROOT y = ((f32[4]), token[]) infeed(k)
}
"""
    with pytest.raises(UnsupportedError) as caught:
        choose(by_name(hloopt.parse(text), "y"), DEVICE)
    assert caught.value.notes == ("infeed waits for the host, which no kernel does",)


def test_sizes_the_program_decides_fit_no_kernel() -> None:
    """A bounded dynamic dimension is refused by its shape, before any kernel is asked."""
    text = """HloModule m
ENTRY main {
  x = f32[<=8] parameter(0)
  ROOT y = f32[<=8] negate(x)
}
"""
    module = hloopt.parse(text)
    with pytest.raises(UnsupportedError) as caught:
        choose(by_name(module, "y"), DEVICE)
    assert caught.value.notes == ("f32[<=8] has a dimension whose size the program decides",)


def test_fuel_stops_the_writing() -> None:
    """With fuel for one, one choice is written and the other only recorded."""
    module = hloopt.parse(TEXT)
    report = run(module, KernelSelection(), fuel={"kernel-selection": 1})
    assert [read_choice(entry) is not None for entry in module.entry][2:] == [True, False, False]
    assert choices(report)["minus"].kernel == "quick"


def test_control_flow_is_chosen_for_and_regions_are_not() -> None:
    """Bodies of loops and branches run one by one; a reduction's region does not."""
    text = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
body { s = f32[8] parameter(0)
  ROOT t = f32[8] negate(s) }
cond { s = f32[8] parameter(0)
  z = f32[] constant(0)
  r = f32[] reduce(s, z), dimensions={0}, to_apply=add
  ROOT p = pred[] compare(r, z), direction=GT }
ENTRY main { x = f32[8] parameter(0)
  w = f32[8] while(x), condition=cond, body=body
  ROOT b = f32[2,4] bitcast(w) }
"""
    assert set(chosen(text)) == {"t", "r", "p"}


def write_rule(folder: Path, name: str, body: str) -> str:
    (folder / f"{name}.py").write_text(body)
    return f"{name}:pick"


def test_a_rule_is_asked_before_the_selector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sees names, verdicts, estimates and the target, and answers a name, a pair, or the default."""
    monkeypatch.chdir(tmp_path)
    rule = write_rule(
        tmp_path,
        "rule_for_selection",
        "def pick(instruction, candidates, target):\n"
        "    assert target.name == 'd1'\n"
        "    assert [one.ok for one in candidates][0] is False\n"
        "    if instruction.opcode == 'add':\n"
        "        return 'default'\n"
        "    best = max((one for one in candidates if one.ok), key=lambda one: one.estimate.seconds)\n"
        "    return best.name, {'threads': 16}\n",
    )
    with pytest.raises(UsageError, match="is not loaded: the option --kernel"):
        chosen(rule=rule)
    assert selectors.load_rule(rule) == rule
    assert chosen(rule=rule) == {"sum": "adder{threads=128}", "minus": "slow{threads=16}"}
    assert chosen(rule=rule, kernel=("minus=quick",))["minus"] == "quick{threads=128}"
    assert chosen(selector=rule)["minus"] == "slow{threads=16}"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 1 / 0", "(failing.py:3): ZeroDivisionError: division by zero"),
        ("return 7", "answers 7 for %sum: a name, a pair (name, {'parameter': integer})"),
        ("return 'slow', {'threads': 'many'}", "a name, a pair"),
        ("return 'slwo'", "no kernel is called 'slwo'; did you mean 'slow'?"),
        ("return 'never'", "%sum (m.hlo:6:3): never does not fit: 1024 elements"),
        ("return 'slow', {'threads': 0}", "slow: threads=0"),
    ],
)
def test_errors_of_a_rule_are_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, message: str
) -> None:
    """Told with the rule's name, the instruction, and the rule's own line where it failed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "failing", raising=False)
    rule = write_rule(
        tmp_path, "failing", f"def pick(instruction, candidates, target):\n    x = 0\n    {body}\n"
    )
    selectors.load_rule(rule)
    with pytest.raises(UsageError) as caught:
        run(hloopt.parse(TEXT, name="m.hlo"), KernelSelection(rule=rule))
    assert message in str(caught.value)
    assert rule in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "'nothing' is not of the form module:function"),
        ("no_such_module_here:f", "'no_such_module_here' cannot be imported"),
        ("math:no_such", "'math' has no function 'no_such'"),
    ],
)
def test_a_rule_that_cannot_be_loaded_says_why(text: str, message: str) -> None:
    """A usage error that names the option."""
    with pytest.raises(UsageError) as caught:
        selectors.load_rule(text)
    assert str(caught.value).startswith("--kernel: ")
    assert message in str(caught.value)


def test_an_unknown_selector_is_a_usage_error() -> None:
    """With the nearest name."""
    with pytest.raises(UsageError, match="no selector is called 'csot'; did you mean 'cost'"):
        run(hloopt.parse(TEXT), KernelSelection(selector="csot"))


def test_a_wish_reads_back() -> None:
    """A tile's text is what --kernel takes."""
    wish = parse_request("op:dot=dot-tiled{m=64, n=32}")
    assert (wish.pattern, wish.kernel, wish.tile) == ("op:dot", "dot-tiled", {"m": 64, "n": 32})
    assert parse_request(f"a={wish.kernel}{tile_text(wish.tile)}").tile == wish.tile


def test_running_on_a_clone_gives_the_same_text() -> None:
    """Nothing depends on which objects they are."""
    module = hloopt.parse(TEXT)
    copy = clone_module(module)
    for form in (module, copy):
        run(form, KernelSelection())
    assert module.to_text() == copy.to_text()


def test_the_target_of_optimize_is_that_of_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """``hloopt.optimize(target=...)`` reaches passes that ask for a device; others do not mind."""
    asked = []

    def found(name: str) -> object:
        asked.append(name)
        return DEVICE

    monkeypatch.setattr(selection, "find_gpu", found)
    module = hloopt.parse(TEXT)
    better = hloopt.optimize(module, "dce,kernel-selection", target="a100")
    assert asked == ["a100"]
    assert read_choice(by_name(better, "sum")) == ("adder", {"threads": 128})
    assert read_choice(by_name(module, "sum")) is None
    hloopt.optimize(module, KernelSelection(target="b200"))
    assert asked == ["a100", "b200"]
    with pytest.raises(UsageError, match="'a99'"):
        hloopt.optimize(module, "O2", target="a99")


@pytest.mark.parametrize(
    ("option", "least"),
    [
        ("loop_threads", 1),
        ("loop_unroll", 1),
        ("sort_threads", 1),
        ("dot_loop_work", 0),
        ("fft_shared_length", 0),
    ],
)
def test_limits_have_a_least_value(option: str, least: int) -> None:
    """There is no block without threads, and nothing is less than nothing."""
    hloopt.parse_pipeline(f"kernel-selection{{{option}={least}}}")
    wrong = least - 1
    with pytest.raises(UsageError, match=f"{option}={wrong} is less than {least}"):
        hloopt.parse_pipeline(f"kernel-selection{{{option}={wrong}}}")
