"""Runs sweeps and benchmarks in their dry mode, for the tests of each package: ``run(script)``.

Most of a short script's time is the import of torch. So a process that has imported it, and has computed nothing (its threads
would not survive), forks for each script. Scripts are the files below ``sweeps`` and ``benchmarks`` that can be run.
"""

import contextlib
import functools
import json
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

LIMIT = 4000
"""Characters of the output that are shown."""


def scripts(package):
    """The scripts of the package in folder ``package``."""
    folders = (package / "tests" / "sweeps", package / "benchmarks")
    files = sorted(file for folder in folders for file in folder.glob("*.py"))
    return [file for file in files if '__name__ == "__main__"' in file.read_text()]


@functools.cache
def server():
    # Tests have Triton interpret; scripts that compile its kernels must find it as it is.
    environment = {name: v for name, v in os.environ.items() if name != "TRITON_INTERPRET"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([sys.executable, __file__], env=environment, text=True, **pipes)


def run(script):
    """The exit status and the output of ``script --dry``."""
    process = server()
    print(script, file=process.stdin, flush=True)
    status, output = json.loads(process.stdout.readline())
    return status, output


def check(script):
    status, output = run(script)
    assert status == 0, f"{script.name} --dry: status {status}\n{output}"


def ran(script, output):
    """Run ``script`` in this process, which is a fork; its exit status."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv = [str(script), "--dry"]
    sys.path[:0] = [str(Path(script).parent)]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def serve():
    import torch  # noqa: F401 - before the forks

    for line in sys.stdin:
        with tempfile.TemporaryDirectory() as folder, (Path(folder) / "output").open("w+") as output:
            child = os.fork()
            if not child:
                status = 1
                with contextlib.suppress(BaseException):
                    os.chdir(folder)
                    status = ran(line.strip(), output.fileno())
                os._exit(status & 255)
            _, status = os.waitpid(child, 0)
            output.seek(0)
            text = output.read()[-LIMIT:]
        print(json.dumps([os.waitstatus_to_exitcode(status), text]), flush=True)


if __name__ == "__main__":
    serve()
