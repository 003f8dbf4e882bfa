"""The documentation says what the code does."""

import importlib.util
import inspect
import re
import subprocess
import sys
import warnings
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fxstack_capture.breaks import GraphBreak
from fxstack_capture.guards.records import Check
from fxstack_capture.torch_side.subclasses import override_rules
from fxstack_inductor.schedule.fusion.groups import RULES as fusion_rules
from fxstack_partition import check_partition, corpus, partition, partitioners
from fxstack_partition.registry import REGISTRY

DOCS = Path(__file__).parents[2] / "docs"


GENERATED = {
    "generate_errors": "errors/index.md",
    "generate_calls": "calls.md",
    "generate_options": "options.md",
}
IS_NEWEST = torch.__version__.startswith("2.15") and sys.version_info[:2] == (3, 11)


@pytest.mark.parametrize("name", GENERATED)
def test_generated_pages_are_up_to_date(name):
    if name == "generate_calls" and not IS_NEWEST:
        pytest.skip("the page is about Python 3.11 and torch 2.15")
    # In a process of its own: what a test has imported (torch._dynamo) changes what decides some calls.
    program = (
        f"import sys; sys.path.insert(0, {str(DOCS)!r}); import {name}; sys.stdout.write({name}.render())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (DOCS / GENERATED[name]).read_text() == done.stdout, f"run docs/{name}.py"


def test_every_link_between_pages_exists():
    for page in DOCS.rglob("*.md"):
        text = re.sub(r"`[^`\n]*`", "", page.read_text())  # brackets in code are no links
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def _examples(text):
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def _run(examples):
    """Run examples in one namespace. No graph may run in eager instead."""
    namespace = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "(?s)fxstack: .*captured graph runs in eager")
        for example in examples:
            exec(compile(example, "example.md", "exec"), namespace)


def test_quickstart_runs():
    _run(_examples((DOCS / "index.md").read_text()))


SECTIONS = {
    text.partition("\n")[0]: _examples(text)
    for text in re.split(r"^## ", (DOCS / "drop-in.md").read_text(), flags=re.MULTILINE)
}


@pytest.mark.parametrize("heading", [heading for heading, examples in SECTIONS.items() if examples])
def test_a_section_about_torch_compile_runs(heading):
    _run(SECTIONS[heading])


def test_the_first_compile_is_one_graph(capsys):
    _run(_examples((DOCS / "first-compile.md").read_text()))
    assert "<CompileLog: 1 graphs, 0 breaks, 0 recompilations, 0 failures" in capsys.readouterr().out


def test_saved_tensor_hooks_page_runs(capsys):
    _run(_examples((DOCS / "saved-tensor-hooks.md").read_text()))
    errors = dict(re.findall(r"(\w+): relative error of the gradient ([\d.]+)", capsys.readouterr().out))
    assert 0 < float(errors["int8"]) < float(errors["float8"]) < 0.03
    assert float(errors["offload"]) < 1e-4


CONTRIBUTING = (DOCS.parent / "CONTRIBUTING.md").read_text()


def test_contributing_names_files_that_exist():
    commands = re.findall(r"python -m pytest (.+)", CONTRIBUTING)
    paths = {path for command in commands for path in command.split()}
    paths |= set(re.findall(r"`((?:packages|integration|docs)/[\w./-]+)`", CONTRIBUTING))
    assert len(paths) > 20
    assert [path for path in sorted(paths) if not (DOCS.parent / path).exists()] == []


def test_contributing_names_modules_and_tests_that_exist():
    names = set(re.findall(r"`([\w/]+\.(?:py|c))`", CONTRIBUTING))
    folders = [DOCS.parent, *DOCS.parent.glob("packages/*"), DOCS.parent / "integration"]
    inside = [
        folder
        for top in folders
        for folder in (top, *top.glob("src/*"), *top.glob("src/*/*"), *top.glob("tests/*"))
    ]
    inside += [folder for top in folders for folder in (top / "tests", *top.glob("src/*/*/*"))]
    missing = [name for name in names if not any((folder / name).exists() for folder in inside)]
    assert missing == []


def test_contributing_names_sessions_that_exist():
    sessions = (DOCS.parent / "noxfile.py").read_text()
    for line in re.findall(r"nox -s ([\w ]+)", CONTRIBUTING):
        for name in line.split():
            assert f"def {name}(" in sessions or name.startswith("tests_")


def test_the_example_of_a_partitioner_runs_as_printed():
    example = re.search(r"### 7\..*?```python\n(.*?)```", CONTRIBUTING, re.DOTALL)[1]
    names = dict(vars(partitioners))
    exec(example, names)
    try:
        joint = corpus.load("mlp_symbolic")
        check_partition(joint, partition(joint, "save_wide"))
    finally:
        del REGISTRY._table["save_wide"]


def example(number):
    """The Python blocks of an example."""
    section = re.search(rf"### {number}\..*?(?=\n###? |\Z)", CONTRIBUTING, re.DOTALL)[0]
    return _examples(section)


def as_in(module, **others):
    """The names of the module in which an example says that its code belongs."""
    return {**vars(importlib.import_module(module)), **others}


def row(text, names):
    """The key and the value of a row of a table."""
    ((key, value),) = eval(f"{{{text}}}", names).items()
    return key, value


def test_the_example_of_a_lowering_rule_runs_as_printed():
    names = as_in("fxstack_inductor.lower.elementwise.powers", rule=lambda name: lambda fn: (name, fn))
    (block,) = example(1)
    exec(block, names)
    name, fn = names["ldexp"]
    assert name == "ldexp.Tensor"
    assert torch.ops.aten.ldexp.Tensor is not None
    assert next(iter(inspect.signature(fn).parameters)) == "ctx"


def test_the_example_of_an_opcode_runs_as_printed():
    handler, text = example(2)
    names = as_in("fxstack_capture.interpreter.handlers.stack")
    exec(handler, names)
    frame = SimpleNamespace(stack=[1, 2, 3])
    names["swap"](frame, 3)
    assert frame.stack == [3, 2, 1]
    key, _ = row(text, as_in("fxstack_capture.versions.common"))
    assert key == "SWAP"


def test_the_example_of_a_library_rule_runs_as_printed():
    (block,) = example(3)
    names = {"__name__": "example"}
    exec(block, names)
    checksum = names["RULES"].objects.pop(id(zlib.crc32))
    assert checksum(None, zlib.crc32, (b"data", 1), {}) == zlib.crc32(b"data", 1)
    with pytest.raises(GraphBreak, match="unsupported-call"):
        checksum(None, zlib.crc32, (bytearray(b"data"),), {})


def test_the_example_of_a_guard_runs_as_printed():
    (block,) = example(4)
    names = as_in("fxstack_capture.guards.records.containers")
    exec(f"from __future__ import annotations\n{block}", names)
    check = names["IsEmpty"]()
    assert check.lower("source") == ("source", "LengthIs", (0,))
    assert (check.demand(), check.condition("x")) == ("must be empty", "not x")
    kinds = {
        kind for cls in Check.__subclasses__() if cls is not type(check) for kind in getattr(cls, "kinds", ())
    }
    assert set(check.kinds) <= kinds


def test_the_example_of_a_source_runs_as_printed():
    (block,) = example(5)
    record, access, loader = re.split(r"\n\n\n+", block.strip())
    names = as_in("fxstack_capture.sources")
    exec(record, names)
    made = names["Numel"](names["Local"]("x"))
    assert made.name == "x.numel()"
    sources = SimpleNamespace(Numel=names["Numel"])
    _, step = row(access, as_in("fxstack_capture.guards.accesses", sources=sources))
    assert step is not None
    exec(f"from __future__ import annotations\n{loader}", as_in("fxstack_capture.emit.loads"))


def test_the_example_of_a_fusion_rule_runs_as_printed():
    (block,) = example(6)
    names = as_in("fxstack_inductor.schedule.fusion.groups")
    exec(block, names)
    few = names["_few_tensors"]
    assert names["RULES"] == (few, *fusion_rules)
    assert few(None, SimpleNamespace(placed=range(5000)), None, None).rule == "too many tensors"
    assert few(None, SimpleNamespace(placed=range(5)), None, None) is None


def test_the_example_of_an_option_is_a_field():
    (block,) = example(8)
    exec(
        f"@dataclass(frozen=True, slots=True)\nclass Options:\n    {block}", as_in("fxstack_inductor.options")
    )


def test_the_example_of_an_override_rule_is_the_code():
    (block,) = example(9)
    function, text = re.split(r"\n\n\n+", block.strip())
    names = as_in("fxstack_capture.torch_side.subclasses.override_rules")
    exec(function, names)
    (key, value) = row(text, names)
    assert value is names["_is_mode_on"]
    assert key in override_rules.RULES
    assert function in inspect.getsource(override_rules)
