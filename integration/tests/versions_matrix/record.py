"""Writes ``slow.txt`` from what ``pytest --durations=0 --durations-min=0.8`` printed.

python integration/tests/versions_matrix/record.py LOG...
"""

import re
import sys
from pathlib import Path

LINE = re.compile(r"^\d+\.\d+s (?:call|setup|teardown) +(\S+)")


def slow_of(text):
    """Test functions, as ``package/file::function``."""
    for line in text.splitlines():
        found = LINE.match(line)
        if found:
            package, _, rest = found[1].partition("[")[0].partition("/tests/")
            yield f"{package.rpartition('/')[2]}/{rest}"


def main(logs):
    names = sorted({name for log in logs for name in slow_of(Path(log).read_text())})
    Path(__file__).with_name("slow.txt").write_text("\n".join(names) + "\n")
    print(f"{len(names)} test functions")


if __name__ == "__main__":
    main(sys.argv[1:])
