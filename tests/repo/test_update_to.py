"""`tiny-llm update --to VERSION`: a clone gets the commit that CHANGELOG.md names, and nothing newer."""

from __future__ import annotations

import pytest
from learner import Clone, commit, git

from tiny_llm_course.update.versions import CHANGELOG, read_versions

ENTRY = "## {} (2026-11-26)\n\nCommit `{}`.\n\n- A change.\n\n"
FIRST, SECOND, THIRD = "0.1.0", "0.2.0", "0.3.0"


def release(course: Clone, version: str, text: str) -> str:
    """Change a stub and a test, and name the commit in the changelog, in a second commit. Return the first commit."""
    (course.root / "tests/test_new.py").write_text(f"# {text}\n")
    file = course.file("attention.py")
    file.write_text(file.read_text().replace('"""', f'"""{text} ', 1))
    commit(course, text)
    named = git(course.root, "rev-parse", "HEAD").strip()
    changelog = course.root / CHANGELOG
    older = changelog.read_text() if changelog.exists() else ""
    changelog.write_text(ENTRY.format(version, named) + older)
    commit(course, f"Release {version}")
    return named


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Return a course with three versions, and one later commit. No test changes this course."""
    course = Clone.create(tmp_path_factory.mktemp("published") / "course")
    git(course.root, "init", "--quiet")
    commit(course, "before")
    git(course.root, "tag", "before")
    for version, text in ((FIRST, "One."), (SECOND, "Two."), (THIRD, "Three.")):
        release(course, version, text)
    (course.root / "tests/test_new.py").write_text("# unreleased\n")
    commit(course, "unreleased")
    return course


def cloned(published, folder, at="before", *options):
    """Return a learner's clone with some work, at a commit of the course."""
    git(folder, "clone", "--quiet", *options, f"file://{published.root}", "mine")
    clone = Clone(folder / "mine")
    git(clone.root, "reset", "--quiet", "--hard", at)
    clone.file("attention.py").write_text(clone.file("attention.py").read_text() + "\n\ndef my_idea():\n    return 1\n")
    return clone


def new_test(clone):
    return (clone.root / "tests/test_new.py").read_text()


def test_a_version_comes_in_and_nothing_newer(published, tmp_path):
    """A later version follows; no update goes back to an earlier one; without --to, the newest course comes."""
    clone = cloned(published, tmp_path)
    for version, text in ((FIRST, "One."), (SECOND, "Two.")):
        result = clone.run("update", "--to", version)
        assert result.returncode == 0, result.stderr
        assert new_test(clone) == f"# {text}\n"
        assert text in clone.file("attention.py").read_text()
        assert clone.file("attention.py").read_text().endswith("def my_idea():\n    return 1\n")
        named = read_versions((published.root / CHANGELOG).read_text())[version]
        assert git(clone.root, "rev-parse", "HEAD^2").strip() == named
    for version in (FIRST, SECOND):
        again = clone.run("update", "--to", version)
        assert (again.returncode, again.stderr) == (0, "")
        assert again.stdout == f"Your clone already has version {version}, and ./course update never goes back.\n"
    assert new_test(clone) == "# Two.\n"
    assert clone.run("undo").returncode == 0
    assert new_test(clone) == "# One.\n"
    assert clone.run("update").returncode == 0
    assert new_test(clone) == "# unreleased\n"


@pytest.mark.parametrize("version", ["0.9.9", "", "One."])
def test_a_version_that_is_unknown(published, tmp_path, version):
    """The message lists the existing versions, in both languages, and nothing changes."""
    clone = cloned(published, tmp_path)
    result = clone.run("update", "--to", version)
    assert result.returncode == 2
    known = f"--to: expected one of {THIRD}, {SECOND}, {FIRST}, got {version!r}"
    assert known in " ".join(result.stderr.split())
    assert f"{THIRD}, {SECOND}, {FIRST} のいずれか" in clone.run("update", "--to", version, "--lang", "ja").stderr
    assert git(clone.root, "log", "-1", "--format=%s") == "before\n"


def test_a_course_without_versions(published, tmp_path):
    """The course is a copy that an instructor made with `export`."""
    clone = cloned(published, tmp_path)
    for lang, words in (("en", "lists no versions in CHANGELOG.md"), ("ja", "バージョンの一覧がありません")):
        result = clone.run("update", str(published.root), "--branch", "before", "--to", FIRST, "--lang", lang)
        assert result.returncode == 2
        assert words in result.stderr


def test_a_clone_never_goes_back(published, tmp_path):
    """The clone's own list has the version, which its shallow history lacks. Without this list, nothing changes
    either."""
    clone = cloned(published, tmp_path, "HEAD", "--depth", "1")
    result = clone.run("update", "--to", SECOND)
    assert (result.returncode, result.stdout.partition(",")[0]) == (0, f"Your clone already has version {SECOND}")
    (clone.root / CHANGELOG).unlink()
    commit(clone, "without a list")
    result = clone.run("update", "--to", SECOND)
    assert result.returncode == 1
    named = read_versions((published.root / CHANGELOG).read_text())[SECOND][:10]
    assert f"version {SECOND} is commit {named}, which is not in the part of origin's history" in " ".join(
        result.stderr.split()
    )
    assert new_test(clone) == "# unreleased\n"
    git(clone.root, "fetch", "--quiet", "--unshallow")
    assert "already has version" in clone.run("update", "--to", SECOND).stdout


def test_a_copy_with_a_history_of_its_own(published, tmp_path):
    """Nothing in git shows from which version the copy began. Then the version's list is the clone's."""
    clone = cloned(published, tmp_path)
    git(clone.root, "checkout", "--quiet", "--orphan", "mine")
    commit(clone, "mine")
    assert clone.run("update", "--to", SECOND).returncode == 0
    assert new_test(clone) == "# Two.\n"
    assert clone.file("attention.py").read_text().endswith("def my_idea():\n    return 1\n")
    assert "already has version" in clone.run("update", "--to", FIRST).stdout
