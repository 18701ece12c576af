"""A learner's first half hour in a pseudo-terminal, in both languages: each command, and the text on the screen."""

import pytest
from learner import Clone

MISTAKE = ("math.sqrt(query.shape[-1])", "query.shape[-1]")
SCREENS = {
    "en": {
        "next": ["(w1d1.1)", "src/tiny_llm/attention.py:", "./course test w1d1.1", "warm-up:"],
        "hint": ["hint 1 of 3", "More: ./course hint w1d1.1 --more"],
        "test": ["A known mistake (scale-1-over-d)", "This is what you get when the scale is 1/D"],
        "solution": ["-        scale = 1 / query.shape[-1]", "--apply"],
        "apply": ["wrote src/tiny_llm/attention.py", "./course undo"],
        "undo": ["took back", "src/tiny_llm/attention.py"],
        "list": ["○ w1d1.1", "w1d7.4", "0 solved"],
    },
    "ja": {
        "next": ["（w1d1.1）", "src/tiny_llm/attention.py:", "./course test w1d1.1", "準備運動:"],
        "hint": ["ヒント 1/3", "./course hint w1d1.1 --more"],
        "test": ["よくある間違い", "スケールを 1/sqrt(D) ではなく 1/D に"],
        "solution": ["-        scale = 1 / query.shape[-1]", "--apply"],
        "apply": ["src/tiny_llm/attention.py", "./course undo"],
        "undo": ["取り消しました", "src/tiny_llm/attention.py"],
        "list": ["○ w1d1.1", "w1d7.4", "完了 0"],
    },
}
COMMANDS = {
    "next": ["next"],
    "hint": ["hint", "w1d1.1"],
    "test": ["test", "--week", "1", "--day", "1", "-k", "task_1"],
    "solution": ["solution", "w1d1.1"],
    "apply": ["solution", "w1d1.1", "--apply"],
    "undo": ["undo"],
    "list": ["progress"],
}


@pytest.mark.parametrize("language", SCREENS)
def test_first_half_hour(tmp_path, language):
    clone = Clone.create(tmp_path)
    attention = clone.file("attention.py")
    solved = clone.solved("attention.py", "w1d1.1")
    mutant = solved.replace(*MISTAKE)
    for step, command in COMMANDS.items():
        if step == "test":
            attention.write_text(mutant)
        terminal = clone.terminal(*command, LANG={"en": "en_US.UTF-8", "ja": "ja_JP.UTF-8"}[language])
        code = terminal.exit_code()
        for text in SCREENS[language][step]:
            assert text in terminal.screen, f"{step}: expected {text!r} on the screen, which shows:\n{terminal.screen}"
        assert code == (1 if step == "test" else 0)
        if step in ("test", "solution"):
            assert "\x1b[3" in terminal.raw, f"{step} has no colours"
        assert (attention.read_text() == solved) == (step == "apply")
    assert attention.read_text() == mutant
