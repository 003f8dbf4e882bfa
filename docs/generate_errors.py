"""Writes docs/errors/index.md from the registry of graph breaks and ``error_examples``; the tests compare the two.

The programs run: the page shows what they raise.
"""

import contextlib
import io
import linecache
import sys
from pathlib import Path

import torch

import fxstack
from fxstack_capture.breaks import REASONS

sys.path.insert(0, str(Path(__file__).parent))
from error_examples import EXAMPLES, WITHOUT_PROGRAM

INTRODUCTION = """# Graph breaks and errors

Every graph break has a stable id, a reason and an advice. `fxstack.explain(fn)(*args)` lists those of a call with the user's
lines; under `fullgraph=True` the first one is raised as `Unsupported`. This page is generated from the registry
(`fxstack_capture/breaks.py`) and from programs that run whenever the page is checked. They begin with `import fxstack` and
`import torch`.
"""


def run(program: str, name: str) -> None:
    """Run a program as a file ``example.py``. Its graphs run in eager, which is quicker and changes no error."""
    fxstack.reset()
    linecache.cache["example.py"] = len(program), None, program.splitlines(keepends=True), "example.py"
    fxstack.set_default_backend("eager")
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(
                compile(program, "example.py", "exec"), {"fxstack": fxstack, "torch": torch, "__name__": name}
            )
    finally:
        fxstack.set_default_backend(None)
        del linecache.cache["example.py"]


def raised(name: str) -> str:
    """Return the first lines of what the program of ``name`` raises: the error, and where it is."""
    try:
        run(EXAMPLES[name][0].lstrip(), name)
    except Exception as error:
        assert f"[{name}]" in str(error), f"the program of {name} raises {error}"
        first, *rest = str(error).splitlines()
        place = [line for line in rest if line.lstrip().startswith('File "example.py"')][-1:]
        return "\n".join([f"{type(error).__name__}: {first}", *place])
    raise AssertionError(f"the program of {name} raises nothing")


def example(name: str) -> str:
    if name in WITHOUT_PROGRAM:
        return f"There is no example: {WITHOUT_PROGRAM[name]}.\n"
    wrong, right = (text.strip() for text in EXAMPLES[name])
    shown = raised(name)
    run(right, name)
    return f"```python\n{wrong}\n```\n\n```text\n{shown}\n```\n\nMended:\n\n```python\n{right}\n```\n"


def render() -> str:
    parts = [INTRODUCTION]
    for reason in REASONS.values():
        what = reason.what.format(detail="…")
        parts.append(f"## {reason.id}\n\n{what}\n\n**Why:** {reason.why}\n\n**What to do:** {reason.fix}\n")
        parts.append(example(reason.id))
    return "\n".join(parts)


if __name__ == "__main__":
    Path(__file__).with_name("errors").joinpath("index.md").write_text(render(), encoding="utf-8")
