"""Show that the gate catches faults: plant one at a time in a copy of the last commit, and run the checks of ``.ci/run``.

    python testing/planted_faults.py [--only NAME ...] [--folder FOLDER] [--markdown]

For each fault runs the session of nox that has to catch it, with the options that ``.ci/run`` gives, up to the third
failure. Prints which tests or checks failed; exits with 1 if a fault passes. Takes about half an hour.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
CAPTURE, FUNCTIONALIZE, PARTITION, INDUCTOR = (
    f"packages/{stage}/src/fxstack_{stage}" for stage in ("capture", "functionalize", "partition", "inductor")
)
GATE = ("--", "--slow=rotation", "--cpu-limit=5", "--maxfail=3")
"""What ``.ci/run`` gives to the tests, but for ``--maxfail``."""


class Fault(NamedTuple):
    """Replace ``old`` by ``new`` in ``file``; ``session`` is the part of the gate that has to fail."""

    file: str
    old: str
    new: str
    session: tuple[str, ...]


def tests(package):
    return (f"tests_{package}", *GATE)


FAULTS = {
    "wrong value in capture: the step of a slice is lost": Fault(
        f"{CAPTURE}/interpreter/handlers/containers.py",
        "slice(*_pop_many(frame.stack, count))",
        "slice(*_pop_many(frame.stack, count)[:2])",
        tests("capture"),
    ),
    "wrong value in functionalize: writes through views without inverse": Fault(
        f"{FUNCTIONALIZE}/views/inverses.py",
        "    if not _is_lossy(engine, target):\n        return\n",
        "    return\n",
        tests("functionalize"),
    ),
    "wrong value in partition: saved values that the forward changes later": Fault(
        f"{PARTITION}/extraction/graphs.py",
        "if node in self._shielded and node not in self.shields:",
        "if False:",
        tests("partition"),
    ),
    "wrong value in inductor: a constant of hardsigmoid": Fault(
        f"{INDUCTOR}/lower/elementwise/activations.py",
        "shifted = add(a, like(a, 3))",
        "shifted = add(a, like(a, 3.001))",
        tests("inductor"),
    ),
    "wrong gradient: a sign in that of silu": Fault(
        f"{INDUCTOR}/lower/elementwise/activations.py",
        "mul(s, add(one, mul(x, sub(one, s))))",
        "mul(s, add(one, mul(x, sub(s, one))))",
        tests("inductor"),
    ),
    "race: threads share an accumulator": Fault(
        f"{INDUCTOR}/codegen/c/function.py",
        "shared{k}[self * {LINE}] = own{k};",
        "shared{k}[0] = own{k};",
        tests("inductor"),
    ),
    "import of the incumbent": Fault(
        f"{PARTITION}/options.py",
        "from __future__ import annotations\n",
        "from __future__ import annotations\n\nimport torch._inductor\n",
        ("lint",),
    ),
    "arrow against the layers": Fault(
        f"{CAPTURE}/sources.py",
        "from typing import ClassVar\n",
        "from typing import ClassVar\n\nfrom fxstack_capture.driver.profitability import Trial\n\nLATER = Trial\n",
        ("lint",),
    ),
    "broken wheel: a file that is compiled at run time is left out": Fault(
        "packages/capture/pyproject.toml", ', "**/*.cpp"', "", tests("capture")
    ),
    "Python 3.13 alone: a loop that ends leaves its iterator": Fault(
        f"{CAPTURE}/versions/v313.py",
        "forward(flow.for_iter, (1, 2), skip=2)",
        "forward(flow.for_iter, (1, 2), skip=1)",
        ("tests_python", "-p", "3.13", "--", "--maxfail=3"),
    ),
    "README: a name that does not exist": Fault(
        "README.md",
        "compiled).graph_count",
        "compiled).graphs_count",
        (*tests("integration"), "-k", "readme or docs"),  # the rest of the suite passes
    ),
    "type error": Fault(
        "integration/src/fxstack/safe.py",
        "from __future__ import annotations\n",
        'from __future__ import annotations\n\n_LIMIT: int = "one"\n',
        ("typecheck",),
    ),
    "leak: entries keep their code": Fault(
        f"{CAPTURE}/native/frame_hook/entries.c",
        "    Py_XDECREF((PyObject *)e->code);\n    Py_XDECREF((PyObject *)e->flat);\n    Py_XDECREF(e->region);",
        "    Py_XDECREF((PyObject *)e->flat);\n    Py_XDECREF(e->region);",
        tests("capture"),
    ),
    "lost guard: strides of tensors": Fault(
        f"{CAPTURE}/guards/records/tensors.py",
        "strides=tuple(int(stride) for stride in tensor.stride()) if strided else None,",
        "strides=None,",
        tests("capture"),
    ),
}


def plant(fault, tree):
    file = tree / fault.file
    text = file.read_text()
    assert text.count(fault.old) == 1, f"{fault.file}: {text.count(fault.old)} places for {fault.old!r}"
    file.write_text(text.replace(fault.old, fault.new))


def caught_by(output):
    """The tests that failed, else the lines in which a check complains."""
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+::\w+)", output, flags=re.MULTILINE)
    complaints = re.findall(
        r"^(?:TID251 .*|\S.*(?: error: |BROKEN\b.*|Interrupted: .*|fatal: .*))", output, flags=re.MULTILINE
    )
    return list(dict.fromkeys(failed)) or complaints[:2]


def run(tree, fault):
    command = [sys.executable, "-m", "nox", "--no-stop-on-first-error", "-s", *fault.session]
    done = subprocess.run(
        command, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of faults")
    parser.add_argument("--folder", type=Path, help="the folder of the copy, kept with its environments")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    chosen = [name for name in FAULTS if not options.only or any(part in name for part in options.only)]
    missed = []
    with tempfile.TemporaryDirectory() as temporary:
        tree = (options.folder or Path(temporary)) / "fxstack"
        if not tree.exists():
            subprocess.run(["git", "clone", "-q", ROOT, tree], check=True)
        for name in chosen:
            subprocess.run(["git", "checkout", "-q", "."], cwd=tree, check=True)
            # setuptools packs the files that an earlier build has listed
            subprocess.run(["git", "clean", "-fdxq", "-e", ".nox"], cwd=tree, check=True)
            plant(FAULTS[name], tree)
            status, output = run(tree, FAULTS[name])
            (tree.parent / "output.txt").write_text(output)
            caught = caught_by(output) if status else []
            if not caught:
                missed.append(name)
                print(output[-4000:], file=sys.stderr)
            session = FAULTS[name].session[0]
            line = f"| {name} | `{session}` | {', '.join(f'`{c}`' for c in caught) or 'MISSED'} |"
            print(
                line if options.markdown else f"{name}: {session}: {', '.join(caught) or 'MISSED'}",
                flush=True,
            )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
