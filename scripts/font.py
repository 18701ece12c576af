"""Makes the font for the pictures of `tiny-llm viz`, which can then show Japanese labels on every machine.

python scripts/font.py NotoSansCJK-Regular.ttc

The font is Noto Sans CJK JP, reduced to the characters that pictures may show. The font's licence is in the same
folder as the font. Run this script again when the course's texts contain a new kanji outside JIS level 1. The script
needs fontTools, which is installed with matplotlib.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fontTools.subset import Options, Subsetter, save_font
from fontTools.ttLib import TTFont

ROOT = Path(__file__).resolve().parent.parent
FONT = ROOT / "src/tiny_llm_course/viz/fonts/NotoSansCJKjp-subset.otf"
LATIN = range(0x20, 0x250)
GREEK = range(0x370, 0x400)
GENERAL = [*range(0x2000, 0x2070), *range(0x2100, 0x2700)]  # punctuation, symbols, arrows, mathematics
JAPANESE = [*range(0x3000, 0x3100), *range(0xFF00, 0xFFF0)]  # punctuation, kana, full- and half-width forms
TEXTS = ("src/tiny_llm_models/storyteller/japanese/*.toml", "src/tiny_llm_course/**/*.toml")


def main(source: Path) -> None:
    options = Options()
    options.hinting = False
    options.recalc_timestamp = False
    options.layout_features = []  # no vertical or alternate forms of characters
    options.drop_tables += ["BASE", "VORG", "vhea", "vmtx"]
    options.name_IDs = [0, 1, 2, 3, 4, 5, 6, 7, 13, 14]
    font = TTFont(source, fontNumber=0, recalcTimestamp=False)  # the first face of the collection is the Japanese one
    assert font["name"].getDebugName(1) == "Noto Sans CJK JP", font["name"].getDebugName(1)
    subsetter = Subsetter(options)
    subsetter.populate(unicodes=characters())
    subsetter.subset(font)
    save_font(font, FONT, options)
    print(f"wrote {FONT.relative_to(ROOT)}: {len(font.getBestCmap())} characters, {FONT.stat().st_size / 1e6:.2f} MB")


def characters() -> set[int]:
    """Return the code points of all characters that pictures may show."""
    texts = (file.read_text(encoding="utf-8") for pattern in TEXTS for file in sorted(ROOT.glob(pattern)))
    return {*LATIN, *GREEK, *GENERAL, *JAPANESE, *jis_level_1(), *(ord(letter) for text in texts for letter in text)}


def jis_level_1() -> set[int]:
    """Return the code points of the 2,965 most common kanji: rows 16 to 47 of JIS X 0208."""
    codes = (bytes([0xA0 + row, 0xA0 + cell]) for row in range(16, 48) for cell in range(1, 95))
    return {ord(letter) for code in codes for letter in code.decode("euc_jp", errors="ignore")}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
