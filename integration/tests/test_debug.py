"""``FXSTACK_DEBUG``, ``FXSTACK_DEBUG_DIR`` and ``TORCH_LOGS`` show what was compiled, where and why."""

import bdb
import inspect
import logging
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch._logging._internal import log_registry
from torch.utils.checkpoint import checkpoint

import fxstack
from fxstack.debug.artefacts import ARTEFACTS

DOCS = Path(__file__).parents[2] / "docs/debugging.md"
NAMES = [artefact.name for artefact in ARTEFACTS]


def step(x):
    y = x.sin()
    if y.sum() > 100:
        y = y * 2
    return y.softmax(-1)


def compiled_step(**options):
    """Compile ``step`` and call it twice, with gradients, so that each artefact exists."""
    fxstack.reset()
    compiled = fxstack.compile(step, options=options)
    for size in (3, 4):
        compiled(torch.randn(size, 5, requires_grad=True)).sum().backward()


def printed(monkeypatch, capfd, value):
    """Return what the artefacts of ``FXSTACK_DEBUG=value`` print, by title."""
    monkeypatch.setenv("FXSTACK_DEBUG", value)
    compiled_step()
    parts = re.split(r"^== fxstack (.*)\n", capfd.readouterr().err, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


EXPECTED = {
    "frames": ("", "compiled"),
    "breaks": ("", r"\[data-dependent-branch\].*\n(.*\n)*fix: .*\n(.*\n)*.*if y.sum\(\) > 100"),
    "recompiles": ("", r"recompiling step .*\n.*sizes is \(4, 5\) \(was \(3, 5\)\)"),
    "guards": (
        "",
        r"type\(x\) is torch.Tensor and x.dtype == torch.float32.*# needed at .*test_debug.py:\d+: ",
    ),
    "bytecode": ("", r"def step\("),
    "resume": ("", r"def step\("),
    "graph": ("", r"sin: \"f32\[3, 5\]"),
    "joint": ("", "joint graph: .*tangent"),
    "partition": (" backward", r"def graph\("),
    "loops": (" backward", r"kernel kernel_0\("),
    "schedule": (" forward", r"kernel_0: .*reads .*stores"),
    "kernels": (" forward", r"void kernel_0\("),
    "host": (" forward", r"def call\("),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_artefact_is_printed_alone(monkeypatch, capfd, name):
    shown = printed(monkeypatch, capfd, name)
    detail, text = EXPECTED[name]
    assert {title.split()[0] for title, _ in shown} == {name}
    titled = re.compile(rf"{name}{detail} of .*step \(.*test_debug\.py:\d+\)")
    assert any(titled.match(title) and re.search(text, body, flags=re.DOTALL) for title, body in shown)


def test_the_graph_of_a_checkpoint_is_printed(monkeypatch, capfd):
    monkeypatch.setenv("FXSTACK_DEBUG", "graph")
    x = torch.randn(3, requires_grad=True)
    fxstack.compile(lambda x: checkpoint(torch.sin, x, use_reentrant=False))(x).sum().backward()
    assert re.search(r"sin: \"f32\[3\]", capfd.readouterr().err)


def test_every_artefact_has_a_test():
    assert {*EXPECTED, "summary", "passes"} == set(NAMES)


def test_nothing_is_printed_by_default(monkeypatch, capfd):
    assert printed(monkeypatch, capfd, "") == []


def test_unknown_names_are_reported(monkeypatch, capfd):
    text = r"^FXSTACK_DEBUG: there is no 'brakes'\. The nearest are breaks(, \w+){2}; 'fxstack artefacts' lists all\.$"
    with pytest.warns(UserWarning, match=text):
        assert printed(monkeypatch, capfd, "brakes") == []


def test_a_folder_gets_numbered_files(monkeypatch, tmp_path):
    monkeypatch.setenv("FXSTACK_DEBUG_DIR", str(tmp_path / "out"))
    compiled_step()
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == sorted(files, key=lambda name: int(name[:4]))
    kinds = {re.match(r"\d{4}_step_test_debug_\d+_([a-z]+)", name)[1] for name in files}
    assert kinds == {*NAMES, "pass"} - {"summary", "passes"}


class Stops(bdb.Bdb):
    """A debugger that notes the lines at which it stops, and goes on."""

    def __init__(self, file, line):
        super().__init__()
        self.seen = []
        assert self.set_break(str(file), line) is None

    def user_line(self, frame):
        if frame.f_code.co_filename in self.breaks:
            self.seen.append((frame.f_lineno, sorted(frame.f_locals)))
        self.set_continue()


def test_a_debugger_stops_in_a_host_program(monkeypatch, tmp_path):
    monkeypatch.setenv("FXSTACK_DEBUG_DIR", str(tmp_path))
    fxstack.reset()
    compiled = fxstack.compile(lambda x: x.sin() + 1, options={"host": "python"})
    compiled(torch.ones(3))
    (file,) = tmp_path.glob("*_host_inference.py")
    lines = file.read_text().splitlines()
    (returns,) = (number for number, line in enumerate(lines, 1) if line.strip().startswith("return"))
    debugger = Stops(file, returns)
    torch.testing.assert_close(debugger.runcall(compiled, torch.zeros(3)), torch.ones(3))
    assert [line for line, _ in debugger.seen] == [returns]
    assert "threads" in debugger.seen[0][1]


def test_replaced_functions_and_host_programs_are_modules(monkeypatch, tmp_path):
    monkeypatch.setenv("FXSTACK_DEBUG_DIR", str(tmp_path))
    compiled_step()
    names = {
        path.name: set(runpy.run_path(str(path)))
        for kind in ("bytecode", "resume", "host_forward", "host_backward")
        for path in tmp_path.glob(f"*_{kind}.py")
    }
    assert len(names) >= 4
    assert all(
        "step" in defined if "host" not in name else "call" in defined for name, defined in names.items()
    )


def test_torchs_debug_folder_gets_the_files(monkeypatch, tmp_path, capfd):
    monkeypatch.setenv("TORCH_COMPILE_DEBUG", "1")
    monkeypatch.setenv("TORCH_COMPILE_DEBUG_DIR", str(tmp_path))
    compiled_step()
    (run,) = (tmp_path / "torch_compile_debug").iterdir()
    assert re.fullmatch(rf"run_\w+-pid_{os.getpid()}", run.name)
    assert any(path.name.endswith("_kernels_forward.c") for path in (run / "fxstack").iterdir())
    assert capfd.readouterr().err.count(str(run / "fxstack")) == 1


def test_a_folder_that_cannot_be_made_is_reported(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("FXSTACK_DEBUG_DIR", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match=r"FXSTACK_DEBUG_DIR: no file can be written into .*file"):
        compiled_step()


def test_programs_of_the_disk_cache_are_compiled_again_to_be_seen(monkeypatch, capfd, tmp_path):
    options = {"cache_dir": str(tmp_path)}
    compiled_step(**options)
    monkeypatch.setenv("FXSTACK_DEBUG", "kernels")
    compiled_step(**options)
    assert "void kernel_0(" in capfd.readouterr().err


class Records(logging.Handler):
    def __init__(self):
        super().__init__()
        self.seen = []

    def emit(self, record):
        self.seen.append((record.name, record.getMessage()))


@pytest.fixture
def torch_logs():
    """Return a function that sets torch's logs and returns the records of a compilation."""
    handler = Records()
    loggers = [
        logging.getLogger(name)
        for name in ("torch._dynamo", "torch._functorch.aot_autograd", "torch._inductor")
    ]

    def logged(**which):
        torch._logging.set_logs(**which)
        for logger in loggers:
            logger.addHandler(handler)
        compiled_step()
        return handler.seen

    disabled = logging.root.manager.disable
    logging.disable(logging.NOTSET)  # other tests silence logs
    yield logged
    logging.disable(disabled)
    for logger in loggers:
        logger.removeHandler(handler)
    torch._logging.set_logs()


TORCH_NAMES = [(torch_name, a.name) for a in ARTEFACTS for torch_name in a.torch_names]


SETTABLE = inspect.signature(torch._logging.set_logs).parameters


@pytest.mark.parametrize(("torch_name", "name"), [named for named in TORCH_NAMES if named[0] in SETTABLE])
def test_torchs_logs_show_the_artefacts(torch_logs, torch_name, name):
    records = torch_logs(**{torch_name: True})
    assert any(source.endswith(f"__{torch_name}") and text.startswith(f"{name} ") for source, text in records)


def test_every_name_of_torchs_logs_has_an_artefact_or_a_reason():
    rows = re.findall(r"^\| (`[`\w, ]+`) \| [A-Z`].*\. \|$", DOCS.read_text(), flags=re.MULTILINE)
    explained = re.findall(r"`(\w+)`", " ".join(row for row in rows if row.strip("`") not in NAMES))
    shown = {torch_name for torch_name, _ in TORCH_NAMES}
    assert shown.isdisjoint(explained)
    assert log_registry.artifact_names - shown - set(explained) == set()


def test_torchs_level_shows_the_verdicts(torch_logs):
    assert any(text.startswith("frames of step") for _, text in torch_logs(dynamo=logging.DEBUG))


def test_torchs_logs_are_silent_by_default(torch_logs):
    assert [text for name, text in torch_logs() if "fxstack" in name] == []


SCRIPT = """
import torch

@torch.compile
def step(x):
    y = x.sin()
    print(y.sum().item() > 100)
    return y.cos()

for size in (3, 4):
    step(torch.randn(size))
"""


def run(tmp_path, text=SCRIPT, **environment):
    """Run an unedited program on fxstack; return what it writes to stderr."""
    script = tmp_path / "train.py"
    script.write_text(text)
    command = [
        sys.executable,
        "-c",
        f"import fxstack; fxstack.install(); exec(compile(open({str(script)!r}).read(), {str(script)!r}, 'exec'))",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, check=True
    )
    return done.stderr


def test_the_summary_is_a_table_at_exit(tmp_path):
    text = run(tmp_path, FXSTACK_DEBUG="summary")
    head = r"== fxstack summary\n1 function compiled into \d graphs, with 2 graph breaks and \d recompilations?\.\n"
    assert re.search(head, text)
    assert re.search(r"Seconds by stage: .*capture \d+\.\d\d", text)
    assert re.search(r"2 breaks at .*train\.py:7 in step because .*\. Fix: ", text)


def test_a_program_may_change_directories_and_remove_stderr(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    text = f"import os, sys\nos.chdir('elsewhere')\nsys.stderr = None\n{SCRIPT}"
    run(tmp_path, text, FXSTACK_DEBUG="breaks,summary", FXSTACK_REPORT="out", FXSTACK_DEBUG_DIR="files")
    assert list(tmp_path.glob("out/process-*.html"))
    assert list(tmp_path.glob("files/*_breaks.txt"))


def test_the_docs_list_every_artefact():
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", DOCS.read_text(), flags=re.MULTILINE)
    made = [(a.name, a.sentence, ", ".join(f"`{n}`" for n in a.torch_names)) for a in ARTEFACTS]
    assert rows == made


def test_passes_are_one_line_each(monkeypatch, capfd):
    printed(monkeypatch, capfd, "")
    monkeypatch.setenv("FXSTACK_DEBUG", "passes")
    compiled_step()
    lines = capfd.readouterr().err.splitlines()
    for line in (
        "joint:trace_backward",
        "partition:cut_network",
        "schedule:fuse_tensors",
        "capture:assemble",
    ):
        assert any(
            re.match(rf"fxstack {line} [\d.]+ ms.*# step \(.*test_debug.py:\d+\)", each) for each in lines
        )
    assert any("nothing to do: " in line for line in lines)


def test_the_state_after_one_pass_is_printed(monkeypatch, capfd):
    ((title, body),) = dict(printed(monkeypatch, capfd, "functionalize:after=find_aliases")).items()
    assert re.match(r"functionalize after find_aliases of step \(.*test_debug\.py:\d+\)", title)
    assert "aten." in body and "# output 0" in body


def test_an_unknown_pass_is_reported(monkeypatch, capfd):
    with pytest.warns(UserWarning, match=r"no 'joint:after=trace'\. The nearest are joint:after=trace_\w+, "):
        assert printed(monkeypatch, capfd, "joint:after=trace") == []


def test_the_folder_has_a_file_for_each_pass(monkeypatch, tmp_path):
    monkeypatch.setenv("FXSTACK_DEBUG_DIR", str(tmp_path))
    compiled_step()
    ran = {re.search(r"_pass_(\w+)\.txt", path.name)[1] for path in tmp_path.glob("*_pass_*")}
    expected = {
        "capture_trace_to_break",
        "functionalize_record_forward",
        "joint_trace_backward",
        "partition_extract_forward",
        "lower_lower_operators",
        "schedule_fuse_tensors",
        "c_print_kernels",
    }
    assert expected <= ran


@pytest.mark.parametrize(
    "name",
    [
        "capture:assemble",
        "functionalize:find_aliases",
        "trace_backward",
        "cut_network",
        "fuse_tensors",
        "c:print_host",
    ],
)
def test_a_stage_ends_after_a_pass_and_the_rest_runs_in_eager(monkeypatch, name):
    fxstack.reset()
    monkeypatch.setenv("FXSTACK_STOP_AFTER", name)
    x = torch.randn(3, 5, requires_grad=True)
    with pytest.warns(UserWarning, match=f"FXSTACK_STOP_AFTER ended the compilation after .*{name}"):
        result = fxstack.compile(step)(x)
    (gradient,) = torch.autograd.grad(result.sin().sum(), x)
    torch.testing.assert_close(result, step(x))
    torch.testing.assert_close(gradient, torch.autograd.grad(step(x).sin().sum(), x)[0])


def test_an_unknown_pass_to_stop_after_is_reported(monkeypatch):
    fxstack.reset()
    monkeypatch.setenv("FXSTACK_STOP_AFTER", "fuse_tensor")
    with pytest.warns(
        UserWarning,
        match=r"no pass 'fuse_tensor'\. The nearest are fuse_tensors(, \w+){2}; 'fxstack passes' lists all\.$",
    ):
        fxstack.compile(step)(torch.randn(3))


@pytest.mark.parametrize(
    ("variable", "value"), [("FXSTACK_DEBUG", "brakes"), ("FXSTACK_STOP_AFTER", "lower:lower_operator")]
)
def test_unknown_names_are_reported_at_the_import(variable, value):
    command = [sys.executable, "-c", "import fxstack"]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, variable: value}
    )
    assert f"{variable}: there is no " in done.stderr
    assert len(done.stderr.splitlines()) <= 2
