"""Each bundled model's cards name the script, seed and commit of the weights, as recorded in training."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from learner import git

from tiny_llm_models import BUNDLED, bundled
from tiny_llm_models.training.origin import FILE, UNKNOWN, commit_of, note_origin, origin_row, read_origin, script_of

CARDS = ("README.md", "README.ja.md")


device = pytest.fixture(lambda: None)  # nothing here computes on one


@pytest.mark.parametrize("name", BUNDLED)
def test_the_cards_name_script_seed_and_commit(name: str) -> None:
    folder = bundled(name)
    origin = read_origin(folder)
    assert origin["script"].startswith("python -m tiny_llm_models.training ")
    assert isinstance(origin["seed"], int)
    assert origin["commits"]
    if UNKNOWN in origin["commits"]:
        assert origin["before"], "then the commit that added the weights bounds it"
    for language, card in enumerate(CARDS):
        row = origin_row(origin, language)
        assert row in (folder / card).read_text(encoding="utf-8").splitlines(), f"{row}\nis not in {card}"
        assert f"`{origin['script']}`" in row
        assert str(origin["seed"]) in row
        assert all(f"`{each}`" in row for each in ([origin["before"]] if "before" in origin else origin["commits"]))


def test_a_training_notes_its_origin(tmp_path: Path) -> None:
    script = script_of(["train", "story", "--work", "my models"])
    note_origin(tmp_path / "story", script, 7, "0123456789ab")
    origin = read_origin(tmp_path / "story")
    expected = "python -m tiny_llm_models.training train story --work 'my models'"
    assert origin == {"script": expected, "seed": 7, "commits": ["0123456789ab"]}
    assert origin_row(origin, 0) == f"| origin | `{expected}`; seed 7; commit `0123456789ab` |"
    assert origin_row(origin, 1) == f"| 由来 | `{expected}`、シード 7、コミット `0123456789ab` |"


def test_a_training_that_goes_on_adds_its_commit(tmp_path: Path) -> None:
    for commit in ("a1", "a1", "b2"):
        note_origin(tmp_path, f"python x.py {commit}", 0, commit)
    assert read_origin(tmp_path) == {"script": "python x.py a1", "seed": 0, "commits": ["a1", "b2"]}
    assert "commit `a1`, `b2` |" in origin_row(read_origin(tmp_path), 0)


def test_the_commit_of_a_clone(tmp_path: Path) -> None:
    assert commit_of(tmp_path) == UNKNOWN
    code = tmp_path / "clone" / "code.py"
    code.parent.mkdir()
    code.write_text("1\n")
    git(code.parent, "init", "-q")
    git(code.parent, "add", ".")
    git(code.parent, "commit", "-qm", "1")
    head = git(code.parent, "rev-parse", "HEAD").strip()
    assert commit_of(code.parent) == head[:12]
    (code.parent / FILE).with_suffix(".txt").write_text("weights\n")
    assert commit_of(code.parent) == head[:12]
    code.write_text("2\n")
    assert commit_of(code.parent) == f"{head[:12]} with changes"


def test_without_git_the_commit_is_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of(Path(__file__).parent) == UNKNOWN
    with pytest.raises(FileNotFoundError):
        subprocess.run(["git"], check=False)
