"""Every version in CHANGELOG.md names its commit, and subjects of commits fit into one line."""

from __future__ import annotations

import re
import sys

import pytest
from learner import ROOT, git

from tiny_llm_course.tasks.syllabus import tasks
from tiny_llm_course.tasks.toml import read_toml
from tiny_llm_course.update.versions import CHANGELOG, read_versions

sys.path.append(str(ROOT / "scripts"))

import history

ENTRY = "## {} (2026-11-26)\n\nCommit `{}`.\n\n- A change.\n\n"
TEXT = (ROOT / CHANGELOG).read_text(encoding="utf-8")
HEADINGS = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)


device = pytest.fixture(lambda: None)  # nothing here computes on one


def test_the_list_is_in_order_and_whole() -> None:
    """Each heading but the first "Unreleased" is a version with its commit, the newest first; each has entries."""
    versions = list(read_versions(TEXT))
    released = HEADINGS[HEADINGS[0] == "Unreleased" :]
    assert [heading.partition(" (")[0] for heading in released] == versions
    assert versions == sorted(versions, key=_numbers, reverse=True)
    dates = [heading.partition(" (")[2] for heading in released]
    assert dates == sorted(dates, reverse=True)
    assert len({*read_versions(TEXT).values()}) == len(versions)
    sections = re.split(r"^## .+$", TEXT, flags=re.MULTILINE)[1:]
    assert all("\n- " in section for section in sections)


def test_the_projects_version_is_the_newest() -> None:
    """Until the changelog names the commit that raised the version, this version is unreleased."""
    version = read_toml(ROOT / "pyproject.toml")["project"]["version"]
    newest = next(iter(read_versions(TEXT)))
    assert version == newest or (HEADINGS[0] == "Unreleased" and _numbers(version) > _numbers(newest))


def test_every_changed_contract_is_listed() -> None:
    changed = [str(task.id) for task in tasks() if task.contract > 1]
    assert changed
    assert [task for task in changed if task not in TEXT] == []


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def test_the_history_of_this_repository() -> None:
    """The test runs where the history is. .ci/run makes the same check before it makes its copy without history."""
    assert not history.has_history(ROOT) or history.problems(ROOT) == []


@pytest.fixture
def repository(tmp_path):
    """Return a history of two commits, the first of which a changelog names."""
    git(tmp_path, "init", "--quiet")
    first = commit(tmp_path, "First")
    (tmp_path / CHANGELOG).write_text(f"# Changelog\n\n{ENTRY.format('0.1.0', first)}")
    commit(tmp_path, "Second")
    return tmp_path


def commit(root, subject: str) -> str:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--allow-empty", "-m", subject)
    return git(root, "rev-parse", "HEAD").strip()


def test_a_subject_that_is_too_long_is_named(repository) -> None:
    commit(repository, "72 characters are all right: " + "x" * 43)
    assert history.problems(repository) == []
    subject = "日本語でも 1 文字は 1 文字: " + "x" * 60
    named = commit(repository, subject)
    (problem,) = history.problems(repository)
    assert problem.startswith(git(repository, "log", "-1", "--format=%h", named).strip() + ": the subject has ")
    assert problem.endswith(subject)
    _release(repository, "0.2.0", named)
    assert history.problems(repository) == [], "what is released is not looked at again"


def test_subjects_of_merges_may_be_long(repository) -> None:
    git(repository, "checkout", "--quiet", "-b", "side", "HEAD~")
    commit(repository, "A commit on the side")
    git(repository, "checkout", "--quiet", "-")
    git(repository, "merge", "--quiet", "--no-ff", "-m", "Merge " + "x" * 80, "side")
    assert history.problems(repository) == []


def test_a_version_whose_commit_is_not_in_the_history_is_named(repository) -> None:
    git(repository, "checkout", "--quiet", "-b", "side")
    elsewhere = commit(repository, "Elsewhere")
    git(repository, "checkout", "--quiet", "-")
    for number, lost in enumerate([elsewhere, "0" * 40], 2):
        _release(repository, f"0.{number}.0", lost)
    assert history.problems(repository) == [
        f"{CHANGELOG}: 0.3.0 names {'0' * 40}, which is not in the history of HEAD",
        f"{CHANGELOG}: 0.2.0 names {elsewhere}, which is not in the history of HEAD",
    ]


def _release(root, version: str, commit: str) -> None:
    file = root / CHANGELOG
    head, rest = file.read_text().split("\n\n", 1)
    file.write_text(f"{head}\n\n{ENTRY.format(version, commit)}{rest}")


def test_a_copy_without_its_whole_history(repository, tmp_path_factory) -> None:
    """A shallow clone, a folder without commits, and a folder in another repository have nothing to check."""
    assert history.has_history(repository)
    folder = tmp_path_factory.mktemp("copies")
    git(folder, "clone", "--quiet", "--depth", "1", f"file://{repository}", "shallow")
    git(folder, "init", "--quiet", "empty")
    (repository / "inside").mkdir()
    for copy in (folder / "shallow", folder / "empty", repository / "inside"):
        assert not history.has_history(copy)
