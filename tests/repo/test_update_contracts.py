"""`tiny-llm update` when tasks change: their stubs come back, and nothing that the learner wrote is lost."""

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from learner import Clone, commit, git

from tiny_llm_course.learner.git import Git
from tiny_llm_course.learner.workspace import Workspace
from tiny_llm_course.tasks.regions import any_regions, code_files, is_native
from tiny_llm_course.tasks.splice import code_of, parts_of_source, splice
from tiny_llm_course.tasks.syllabus import TaskId
from tiny_llm_course.update.contracts import changed_contracts, new_tasks
from tiny_llm_course.update.retired import code_of_task, retire
from tiny_llm_course.update.update_check import IMPORTS
from tiny_llm_course.update.update_plan import plan_update
from tiny_llm_course.update.written import tasks_by_name, written

ROOT = Path(__file__).resolve().parents[2]
BEFORE = "6efebad"  # the last course in which planning changed the cache of week 3's engine
MOVED = {("kernels/attention.cpp", TaskId(2, 7, 2)): "kernels/attend_block.h"}  # regions since then


device = pytest.fixture(lambda: None)  # nothing here computes on one


# ------------------------------------------------------------------------------------------------- two syllabuses

SYLLABUS = """
[[weeks]]
number = 3
[[weeks.days]]
number = 1
tasks = [{{ number = 1 }}, {{ number = 2, contract = {number}, kept = ["A.f"] }}{more}]
"""
FIRST, SECOND, THIRD = (TaskId(3, 1, number) for number in (1, 2, 3))


def test_a_contract_changes_if_its_number_grows():
    old, new = SYLLABUS.format(number=2, more=""), SYLLABUS.format(number=3, more=", { number = 3, contract = 2 }")
    assert changed_contracts(old, new) == {SECOND: ("A.f",)}
    assert changed_contracts(new, old) == changed_contracts(new, new) == {}
    assert new_tasks(old, new) == [THIRD]


# ------------------------------------------------------------------------------------------------------- one file

STUB = '''\
import os


class A:
    def f(self):
        """Kept.

        Task: w3d1.2
        """
        raise NotImplementedError("Week 3 Day 1 Task 2: A.f is yours to write. ")

    def g(self, x):
        """Changed.

        Task: w3d1.2
        """
        raise NotImplementedError("Week 3 Day 1 Task 2: A.g is yours to write. ")


def h():
    """Another task.

    Task: w3d1.1
    """
    raise NotImplementedError("Week 3 Day 1 Task 1: h is yours to write. ")
'''
ERROR = 'raise NotImplementedError("Week 3 Day 1 Task {}: {} is yours to write. ")'
MINE = (
    STUB.replace(ERROR.format(2, "A.f"), "return 1")
    .replace(ERROR.format(2, "A.g"), "return twice(x) + os.cpu_count()")
    .replace(ERROR.format(1, "h"), "return 3")
    .replace("class A:", "# mine\ndef twice(x):\n    return 2 * x\n\n\nclass A:")
)


def test_code_for_an_old_contract_gives_way_to_the_stub():
    found = retire(MINE, STUB, "a.py", {SECOND: ["A.f"]})
    assert code_of(found.text, "A.g") == code_of(STUB, "A.g")
    for name in ("A.f", "h", "twice"):
        assert code_of(found.text, name) == code_of(MINE, name)
    assert found.helpers == {"twice"}
    code = found.code[SECOND]
    assert code.startswith("import os\n")
    assert "# mine\ndef twice(x):" in code
    assert code.endswith("class A:\n" + code_of(MINE, "A.g"))
    assert "def f(" not in code


@pytest.mark.parametrize("changed", [{}, {THIRD: []}, {SECOND: ["A.f", "A.g"]}], ids=str)
def test_code_for_other_contracts_stays(changed):
    assert retire(MINE, STUB, "a.py", changed).text == MINE


def test_a_region_for_an_old_contract():
    stub = "int a;\n// task w3d1.2 begin\n// Week 3 Day 1 Task 2: yours to write.\n// task w3d1.2 end\n"
    mine = stub.replace("// Week 3 Day 1 Task 2: yours to write.\n", "int b;\n").replace("int a;", "int c;")
    found = retire(mine, stub, "a.cpp", {SECOND: []})
    assert found.text == stub.replace("int a;", "int c;")
    assert found.code == {SECOND: "int b;\n"}


def test_what_a_file_asks_for():
    assert code_of_task(STUB, FIRST, "a.py") == code_of(STUB, "h")
    assert code_of_task(STUB, SECOND, "a.py", ["A.f"]) == "class A:\n" + code_of(STUB, "A.g")
    assert code_of_task(STUB, THIRD, "a.py") == code_of_task("int a;\n", FIRST, "a.cpp") == ""


# --------------------------------------------------------------------------------------------------- the command


@pytest.fixture
def course(tmp_path):
    """Return the repository that publishes the course."""
    course = Clone.create(tmp_path / "published")
    git(course.root, "init", "--quiet")
    commit(course, "first")
    return course


def test_the_command(course, tmp_path):
    """w1d4.2 asks for something else, and w1d7.4 for a little more. w1d4.1 and the learner's other code stay."""
    git(tmp_path, "clone", "--quiet", str(course.root), "clone")
    clone = Clone(tmp_path / "clone")
    mlp = clone.solved("mlp.py", "w1d4.2").replace("class SwiGLU", "LIMIT = 3  # mine\n\n\nclass SwiGLU")
    clone.file("mlp.py").write_text(mlp)
    clone.file("layer_norm.py").write_text(clone.solved("layer_norm.py", "w1d4.1"))
    progress = clone.root / "progress.txt"
    progress.write_text("w1d4.1 solved\nw1d4.2 solved\nw1d5.1 solved\nw1d7.4 skipped\n")
    clone.file("sampler.py").write_text(clone.solved("sampler.py", "w1d7.4"))
    syllabus = course.root / "src/tiny_llm_course/syllabus.toml"
    title = 'title = { en = "SiLU and SwiGLU"'
    assert title in syllabus.read_text()
    text = syllabus.read_text().replace(title, f"contract = 2\n{title}")
    title = 'title = { en = "The whole sampler"'
    assert title in text
    syllabus.write_text(text.replace(title, f'contract = 2\nkept = ["make_sampler"]\n{title}'))
    commit(course, "newer")
    result = clone.run("update")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "with the tests of 1 solved tasks" in result.stderr
    shown = result.stdout
    assert "w1d4.2 asks for something else now, so the task is open again." in shown
    kept = clone.root / ".tiny-llm/old/w1d4.2.py"
    assert "Your code for it is in .tiny-llm/old/w1d4.2.py." in " ".join(shown.split())
    body = "return self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))"
    assert body in kept.read_text()
    assert shown.index("your code in src/tiny_llm/mlp.py:") < shown.index(body)
    assert shown.index(body) < shown.index("the task's new stub, in src/tiny_llm/mlp.py:")
    assert "w1d7.4 asks for a little more now, so the task is open again. Your code for it was kept;" in " ".join(
        shown.split()
    )
    assert clone.file("sampler.py").read_text() == clone.solved("sampler.py", "w1d7.4")
    after = clone.file("mlp.py").read_text()
    assert "LIMIT = 3  # mine" in after
    assert not written(after, tasks_by_name(after, "mlp.py"), "mlp.py")
    assert progress.read_text().splitlines()[2:] == ["w1d4.1 solved", "w1d5.1 solved"]
    assert ".tiny-llm" not in git(clone.root, "show", "--name-only", "--format=", "-m", "HEAD")
    assert clone.run("update").stdout == "The course is up to date.\n"
    assert clone.run("undo").returncode == 0
    assert clone.file("mlp.py").read_text() == mlp
    assert "w1d4.2 solved" in progress.read_text()
    assert not kept.exists()


# ------------------------------------------------------------------------------- from week 3 as it was until BEFORE


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """Return a repository in which BEFORE is checked out. Its branch `newer` has the newer course from this folder.

    BEFORE comes from a file, because a clone without history lacks the commit."""
    root = tmp_path_factory.mktemp("history")
    with tarfile.open(ROOT / f"tests/repo/course_{BEFORE}.tar.xz") as before:
        before.extractall(root, filter="data")
    git(root, "init", "--quiet")
    commit(Clone(root), "before")
    git(root, "checkout", "--quiet", "-b", "newer")
    for package in ("tiny_llm", "tiny_llm_ref", "tiny_llm_course", "tiny_llm_given", "tiny_llm_native"):
        shutil.rmtree(root / "src" / package, ignore_errors=True)
        ignored = shutil.ignore_patterns("__pycache__", "built")
        shutil.copytree(ROOT / "src" / package, root / "src" / package, ignore=ignored)
    commit(Clone(root), "newer")
    git(root, "checkout", "--quiet", "main")
    return root


def solve(root, until):
    """Write the solutions of all tasks up to this one into the learner's files."""
    reference, package = root / "src/tiny_llm_ref", root / "src/tiny_llm"
    for file in code_files(reference):
        source, name = file.read_text(), file.relative_to(reference).as_posix()
        names = [each for each, tasks in tasks_by_name(source, name).items() if min(tasks) <= until]
        if names:
            target = package / name
            target.write_text(splice(target.read_text(), source, [*names, *_helpers(source, name)], name))


def _helpers(source, name):
    return [] if is_native(name) else [each for each in parts_of_source(source) if each.startswith("_")]


OWN = """

def my_idea(x):
    return os.path.basename(x)


if sys.flags.dev_mode:
    print(my_idea(__file__))
"""
RENAMED = ["def store(self, key: mx.array, value: mx.array, pages: mx.array, places: mx.array) -> None"]  # was: slots
EDITS = {  # outside of tasks: file, what is there, what the learner made of it
    "serving/scheduler.py": ("class Scheduler:", "# my notes\nclass Scheduler:"),
    "serving/chunked_scheduler.py": ('"""', '"""Mine. '),
    "serving/scores.py": ("\n\n\n", "\n\n\n# my notes\n", 1),
    "serving/paged_cache.py": ("import mlx.core as mx", "import os\nimport sys\n\nimport mlx.core as mx"),
    "kernels/softmax.cpp": ("#include", "// my notes\n#include"),
}


def edit(root):
    for name, (old, new, *_) in EDITS.items():
        file = root / "src/tiny_llm" / name
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new, 1) + (OWN if name == "serving/paged_cache.py" else ""))


@pytest.mark.parametrize("until", ["w2d4.2", "w3d7.4"])
def test_an_update_from_the_week_3_of_old(history, until):
    """Tasks that have not changed keep the learner's code. The code of all other tasks is saved, and their stubs are
    new. Text that the learner added outside of tasks is kept, or is named."""
    git(history, "checkout", "--quiet", "--force", "main")
    git(history, "clean", "--quiet", "-d", "--force", "src")
    solve(history, TaskId.parse(until))
    edit(history)
    workspace = Workspace(history)
    files = {file.relative_to(workspace.package).as_posix(): file.read_text() for file in code_files(workspace.package)}
    commits = [git(history, "rev-parse", name).strip() for name in ("HEAD", "newer")]
    plan = plan_update(workspace, Git(history), *commits)
    assert plan.refused == []
    after = files | {_name(workspace, path): _decoded(content) for path, content in plan.files.items()}
    after = {name: text for name, text in after.items() if text is not None}
    check_tasks(plan, files, after, is_week_3_solved=until.startswith("w3"))
    check_edits(plan, after, is_week_3_solved=until.startswith("w3"))
    check_imports(history, plan)


def _name(workspace, path):
    return path.relative_to(workspace.package).as_posix() if path.is_relative_to(workspace.package) else str(path)


def _decoded(content):
    return None if content is None else content.decode(errors="replace")


def check_tasks(plan, files, after, is_week_3_solved):
    old = {(task.task, task.file.name): task.code for task in plan.old}
    code_is_kept = {TaskId(3, 7, 4)}  # asks for a little more
    assert {task for task, _ in old} == (set(plan.changed) - code_is_kept if is_week_3_solved else set())
    for name, text in files.items():
        for function in written(text, tasks_by_name(text, name), name):
            tasks = tasks_by_name(text, name)[function]
            code = any_regions(text, name)[tasks[0]] if is_native(name) else code_of(text, function)
            changed = [task for task in tasks if task in plan.changed and function not in plan.changed[task]]
            if changed:
                assert all(code in old[task, Path(name).name] for task in changed)
                assert name not in after or function not in written(after[name], [function], name)
            elif is_native(name):
                place = MOVED.get((name, tasks[0]), name)
                assert any_regions(after[place], place)[tasks[0]] == code
            else:
                assert _body(code_of(after[name], function)) == _body(code), f"{name}: {function}"


def _body(code):
    """Return the code after the docstring, which may be newer."""
    return code.rpartition('"""')[2]


def check_edits(plan, after, *, is_week_3_solved):
    assert "# my notes\nclass Scheduler:" in after["serving/scheduler.py"]
    assert OWN in after["serving/paged_cache.py"]
    assert "// my notes\n#include" in after["kernels/softmax.cpp"]
    assert {path.name for path in plan.outdated} == {"chunked_scheduler.py", "scores.py"}
    assert not {"serving/chunked_scheduler.py", "serving/scores.py"} & after.keys()
    assert plan.replaced == plan.kept == []
    assert [theirs for _, _, theirs in plan.signatures] == (RENAMED if is_week_3_solved else [])


def check_imports(root, plan):
    """Check that the learner's modules can be imported, in the order in which modules are found."""
    for path, content in plan.files.items():
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    environment = {"PYTHONPATH": str(root / "src"), "PATH": "/usr/bin:/bin"}
    run = subprocess.run([sys.executable, "-c", IMPORTS], env=environment, capture_output=True, text=True)
    assert json.loads(run.stdout.splitlines()[-1]) == {}, run.stderr
