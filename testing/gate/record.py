"""Write ``slow.txt``: the test functions of which a case costs half a second or more, and such shared fixtures.

python testing/gate/record.py FILE...     # files that ``--costs`` wrote, of whole suites
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from gate.limits import read
from gate.selection import LIST, function_of

SECONDS = 0.5


def main(files: list[str]) -> None:
    slow = {function_of(case) for file in files for case, cost in read(Path(file)) if max(cost) >= SECONDS}
    LIST.write_text("".join(f"{name}\n" for name in sorted(slow)))
    print(f"{len(slow)} test functions")


if __name__ == "__main__":
    main(sys.argv[1:])
