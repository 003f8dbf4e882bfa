"""One line on a terminal while something compiles for long; nothing elsewhere."""

import io
import re

import pytest
import torch

import fxstack
from fxstack.debug import progress
from fxstack.debug.progress import Progress
from fxstack.log import LISTENERS
from fxstack_interchange.passes import observed


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(monkeypatch, stream, patience=0.0, **environment):
    """Return what a compilation writes to ``stream``."""
    for name in ("PATIENCE", "PATIENCE_OF_FILES"):
        monkeypatch.setattr(progress, name, patience)
    monkeypatch.delenv("FXSTACK_PROGRESS", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    listener = Progress(stream)
    LISTENERS.append(listener)
    fxstack.reset()
    try:
        with observed(listener):
            compiled = fxstack.compile(lambda x: x.sin().exp(), options={"use_cache": False})
            compiled(torch.randn(3, requires_grad=True)).sum().backward()
    finally:
        LISTENERS.remove(listener)
    return stream.getvalue()


def test_a_terminal_gets_a_line_that_is_removed(monkeypatch):
    text = shown(monkeypatch, Terminal())
    lines = text.split("\r\x1b[K")
    assert any(
        re.search(r"<lambda> \(test_progress\.py:\d+\): graph 1, joint: trace_backward", line)
        for line in lines
    )
    assert text.endswith("\r\x1b[K")
    assert "\n" not in text
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize(
    ("stream", "patience", "environment"),
    [(io.StringIO, 0.0, {}), (Terminal, 0.0, {"FXSTACK_PROGRESS": "0"}), (Terminal, 1e9, {})],
    ids=["no terminal", "turned off", "short compilation"],
)
def test_otherwise_nothing_is_written(monkeypatch, stream, patience, environment):
    assert shown(monkeypatch, stream(), patience, **environment) == ""


def test_a_file_gets_plain_lines(monkeypatch):
    lines = shown(monkeypatch, io.StringIO(), FXSTACK_PROGRESS="1").splitlines()
    begins, ends = lines[::2], lines[1::2]
    assert len(begins) == len(ends) >= 1
    for begin, end in zip(begins, ends, strict=True):
        assert re.fullmatch(r"fxstack: compiling \S*<lambda> \(test_progress\.py:\d+\): [ -~]*", begin)
        assert re.fullmatch(r"fxstack: compiled in \d+\.\d s", end)
