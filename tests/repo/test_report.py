"""`tiny-llm report`, which records a failure, and scripts/from_report.py, which reads the record."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from learner import ROOT, Clone

from tiny_llm_course.catalogue import Mistake
from tiny_llm_course.diagnosis.mutants import mutant_sources
from tiny_llm_course.learner.workspace import Workspace
from tiny_llm_course.pytest_runs.test_run import PytestRun, Result
from tiny_llm_course.report.own_code import own_code
from tiny_llm_course.report.report_command import write_new
from tiny_llm_course.report.reported import Reported, read, written
from tiny_llm_course.tasks.syllabus import TaskId, select_task
from tiny_llm_course.tasks.toml import read_toml
from tiny_llm_course.testing.outcome import offer_report
from tiny_llm_course.ui.errors import CommandError
from tiny_llm_course.ui.language import Messages

FUNCTION = "scaled_dot_product_attention_simple"
SCALED = "query @ key.swapaxes(-2, -1) * scale"
OWN = "NEARLY = 1.01\n\n\ndef scores_of(q, k):\n    return q @ k.swapaxes(-2, -1)\n\n\n"
UNNAMED = {  # the reference's text, and what a learner wrote: a helper, a constant and an import of their own
    "import math\n": "import math\nfrom operator import mul\n",
    SCALED: "mul(scores_of(query, key) * scale, NEARLY)",
    f"def {FUNCTION}": f"{OWN}def {FUNCTION}",
    "class Simple": "def my_notes():\n    return 'the code of another task'\n\n\nclass Simple",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("Ann Lee")


@pytest.fixture(scope="module")
def clone(home: Path) -> Clone:
    return Clone.create(home / "course")


@pytest.fixture(autouse=True)
def fresh(clone: Clone) -> None:
    """Begin every test with the first task solved, and without a report."""
    clone.file("attention.py").write_text(clone.solved("attention.py", "w1d1.1"))
    clone.file("kernels/softmax.cpp").write_text(clone.solved("kernels/softmax.cpp"))
    subprocess.run(["rm", "-rf", clone.root / "out", clone.root / "progress.txt"], check=True)


def change(clone: Clone, edits: dict[str, str]) -> None:
    text = clone.file("attention.py").read_text()
    for old, new in edits.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    clone.file("attention.py").write_text(text)


def test_a_failure_without_a_name_is_reported(clone: Clone, home: Path) -> None:
    change(clone, UNNAMED)
    tested = clone.run("test", "w1d1.1").stdout
    assert tested.endswith(
        "The course does not know this mistake yet. "
        "If you are stuck: ./course report w1d1.1 writes a file that you can attach to an issue.\n"
    )
    run = clone.run("report", HOME=str(home))
    assert run.returncode == 0, run.stderr
    assert (
        "wrote out/report-w1d1.1.md. It contains\n  - your code for w1d1.1, from src/tiny_llm/attention.py\n"
        in run.stdout
    )
    assert "attach the file to an issue of the course" in run.stdout
    text = (clone.root / "out/report-w1d1.1.md").read_text()
    failed, count = re.findall(r"(\d+) of (\d+) failed", tested)[0]
    assert text.startswith(f"# w1d1.1 Scaled dot-product attention: {failed} of {count} tests fail\n")
    assert "- known mistake: none was recognised\n- to reproduce the failures: `./course test w1d1.1`\n" in text
    assert re.search(
        r"- python [\d.]+, tiny-llm [\d.]+, mlx [\d.]+, numpy [\d.]+\n- compiler: .+\n- machine: .+\n- system: ", text
    )
    assert len(re.findall(r"^\d+ of \d+ values differ", text, re.MULTILINE)) == 3, "the first failures"
    assert len(re.findall(r"^test_task_1_.*$", text, re.MULTILINE)) == int(count), "all names"
    assert "my_notes" not in text
    assert "SimpleMultiHeadAttention" not in text
    assert "Ann Lee" not in text
    imports = "import math\nfrom operator import mul\nimport mlx.core as mx\nfrom .basics import softmax\n\n\n"
    assert read(text).code["attention.py"].startswith(f"{imports}{OWN}def {FUNCTION}(\n")


def test_a_report_names_no_folder_of_the_machine_and_replaces_no_other(clone: Clone, home: Path) -> None:
    """No folder's name is in a message or in code."""
    (clone.root / "out").mkdir()
    (clone.root / "out/report-w1d1.1.md").write_text("of yesterday")
    places = [clone.root / "weights/a.bin", home / "b.bin", Path(sys.prefix) / "lib/c.bin", Path("/v1/chat")]
    change(clone, {SCALED: f"{{}}[{tuple(map(str, places))!r}]"})
    said = clone.run("report", "--lang", "ja", HOME=str(home)).stdout
    assert "out/report-w1d1.1-2.md を書き出しました" in said
    assert "教材の issue に添付してください" in said
    assert (clone.root / "out/report-w1d1.1.md").read_text() == "of yesterday"
    text = (clone.root / "out/report-w1d1.1-2.md").read_text()
    assert "KeyError: ('weights/a.bin', '~/b.bin', 'c.bin', '/v1/chat')" in text
    assert re.search(rf"^src/tiny_llm/attention.py:\d+ \({FUNCTION}\)$", text, re.MULTILINE)
    assert "Ann Lee" not in text


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match="--out: expected a folder that can be written to"):
        write_new(tmp_path / "file", TaskId.parse("w1d1.1"), "text")


@pytest.mark.parametrize(
    ("task", "edits", "code", "said"),
    [
        ("w1d1.1", {}, 0, "All tests of w1d1.1 pass, so there is nothing to report."),
        ("w1d1.2", {}, 1, "the tests stop at the stub of w1d1.2, so there is nothing to report yet."),
        (
            "w1d1.1",
            {SCALED: "query @"},
            1,
            "no report was written; fix this first: SyntaxError: src/tiny_llm/attention.py:{line}: invalid syntax",
        ),
        ("w1d1.9", {}, 2, "there is no task 'w1d1.9'"),
    ],
    ids=["solved", "stub", "syntax error", "no task"],
)
def test_where_there_is_nothing_to_report(clone: Clone, task: str, edits: dict[str, str], code: int, said: str) -> None:
    change(clone, edits)
    line = clone.file("attention.py").read_text().partition("query @")[0].count("\n") + 1
    run = clone.run("report", task)
    assert run.returncode == code
    assert said.format(line=line) in (run.stderr if code else run.stdout)
    assert not (clone.root / "out").exists()


SYNTAX = '  File "/course/src/tiny_llm/attention.py", line 36\n    scores = query @\nSyntaxError: invalid syntax'
LINE = {"file": "attention.py", "line": 36, "function": FUNCTION, "code": "scores = query @ kye"}


@pytest.mark.parametrize(
    ("failure", "named", "is_offered"),
    [
        ({"message": "30 of 30 values differ"}, None, True),
        ({"message": "30 of 30 values differ"}, "scale-1-over-d", False),
        ({"message": "NameError: name 'kye' is not defined", "frames": [LINE]}, None, False),
        ({"message": SYNTAX}, None, False),
        ({"message": "kernels/softmax.cpp:29: error: expected ';'"}, None, False),
    ],
    ids=["values", "named", "line", "syntax error", "compiler"],
)
def test_a_report_is_offered_where_nothing_explains_a_failure(
    capsys: pytest.CaptureFixture[str], failure: dict[str, Any], named: str | None, is_offered: bool
) -> None:
    task = TaskId.parse("w1d1.1")
    run = PytestRun(results=[Result("test", task, "failed", **failure)], named={task: named} if named else {})
    offer_report(run, Messages("en"))
    assert ("./course report w1d1.1" in capsys.readouterr().out) == is_offered


def test_where_the_course_takes_issues(clone: Clone) -> None:
    project = clone.root / "pyproject.toml"
    before = project.read_text()
    assert before.count('address = ""') == 1
    project.write_text(before.replace('address = ""', 'address = "https://example.org/course"'))
    change(clone, UNNAMED)
    try:
        said = clone.run("report").stdout
        assert "attach the file to a new issue: https://example.org/course/issues. Or send" in said
    finally:
        project.write_text(before)


def test_the_code_is_what_the_task_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report has methods within their class, own code that is used, and edited given code, but no code of other
    tasks."""
    clone = Clone.create(tmp_path)
    file = clone.file("positional_encoding.py")
    text = (ROOT / "src/tiny_llm_ref/positional_encoding.py").read_text().replace("if dims < 2 or", "if dims < 1 or")
    text = text.replace("mx.concatenate([a, b], axis=-1)", "together(a, b)").replace("self._pairs(", "self.halves(")
    file.write_text(
        text.replace("def _pairs", "def halves") + "\n\ndef together(a, b):\n    return Both(a, b).all\n" + MORE
    )
    monkeypatch.setattr(Workspace, "files", lambda workspace, day: [file])
    (code,) = own_code(Workspace(clone.root), TaskId.parse("w1d2.2")).values()
    names = re.findall(r"^ *(?:class|def) (\w+)", code, re.MULTILINE)
    assert names[:5] == ["RoPE", "__init__", "__call__", "halves", "_unpair"]
    assert names[5:] == ["_first_positions", "_check_dims", "together", "Both", "__init__"]
    assert "Rotary positional" not in code, "what the course wrote of the class"
    compile(code, "code", "exec")


MORE = """

class Both:
    def __init__(self, a, b):
        self.all = mx.concatenate([a, b], axis=-1)


def unused():
    return "of no task"
"""


def test_what_is_written_can_be_read() -> None:
    """This holds even for code that looks like the report's own markup."""
    task = select_task("w2d2.3")
    code = {"kernels/softmax.cpp": "// task w2d2.3 begin\n```\n## Failures\n### test\n// task w2d2.3 end\n"}
    failed = Result("test_a[`-````]", task.id, "failed", message="### src/tiny_llm/basics.py\n\n```python\n1\n```")
    text = written(task, code, PytestRun(results=[failed], problem="ended"), ["python 3"])
    assert read(text) == Reported(task.id, code)
    assert "The run ended early:" in text
    for broken, said in ((text.replace("# w2d2.3", "w2d2.3"), "this is not a report"), ("# w2d2.3 x", "expected code")):
        with pytest.raises(ValueError, match=said):
            read(broken)


# ------------------------------------------------------------------------------------- what a maintainer does with it


def from_report(file: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts/from_report.py"), str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def entry_in(output: str, folder: Path) -> Mistake:
    (folder / "entry.toml").write_text(output[output.index("[[tasks.mistakes]]") :])
    (entry,) = read_toml(folder / "entry.toml")["tasks"]["mistakes"]
    assert (entry["id"], entry["en"], entry["ja"]) == ("", "", "")
    return Mistake("reported", tuple((old, new) for old, new in entry["edits"]), {})


def test_a_report_becomes_an_entry_of_the_catalogue(clone: Clone, tmp_path: Path) -> None:
    """The entry's edits make the same mistake in the reference."""
    change(clone, UNNAMED)
    clone.run("report")
    run = from_report(clone.root / "out/report-w1d1.1.md")
    assert run.returncode == 0, run.stderr
    assert re.match(r"w1d1.1: (\d+) of (\d+) tests reject the code:\n  test_task_1_", run.stdout)
    assert "\nNo known mistake explains it.\n" in run.stdout
    reference, task = ROOT / "src/tiny_llm_ref", TaskId.parse("w1d1.1")
    changed = mutant_sources(reference, task, entry_in(run.stdout, tmp_path))
    function = read((clone.root / "out/report-w1d1.1.md").read_text()).code["attention.py"].partition("NEARLY = ")[2]
    assert function in changed["attention.py"]
    assert "from operator import mul" in changed["attention.py"]


def test_a_report_on_a_kernel(clone: Clone, tmp_path: Path) -> None:
    """A region is cut out and inserted, and a mistake that the catalogue knows is named."""
    known = "1 / sums;"
    clone.run("solution", "--day", "2.2")
    file = clone.file("kernels/softmax.cpp")
    assert file.read_text().count(known) == 1
    file.write_text(file.read_text().replace(known, "1.01f / sums;"))
    run = clone.run("report", "w2d2.3")
    assert "your code for w2d2.3, from src/tiny_llm/kernels/softmax.cpp" in run.stdout, run.stderr
    text = (clone.root / "out/report-w2d2.3.md").read_text()
    assert set(read(text).code) == {"kernels/softmax.cpp"}
    assert "w2d2.2" not in text
    told = from_report(clone.root / "out/report-w2d2.3.md").stdout
    assert entry_in(told, tmp_path).edits == (
        ("    const float share = 1 / sums;", "    const float share = 1.01f / sums;"),
    )


def test_what_the_catalogue_knows_and_what_no_edit_can_say(clone: Clone) -> None:
    change(clone, {"math.sqrt(query.shape[-1])": "query.shape[-1]"})
    assert "known mistake (scale-1-over-d): ./course test w1d1.1 explains it." in clone.run("report").stdout
    file = clone.root / "out/report-w1d1.1.md"
    assert "- known mistake: scale-1-over-d\n" in file.read_text()
    given = "def _check_heads(hidden_size: int, num_heads: int) -> None:\n    return\n"
    file.write_text(file.read_text().replace(f"\n\ndef {FUNCTION}", f"\n\n{given}\n\ndef {FUNCTION}"))
    run = from_report(file)
    assert "\nThe catalogue has this mistake: scale-1-over-d.\n" in run.stdout
    assert run.stdout.endswith(
        f"# This code is not in the edits, because it is outside the task's code in attention.py:\n{given}\n"
    ), run.stdout
    file.write_text("no report")
    assert from_report(file).returncode == 2
