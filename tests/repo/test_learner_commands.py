"""`tiny-llm next`, `progress`, `hint`, `solution`, `reset`, `undo`, in a learner's clone."""

import re
import subprocess
import sys

import pytest
from learner import Clone, new_clone

from tiny_llm_course.catalogue import entry_of
from tiny_llm_course.tasks.regions import code_files
from tiny_llm_course.tasks.syllabus import TaskId, tasks, weeks

clone = pytest.fixture(new_clone, scope="module")


@pytest.fixture(autouse=True)
def fresh(clone):
    """Begin every test with stubs, and without progress."""
    yield
    for name in names(clone):
        clone.file(name).write_text(clone.solved(name))
    (clone.root / "progress.txt").unlink(missing_ok=True)
    subprocess.run(["rm", "-rf", clone.root / ".tiny-llm"], check=True)


def names(clone):
    """Return the learner's files in Python, C++ and Metal."""
    reference = clone.root / "src/tiny_llm_ref"
    return [str(file.relative_to(reference)) for file in code_files(reference)]


def line_of(clone, file, text):
    return 1 + next(i for i, line in enumerate(clone.file(file).read_text().splitlines()) if text in line)


def test_next_names_task_file_and_command(clone):
    line = line_of(clone, "attention.py", "raise NotImplementedError")
    assert clone.run("next").stdout == (
        "next:     Scaled dot-product attention (w1d1.1)\n"
        "chapter:  week 1 day 1, Attention and multi-head attention\n"
        f"file:     src/tiny_llm/attention.py:{line}\n"
        "test:     ./course test w1d1.1\n"
        "hint:     ./course hint w1d1.1\n"
        "warm-up:  ./course test w0d1.1 begins week 0: attention by hand, two days, optional\n"
    )


def test_commands_are_named_in_the_form_that_was_typed(clone):
    text = clone.run("next", TINY_LLM_CALLED="../course").stdout
    assert "../course test w1d1.1\n" in text
    assert "pdm" not in text
    assert (
        "test:  ./course test"
        in clone.run("main", "--impl", "mine", "--prompt", "x", TINY_LLM_CALLED="./course").stderr
    )


@pytest.mark.parametrize("variable", ["LANG", "LC_ALL", "LC_MESSAGES"])
def test_the_locale_decides_the_language(clone, variable):
    assert "次の課題: スケール付き内積アテンション（w1d1.1）" in clone.run("next", **{variable: "ja_JP.UTF-8"}).stdout
    assert "next:" in clone.run("next", "--lang", "en", **{variable: "ja_JP.UTF-8"}).stdout


def test_next_goes_on_when_a_task_is_solved(clone):
    clone.file("attention.py").write_text(clone.solved("attention.py", "w1d1.1"))
    assert "(w1d1.1)" in clone.run("next").stdout, "written, and not yet tested"
    assert clone.run("test", "--week", "1", "--day", "1", "-k", "task_1").returncode == 0
    assert "(w1d1.2)" in clone.run("next").stdout
    assert "warm-up" not in clone.run("next").stdout
    clone.file("attention.py").write_text(clone.solved("attention.py"))
    assert "(w1d1.1)" in clone.run("next").stdout, "its stub stands there again"


def test_who_begins_with_the_warm_up_goes_through_it(clone):
    """After the warm-up comes week 1. A learner who leaves the warm-up for week 1 is never sent back, not even at the
    end."""
    clone.file("foundations.py").write_text(clone.solved("foundations.py", "w0d1.1"))
    assert clone.run("test", "w0d1.1").returncode == 0
    shown = clone.run("next").stdout
    assert "(w0d1.2)" in shown
    assert "warm-up" not in shown
    progress = clone.root / "progress.txt"
    of_week_0 = [task.id for task in tasks() if task.id.week == 0]
    for name in names(clone):
        clone.file(name).write_text((clone.root / "src/tiny_llm_ref" / name).read_text())
    progress.write_text("".join(f"{task} solved\n" for task in of_week_0))
    assert "(w1d1.1)" in clone.run("next").stdout
    progress.write_text("w0d1.1 solved\nw1d1.1 solved\n")
    assert "(w1d1.2)" in clone.run("next").stdout
    later = [task.id for task in tasks() if task.id.week > 0]
    progress.write_text("".join(f"{task} solved\n" for task in later))
    assert clone.run("next").stdout.startswith(f"The course is done: {len(later)} tasks.")


def test_some_passing_tests_are_not_a_solved_task(clone):
    clone.file("attention.py").write_text(clone.solved("attention.py", "w1d1.1"))
    shown = clone.run("test", "--week", "1", "--day", "1", "-k", "test_task_1_default_scale").stdout
    assert "next: " not in shown
    assert "(w1d1.1)" in clone.run("next").stdout


def test_after_a_passing_test_the_next_task_is_named(clone):
    clone.file("attention.py").write_text(clone.solved("attention.py", "w1d1.1"))
    shown = clone.run("test", "w1d1.1").stdout
    following = "next: w1d1.2 Linear layer and multi-head attention: ./course test w1d1.2"
    assert shown.splitlines()[-2:] == ["", following]
    assert "next: " not in clone.run("test", "w1d1.2").stdout, "it did not pass"
    assert "next: " not in clone.run("test", "w1d1.1", "--impl", "ref").stdout


def test_at_the_end_of_a_day_and_of_a_week(clone):
    for name in ("basics.py", "attention.py"):
        clone.file(name).write_text(clone.solved(name, "w1d1.1", "w1d1.2"))
    shown = clone.run("test", "--week", "1", "--day", "1").stdout.splitlines()
    assert shown[-2] == (
        "Week 1 day 1 is done. Now run your code, as in the chapter: ./course python book/week_1/d1_model.py"
    )
    assert shown[-1].startswith("next: w1d2.1 ")
    for name in names(clone):
        clone.file(name).write_text((clone.root / "src/tiny_llm_ref" / name).read_text())
    of_week = [task.id for task in tasks() if task.id.week == 1]
    (clone.root / "progress.txt").write_text("".join(f"{task} solved\n" for task in of_week[:-1]))
    shown = clone.run("test", "w1d7.4").stdout
    assert "Week 1 day 7 is done. Now run your code, as in the chapter: ./course main --impl mine\n" in shown
    assert "Week 1 is done: your own code is a language model." in shown
    assert shown.splitlines()[-1].startswith("next: w2d1.1 ")


def test_a_task_that_fails_again_is_open_again(clone):
    clone.file("layer_norm.py").write_text(clone.solved("layer_norm.py", "w1d4.1"))
    clone.run("test", "--week", "1", "--day", "4", "-k", "task_1")
    assert "✔ w1d4.1" in clone.run("progress").stdout
    source = clone.file("layer_norm.py").read_text()
    clone.file("layer_norm.py").write_text(source.replace("* self.weight", ""))
    clone.run("test", "--week", "1", "--day", "4", "-k", "task_1")
    assert "○ w1d4.1" in clone.run("progress").stdout


def test_progress_shows_every_task(clone):
    clone.run("solution", "w1d2.1", "--apply")
    shown = clone.run("progress").stdout
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("    ")] == [str(t.id) for t in tasks()]
    assert "– w1d2.1  RoPE on neighbouring pairs (traditional)  (skipped)" in shown
    in_week = [task for task in tasks() if task.id.week == 1]
    assert f"0 solved, 1 skipped, {len(in_week) - 1} open" in shown
    assert "完了 0、スキップ 1" in clone.run("progress", "--lang", "ja").stdout


def test_progress_where_signs_cannot_be_shown(clone):
    shown = clone.run("progress", PYTHONIOENCODING="ascii:replace")
    assert shown.returncode == 0
    assert ". w1d1.1  Scaled" in shown.stdout


def test_the_progress_file_tolerates_what_it_does_not_know(clone):
    file = clone.root / "progress.txt"
    file.write_text("w9d9.9 solved\nw1d1.1 solved by Ann\nnonsense\nw1d1.2 what\n")
    clone.run("solution", "w1d2.1", "--apply")
    lines = file.read_text().splitlines()
    assert {"w9d9.9 solved", "w1d1.1 solved by Ann", "nonsense", "w1d1.2 what", "w1d2.1 skipped"} <= set(lines)
    file.unlink()
    assert "0 solved, 0 skipped" in clone.run("progress").stdout


def test_hints_come_in_three_levels(clone):
    assert clone.run("hint").stdout.startswith("w1d1.1 Scaled dot-product attention: hint 1 of 3\n"), "the next task"
    first = clone.run("hint", "w1d1.1").stdout
    nudge = entry_of(TaskId(1, 1, 1)).hints[0]["en"]
    assert first.startswith(f"w1d1.1 Scaled dot-product attention: hint 1 of 3\n{nudge[:40]}")
    assert "More: ./course hint w1d1.1 --more" in first
    assert clone.run("hint", "w1d1.1").stdout == first, "no further without --more"
    assert "hint 2 of 3" in clone.run("hint", "w1d1.1", "--more").stdout
    assert "hint 3 of 3" in clone.run("hint", "w1d1.1", "--more").stdout
    last = clone.run("hint", "w1d1.1", "--more").stdout
    assert "hint 3 of 3" in last
    assert "That was the last hint. The solution: ./course solution w1d1.1" in last
    assert "ヒント 1/3\n線形層は" in clone.run("hint", "w1d1.2", "--lang", "ja").stdout


def test_a_hint_knows_what_was_diagnosed(clone):
    solved = clone.solved("attention.py", "w1d1.1")
    clone.file("attention.py").write_text(solved.replace("math.sqrt(query.shape[-1])", "query.shape[-1]"))
    failed = clone.run("test", "--week", "1", "--day", "1", "-k", "task_1").stdout
    assert "A known mistake (scale-1-over-d)\nThis is what you get when the scale is 1/D" in failed
    hinted = clone.run("hint", "w1d1.1", "--lang", "ja").stdout
    assert hinted.startswith(
        "前回のテストでは、よくある間違いが見つかっています:\nスケールを 1/sqrt(D) ではなく 1/D に"
    )
    clone.file("attention.py").write_text(solved)
    clone.run("test", "--week", "1", "--day", "1", "-k", "task_1")
    assert "1/D" not in clone.run("hint", "w1d1.1").stdout


def test_a_damaged_note_is_no_obstacle(clone):
    (clone.root / ".tiny-llm").mkdir()
    (clone.root / ".tiny-llm/notes.json").write_text("[1, 2")
    assert clone.run("hint").returncode == 0
    (clone.root / ".tiny-llm/notes.json").write_text('{"hints": 3, "diagnosed": []}')
    assert clone.run("hint").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hint", "w9d1.1"], "there is no task 'w9d1.1'; a task id looks like w0d1.1. `./course progress` lists all"),
        (["hint", "1.2"], "there is no task '1.2'; did you mean w1d2.1? `./course progress` lists all"),
        (["solution", "attention"], "there is no task 'attention'"),
        (["solution", "--day", "1"], "--day: expected week and day such as 1.2, got '1'"),
        (["solution", "--day", "1.9"], "week 1 has no day '9'"),
        (["solution", "w1d1.1", "--day", "1.1"], "expected TASK or --day, got both"),
        (["reset", "w1d1.9"], "there is no task 'w1d1.9'"),
        (["next", "--lang", "fr"], "--lang: expected one of en, ja, got 'fr'"),
    ],
)
def test_what_does_not_exist(clone, arguments, message):
    result = clone.run(*arguments)
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: {message}")


def test_a_solution_is_shown_as_a_difference_and_changes_nothing(clone):
    before = clone.file("layer_norm.py").read_text()
    shown = clone.run("solution", "w1d4.1").stdout
    assert "-        raise NotImplementedError(" in shown
    assert "+        x32 = x.astype(mx.float32)" in shown
    assert clone.file("layer_norm.py").read_text() == before
    assert not (clone.root / "progress.txt").exists()


def test_a_solution_touches_its_tasks_functions_only(clone):
    own = "\n\ndef my_notes():\n    return 'kept'  # here\n"
    clone.file("attention.py").write_text(clone.file("attention.py").read_text() + own)
    clone.run("solution", "w1d1.2", "--apply")
    assert clone.file("attention.py").read_text() == clone.solved("attention.py", "w1d1.2") + own
    assert clone.file("basics.py").read_text() == clone.solved("basics.py", "w1d1.2")


def test_a_day_is_filled_in_and_skipped(clone):
    clone.file("layer_norm.py").write_text(clone.solved("layer_norm.py", "w1d4.1"))
    clone.run("test", "--week", "1", "--day", "4", "-k", "task_1")
    clone.run("solution", "--day", "1.1")
    done = clone.run("solution", "--day", "1.4")
    assert (
        "wrote src/tiny_llm/basics.py, src/tiny_llm/mlp.py (the solutions of week 1 day 4, marked as skipped: w1d4.2)"
        in (done.stdout)
    )
    assert clone.run("test", "--week", "1", "--day", "4").returncode == 0
    passed = clone.run("test", "W1D4.2").stdout
    assert "Still skipped, because the code is from `solution`: w1d4.2." in passed
    assert "./course reset w1d4.2" in passed
    shown = clone.run("progress").stdout
    assert "✔ w1d4.1" in shown
    assert "– w1d4.2" in shown, "passing tests do not make a skipped task a solved one"
    assert "nothing to fill in" in clone.run("solution", "--day", "1.4").stdout


def test_every_day_can_be_filled_in(clone):
    """The filled-in files equal the reference's, byte for byte."""
    clone.run_in_a_row([["solution", "--day", f"{day.week}.{day.number}"] for week in weeks() for day in week.days])
    for name in names(clone):
        assert clone.file(name).read_text() == (clone.root / "src/tiny_llm_ref" / name).read_text()
    assert f"The course is done: {len(tasks())} tasks." in clone.run("next").stdout
    clone.run_in_a_row([["reset", str(task.id)] for task in tasks()])
    for name in names(clone):
        assert clone.file(name).read_text() == clone.solved(name)


def test_a_task_in_cpp_is_filled_in_and_taken_back(clone):
    """Only the task's region of the file changes."""
    file, own = clone.file("kernels/softmax.cpp"), "\n// my notes\n"
    file.write_text(file.read_text() + own)
    assert "+" in clone.run("solution", "w2d2.3").stdout
    assert file.read_text() == clone.solved("kernels/softmax.cpp") + own
    done = clone.run("solution", "w2d2.3", "--apply").stdout
    assert "wrote src/tiny_llm/kernels/softmax.cpp (the solution of w2d2.3)" in done
    assert file.read_text() == clone.solved("kernels/softmax.cpp", "w2d2.3") + own
    file.write_text(file.read_text().replace("// my notes", "// newer notes"))
    assert clone.run("undo").returncode == 0
    assert file.read_text() == clone.solved("kernels/softmax.cpp") + own.replace("my", "newer")
    for arguments in (["--day", "2.1"], ["w2d2.1", "--apply"]):
        clone.run("solution", *arguments)
    line = line_of(clone, "kernels/softmax.cpp", "// Week 2 Day 2 Task 2: ")
    assert f"src/tiny_llm/kernels/softmax.cpp:{line}\n" in clone.run("next").stdout


def test_undo_goes_back_step_by_step(clone):
    states = [clone.file("attention.py").read_text()]
    for command in (["solution", "w1d1.1", "--apply"], ["solution", "w1d1.2", "--apply"], ["reset", "w1d1.1"]):
        clone.run(*command)
        states.append(clone.file("attention.py").read_text())
    assert len(set(states)) == 4
    for before in reversed(states[:-1]):
        assert clone.run("undo").stdout.startswith("took back: the ")
        assert clone.file("attention.py").read_text() == before
    assert not (clone.root / "progress.txt").exists()
    assert clone.run("undo").stdout == "There is nothing to undo.\n"


def test_undo_speaks_the_language_of_its_own_call(clone):
    clone.run("solution", "w1d1.1", "--apply", "--lang", "en")
    assert clone.run("undo", "--lang", "ja").stdout.startswith("取り消しました: w1d1.1 の解答（")


def test_a_read_only_file_is_left_alone(clone):
    solved = clone.solved("layer_norm.py", "w1d4.1")
    clone.file("layer_norm.py").write_text(solved)
    clone.file("layer_norm.py").chmod(0o444)
    result = clone.run("reset", "w1d4.1")
    assert result.returncode == 1
    assert "layer_norm.py is read-only, so nothing was changed" in result.stderr
    assert clone.file("layer_norm.py").read_text() == solved
    assert not (clone.root / ".tiny-llm/backups").exists()
    clone.file("layer_norm.py").chmod(0o644)


def test_reset_brings_back_a_function_that_was_renamed(clone):
    """The learner's code stays under its new name."""
    renamed = clone.solved("layer_norm.py", "w1d4.1").replace("def __call__(", "def call(")
    clone.file("layer_norm.py").write_text(renamed)
    assert clone.run("reset", "w1d4.1").returncode == 0
    text = clone.file("layer_norm.py").read_text()
    assert text.index("def call(self, x") < text.index("def _check_weight(")
    assert text.index("def __call__(self, x") < text.index("def _check_weight(")
    assert text.count("NotImplementedError") == 1
    assert clone.run("undo").returncode == 0
    assert clone.file("layer_norm.py").read_text() == renamed


@pytest.mark.parametrize("command", [["solution", "w1d4.1", "--apply"], ["reset", "w1d4.1"], ["solution", "w1d4.1"]])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("def broken(:\n", "layer_norm.py:1: invalid syntax"),
        (
            "class Norm:\n    def __call__(self, x): ...\n",
            "layer_norm.py: expected RMSNorm.__call__, got none; was it renamed?",
        ),
        ("x = '\xff'\n".encode("latin-1"), "layer_norm.py: expected UTF-8, got other bytes"),
    ],
    ids=["syntax error", "renamed", "encoding"],
)
def test_a_file_that_cannot_be_understood_is_left_alone(clone, command, content, message):
    content = content if isinstance(content, bytes) else content.encode()
    clone.file("layer_norm.py").write_bytes(content)
    result = clone.run(*command)
    assert result.returncode == 1
    assert message in result.stderr
    assert clone.file("layer_norm.py").read_bytes() == content
    assert not (clone.root / ".tiny-llm/backups").exists()


def test_without_solutions(tmp_path):
    """The clone is a copy that an instructor handed out."""
    clone = Clone.create(tmp_path / "course")
    subprocess.run(["rm", "-rf", clone.root / "src/tiny_llm_ref"], check=True)
    for command in (["solution"], ["solution", "--day", "1.1"]):
        result = clone.run(*command)
        assert result.returncode == 1
        assert "The solutions are not in this copy of the course: your instructor withheld them." in result.stderr
    assert clone.run("test", "--week", "1", "--day", "1", "-k", "task_1").returncode == 1
    assert clone.run("next").returncode == 0


@pytest.mark.parametrize("command", ["next", "progress", "hint"])
def test_commands_that_only_talk_import_little(clone, command):
    """Because they import little, they are quick: 0.3 seconds of processor time on a slow machine."""
    code = f"import sys; sys.argv[1:] = ['{command}']; from tiny_llm_course.__main__ import main\n"
    code += "try: main()\nfinally: print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=clone.root, env=clone.environment, capture_output=True)
    modules = run.stdout.decode().splitlines()[-1].split()
    assert "tiny_llm_course.learner.progress_commands" in modules
    slow = {"mlx", "mlx_lm", "numpy", "pytest", "rich", "starlette", "transformers", "watchfiles", "tiny_llm"}
    slow.add("tiny_llm_given")  # whose models of requests import pydantic; Typer may import it, too
    assert not slow & {module.partition(".")[0] for module in modules}
    few = ("base", "catalogue", "learner", "tasks", "ui")
    few = tuple(f"tiny_llm_course.{package}" for package in (*few, "commands", "__main__"))
    course = [module for module in modules if module.startswith("tiny_llm_course.")]
    assert [module for module in course if not module.startswith(few)] == [], "modules of other commands"


def test_undo_keeps_what_was_written_since(clone):
    """Other functions of the same file stay. If the same lines were changed, `undo` changes nothing."""
    file = clone.file("attention.py")
    clone.run("solution", "w1d3.1", "--apply")
    mine = file.read_text().replace("import math\n", "import math  # mine\n")
    assert mine != file.read_text()
    file.write_text(mine)
    assert clone.run("undo").returncode == 0
    assert file.read_text() == clone.solved("attention.py").replace("import math\n", "import math  # mine\n")

    before = file.read_text()
    clone.run("solution", "w1d3.1", "--apply")
    changed = file.read_text().replace("<= query_positions", "< query_positions")
    file.write_text(changed)
    result = clone.run("undo")
    assert result.returncode == 1
    assert "was changed again later, in the same lines, so nothing was taken back" in " ".join(result.stderr.split())
    assert file.read_text() == changed
    [copy] = [word for word in result.stderr.split() if "before/src/tiny_llm/attention.py" in word]
    assert (clone.root / copy.rstrip(".")).with_suffix(".py").read_text() == before


def test_a_file_that_is_missing(clone):
    clone.file("basics.py").unlink()
    assert "src/tiny_llm/basics.py is missing" in clone.run("next").stdout
    assert clone.run("reset", "w1d1.2").returncode == 0
    assert clone.file("basics.py").read_text() == clone.solved("basics.py")


def test_next_names_the_first_file_of_the_day(clone):
    clone.file("attention.py").write_text(clone.solved("attention.py", "w1d1.1"))
    clone.run("test", "w1d1.1")
    assert "src/tiny_llm/basics.py:" in clone.run("next").stdout


def test_a_task_by_its_id(clone):
    clone.file("layer_norm.py").write_text(clone.solved("layer_norm.py", "w1d4.1"))
    result = clone.run("test", "w1d4.1")
    assert result.returncode == 0
    assert "✔ w1d4.1" in result.stdout
    assert "w1d4.2" not in result.stdout.split("✔ w1d4.1")[0]
    assert clone.run("test", "w1d4.9").stderr.startswith("error: there is no task 'w1d4.9'")


def test_a_loop_without_end_is_ended_early(clone):
    """Three tests wait for the loop. pytest reports the other tests without an error, and counts these three."""
    source = clone.solved("layer_norm.py", "w1d4.1")
    clone.file("layer_norm.py").write_text(source.replace("        x32 = ", "        while True: pass\n        x32 = "))
    shown = clone.run("test", "w1d4.1", TINY_LLM_TIME_LIMIT="1").stdout
    message = r"the test was ended after (1 seconds|0.33 seconds of computing): does the loop in `__call__` end\?"
    assert re.search(message, shown)
    assert "✘ w1d4.1  RMSNorm: 3 of " in shown
    assert re.search(r"Tests not run because of this error: \d+\.", shown)
    raw = clone.run("test", "w1d4.1", "-v", TINY_LLM_TIME_LIMIT="1").stdout
    assert re.search(r"\d\d failed", raw)
    assert "INTERNALERROR" not in raw


def test_the_worst_failure_comes_first(clone):
    """The first test finds different numbers, and a later test finds that an argument was changed."""
    source = clone.solved("layer_norm.py", "w1d4.1")
    clone.file("layer_norm.py").write_text(source.replace("        x32 = ", "        x *= 2\n        x32 = "))
    shown = clone.run("test", "w1d4.1").stdout
    assert "argument 0 was changed" in shown
    assert shown.index("argument 0 was changed") < shown.index("more failed")
    assert "differ" not in shown


def test_tests_that_did_not_run_are_counted(clone):
    """The last test that ran ends Python."""
    source = clone.solved("layer_norm.py", "w1d4.1")
    crash = "        if x.dtype == mx.float16:\n            __import__('os').abort()\n        x32 = "
    clone.file("layer_norm.py").write_text(
        source.replace("        x32 = ", crash).replace("mean_square + self", "self")
    )
    shown = clone.run("test", "w1d4.1").stdout
    assert "the code under test ended Python with SIGABRT" in shown
    failed, count = map(int, re.search(r"RMSNorm: (\d+) of (\d+) failed", shown).groups())
    assert 1 < failed <= count < 29
    assert f"Tests not run because of this error: {29 - count}." in shown


@pytest.mark.parametrize("text", ["soon", "0", "-1", "inf"])
def test_a_time_limit_that_is_none(clone, text):
    run = clone.run("test", "w1d4.1", TINY_LLM_TIME_LIMIT=text)
    assert run.returncode == 2
    assert f"TINY_LLM_TIME_LIMIT: expected more than 0, got {text}" in run.stderr.replace("'", "")
