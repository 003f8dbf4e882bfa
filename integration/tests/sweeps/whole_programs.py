"""Random programs over the whole stack, eager and compiled, with several numbers of threads.

    python integration/tests/sweeps/whole_programs.py [--programs 5000] [--start 0] [--threads 1,3] [--log FILE] [--dry]

Programs run in child processes of ``--batch`` programs, so that a crash is one program's. Each program that differs is cut
down and printed as a script that runs alone (``--scripts FOLDER``: written there). Prints a summary; exits 1 on a difference.
Programs whose runs only rounding tells apart are counted as undecided (see ``random_programs/noise.py``), and results whose
last bits depend on the number of threads as such, where the program has sums.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from random_programs.running import Check, check_program
from random_programs.shrinking import script, shrink
from random_programs.writer import program


def arguments(given=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=5000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--threads", default="1,3")
    parser.add_argument("--seconds", type=float, default=36000.0)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--shrinking", type=float, default=60.0, help="seconds for each program that differs")
    parser.add_argument(
        "--patience", type=int, default=150, help="seconds after which a program counts as hung"
    )
    parser.add_argument("--scripts", type=Path, help="a folder for the scripts of programs that differ")
    parser.add_argument("--log", type=Path, help="a file of outcomes; programs that it has are not run again")
    parser.add_argument("--dry", action="store_true", help="eight programs")
    options = parser.parse_args(given)
    if options.dry:
        options.programs = min(options.programs, 8)
    options.threads = tuple(map(int, options.threads.split(",")))
    return options


class Hung(BaseException):
    """A program that does not end."""


def hung(_number, _frame):
    raise Hung


def one(seed, written, options):
    """The outcome of a program as a dictionary; of one that differs, its script."""
    outcome = check_program(written, options.threads)
    found = {
        "seed": seed,
        "differences": outcome.differences,
        "undecided": outcome.undecided,
        "sums": outcome.sums,
        "limits": outcome.limits,
        "graphs": outcome.graphs,
        "breaks": outcome.breaks,
        "eager_graphs": outcome.eager_graphs,
    }
    if outcome.differences:
        signal.alarm(int(options.shrinking) + options.patience)
        try:
            outcome = shrink(written, outcome, options.shrinking, options.threads)
        except Hung:
            outcome.differences.append("a smaller program does not end")
        found["shrunk"] = outcome.differences
        found["script"] = script(written, options.threads[-1])
    return found


def child(seeds, options, pipe):
    """Run ``seeds`` and write a line for each: first that it starts, then its outcome."""
    cache = tempfile.mkdtemp(prefix="whole-programs-")
    os.environ["FXSTACK_INDUCTOR_CACHE_DIR"] = cache
    signal.signal(signal.SIGALRM, hung)
    with os.fdopen(pipe, "w") as out:
        for seed in seeds:
            print(json.dumps({"starts": seed}), file=out, flush=True)
            signal.alarm(options.patience)
            try:
                written = program(seed)  # runs in eager what it writes
                print(json.dumps({"written": seed}), file=out, flush=True)
                found = one(seed, written, options)
            except (Exception, Hung) as error:
                found = {"seed": seed, "differences": [traceback.format_exc()[-2000:]]}
                signal.alarm(0)
                if isinstance(error, Hung) and operators_of(written) > LONG:
                    found.update(differences=[], too_long=True)
            signal.alarm(0)
            print(json.dumps(found), file=out, flush=True)
    shutil.rmtree(cache, ignore_errors=True)


def batch(seeds, options, deadline):
    """The outcomes of a child process that runs ``seeds``, which may end before it has run all."""
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        os.close(reader)
        status = 1
        try:
            child(seeds, options, writer)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    started, written = None, False
    with os.fdopen(reader) as lines:
        for line in lines:
            found = json.loads(line)
            if "starts" in found:
                started, written = found["starts"], False
            elif "written" in found:
                written = True
            else:
                started = None
                yield found
                if time.monotonic() > deadline:
                    os.kill(process, signal.SIGKILL)
                    break
    _, status = os.waitpid(process, 0)
    if status and started is not None:
        died = [f"the process ended with status {status}"]
        yield {"seed": started, "differences": died if written else [], "eager_dies": not written}


LONG = 10_000
"""Operators in eager, from which on a program that takes the compiler longer than ``--patience`` is no difference."""


def operators_of(written):
    check = Check(written.source(), written.inputs.calls, written.inputs.noise, {})
    with warnings.catch_warnings(), Counting() as mode:
        warnings.simplefilter("ignore")
        check.eager()
    return mode.count


class Counting(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


COUNTED = ("undecided", "sums", "limits", "graphs", "breaks", "eager_graphs")


class Totals:
    def __init__(self, options):
        self.options, self.begun = options, time.monotonic()
        self.wrong, self.counts = [], collections.Counter()

    def add(self, found):
        self.counts["programs"] += 1
        for name in (*COUNTED, "eager_dies", "too_long"):
            self.counts[name] += found.get(name, 0)
        if found["differences"]:
            self.wrong.append(found["seed"])
            self.show(found)

    def show(self, found):
        print(f"==== seed {found['seed']}")
        for text in found["differences"][:3]:
            print("    " + text[:600].replace("\n", "\n    "))
        if "script" in found:
            if self.options.scripts:
                self.options.scripts.mkdir(parents=True, exist_ok=True)
                shown = "".join(
                    f"# {line}\n" for text in found["shrunk"][:4] for line in text[:800].splitlines()
                )
                (self.options.scripts / f"seed{found['seed']}.py").write_text(shown + found["script"])
            else:
                print(found["script"])
        sys.stdout.flush()

    def summary(self):
        seconds, counts = time.monotonic() - self.begun, self.counts
        threads = ",".join(map(str, self.options.threads))
        return (
            f"{counts['programs']} programs, threads {threads}: {len(self.wrong)} differ {self.wrong[:60]}; "
            f"{counts['undecided']} runs undecided by rounding, {counts['sums']} sums with other last bits by threads, "
            f"{counts['limits']} runs at documented limits, "
            f"{counts['graphs']} graphs, {counts['breaks']} breaks, {counts['eager_graphs']} graphs refused with a "
            f"warning, {counts['eager_dies']} programs of which eager dies, "
            f"{counts['too_long']} of over {LONG} operators that take too long; {seconds:.0f} s"
        )


def main(given=None):
    options = arguments(given)
    totals, deadline = Totals(options), time.monotonic() + options.seconds
    known = options.log.read_text().splitlines() if options.log and options.log.exists() else []
    outcomes = {found["seed"]: found for found in map(json.loads, known)}
    for found in outcomes.values():
        totals.add(found)
    every = range(options.start, options.start + options.programs)
    seeds = [seed for seed in every if seed not in outcomes]
    while seeds and time.monotonic() < deadline:
        part = seeds[: options.batch]
        done = 0
        for found in batch(part, options, deadline):
            totals.add(found)
            if options.log:
                with options.log.open("a") as log:
                    print(json.dumps(found), file=log)
            done = part.index(found["seed"]) + 1
        seeds = seeds[done or len(part) :]
        print(totals.summary(), file=sys.stderr, flush=True)
    print(totals.summary())
    return 1 if totals.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
