"""Imports fxstack without one private name of torch after the other, in processes; prints the outcomes as JSON.

python hidden_names.py PART PARTS     # every PARTS-th name, from number PART on
"""

import contextlib
import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path

import torch  # noqa: F401  (before the processes fork: its import is most of the time)

PACKAGES = ("interchange", "capture", "functionalize", "partition", "inductor")


def in_process(function):
    """What ``function`` returns in a process of its own, or its traceback."""
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        os.close(reader)
        try:
            result = function()
        except BaseException:
            result = traceback.format_exc()[-1500:]
        with os.fdopen(writer, "w") as out:
            json.dump(result, out)
        os._exit(0)
    os.close(writer)
    return process, reader


def result(process, reader):
    with os.fdopen(reader) as lines:
        text = lines.read()
    os.waitpid(process, 0)
    return json.loads(text) if text else "the process ended"


def names():
    """All private names, by path, and the modules of others that an import of fxstack loads."""
    import fxstack.torch_compat
    from fxstack_interchange.torch_names import entries

    modules = [sys.modules[f"fxstack_{name}.torch_compat"] for name in PACKAGES]
    modules.append(fxstack.torch_compat)
    paths = {path for module in modules for path, _, _ in entries(module.NAMES)}
    return sorted(paths), [name for name in sys.modules if not name.startswith("fxstack")]


def import_without(path):
    # Before any other module of ours.
    folder = Path(importlib.util.find_spec("fxstack_interchange").origin).parent
    found = importlib.util.spec_from_file_location(
        "fxstack_interchange.torch_names", folder / "torch_names.py"
    )
    module = sys.modules[found.name] = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    module.HIDDEN.add(path)
    importlib.import_module("fxstack.torch_compat")
    hidden = [m for name, m in sys.modules.items() if name.endswith(".torch_compat")]
    bound = [getattr(m, alias) for m in hidden for p, alias, _ in module.entries(m.NAMES) if p == path]
    if not bound or not all(isinstance(value, module.Absent) for value in bound):
        return f"{path} was not hidden"
    return ""


def main():
    part, parts = map(int, sys.argv[1:])
    paths, others = result(*in_process(names))
    paths = paths[part::parts]
    # The processes inherit what is loaded here, so that each of them imports our modules alone.
    for name in [*others, *(path.rpartition(".")[0] for path in paths)]:
        with contextlib.suppress(ImportError):  # a class, or a module that is gone
            importlib.import_module(name)
    found, running = {}, {}
    for path in paths:
        running[path] = in_process(lambda path=path: import_without(path))
        if len(running) == 2:
            first = next(iter(running))
            found[first] = result(*running.pop(first))
    found.update((path, result(*started)) for path, started in running.items())
    print(json.dumps(found))


if __name__ == "__main__":
    main()
