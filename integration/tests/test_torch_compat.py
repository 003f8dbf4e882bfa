"""Each package imports without any one of the private names of torch that its ``torch_compat`` lists, and reads no other."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("hidden_names.py")
PARTS = 16
"""Names are tried in so many tests: each name is an import of everything."""
PACKAGES = (
    "fxstack_interchange",
    "fxstack_capture",
    "fxstack_functionalize",
    "fxstack_partition",
    "fxstack_inductor",
    "fxstack",
)


def outcomes(part):
    """What the import of everything says for each name of a part: nothing, or a traceback."""
    command = [sys.executable, SCRIPT, str(part), str(PARTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("part", range(PARTS))
def test_everything_imports_without_any_one_name(part):
    found = outcomes(part)
    assert len(found) > 200 // PARTS
    assert {path: text for path, text in found.items() if text} == {}


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def chain(node):
    """``torch.a.b`` as a list of names; None for other expressions."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else None


def reads(tree):
    """Private names of torch that a module imports, or reaches from a name that it imports from torch."""
    known = {"torch": ["torch"]}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            for alias in node.names:
                known[alias.asname or alias.name] = [*node.module.split("."), alias.name]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".") for alias in node.names if alias.name.startswith("torch."))
    yield from known.values()
    for node in ast.walk(tree):
        names = chain(node) if isinstance(node, ast.Attribute) else None
        if names and names[0] in known:
            yield [*known[names[0]], *names[1:]]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_other_module_reads_a_private_name(package):
    module = sys.modules.get(package) or __import__(package)
    found = []
    for file in Path(module.__file__).parent.rglob("*.py"):
        if file.name != "torch_compat.py":
            for names in reads(ast.parse(file.read_text())):
                if names[1:2] != ["ops"] and any(map(is_private, names)):
                    found.append(f"{file.name}: {'.'.join(names)}")
    assert found == []


def test_the_check_sees_private_names():
    source = "import torch._x\nfrom torch.a import _b\nfrom torch import c\nc._d()\ntorch.e._f"
    found = {".".join(names) for names in reads(ast.parse(source))}
    assert {"torch._x", "torch.a._b", "torch.c._d", "torch.e._f"} <= found
