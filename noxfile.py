"""Every task of the repository: ``nox -l`` lists them, ``nox -s NAME`` runs one.

Sessions run on the Python that runs nox; ``-p 3.12`` chooses another. torch is pinned in ``requirements-torch.txt`` (one
build for every session) and can be overridden with FXSTACK_TORCH, e.g. ``FXSTACK_TORCH=torch==2.11.0``.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PINNED = (ROOT / "requirements-torch.txt").read_text().split()[-1]
TORCH = os.environ.get("FXSTACK_TORCH", PINNED)
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
VERSIONS = runpy.run_path(str(ROOT / "integration/tests/versions_matrix/run.py"))["ROWS"]
STAGES = ["interchange", "capture", "functionalize", "partition", "inductor"]
TEST_TOOLS = ["pytest", "pytest-xdist", "hypothesis", "expecttest", "scipy", "jsonschema", "matplotlib"]
# Capture's tests of what depends on the version of Python.
PYTHON_SENSITIVE = ["interpreter", "versions", "emit", "native", "driver", "effects", "guards"]
# Tests of the whole stack that run on each version of Python.
SMOKE = ["readme", "steps", "api", "scripts"]
KERNEL_TOOLS = ["triton>=3.4"]  # what torch itself pins where it depends on Triton
MODEL_TOOLS = ["transformers==5.23.0"]

# uv unpacks torch once and makes each environment of hard links; pip copies 5 GB into each.
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.pythons = [f"{sys.version_info[0]}.{sys.version_info[1]}"]
nox.options.sessions = ["tests", "lint", "typecheck"]


def directory(package: str) -> Path:
    return ROOT / "integration" if package == "integration" else ROOT / "packages" / package


def distribution(package: str) -> str:
    return "fxstack" if package == "integration" else f"fxstack-{package}"


# Where this variable is set, each process compiles all of torch's Python code again: 13 seconds for each worker.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

WHEELS: dict[tuple[str, str], Path] = {}
"""The wheels that this run of nox has built, by package and Python (``any`` for pure Python)."""


def build_wheel(package: str, folder: Path, command: list[str]) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    # setuptools packs the modules and files that it finds listed there, deleted ones too
    for left in (directory(package) / "build", *(directory(package) / "src").glob("*.egg-info")):
        shutil.rmtree(left, ignore_errors=True)
    subprocess.run([*command, str(folder), str(directory(package))], check=True)
    (built,) = folder.glob("*.whl")
    return built


def wheels(session: nox.Session, *packages: str) -> list[str]:
    """Paths of the wheels of these packages, built on the first request of this run of nox."""
    python = shutil.which("python", path=session.bin)
    if python is None:
        session.error(f"no python in {session.bin}")
    command = [python, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir"]
    if session.venv_backend == "uv":
        command = [nox.virtualenv.UV, "build", "-q", "--wheel", "--python", python, "--out-dir"]
    keys = {
        package: (package, str(session.python) if package == "capture" else "any") for package in packages
    }
    missing = {package: key for package, key in keys.items() if key not in WHEELS}
    with ThreadPoolExecutor() as pool:
        build = {
            key: pool.submit(build_wheel, package, ROOT / "build" / "wheels" / "-".join(key), command)
            for package, key in missing.items()
        }
    WHEELS.update({key: future.result() for key, future in build.items()})
    return [str(WHEELS[key]) for key in keys.values()]


def install(session: nox.Session, *packages: str, torch: str = TORCH) -> None:
    """Install torch and the wheels of these packages, and nothing else of ours."""
    session.install(torch, "numpy")
    ours = [distribution(package) for package in [*STAGES, "integration"]]
    uninstall = ["python", "-m", "pip", "uninstall", "-y"]
    if session.venv_backend == "uv":
        uninstall = [nox.virtualenv.UV, "pip", "uninstall"]
    session.run_install(*uninstall, "-q", *ours, silent=True, external=True)
    session.install(*wheels(session, *packages))


def caches(session: nox.Session) -> Path:
    """The folder of compiled kernels and checks that the test processes of this session share."""
    return Path(session.create_tmp()).resolve() / "caches"


def empty_caches(session: nox.Session) -> None:
    shutil.rmtree(caches(session), ignore_errors=True)


HANG_SECONDS = 1800
"""A test that runs as long ends its worker, with the stacks of all threads."""


def run_tests(session: nox.Session, name: str, paths: list[Path], *args: str) -> bool:
    """Run tests with two workers of one thread each, and tell whether all passed.

    ``build/costs/`` gets a file of what each test costs.
    """
    environment = {
        "PYTHONPATH": str(ROOT / "testing"),
        "OMP_NUM_THREADS": "1",
        "FXSTACK_TEST_CACHES": str(caches(session)),  # each worker has a folder of its own below this one
    }
    costs = ROOT / "build" / "costs" / f"{name}-{session.python}.txt"
    command = ["python", "-m", "pytest", "-p", "gate", "-n", "2", "--dist", "worksteal", f"--costs={costs}"]
    command += ["-o", f"faulthandler_timeout={HANG_SECONDS}", "-o", "faulthandler_exit_on_timeout=true"]
    try:
        session.run(*command, *map(str, paths), *args, env=environment)
    except nox.command.CommandFailed:
        return False
    return True


def report(session: nox.Session, passed: dict[str, bool]) -> None:
    """End the session with an error if a suite failed; the others have run all the same."""
    if failed := [name for name, good in passed.items() if not good]:
        session.error(f"tests failed: {', '.join(failed)}")


# Whatever the date: the README's demo, whole models, and what the packages import.
ALWAYS = [f"--keep=integration/test_{name}.py" for name in ("readme", "models", "no_incumbent")]


def run_suites(session: nox.Session, *args: str) -> None:
    """Run the tests of each stage in an environment without its siblings, then the tests of the whole."""
    empty_caches(session)
    session.install(TORCH, *TEST_TOOLS, *MODEL_TOOLS, *KERNEL_TOOLS)
    passed = {}
    for package in STAGES:
        install(session, *dict.fromkeys(["interchange", package]))
        passed[package] = run_tests(session, package, [directory(package) / "tests"], *args)
    install(session, *STAGES, "integration")
    session.install("rich")
    passed["integration"] = run_tests(session, "integration", [directory("integration") / "tests"], *args)
    report(session, passed)


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """The tests of every change: all that are quick, and a twelfth of the slow ones, by the date."""
    run_suites(session, "--slow=rotation", *ALWAYS, "--cpu-limit=5", *session.posargs)


@nox.session(python=PYTHONS)
def tests_all(session: nox.Session) -> None:
    """All tests."""
    run_suites(session, *session.posargs)


@nox.session(python=PYTHONS)
def tests_shuffled(session: nox.Session) -> None:
    """The tests of every change in a random order; ``-- -p randomly --randomly-seed=N`` repeats one."""
    session.install("pytest-randomly")
    run_suites(session, "--slow=rotation", *ALWAYS, *session.posargs)


@nox.session(python=PYTHONS)
def tests_python(session: nox.Session) -> None:
    """What depends on the version of Python: tests of bytecode, frames and guards, and a sample of the whole."""
    empty_caches(session)
    session.install(TORCH, *TEST_TOOLS, *MODEL_TOOLS)
    install(session, "interchange", "capture")
    folders = [directory("capture") / "tests" / folder for folder in PYTHON_SENSITIVE]
    slow = ["--slow=rotation", "--keep=capture/native/"]
    passed = {"capture": run_tests(session, "python-capture", folders, *slow, *session.posargs)}
    install(session, *STAGES, "integration")
    session.install("rich")
    files = [directory("integration") / "tests" / f"test_{name}.py" for name in SMOKE]
    passed["whole"] = run_tests(session, "python-whole", files, "--slow=none", *session.posargs)
    report(session, passed)


def tests_of(package: str) -> None:
    @nox.session(python=PYTHONS, name=f"tests_{package}")
    def alone(session: nox.Session) -> None:
        empty_caches(session)
        # The dry modes of capture's sweeps build models of transformers.
        tools = {"inductor": KERNEL_TOOLS, "capture": MODEL_TOOLS}.get(package, [])
        session.install(TORCH, *TEST_TOOLS, *tools)
        needed = [*STAGES, "integration"] if package == "integration" else ["interchange", package]
        if package == "integration":
            session.install(*MODEL_TOOLS, "rich")
        install(session, *dict.fromkeys(needed))
        report(
            session,
            {package: run_tests(session, package, [directory(package) / "tests"], *ALWAYS, *session.posargs)},
        )

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


LIBRARIES = [
    "accelerate",
    "diffusers",
    "einops",
    "gpytorch",
    "kornia",
    "lightning",
    "peft",
    "skorch",
    "tensordict",
    "torch_geometric",
    "torchao",
    "torchdiffeq",
    "torchmetrics",
    "x-transformers",
    "pytorch-ignite",
]


@nox.session(python=PYTHONS)
def libraries(session: nox.Session) -> None:
    """Programs of libraries that call torch.compile, unedited on fxstack, in a process each."""
    session.install(TORCH, *TEST_TOOLS, *MODEL_TOOLS, *LIBRARIES)
    install(session, *STAGES, "integration")
    tests = "integration/tests/test_libraries.py"
    session.run("python", "-m", "pytest", tests, *session.posargs, env={"FXSTACK_LIBRARIES": "1"})


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
    install(session, "interchange", "inductor")
    script = "packages/inductor/tests/sweeps/sanitized.py"
    session.run("python", script, *session.posargs)


@nox.session(python=PYTHONS)
def lint(session: nox.Session) -> None:
    """Ruff (all rules), formatting, import layers, declared dependencies, measures of structure."""
    session.install("ruff==0.17.5", "import-linter", "deptry", "networkx")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    paths = os.pathsep.join(str(directory(p) / "src") for p in [*STAGES, "integration"])
    session.run("lint-imports", env={"PYTHONPATH": paths})
    for package in [*STAGES, "integration"]:
        with session.chdir(directory(package)):
            session.run("deptry", "src")
    # grimp, which docs/house.py also needs, comes with import-linter.
    session.run("python", "docs/house.py")


@nox.session(python=PYTHONS)
def typecheck(session: nox.Session) -> None:
    """mypy --strict over every package."""
    session.install("mypy==2.4.1", "numpy", "filelock", "platformdirs", "jinja2", "rich", "typer")
    session.run("mypy", *(str(directory(p) / "src") for p in [*STAGES, "integration"]))


@nox.session(python=PYTHONS)
def docs(session: nox.Session) -> None:
    """Build the site into site/."""
    session.install("mkdocs", "mkdocs-material")
    install(session, *STAGES, "integration")  # the programs of the page of errors run
    session.run("python", "docs/generate_errors.py")
    session.run("python", "docs/generate_calls.py")
    session.run("python", "docs/generate_options.py")
    session.run("mkdocs", "build", "--strict")


@nox.session(python=PYTHONS)
def build(session: nox.Session) -> None:
    """Source distribution and wheel of each package, into dist/."""
    session.install("build")
    for package in [*STAGES, "integration"]:
        session.run("python", "-m", "build", "--outdir", str(ROOT / "dist"), str(directory(package)))


@nox.session(python=PYTHONS)
def release(session: nox.Session) -> None:
    """Build and check the distributions of the next release; ``-- --tag`` also makes the git tag.

    Each distribution is built as sdist and wheel. The wheels are installed into a bare environment with the caller's
    torch; there each package is imported and the first Python example of its README runs.
    """
    version = release_version(session)
    session.install("build", "twine")
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    for package in [*STAGES, "integration"]:
        session.run("python", "-m", "build", "--outdir", str(ROOT / "dist"), str(directory(package)))
    files = sorted(str(path) for path in (ROOT / "dist").iterdir())
    session.run("twine", "check", "--strict", *files)
    try_wheels(session, [path for path in files if path.endswith(".whl")])
    if "--tag" in session.posargs:
        session.run(
            "git", "tag", "--annotate", f"v{version}", "--message", f"fxstack {version}", external=True
        )
    else:
        session.log(f"would create the annotated tag v{version}; -- --tag creates it")


def release_version(session: nox.Session) -> str:
    """Return the version that all distributions but interchange share.

    The version of interchange follows the file format. Each changelog must have a section for its version, and no
    fragments may be left.
    """
    versions = set()
    for package in [*STAGES, "integration"]:
        folder = directory(package)
        version = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["version"]
        if package != "interchange":
            versions.add(version)
        if f"\n## {version} (" not in (folder / "CHANGELOG.md").read_text():
            session.error(f"{package}: CHANGELOG.md has no section for {version}; run towncrier build")
        if fragments := sorted(path.name for path in (folder / "changelog.d").glob("*.md")):
            session.error(f"{package}: the changelog lacks {fragments}; run towncrier build")
    if len(versions) != 1:
        session.error(f"the distributions have different versions: {sorted(versions)}")
    return versions.pop()


def try_wheels(session: nox.Session, wheels: list[str]) -> None:
    """Install the wheels into a bare environment, import each package, run the README examples outside of the clone."""
    bare = Path(session.create_tmp()).resolve()
    shutil.rmtree(bare, ignore_errors=True)
    session.run("python", "-m", "venv", str(bare / "venv"))
    python = str(bare / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python")
    clean: dict[str, str | None] = {"PYTHONPATH": None}

    def run(*args: str) -> None:
        session.run(python, *args, env=clean, external=True)

    run("-m", "pip", "install", "--quiet", TORCH, *wheels)
    with session.chdir(bare):
        modules = ["fxstack", *(f"fxstack_{stage}" for stage in STAGES)]
        run("-c", f"import {', '.join([*modules, 'fxstack_capture._native'])}")
        for package in [*STAGES, "integration"]:
            readme = (directory(package) / "README.md").read_text()
            example = bare / f"{package}_example.py"
            example.write_text(re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)[0])
            run(example.name)
