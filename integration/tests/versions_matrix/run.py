"""The quick tests of every package on this Python and torch, and the table of all versions that were run.

    python integration/tests/versions_matrix/run.py [--results FOLDER] [--only PACKAGE ...] [--dry]
    python integration/tests/versions_matrix/run.py --table [--results FOLDER] [--markdown]

Writes one file for each pair of versions to ``--results`` (build/versions); with ``--only`` the other packages' results stay.
Every test runs that ``testing/gate/slow.txt`` does not list, the eleven models and the sample of CPython's own
tests. Exits with 1 if a test fails.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = {
    **{name: ROOT / "packages" / name for name in ("capture", "functionalize", "partition", "inductor")},
    "integration": ROOT / "integration",
}
WHOLE = ("test_models.py", "cpython_suite/")
"""Whole models and CPython's own tests run, however long they take."""
COUNTED = ("tests", "failures", "errors", "skipped")
ROWS = (
    *(("3.11", torch) for torch in ("2.11.0", "2.13.0", "2.14.1", "2.15.0")),
    *((python, "2.15.0") for python in ("3.12", "3.13", "3.14")),
)
"""The pairs of versions that are supported by test."""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "versions")
    parser.add_argument("--only", nargs="*", default=[*PACKAGES], choices=PACKAGES)
    parser.add_argument("--table", action="store_true", help="print the table of what was run")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--dry", action="store_true", help="one file of tests")
    return parser.parse_args()


def tests_of(package, *, dry):
    """Run them in a process of their own; the counts, the seconds, and the names of those that fail."""
    tests = PACKAGES[package] / "tests"
    chosen = sorted(tests.rglob("test_*.py"))[:1] if dry else [tests]
    path = os.pathsep.join(filter(None, [str(ROOT / "testing"), os.environ.get("PYTHONPATH", "")]))
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-p", "gate", "--slow=none", f"--junitxml={report}"]
        command += [f"--keep={part}" for part in WHOLE]
        command += ["--continue-on-collection-errors", *map(str, chosen)]
        process = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, check=False)
        found = counts(report) if report.exists() else {"died": process.returncode}
    return {**found, "seconds": round(time.monotonic() - begun)}


def counts(report):
    suites = list(ET.parse(report).getroot().iter("testsuite"))
    cases = [case for suite in suites for case in suite.iter("testcase")]
    bad = [c for c in cases if c.find("failure") is not None or c.find("error") is not None]
    total = {name: sum(int(suite.get(name, 0)) for suite in suites) for name in COUNTED}
    return {**total, "bad": [f"{c.get('classname')}::{c.get('name')}" for c in bad]}


def is_green(found):
    return "died" not in found and found["failures"] == found["errors"] == 0


def here():
    """The versions of this environment, without what follows a ``+``."""
    import torch

    return ".".join(platform.python_version_tuple()[:2]), torch.__version__.partition("+")[0]


def run(options):
    python, torch = here()
    made = {package: tests_of(package, dry=options.dry) for package in options.only}
    options.results.mkdir(parents=True, exist_ok=True)
    file = options.results / f"{python}-{torch}.json"
    before = json.loads(file.read_text())["packages"] if file.exists() else {}
    record = {"python": platform.python_version(), "torch": torch, "date": time.strftime("%F")}
    file.write_text(json.dumps({**record, "packages": {**before, **made}}, indent=1))
    for package, found in made.items():
        print(package, *(found.get("bad") or ["died" if "died" in found else "green"]), sep="\n    ")
    return all(map(is_green, made.values()))


def cell(found):
    if found is None:
        return "not run"
    if "died" in found:
        return f"died ({found['died']})"
    passed = found["tests"] - found["skipped"] - found["failures"] - found["errors"]
    failed = found["failures"] + found["errors"]
    return f"{passed}" + (f", {failed} FAILED" if failed else "")


def table(folder, *, markdown):
    """A row for each pair of versions; whether all were run and are green."""
    rows = [["Python", "torch", *PACKAGES, "skipped", "minutes"]]
    green = True
    for python, torch in ROWS:
        file = folder / f"{python}-{torch}.json"
        record = json.loads(file.read_text()) if file.exists() else {"python": python, "packages": {}}
        found = [record["packages"].get(package) for package in PACKAGES]
        green &= all(f is not None and is_green(f) for f in found)
        skipped = sum(f.get("skipped", 0) for f in found if f)
        minutes = sum(f["seconds"] for f in found if f) / 60
        rows.append([record["python"], torch, *map(cell, found), str(skipped), f"{minutes:.0f}"])
    for number, row in enumerate(rows):
        print("| " + " | ".join(row) + " |" if markdown else "".join(f"{c:<18}" for c in row))
        if markdown and number == 0:
            print("|" + "---|" * len(row))
    return green


def main():
    options = arguments()
    if options.table:
        return 0 if table(options.results, markdown=options.markdown) else 1
    return 0 if run(options) else 1


if __name__ == "__main__":
    sys.exit(main())
