"""A course with a newer version, and a learner's clone of it with work in it, both in real git repositories."""

from functools import cache

import pytest
from learner import Clone, commit, git

__all__ = ["WORK", "clone", "course", "edit", "newer", "publish", "state", "work"]


@cache
def _first(root):
    """Make a repository with the current course, once for all test files."""
    git(Clone.create(root).root, "init", "--quiet")
    commit(Clone(root), "first")
    return root


@pytest.fixture
def course(tmp_path_factory, tmp_path):
    """Return the repository that publishes the course."""
    git(tmp_path, "clone", "--quiet", str(_first(tmp_path_factory.getbasetemp() / "first")), "published")
    return Clone(tmp_path / "published")


@pytest.fixture
def clone(course, tmp_path):
    """Return a learner's clone of the course, with partly committed work."""
    git(tmp_path, "clone", "--quiet", str(course.root), "my course")
    clone = Clone(tmp_path / "my course")
    clone.file("attention.py").write_text(clone.solved("attention.py", "w1d1.1") + "\n\ndef my_idea():\n    return 1\n")
    git(clone.root, "commit", "--quiet", "--all", "-m", "task 1")
    source = clone.solved("layer_norm.py", "w1d4.1").replace("mean_square", "my_mean")
    clone.file("layer_norm.py").write_text(source)
    return clone


def publish(course, **sources):
    """Change files of the learner's package, as a new version of the stubs would."""
    for name, change in sources.items():
        edit(course.file(f"{name}.py"), change)
    commit(course, "newer")


def edit(file, change):
    source = change(file.read_text())
    assert source != file.read_text()
    file.write_text(source)


def newer(text):
    return text.replace('"""Attention', '"""Newer. Attention')


def state(clone):
    """Return everything that a command could change, except for its own notes."""
    files = [file for file in clone.root.rglob("*") if file.is_file() and not {".tiny-llm", ".git"} & {*file.parts}]
    files = [file for file in files if "__pycache__" not in file.parts]
    return {file: file.read_bytes() for file in files} | {"HEAD": git(clone.root, "rev-parse", "HEAD")}


WORK = """

def my_helper(x):
    return os.path.basename(x)


LIMIT = 3

if sys.flags.dev_mode:
    print(LIMIT, my_helper(__file__))
"""


def work(text):
    """Return the text with other things that a learner may write in a file, besides solving a task."""
    text = text.replace("import math\n", "import math\nimport os\nimport sys\n")
    text = text.replace("__all__ = [", '__all__ = [\n    "my_helper",', 1)
    text = text.replace("\n\ndef _check_groups(", "\n\n# between\n\n\ndef _check_groups(")
    text = text.replace('raise ValueError(f"num_heads must', 'raise ValueError(f"mine: num_heads must')
    return f"# my notes\n{text}{WORK}"
