"""What an import of fxstack loads: nothing that is slow and that few programs need."""

import subprocess
import sys

SLOW = (
    "networkx",
    "triton",
    "matplotlib",
    "jinja2",
    "rich",
    "typer",
    "fxstack.debug.start",
    "fxstack.minify",
    "fxstack.report",
    "fxstack.trace",
    "scipy",
    "torch._dynamo",
    "torch._inductor",
    "torch.utils.flop_counter",
)


def test_slow_packages_are_imported_where_they_are_used():
    program = f"import sys, torch\nbefore = set(sys.modules)\nimport fxstack\nprint(*(set(sys.modules) - before) & set({SLOW}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
