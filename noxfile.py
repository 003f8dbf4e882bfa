"""Every task of the repository: ``nox -l`` lists them, ``nox -s NAME`` runs one.

Sessions run on the Python that runs nox; ``-p 3.12`` chooses another. torch is pinned in ``requirements-torch.txt`` (one
build for every session) and can be overridden with FXSTACK_TORCH, e.g. ``FXSTACK_TORCH=torch==2.11.0``.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PINNED = (ROOT / "requirements-torch.txt").read_text().split()[-1]
TORCH = os.environ.get("FXSTACK_TORCH", PINNED)
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
VERSIONS = runpy.run_path(str(ROOT / "integration/tests/versions_matrix/run.py"))["ROWS"]
STAGES = ["capture", "functionalize", "partition", "inductor"]
TEST_TOOLS = ["pytest", "hypothesis", "expecttest", "scipy", "jsonschema", "matplotlib"]
# what deptry cannot see: one distribution, two modules
MODULES = "fxstack-capture=fxstack_capture|fxstack_interchange"
KERNEL_TOOLS = ["triton>=3.4"]  # what torch itself pins where it depends on Triton
MODEL_TOOLS = ["transformers==5.23.0"]

nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.pythons = [f"{sys.version_info[0]}.{sys.version_info[1]}"]
nox.options.sessions = ["tests", "lint", "typecheck"]


def directory(package: str) -> Path:
    return ROOT / "integration" if package == "integration" else ROOT / "packages" / package


def distribution(package: str) -> str:
    return "fxstack" if package == "integration" else f"fxstack-{package}"


def install(session: nox.Session, *packages: str, torch: str = TORCH) -> None:
    """Install torch and these packages from source, and nothing else of ours."""
    session.install(torch, "numpy")
    others = [distribution(p) for p in [*STAGES, "integration"] if p not in packages]
    if others:
        session.run("python", "-m", "pip", "uninstall", "-q", "-y", *others, silent=True)
    session.install(*(str(directory(p)) for p in packages))


def run_tests(session: nox.Session, package: str, *args: str) -> None:
    session.run("python", "-m", "pytest", str(directory(package) / "tests"), *args)


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """All tests: each stage in an environment without its siblings, then the whole."""
    session.install(TORCH, *TEST_TOOLS, *MODEL_TOOLS, *KERNEL_TOOLS)
    for package in STAGES:
        install(session, *dict.fromkeys(["capture", package]))
        run_tests(session, package, *session.posargs)
    install(session, *STAGES, "integration")
    session.install("matplotlib", "rich")
    run_tests(session, "integration", *session.posargs)


def tests_of(package: str) -> None:
    @nox.session(python=PYTHONS, name=f"tests_{package}")
    def alone(session: nox.Session) -> None:
        # The dry modes of capture's sweeps build models of transformers.
        tools = {"inductor": KERNEL_TOOLS, "capture": MODEL_TOOLS}.get(package, [])
        session.install(TORCH, *TEST_TOOLS, *tools)
        needed = [*STAGES, "integration"] if package == "integration" else ["capture", package]
        if package == "integration":
            session.install(*MODEL_TOOLS, "matplotlib", "rich")
        install(session, *dict.fromkeys(needed))
        run_tests(session, package, *session.posargs)

    alone.__doc__ = f"The tests of {package} alone, without its siblings."


for _package in [*STAGES, "integration"]:
    tests_of(_package)


@nox.session(python=PYTHONS)
def demo(session: nox.Session) -> None:
    """Train a small GPT, eager and compiled side by side; table, plot and report at the end."""
    install(session, *STAGES, "integration")
    session.install("matplotlib", "rich", "jinja2")
    session.run("python", "integration/examples/train_gpt.py", *session.posargs)


@nox.session(python=PYTHONS)
def bench(session: nox.Session) -> None:
    """Models at 5-50 ms a step: eager, torch.compile and fxstack side by side."""
    install(session, *STAGES, "integration")
    session.install(*MODEL_TOOLS, "psutil", "rich")
    session.run("python", "integration/benchmarks/models.py", *session.posargs)


@nox.session(python=PYTHONS)
def sweep(session: nox.Session) -> None:
    """The slow sweeps (op_db, CPython's own tests, fuzzers); results go to docs/results."""
    session.install(TORCH, *TEST_TOOLS, *MODEL_TOOLS)
    install(session, *STAGES, "integration")
    scripts = sorted(ROOT.glob("packages/*/tests/sweeps/*.py")) + sorted(
        ROOT.glob("integration/tests/sweeps/*.py")
    )
    chosen = [s for s in scripts if not session.posargs or s.stem in session.posargs]
    for script in chosen:
        session.run("python", str(script))


@nox.session(python=PYTHONS)
@nox.parametrize("torch", sorted({torch for _, torch in VERSIONS}))
def version(session: nox.Session, torch: str) -> None:
    """The quick tests of all packages, the eleven models and CPython's sample, on one Python and one torch."""
    session.install(f"torch=={torch}", *TEST_TOOLS, *MODEL_TOOLS, *KERNEL_TOOLS, "rich", "jinja2")
    install(session, *STAGES, "integration", torch=f"torch=={torch}")
    session.run("python", "integration/tests/versions_matrix/run.py", *session.posargs)


@nox.session(venv_backend="none")
def versions(session: nox.Session) -> None:
    """``version`` for each supported pair of Python and torch, and a table of what passed."""
    for python, torch in VERSIONS:
        name = f"version-{python}(torch='{torch}')"
        session.run(
            *(sys.executable, "-m", "nox", "-p", python, "-s", name, "--", *session.posargs),
            success_codes=[0, 1],
        )
    session.run(sys.executable, "integration/tests/versions_matrix/run.py", "--table")


@nox.session(python=PYTHONS)
def sanitize(session: nox.Session) -> None:
    """C kernels under the address and undefined-behaviour sanitizers, with gcc and clang where they are installed."""
    session.install(TORCH, *TEST_TOOLS)
    install(session, "capture", "inductor")
    script = "packages/inductor/tests/sweeps/sanitized.py"
    session.run("python", script, *session.posargs)


@nox.session(python=PYTHONS)
def lint(session: nox.Session) -> None:
    """Ruff (all rules), formatting, import layers, declared dependencies."""
    session.install("ruff==0.17.5", "import-linter", "deptry")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    paths = os.pathsep.join(str(directory(p) / "src") for p in [*STAGES, "integration"])
    session.run("lint-imports", env={"PYTHONPATH": paths})
    for package in [*STAGES, "integration"]:
        with session.chdir(directory(package)):
            session.run("deptry", "src", "--package-module-name-map", MODULES)


@nox.session(python=PYTHONS)
def typecheck(session: nox.Session) -> None:
    """mypy --strict over every package."""
    session.install("mypy==2.4.1", "numpy", "filelock", "platformdirs", "jinja2")
    session.run("mypy", *(str(directory(p) / "src") for p in [*STAGES, "integration"]))


@nox.session(python=PYTHONS)
def docs(session: nox.Session) -> None:
    """Build the site into site/."""
    session.install("mkdocs", "mkdocs-material")
    install(session, "capture")
    session.run("python", "docs/generate_errors.py")
    session.run("mkdocs", "build", "--strict")


@nox.session(python=PYTHONS)
def build(session: nox.Session) -> None:
    """Source distribution and wheel of each package, into dist/."""
    session.install("build")
    for package in [*STAGES, "integration"]:
        session.run("python", "-m", "build", "--outdir", str(ROOT / "dist"), str(directory(package)))
