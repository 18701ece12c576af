"""Write src/tiny_llm, the learner's package, from src/tiny_llm_ref. Edited files are never overwritten."""

import argparse
import os
import sys
from pathlib import Path

from tiny_llm_course.learner.stub_files import check_stubs, write_stubs
from tiny_llm_course.tasks.task_code import StubError

ROOT = Path(os.path.relpath(Path(__file__).resolve().parents[1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is outdated")
    check = parser.parse_args().check
    run = check_stubs if check else write_stubs
    try:
        lines = run(ROOT / "src/tiny_llm_ref", ROOT / "src/tiny_llm", ROOT / "scripts/stubs.manifest.json")
    except StubError as error:
        print(f"stubs: {error}", file=sys.stderr)
        return 1
    print(*lines, f"{'problems' if check else 'files changed'}: {len(lines)}", sep="\n")
    return int(check and bool(lines))


if __name__ == "__main__":
    sys.exit(main())
