"""Run CPython's test modules in processes of their own and collect what ``child.py`` says about every method."""

from __future__ import annotations

import collections
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

CHILD = Path(__file__).with_name("child.py")
SECONDS = 2400


@dataclass
class ModuleReport:
    """What happened in one module."""

    name: str
    records: list = field(default_factory=list)
    trouble: list = field(default_factory=list)
    """Methods in which the process ended or hung, and what it said."""

    @property
    def different(self):
        return [r for r in self.records if r["expected"] != r["actual"] and r["stable"]]

    @property
    def unstable(self):
        return [r for r in self.records if not r["stable"]]

    @property
    def whole(self):
        return [r for r in self.records if r["whole"]]

    @property
    def defects(self):
        return [r for r in self.records if r["defects"]]

    def counts(self):
        n, same = len(self.records), len(self.records) - len(self.different) - len(self.unstable)
        return {
            "methods": n,
            "same": same,
            "different": len(self.different),
            "unstable": len(self.unstable),
            "died": len(self.trouble),
            "defects": len(self.defects),
            "whole": len(self.whole),
        }


def examine(name, *, only=(), share="0/1", python=sys.executable):
    """Run one module; a module that cannot be imported has no records."""
    command = [python, "-W", "ignore", str(CHILD), name, "--share", share]
    command += [part for text in only for part in ("--only", text)]
    report = ModuleReport(name)
    skipped = []
    while True:
        begun, ended = _one_process([*command, *(f"--skip={s}" for s in skipped)], report)
        if ended is None:
            return report
        report.trouble.append([begun or "(before the first method)", ended])
        if begun is None:
            return report
        skipped.append(begun)


def _one_process(command, report):
    """The method in which the process ended early, and what is known about it; (None, None) if it did not."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, errors="replace", check=False
        )
        output, ended = done.stdout, None if done.returncode == 0 else done.stderr[-600:]
    except subprocess.TimeoutExpired as error:
        output, ended = (error.stdout or b"").decode(errors="replace"), "timeout"
    known = {record["id"] for record in report.records}
    begun = None
    for line in output.splitlines():
        if not line.startswith("{"):
            continue
        record = json.loads(line)
        begun = record.get("begin")
        if begun is None and record["id"] not in known:
            report.records.append(record)
    return begun, ended


def reasons(reports):
    """How many methods each kind of graph break ended: the first break of a method counts."""
    found = collections.Counter()
    for report in reports:
        for record in report.records:
            if record["breaks"]:
                found[tuple(record["breaks"][0][:2])] += 1
            elif not record["whole"]:
                found["plain", ""] += 1
    return found
