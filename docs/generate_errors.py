"""Writes docs/errors/index.md from the registry of graph breaks; the tests compare the two."""

from pathlib import Path

from fxstack_capture.breaks import REASONS

INTRODUCTION = """# Graph breaks and errors

Every graph break has a stable id, a reason and an advice. `fxstack.explain(fn)(*args)` lists those of a call with the user's
lines; under `fullgraph=True` the first one is raised as `Unsupported`. This page is generated from the registry
(`fxstack_capture/breaks.py`).
"""


def render() -> str:
    parts = [INTRODUCTION]
    for reason in REASONS.values():
        what = reason.what.format(detail="…")
        parts.append(f"## {reason.id}\n\n{what}\n\n**Why:** {reason.why}\n\n**What to do:** {reason.fix}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    Path(__file__).with_name("errors").joinpath("index.md").write_text(render(), encoding="utf-8")
