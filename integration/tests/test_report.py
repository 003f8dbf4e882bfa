"""The HTML reports: of one callable, and of everything that a job compiled."""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

import fxstack
from fxstack.report import ReportError, charts, write_folder, write_report
from fxstack.trace import Event
from fxstack.trace.codec import to_line
from fxstack.trace.writer import describe_process
from fxstack_inductor.cost.quantities import bytes_text, seconds_text

VOID = {"meta", "img", "link", "br", "rect", "circle", "path", "polyline"}


class Page(HTMLParser):
    """The headings, the titles of sections that open, and the text of a page; its tags must nest."""

    def __init__(self, path):
        super().__init__()
        self.open, self.titles, self.text, self.targets, self.lines = [], [], "", [], set()
        self.source = path.read_text()
        self.feed(self.source)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.targets += [value for name, value in attributes if name in ("src", "href")]
        self.lines |= {key for name, value in attributes if name == "data-line" for key in value.split()}
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] in ("h1", "h2", "h3", "summary"):
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


def test_the_reason_for_a_recompilation_is_what_the_newest_entry_did_not_fit(tmp_path):
    compiled = fxstack.compile(lambda x, n: x * n, backend="eager")
    for size, n in ((3, 2), (4, 2), (5, 3)):
        compiled(torch.ones(size), n)
    write_report(compiled, tmp_path / "page.html")
    assert re.search(r"was compiled again because n changed: it is 3\.", Page(tmp_path / "page.html").text)


def test_a_callable_has_breaks_recompilations_and_graphs(tmp_path):
    write_report(compiled_step(), str(tmp_path / "page.html"), title="a < b", facts={"loss": "<1>"})
    page = Page(tmp_path / "page.html")
    assert page.titles[0] == "a < b"
    assert {"Graph breaks", "Recompilations", "Functions", "Compile time by stage"} <= set(page.titles)
    assert re.search(
        r"2 breaks at .*test_report\.py:\d+ in step because a branch .*Fix: Use torch", page.text
    )
    assert re.search(r"step \(.*test_report\.py:\d+\) was compiled again because x changed: sizes", page.text)
    assert "1 function compiled into 4 graphs, with 2 graph breaks and 2 recompilations." in page.text
    assert any(re.match(r"forward graph: \d+ operations", title) for title in page.titles)
    assert "<1>" in page.text
    assert [target for target in page.targets if not target.startswith("#")] == []


TRAINED = Path(__file__).with_name("train_gpt_like.py")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return the page of an unedited training program."""
    folder = tmp_path_factory.mktemp("trained") / "out"
    command = [sys.executable, "-m", "fxstack", "run", "--debug", "", "--report", folder, TRAINED]
    subprocess.run(command, check=True, capture_output=True)
    (path,) = folder.glob("process-*.html")
    return Page(path)


SENTENCES = [
    r"1 function compiled into 4 graphs, with 2 graph breaks and 2 recompilations\.",
    r"2 breaks at .*train_gpt_like\.py:38 in GPT\.forward because a branch depends on .* Fix: Use torch\.where",
    r"GPT\.forward .* was compiled again because idx changed: sizes is \(4, 9\) \(was \(4, 6\)\)",
    r"\d+% of the measured seconds of all steps are matrix products\.",
    r"Kernels take \d+% and reach \d+% of the memory bandwidth \(measured",
    r"The slowest step is \w+ \(.*\) of GPT\.forward .*, (forward|backward): \d+%\.",
    r"The forward saves [\d.]+ kB for the backward; \d+ tensors recomputed\.",
]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_the_first_screen_says_what_matters(trained, sentence):
    assert re.search(sentence, trained.text)


SECTIONS = [
    "Compilations",
    "Compile time by stage",
    "Flame chart of compile time",
    "Graph breaks",
    "Recompilations",
    "Functions",
    "Source beside operations and kernels",
    "Guards",
    "Memory timeline",
    "Partitioners compared",
    "Replacement code",
    "Text of the kernels",
    "Host program",
    r"(captured|joint|forward|backward) graph: \d+ operations",
    r"Kernels, (forward|backward): \d+ kernels, \d+ calls of ATen",
    r"Partition: \d+ saved, \d+ recomputed",
    r"Refused fusions: \d+",
    r"Passes: \d+",
    r"joint: trace_backward, .*",
    r"Frame with graph \d+: compiled, \d+ guards",
]


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_is_there(trained, section):
    assert any(re.fullmatch(section, title.strip()) for title in trained.titles)


def test_source_lines_join_operations_and_kernels(trained):
    attention = f"{TRAINED}:{next(n for n, line in enumerate(TRAINED.read_text().splitlines(), 1) if 'scaled_dot' in line)}"
    assert attention in trained.lines


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_a_browser_opens_the_function_that_a_link_names(tmp_path):
    write_report(compiled_step(), tmp_path / "page.html")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    page = f"file://{tmp_path / 'page.html'}#f1"
    done = subprocess.run(
        ["chromium", *flags, "--dump-dom", page], capture_output=True, text=True, check=True
    )
    section = done.stdout[done.stdout.index('id="f1"') :]
    assert re.search(r"<details open[^>]*>\s*<summary>step \(", section)


def test_letters_of_charts_stay_large_on_a_narrow_page(trained):
    """A chart is at least as wide as its own units are pixels, and scrolls."""
    assert f"min-width: {charts.WIDTH}px" in trained.source
    assert trained.source.count("<svg") == trained.source.count('<div class="scroll"><svg') > 2


def test_a_report_needs_no_network(trained):
    assert all(target.startswith("#f") for target in trained.targets)


PROGRAM = """
import subprocess, sys, torch, fxstack
fxstack.compile(lambda x: x.sin().cos())(torch.randn(3))
if len(sys.argv) < 2:
    subprocess.run([sys.executable, __file__, "child"], check=True)
"""


def job(folder, program, *arguments, command=(), **variables):
    """Run a program that writes its report into the folder ``out``."""
    (folder / "train.py").write_text(program)
    environment = {**os.environ, "FXSTACK_REPORT": str(folder / "out"), **variables}
    words = [sys.executable, *command, "train.py", *arguments]
    return subprocess.run(words, check=False, env=environment, capture_output=True, text=True, cwd=folder)


def test_processes_write_pages_side_by_side(tmp_path):
    assert job(tmp_path, PROGRAM, RANK="3").returncode == 0
    pages = sorted(path.name for path in (tmp_path / "out").glob("process-*.html"))
    index = Page(tmp_path / "out/index.html")
    assert sorted(index.targets) == pages
    assert len(pages) == 2
    assert index.text.count("1 function compiled into 1 graph, with 0 graph breaks") == 2
    assert index.text.count("rank 3") == 2


def test_damaged_lines_of_a_record_are_named_on_the_page(tmp_path, capsys):
    path = tmp_path / "trace-1.jsonl"
    path.write_text(to_line(Event(0.5, "main", describe_process())) + "damaged\n")
    page = write_folder(tmp_path).with_name(f"process-{os.getpid()}.html")
    assert "1 line or file of the record is left out: damaged" in Page(page).titles
    assert f"{path}, line 2: no event of a record" in Page(page).text
    assert f"fxstack: the report leaves out 1 lines or files: {path}, line 2: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (".", r"Is a directory.*Pass the path of a file, for example {}/report\.html"),
        ("file/page.html", r"(File exists|Not a directory).*for example {}/report\.html"),
        ("/proc/none/page.html", r"No such file.*for example "),
    ],
)
def test_a_path_that_cannot_be_written_says_what_to_pass(tmp_path, path, text):
    (tmp_path / "file").touch()
    with pytest.raises(ReportError, match=f"write_report: .* cannot be written .*{text.format(tmp_path)}"):
        write_report(fxstack.compile(step), tmp_path / path)


def test_missing_folders_of_a_page_are_made(tmp_path):
    write_report(fxstack.compile(step), tmp_path / "a/b/page.html")
    assert Page(tmp_path / "a/b/page.html").titles[0] == "fxstack compilation report"


def killed(end):
    return PROGRAM.replace("if len", f"import os, signal; {end}\nif len")


def test_a_killed_process_leaves_a_record_that_becomes_a_report(tmp_path):
    assert job(tmp_path, killed("os._exit(9)")).returncode == 9
    assert f"fxstack report {tmp_path / 'out'}" in (tmp_path / "out/index.html").read_text()
    assert "1 function compiled into 1 graph" in Page(write_folder(tmp_path / "out")).text


ENDS = {
    "os._exit(9)": (9, "ends with exit code 9"),
    "os.kill(os.getpid(), signal.SIGKILL)": (-9, "ends by SIGKILL"),
    "os.kill(os.getppid(), signal.SIGTERM); signal.pause()": (-15, "ends by SIGTERM"),
    "os.execv('/bin/false', ['false'])": (1, "ends with exit code 1"),
}


@pytest.mark.parametrize("end", ENDS)
def test_run_writes_the_report_of_a_program_that_cannot(tmp_path, end):
    status, text = ENDS[end]
    done = job(tmp_path, killed(end), command=("-m", "fxstack", "run"))
    assert done.returncode == status
    assert f"fxstack: the program {text}; its report is made from its record: " in done.stderr
    assert "== fxstack summary\n1 function compiled into 1 graph" in done.stderr
    assert "1 function compiled into 1 graph" in Page(tmp_path / "out/index.html").text


def test_a_folder_that_cannot_be_made_is_reported(tmp_path):
    done = job(tmp_path, PROGRAM, "alone", FXSTACK_REPORT=str(tmp_path / "train.py"))
    assert done.returncode == 0
    assert "fxstack: FXSTACK_REPORT: no report was written: " in done.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (bytes_text(0), "0 B"),
        (bytes_text(1500), "1.5 kB"),
        (bytes_text(2.5e9), "2.50 GB"),
        (seconds_text(2), "2.00 s"),
        (seconds_text(0.0025), "2.50 ms"),
        (seconds_text(2.5e-6), "2.5 us"),
    ],
)
def test_sizes_and_times_are_short(text, expected):
    assert text == expected
