"""The fixed words of the directives, in the languages of the book."""

from __future__ import annotations

__all__ = ["word"]

WORDS = {
    "task": {"en": "Task {number}: {title}", "ja": "課題 {number}：{title}"},
    "file": {"en": "File", "ja": "ファイル"},
    "test": {"en": "Test", "ja": "テスト"},
    "hint": {"en": "Hint {number}", "ja": "ヒント {number}"},
    "solution": {"en": "Solution", "ja": "解答"},
}


def word(key: str, language: str, **values: object) -> str:
    return WORDS[key][language].format(**values)
