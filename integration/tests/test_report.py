"""The HTML reports: of one callable, and of everything that a process compiled."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import torch

import fxstack
from fxstack.report import write_report

VOID = {"meta", "img", "link", "br"}


class Page(HTMLParser):
    """The headings, the titles of sections that open, and the text of a page; its tags must nest."""

    def __init__(self, path):
        super().__init__()
        self.open, self.titles, self.text, self.targets = [], [], "", []
        self.feed(path.read_text())
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.targets += [value for name, value in attributes if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] in ("h1", "h2", "summary"):
            self.titles.append(data)


def step(x):
    y = x.sin()
    if y.sum() > 100:
        y = y * 2
    return y.cos() < y.exp()


def compiled_step():
    compiled = fxstack.compile(step)
    for size in (3, 4):
        compiled(torch.randn(size, requires_grad=True))
    return compiled


def test_a_callable_has_breaks_recompilations_and_graphs(tmp_path):
    write_report(compiled_step(), str(tmp_path / "page.html"), title="a < b", facts={"loss": "<1>"})
    page = Page(tmp_path / "page.html")
    assert page.titles[0] == "a < b"
    assert {"Graph breaks", "Recompilations", "Functions", "Compile time by stage"} <= set(page.titles)
    assert re.search(r"test_report\.py:\d+ in step: \[data-dependent-branch\].*fix: Use torch", page.text)
    assert re.search(r"step \(.*test_report\.py:\d+\): x: .*sizes is \(4\) \(was \(3\)\)", page.text)
    assert re.search(r"1 functions compiled, 4 graphs, 2 breaks, 2 recompilations", page.text)
    assert any(re.match(r"graph 0, forward: \d+ operations", title) for title in page.titles)
    assert "<1>" in page.text
    assert page.targets == []


PROGRAM = """
import subprocess, sys, torch, fxstack
fxstack.compile(lambda x: x.sin().cos())(torch.randn(3))
if len(sys.argv) < 2:
    subprocess.run([sys.executable, __file__, "child"], check=True)
"""


def test_processes_write_pages_side_by_side(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    environment = {**os.environ, "FXSTACK_REPORT": str(tmp_path / "out")}
    subprocess.run([sys.executable, tmp_path / "train.py"], check=True, env=environment)
    pages = sorted(path.name for path in (tmp_path / "out").glob("process-*.html"))
    assert Page(tmp_path / "out/index.html").targets == pages
    assert len(pages) == 2
    page = Page(tmp_path / "out" / pages[0])
    assert {"graph", "partition inference", "kernels inference", "host inference", "guards"} <= set(
        page.titles
    )


def test_a_folder_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    command = [sys.executable, tmp_path / "train.py", "alone"]
    environment = {**os.environ, "FXSTACK_REPORT": str(tmp_path / "train.py")}
    done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    assert "fxstack: FXSTACK_REPORT: no report was written: " in done.stderr
