"""All of CPython's own tests that are worth it, captured, beside plain CPython: outcomes and graph breaks.

    python integration/tests/sweeps/cpython.py [--records FILE] [--share 0/10] [test_list ...]

Prints a line a module, what differs, and the commonest reasons of graph breaks. Exits with 1 if an outcome differs.
"""

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "cpython_suite"))

from modules import MODULES  # noqa: E402
from suite import examine, reasons  # noqa: E402


def show(report):
    print(f"{report.name:24s} " + " ".join(f"{k} {v}" for k, v in report.counts().items()), flush=True)
    for record in report.different:
        print(f"    {record['id']}: {record['expected']} -> {record['actual']}")
    for record in report.defects[:5]:
        print(f"    {record['id']}: {record['defects'][0]}")
    for method, ended in report.trouble:
        print(f"    {method}: {ended[-300:]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("modules", nargs="*", default=MODULES)
    parser.add_argument("--records", help="file for one JSON line a method")
    parser.add_argument("--share", default="0/1", help="FIRST/N: every n-th method")
    parser.add_argument("--only", action="append", default=[], help="substring of the method's id")
    options = parser.parse_args()
    started = time.perf_counter()
    reports = []
    for name in options.modules:
        report = examine(name, only=options.only, share=options.share)
        reports.append(report)
        show(report)
        if options.records:
            with Path(options.records).open("a") as file:
                file.writelines(json.dumps(record) + "\n" for record in report.records)
    totals = [report.counts() for report in reports]
    total = {key: sum(counts[key] for counts in totals) for key in totals[0]}
    print(f"total: {total}; {total['whole'] / max(total['methods'], 1):.1%} without a break")
    for (reason, detail), number in reasons(reports).most_common(60):
        print(f"{number:5d} {reason}: {detail[:120]}")
    print(f"{time.perf_counter() - started:.0f} s")
    return 1 if total["different"] or total["died"] else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["test_bisect", "--share", "0/50"]
    sys.exit(main())
