"""Call every function and method that a graph file may name, with functions among the arguments.

    python packages/capture/tests/sweeps/reachable_functions.py [--dry]

Each must return data only, call no argument and leave files and processes alone. ``--dry`` calls a fortieth.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "interchange" / "tests"))

from reachable import NAMES, found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dry", action="store_true")
    names = NAMES[::40] if parser.parse_args().dry else NAMES
    problems = {name: wrong for name in names if (wrong := found(name))}
    for name, wrong in problems.items():
        print(f"{name}: {wrong}")
    print(f"{len(names)} functions and methods, {len(problems)} problems")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
