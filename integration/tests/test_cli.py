"""The command ``fxstack``: what it prints, its JSON and its exit statuses."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import fxstack
from fxstack.cli.main import app
from fxstack.cli.options import describe_options
from fxstack.settings import STAGES

DOCS = Path(__file__).parents[2] / "docs/command-line.md"


def invoke(*arguments):
    """Return the exit status and what a command prints."""
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, done.output


def run(folder, program, *arguments, **environment):
    """Run ``fxstack run`` on a program in a process of its own."""
    script = folder / "train.py"
    script.write_text(program)
    environment = {**os.environ, "FXSTACK_INDUCTOR_CACHE_DIR": str(folder / "cache"), **environment}
    command = [sys.executable, "-m", "fxstack", "run", *arguments[:1], str(script), *arguments[1:]]
    return subprocess.run(
        [word for word in command if word],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
    )


PROGRAM = """
import subprocess
import sys
import torch
import fxstack
print(__name__, sys.argv[1:], fxstack.is_installed())
step = torch.compile(lambda x: x.sin().cos())
step(torch.randn(3))
sys.exit(3)
"""


def test_run_is_pythons_own_run_with_a_summary(tmp_path):
    done = run(tmp_path, PROGRAM, "", "--lr", "0.1")
    assert done.returncode == 3
    assert done.stdout == "__main__ ['--lr', '0.1'] True\n"
    assert re.search(
        r"== fxstack summary\n1 function compiled into 1 graph, with 0 graph breaks", done.stderr
    )


def test_run_shows_artefacts(tmp_path):
    done = run(tmp_path, PROGRAM, "--debug=graph", FXSTACK_DEBUG_DIR="")
    assert "== fxstack graph of <lambda> (" in done.stderr
    assert "summary" not in done.stderr


def test_an_error_of_the_program_is_its_own(tmp_path):
    done = run(tmp_path, "raise ValueError('mine')")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[:2] == [
        "Traceback (most recent call last):",
        f'  File "{tmp_path}/train.py", line 1, in <module>',
    ]
    assert "ValueError: mine" in lines


def test_what_follows_the_script_belongs_to_the_program(tmp_path):
    words = ["--debug", "x", "--report", "out", "--help", "-m", "y"]
    done = run(tmp_path, "import sys\nprint(sys.argv[1:])", "", *words)
    assert done.stdout == f"{words}\n"


def test_run_names_a_missing_script():
    status, printed = invoke("run", "nowhere.py")
    assert (status, "nowhere.py is no file; to run a module use: fxstack run -m nowhere.py" in printed) == (
        2,
        True,
    )


def test_run_names_a_missing_module(tmp_path):
    command = [sys.executable, "-m", "fxstack", "run", "-m", "nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    text = f"fxstack run: No module named nowhere; the module is searched in {tmp_path} and on sys.path"
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, text)


def test_an_unknown_artefact_is_wrong_usage(tmp_path):
    (tmp_path / "train.py").touch()
    status, printed = invoke("run", "--debug", "graph,brakes", str(tmp_path / "train.py"))
    text = "--debug: there is no 'brakes'. The nearest are breaks, "
    assert (status, text in " ".join(printed.split())) == (2, True)


def test_doctor_finds_nothing_here(monkeypatch, tmp_path):
    monkeypatch.setenv("FXSTACK_INDUCTOR_CACHE_DIR", str(tmp_path))
    status, printed = invoke("doctor", "--json")
    found = {finding["name"]: finding for finding in json.loads(printed)}
    assert (status, [name for name, finding in found.items() if not finding["good"]]) == (0, [])
    assert {"Python", "torch", "C compiler and OpenMP", "cache on disk", "GPU"} <= found.keys()


PROBLEMS = {
    "no compiler": ({"FXSTACK_CC": "no-such-compiler"}, "no C compiler found .*fix: set FXSTACK_CC"),
    "cache is a file": (
        {"FXSTACK_INDUCTOR_CACHE_DIR": "/proc/1/fxstack"},
        "cannot be written.*fix: make it writable",
    ),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_doctor_says_how_to_mend(monkeypatch, problem):
    variables, text = PROBLEMS[problem]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    status, printed = invoke("doctor")
    assert status == 1
    assert re.search(f"PROBLEM .*{text}", " ".join(printed.split()))


def test_options_are_all_options_with_a_meaning():
    described = describe_options()
    expected = [
        (stage, field.name) for stage, record in STAGES.items() for field in dataclasses.fields(record)
    ]
    assert sorted((o.stage, o.name) for o in described) == sorted([("partition", "partitioner"), *expected])
    assert [option.name for option in described if not option.meaning] == []


def test_options_by_a_part_of_the_name():
    status, printed = invoke("options", "recompile_limit", "--json")
    names = [option["name"] for option in json.loads(printed)]
    assert (status, names) == (
        0,
        ["recompile_limit", "accumulated_recompile_limit", "fail_on_recompile_limit"],
    )
    assert invoke("options", "nothing")[0] == 2


def test_cache_shows_what_is_kept(tmp_path):
    status, printed = invoke("cache", "--dir", str(tmp_path))
    assert (status, str(tmp_path) in printed) == (0, True)
    assert invoke("cache", "--dir", str(tmp_path / "none"))[0] == 2


def test_a_cache_is_exported_and_imported(tmp_path):
    here, there, file = tmp_path / "here", tmp_path / "there", tmp_path / "kernels.zip"
    fxstack.compile(lambda x: x.sin() * 2, options={"cache_dir": str(here), "optimization": 1})(torch.ones(3))
    status, printed = invoke("cache", "export", str(file), "--dir", str(here))
    assert status == 0 and re.match(r"wrote [1-9]\d* entries, .* kB, to ", printed)
    assert invoke("cache", "import", str(file), "--dir", str(there))[1].startswith("added ")
    there_now = json.loads(invoke("cache", "check", "--json", "--dir", str(there))[1])
    assert there_now == json.loads(invoke("cache", "check", "--json", "--dir", str(here))[1])
    assert there_now["intact"] > 0
    assert json.loads(invoke("cache", "import", "--json", str(file), "--dir", str(there))[1])["keys"] == []


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, "No such file"), (b"no zip", "File is not a zip file"), (b"", "File is not a zip file")],
)
def test_a_bad_file_is_not_imported(tmp_path, content, text):
    file = tmp_path / "kernels.zip"
    if content is not None:
        file.write_bytes(content)
    status, printed = invoke("cache", "import", str(file), "--dir", str(tmp_path))
    assert status == 2 and text in printed
    assert "needs a file" in invoke("cache", "export")[1]


def test_cache_commands_are_in_the_help_and_print_json(tmp_path):
    printed = " ".join(invoke("cache", "check", "--help")[1].split())
    assert "list: show each entry, most recently used first; check: remove damaged entries" in printed
    assert json.loads(invoke("cache", "check", "--json", "--dir", str(tmp_path))[1])["intact"] == 0
    status, printed = invoke("cache", "prune")
    assert (status, "it has summary, list, check, clear" in " ".join(printed.split())) == (2, True)


def test_the_versions_of_all_packages_are_printed():
    status, printed = invoke("--version")
    versions = dict(line.split() for line in printed.splitlines())
    packages = {
        "fxstack",
        "fxstack-interchange",
        "fxstack-capture",
        "fxstack-functionalize",
        "fxstack-partition",
        "fxstack-inductor",
    }
    assert (status, versions.keys()) == (0, {*packages, "torch", "Python"})
    assert versions["torch"] == torch.__version__


DEBUGGING = (DOCS.parent / "debugging.md").read_text().partition("## It is wrong")[2]
TRAIN = """
import torch
torch.compile(torch.nn.Linear(4, 1))(torch.ones(2, 4)).sum().backward()
"""


@pytest.mark.parametrize("line", re.findall(r"^(?:TORCH\w+=.*|fxstack .*)$", DEBUGGING, flags=re.MULTILINE))
def test_commands_of_the_page_on_wrong_programs_run(tmp_path, line):
    (tmp_path / "train.py").write_text(TRAIN)
    line = re.sub(
        "(python|fxstack) ",
        lambda found: f"{sys.executable} {'-m fxstack ' * (found[1] == 'fxstack')}",
        line,
        count=1,
    )
    environment = {**os.environ, "FXSTACK_INDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(line, shell=True, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr


def test_the_docs_name_every_command():
    named = set(re.findall(r"^fxstack (\w+)", DOCS.read_text(), flags=re.MULTILINE))
    assert named == {command.name or command.callback.__name__ for command in app.registered_commands}


NO_VARIABLES = {"FXSTACK_EXACT_MATH", "FXSTACK_LIBMVEC", "FXSTACK_LATER_PART"}
"""Macros of generated C, and the mark between its parts."""


def test_the_docs_name_every_environment_variable():
    root = DOCS.parents[1]
    sources = [*root.glob("packages/*/src/**/*.py"), *root.glob("integration/src/**/*.py")]
    used = {name for path in sources for name in re.findall(r"FXSTACK(?:_[A-Z]+)+", path.read_text())}
    named = set(re.findall(r"^\| `(FXSTACK_\w+)` \|", DOCS.read_text(), flags=re.MULTILINE))
    assert named == used - NO_VARIABLES
