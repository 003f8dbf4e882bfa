"""The documentation says what the code does."""

import importlib.util
import re
from pathlib import Path

from fxstack_partition import check_partition, corpus, partition, partitioners
from fxstack_partition.registry import REGISTRY

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_errors_is_the_registry():
    spec = importlib.util.spec_from_file_location("generate_errors", DOCS / "generate_errors.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (DOCS / "errors/index.md").read_text() == module.render(), "run docs/generate_errors.py"


def test_every_link_between_pages_exists():
    for page in DOCS.rglob("*.md"):
        text = re.sub(r"`[^`\n]*`", "", page.read_text())  # brackets in code are no links
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_quickstart_runs():
    (example,) = re.findall(r"```python\n(.*?)```", (DOCS / "index.md").read_text(), re.DOTALL)
    path = DOCS / "index.md"
    exec(compile(example, str(path), "exec"), {})


def test_drop_in_page_runs():
    path, namespace = DOCS / "drop-in.md", {}
    for example in re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL):
        exec(compile(example, str(path), "exec"), namespace)


def test_saved_tensor_hooks_page_runs(capsys):
    path = DOCS / "saved-tensor-hooks.md"
    (example,) = re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)
    exec(compile(example, str(path), "exec"), {})
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


def test_the_example_of_a_rule_names_where_rules_are_listed():
    (named,) = re.findall(r"a new module is listed once in `([\w/.]+)`", CONTRIBUTING)
    listed = DOCS.parent / "packages/capture/src/fxstack_capture" / named
    assert "regular_expressions" in re.sub(r'""".*?"""', "", listed.read_text(), flags=re.DOTALL)
