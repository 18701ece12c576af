"""The picture of how a GPU runs a kernel: what its threads do in each step, as `viz kernel` draws it."""

import re
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

from tiny_llm_course.ui.language import LANGUAGES, Messages
from tiny_llm_course.viz.kernel_call import call_in
from tiny_llm_course.viz.kernel_drawing import draw_kernel

SUM = Path(__file__).parents[1] / "week_2" / "gpu_sum.py"


def gpu_sum() -> dict[str, str]:
    """Return SVGs of the script's first kernel, keyed by language, with 8 threads instead of 64."""
    small = re.sub(r"\b(64|32)\b", lambda match: str(int(match[1]) // 8), SUM.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(None):
        script = Path(folder) / SUM.name
        script.write_text(small, encoding="utf-8")
        call, _ = call_in(script, 1, (0, 0, 0))
    return {language: draw_kernel(call, Messages(language)) for language in LANGUAGES}


PICTURES = (gpu_sum,)
