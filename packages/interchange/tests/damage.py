"""Damaged graph files: random mutations of valid files by bytes, by truncation and by nodes of the JSON document."""

import copy
import io
import json
import random
import string
import zipfile

from stage_graphs import GRAPHS

from fxstack_interchange import LoadError, load
from fxstack_interchange.format.encoding.container import canonical_json, pack
from fxstack_interchange.format.files import to_bytes

ODD = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2**31,
        2**63,
        -(2**63),
        10**400,
        1.5,
        1e308,
        "",
        "x",
        "é",
        "\ud800",
        "x" * 100_000,
    ),
    *([], {}, [[]], [1, "a", None], {"a": 1}, {"": {}}, {"node": "x"}, {"target": "builtins.getattr"}),
    *(
        {"tensor": {}},
        {"tuple": [1]},
        {"float": "nan"},
        {"symint": "s0"},
        {"symint": "Add(s0, 1/3)"},
        {"dict": [[{"dict": []}, 1]]},
    ),
    *(
        "__class__",
        "os.system",
        "torch.ops.aten.add.Tensor",
        "torch.ops.aten",
        "getattr",
        "None",
        "self",
        "torch",
        "s0",
        "int_oo",
    ),
    *(
        "Pow(10, Pow(10, 10))",
        "Mod(s0, 0)",
        "FloorDiv(s0, 0)",
        "(" * 300,
        "cuda:99",
        "meta",
        "0" * 5000,
        ["x"] * 70,
    ),
]


def places(value, found=None):
    """Every (container, key) of a document."""
    found = [] if found is None else found
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found.append((value, key))
        places(item, found)
    return found


def change_document(document, rng):
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        container, key = rng.choice(places(document))
        others = [c[k] for c, k in places(document)]
        kind = rng.randrange(6)
        if kind == 0:
            del container[key]
        elif kind == 1:
            container[key] = rng.choice(ODD)
        elif kind == 2:
            container[key] = copy.deepcopy(rng.choice(others))
        elif kind == 3 and isinstance(container, list):
            container.insert(key, copy.deepcopy(rng.choice(others)))
        elif kind == 4 and isinstance(container[key], str):
            text, at = container[key], rng.randrange(len(container[key]) + 1)
            container[key] = text[:at] + rng.choice(string.printable) + text[at + rng.randrange(2) :]
        elif kind == 5 and isinstance(container[key], int):
            container[key] += rng.choice((-1, 1, 2**40))
        elif isinstance(container, dict):
            container[rng.choice(("a", "odd", "val", key + "x"))] = container.pop(key)
    return document


def change_bytes(data, rng):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 3, 20))):
        at = rng.randrange(len(data))
        kind = rng.randrange(4)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at : at + rng.randrange(1, 9)] = rng.randbytes(rng.randrange(9))
        elif kind == 2:
            data[at:at] = data[rng.randrange(len(data)) :][: rng.randrange(64)]
        else:  # the directory of the archive is at the end
            data[-rng.randrange(1, min(150, len(data)))] = rng.randrange(256)
    return bytes(data)


class Damage:
    """Valid files, and damaged ones by number."""

    def __init__(self):
        self.valid = [to_bytes(make()) for make in GRAPHS.values()]
        self.read = []
        for data in self.valid:
            archive = zipfile.ZipFile(io.BytesIO(data))
            self.read.append([archive.read(name) for name in ("graph.json", "constants.safetensors")])

    def file(self, number):
        rng = random.Random(number)
        chosen = rng.randrange(len(self.valid))
        data, (document, constants) = self.valid[chosen], self.read[chosen]
        kind = number % 10
        if kind == 0:
            return data[: rng.randrange(len(data))]
        if kind == 1:
            return change_bytes(data, rng)
        if kind == 2:
            return pack(change_bytes(document, rng), constants)
        if kind == 3 and constants:
            return pack(document, change_bytes(constants, rng))
        changed = change_document(json.loads(document), rng)
        return pack(
            json.dumps(changed, sort_keys=True).encode() if rng.randrange(2) else _canonical(changed),
            constants,
        )


def _canonical(document):
    try:
        return canonical_json(document)
    except ValueError:
        return json.dumps(document).encode()


def problem(data, path):
    """Load damaged bytes; return what is wrong with the outcome ("" if it loads, or fails as documented)."""
    path.write_bytes(data)
    try:
        load(path)
    except LoadError as error:
        text = str(error)
        if len(text) > 500:
            return f"{len(text)} characters"
        return "" if ": " in text else f"no check is named: {text}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return ""
