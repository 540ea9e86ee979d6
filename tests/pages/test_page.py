"""The page: one file that loads nothing, with the figures of the other reports, safe whatever things are called."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
from base64 import b64decode
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import hloopt
from hloopt import pages
from hloopt.pages.pass_diffs import PassDiffs
from hloopt.pipelines import parse_pipeline
from hloopt.report.picture import short_text
from tests.helpers.support import invoke

EVIL = "</script><img src=x onerror=alert(1)>"
PROGRAM = f"""HloModule attack

ENTRY e {{
  x = f32[64,128] parameter(0)
  y = f32[128,32] parameter(1)
  d = f32[64,32] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, metadata={{op_name="jit(f)/{EVIL}/dot" source_file="m.py" source_line=3}}
  s = f32[64,32] sine(d), metadata={{op_name="jit(f)/sin" source_file="{EVIL}" source_line=4}}
  c = f32[64,32] cosine(d), metadata={{op_name="jit(f)/cos" source_file="m.py" source_line=5}}
  ROOT r = f32[64,32] add(s, c), metadata={{op_name="jit(f)/add" source_file="m.py" source_line=5}}
}}
"""


class Reader(HTMLParser):
    """The tags of a page, and the texts of its scripts by their ids."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.data: dict[str, str] = {}
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on") or name in ("src", "srcset")]
        if tag == "script":
            self._inside = dict(attrs).get("id") or "code"

    def handle_endtag(self, tag: str) -> None:
        self._inside = "" if tag == "script" else self._inside

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.data[self._inside] = self.data.get(self._inside, "") + data


def parts(reader: Reader) -> Iterator[tuple[str, Any]]:
    """The data of a page."""
    for name, text in reader.data.items():
        if name.startswith("part-"):
            yield name.removeprefix("part-"), json.loads(gzip.decompress(b64decode(text)))


@pytest.fixture(scope="module")
def made() -> Any:
    """A page about a program whose names are HTML."""
    return hloopt.page(hloopt.parse(PROGRAM, "m.hlo"))


def test_the_page_loads_nothing(made: Any) -> None:
    """No address but in the text of the module; a policy that lets no other script run."""
    text = made.to_html()
    assert not re.search(r"https?:|//[a-z]+\.|@import|url\(", text)
    assert "default-src 'none'" in text
    assert "'unsafe-eval'" not in text
    assert "connect-src" not in text


def test_names_of_the_module_are_text(made: Any) -> None:
    """What looks like HTML stands within JSON, whose characters cannot end a script."""
    text = made.to_html()
    reader = Reader(text)
    assert EVIL not in text
    assert "img" not in reader.tags
    assert reader.tags.count("script") == 2 + len(made.parts)
    found = dict(parts(reader))
    assert EVIL in json.dumps(found["instructions"]["lines"])
    for view in found["graph"].values():
        assert "<img" not in view["svg"]
        assert "<script" not in view["svg"]
    assert json.loads(reader.data["overview"])["module"] == "attack"


def test_the_data_is_what_the_record_says(made: Any) -> None:
    """Packed and unpacked; and all that is numbered is there."""
    found = dict(parts(Reader(made.to_html())))
    assert found == json.loads(json.dumps(made.parts))
    names = found["instructions"]["names"]
    assert {names[row["at"]] for row in found["kernels"]} == {"d", "loop_add_fusion"}
    assert all(
        len(column) == len(names)
        for key, column in found["instructions"].items()
        if isinstance(column, list) and key != "computations"
    )
    assert set(made.to_json()) == {*made.overview, *made.parts}
    own, other = found["code"]["own"], found["code"]["other"]
    assert {names[int(at)] for at in own} == {names[int(at)] for at in other}
    assert {names[int(at)] for at in own} == {"d", "loop_add_fusion"}
    assert all("__global__ void" in text for text in own.values())
    assert all("static void" in text and "__global__" not in text for text in other.values())


def test_figures_are_those_of_other_commands(tmp_path: Path) -> None:
    """Time, kernels and peak, as hloopt stats has them of the optimised module; C++ for the host."""
    file = tmp_path / "m.hlo"
    file.write_text(PROGRAM)
    better = invoke("optimize", str(file)).stdout
    stats = json.loads(invoke("stats", "-", "--target", "h200", "--json", stdin=better).stdout)[
        "modules"
    ][0]
    made = hloopt.page(file)
    assert made.overview["seconds"] == pytest.approx(stats["prediction"]["seconds"])
    assert made.overview["counts"]["kernels"] == stats["kernels"]
    assert made.overview["counts"]["peak"] == stats["peak_bytes"]
    memory = made.parts["memory"]
    assert max(alive for _, alive in memory["moments"]) == memory["peak"]
    lines = {row["line"]: row["seconds"] for row in made.parts["source"]}
    given = {row["name"]: row["seconds"] for row in stats["prediction"]["sources"]}
    assert {line: lines[line] for line in given} == pytest.approx(given)
    native = hloopt.page(file, target="host")
    assert native.overview["languages"] == {
        "own": "C++",
        "other": "CUDA C for NVIDIA H200 141GB HBM3e",
    }
    code = native.parts["code"]
    assert code["own"]
    assert "__global__" not in json.dumps(code["own"])
    assert "__global__" in json.dumps(code["other"])


def test_decisions_have_both_prices(made: Any) -> None:
    """Of what was fused, and of what was refused."""
    found = made.parts["decisions"]
    assert {row["producer"] for row in found["joined"]} == {"s", "c"}
    assert all(
        row["apart"] > row["together"] > 0 for row in found["joined"] if row["apart"] is not None
    )


def test_alternatives_are_what_their_lock_files_give(made: Any, tmp_path: Path) -> None:
    """Parting what was fused costs what the lock file of the row costs; the rows say what changes."""
    found = made.parts["whatif"]
    file, lock = tmp_path / "m.hlo", tmp_path / "mine.toml"
    file.write_text(PROGRAM)
    assert {pair["fuse"] for row in found["rows"] for pair in row["pairs"]} == {False}
    assert any(row["made"] for row in found["rows"])
    for row in found["rows"]:
        lock.write_text(found["head"] + row["lock"])
        better = invoke("optimize", str(file), "--lock", str(lock)).stdout
        stats = json.loads(invoke("stats", "-", "--target", "h200", "--json", stdin=better).stdout)[
            "modules"
        ][0]
        assert row["seconds"] == pytest.approx(stats["prediction"]["seconds"])
        assert row["kernels"] == stats["kernels"]
        assert row["made"] == (row["seconds"] != pytest.approx(found["seconds"]))


def test_large_modules_price_pairs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no time to plan again, the change is what both prices of the decision say."""
    monkeypatch.setattr("hloopt.driver.whatif._WORK", 0)
    made = hloopt.page(hloopt.parse(PROGRAM))
    found = made.parts["whatif"]
    gains = {
        (row["apart"] - row["together"]) * 1e-6
        for row in made.parts["decisions"]["joined"]
        if row["apart"] is not None
    }
    assert found["rows"]
    for row in found["rows"]:
        assert not row["planned"]
        assert row["seconds"] - found["seconds"] == pytest.approx(min(gains), rel=0.5)


def test_large_modules_are_searched_beside(monkeypatch: pytest.MonkeyPatch, samples: Path) -> None:
    """By another process, which finds the same; one that ends without an answer is noted."""
    sample = samples / "loops" / "gru.hlo"
    expected = hloopt.page(sample).overview["findings"]
    assert expected
    monkeypatch.setattr("hloopt.driver.page._MOST_SEARCHED", 0)
    monkeypatch.setattr("hloopt.driver.page.can_work_beside", lambda: True)
    assert hloopt.page(sample).overview["findings"] == expected
    monkeypatch.setattr(
        "hloopt.driver.page.find", lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
    )
    made = hloopt.page(sample).overview
    assert made["findings"] == []
    assert "The search for what would help ended by SIGKILL." in made["notes"]


def test_code_is_there_although_one_kernel_is_missing() -> None:
    """Of all other kernels."""
    text = """HloModule m

ENTRY e {
  x = f32[64,64] parameter(0)
  s = f32[64,64] sine(x)
  c = f32[64,64] custom-call(s), custom_call_target="somebody_s_own"
  ROOT r = f32[64,64] exponential(c)
}
"""
    made = hloopt.page(hloopt.parse(text))
    names = made.parts["instructions"]["names"]
    code = {names[at]: text for at, text in made.parts["code"]["own"].items()}
    rows = {names[row["at"]]: row for row in made.parts["kernels"]}
    assert "c" not in code
    assert rows["c"]["kernel"] == ""
    assert len(code) == 2
    assert all("__global__" in text for text in code.values())


def test_equal_kernels_share_their_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once in both languages, for the first of them; another constant or another shape is another kernel."""
    kernels = ((64, 2), (64, 2), (64, 3), (32, 2))
    rows = "".join(
        f"  p{at} = f32[{size}] parameter({at})\n  k{at} = f32[] constant({value})\n"
        f"  b{at} = f32[{size}] broadcast(k{at}), dimensions={{}}\n  m{at} = f32[{size}] multiply(p{at}, b{at})\n"
        f"  y{at} = f32[{size}] sine(m{at})\n"
        for at, (size, value) in enumerate(kernels)
    )
    results = ", ".join(f"y{at}" for at in range(4))
    shape = ", ".join(f"f32[{size}]" for size, _ in kernels)
    text = f"HloModule m\n\nENTRY e {{\n{rows}  ROOT r = ({shape}) tuple({results})\n}}\n"
    apart = "priority-fusion"  # fuses nothing of one kernel with another
    made = hloopt.page(hloopt.parse(text), pipeline=apart)
    code, kernels = made.parts["code"], made.parts["kernels"]
    assert len(kernels) == len(code["first"]) == 4
    assert len(code["own"]) == len(code["other"]) == 3
    assert set(code["first"].values()) == set(code["own"])
    monkeypatch.setattr("hloopt.driver.page_code._WORK", 0)
    without = hloopt.page(hloopt.parse(text), pipeline=apart).parts["code"]
    assert without["other"] == {}
    assert without["own"] == code["own"]


def test_what_has_no_code_says_why() -> None:
    """In a comment: what runs it, or what prevents a kernel."""
    text = """HloModule m

ENTRY e {
  x = f32[64,64] parameter(0)
  ROOT c = f32[64,64] custom-call(x), custom_call_target="somebody_s_own"
}
"""
    code = hloopt.page(hloopt.parse(text), target="host").parts["code"]
    assert list(code["own"].values()) == [
        "// native-call: calls a function of a library, no code is written\n"
    ]
    (other,) = code["other"].values()
    assert all(line.startswith("// ") for line in other.splitlines())
    assert "somebody_s_own" in other


def test_of_a_dump_xla_s_plan_stands_beside(samples: Path) -> None:
    """With the figures of hloopt stats of what XLA made; of a file that is no dump there is none."""
    folder = samples / "dump"
    made = hloopt.page(folder / "module_0002.jit_normalize.before_optimizations.txt")
    after = folder / "module_0002.jit_normalize.cpu_after_optimizations.txt"
    stats = json.loads(invoke("stats", str(after), "--target", "h200", "--json").stdout)["modules"][
        0
    ]
    found = made.parts["xla"]
    assert found["totals"]["before"]["seconds"] == pytest.approx(stats["prediction"]["seconds"])
    assert found["totals"]["after"]["kernels"] == made.overview["counts"]["kernels"]
    ours = [row["key"] for group in found["groups"] for row in group["after"]]
    names = made.parts["instructions"]
    assert {key.split("/")[1] for key in ours} <= set(names["names"])
    assert "xla" not in hloopt.page(after).parts


def test_one_file_of_a_dump_is_about_the_largest_module(samples: Path, tmp_path: Path) -> None:
    """Which that is, and how to have the others, is said; a directory gets a page of each."""
    page, folder = tmp_path / "page.html", tmp_path / "pages"
    done = invoke("report", str(samples / "dump"), "-o", str(page))
    assert done.exit_code == 0
    assert "jit_normalize.before_optimizations.txt is the largest of 2 modules" in done.stderr
    assert "jit_normalize" in page.read_text()
    folder.mkdir()
    assert invoke("report", str(samples / "dump"), "-o", str(folder)).exit_code == 0
    assert len([*folder.iterdir()]) == 2


def test_what_would_help_is_on_the_first_view() -> None:
    """The findings of hloopt why, after the same passes."""
    text = PROGRAM.replace("64,128", "64,4").replace("128,32", "4,32")
    (finding,) = hloopt.page(hloopt.parse(text)).overview["findings"]
    assert finding["instruction"] == "d"
    assert finding["gain"]["after"] < finding["gain"]["before"]


def test_a_target_without_kernels_has_a_page() -> None:
    """Times are predicted, and there is no code."""
    made = hloopt.page(hloopt.parse(PROGRAM), target="mi300x")
    assert made.overview["seconds"] > 0
    assert "code" not in made.parts
    assert made.to_html()


@pytest.mark.parametrize("pipeline", ["O2", "O3", "xla-gpu-2026"])
def test_differences_of_passes_lead_to_the_result(pipeline: str, samples: Path) -> None:
    """Applied one after the other to the module as given they are the module after the passes."""
    module = hloopt.read(samples / "kalman_scan.hlo")
    state = {(home.name, short_text(one)) for home in module for one in home}
    watcher = PassDiffs()
    parse_pipeline(pipeline).run(module, watchers=(watcher,))
    assert any(run["diff"] for run in watcher.runs)
    for run in watcher.runs:
        assert run["changed"] or not run["diff"]
        assert not run["more"]
        for block in run["diff"]:
            for line in block["lines"]:
                row = block["computation"], line[2:]
                if line[0] == "-":
                    state.remove(row)
                else:
                    assert row not in state
                    state.add(row)
    assert state == {(home.name, short_text(one)) for home in module for one in home}


def test_files_of_the_page_are_small() -> None:
    """Scripts of our own stay a few readable files."""
    folder = Path(str(pages.__file__)).parent
    for file in folder.glob("*.js"):
        text = file.read_text()
        assert len(text.splitlines()) < 400, file
        assert len(text) < 15_000, file


def test_where_pages_go(tmp_path: Path) -> None:
    """A file; a directory, with one of each module; stdout only as JSON."""
    file = tmp_path / "m.hlo"
    file.write_text(PROGRAM)
    page = tmp_path / "p.html"
    done = invoke("report", str(file), "-o", str(page))
    assert (done.exit_code, done.stdout) == (0, "")
    assert page.read_text().startswith("<!DOCTYPE html>")
    other = tmp_path / "other.hlo"
    other.write_text(PROGRAM.replace("attack", "other"))
    folder = tmp_path / "pages"
    assert invoke("report", str(file), str(other), "-o", f"{folder}/").exit_code == 0
    assert sorted(one.name for one in folder.iterdir()) == ["m.html", "other.html"]
    found = json.loads(invoke("report", str(file), "--json").stdout)
    assert found["modules"][0]["counts"]["kernels"] == 2


def test_mistakes_are_errors(tmp_path: Path) -> None:
    """Of usage, and of the module with its place."""
    file = tmp_path / "m.hlo"
    file.write_text(PROGRAM.replace("sine(d)", "sine(q)"))
    done = invoke("report", str(file))
    assert done.exit_code == 2
    assert "a page is not printed: give -o FILE.html or -o DIR, --serve or --json" in done.stderr
    done = invoke("report", str(file), "-o", str(tmp_path / "p.html"))
    assert done.exit_code == 3
    assert f"{file}:7:23: error: there is no instruction 'q' in 'e'" in done.stderr
    assert not (tmp_path / "p.html").exists()
