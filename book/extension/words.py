"""The fixed words of the directives, in the languages of the book."""

from __future__ import annotations

__all__ = ["word"]

WORDS = {
    "task": {"en": "Task {number}: {title}", "ja": "課題 {number}：{title}"},
    "file": {"en": "File", "ja": "ファイル"},
    "test": {"en": "Test", "ja": "テスト"},
    "hint": {"en": "Hint {number}", "ja": "ヒント {number}"},
    "solution": {"en": "Solution", "ja": "解答"},
    "copied": {
        "en": "puts the reference of this day in place. It overwrites what you wrote in these files, so commit first.",
        "ja": "これで、この日の解答が入ります。書いたものは上書きされるので、先にコミットしておいてください。",
    },
    "copied_too": {
        "en": "They also hold tasks of {days}, which are then solved as well.",
        "ja": "同じファイルに入っている{days}の課題も、同時に解答になります。",
    },
    "and": {"en": " and ", "ja": "と"},
    "space": {"en": " ", "ja": ""},
    "day": {"en": "day {week}.{day}", "ja": "第 {week} 週 {day} 日目"},
    "written": {
        "en": "`pdm run solution --day {day}` writes only those functions of this day that are still open, "
        "and `pdm run undo` takes that back. A copy that an instructor handed out may hold no solutions.",
        "ja": "`pdm run solution --day {day}` は、この日の関数のうち、まだスタブのものだけを書き込みます。こちらは "
        "`pdm run undo` で取り消せます。講師から配られた教材には、解答が入っていないことがあります。",
    },
}


def word(key: str, language: str, **values: object) -> str:
    return WORDS[key][language].format(**values)
