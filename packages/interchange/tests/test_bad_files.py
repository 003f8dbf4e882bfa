"""Every defect of a file gets an error that names it; nothing in a file is executed."""

import json
import zipfile

import pytest
import torch
from stage_graphs import GRAPHS, captured, joint

from fxstack_interchange import Limits, LoadError, load, save
from fxstack_interchange.format.encoding.container import canonical_json, pack


def parts(tmp_path, make=joint):
    path = tmp_path / "good.fxg"
    save(make(), path)
    archive = zipfile.ZipFile(path)
    return json.loads(archive.read("graph.json")), archive.read("constants.safetensors")


def error_of(tmp_path, change, make=joint, **options):
    """Return the message with which loading fails after ``change(document)``."""
    document, constants = parts(tmp_path, make)
    document = change(document) or document
    return load_error(tmp_path, pack(canonical_json(document), constants), **options)


def load_error(tmp_path, data, **options):
    path = tmp_path / "bad.fxg"
    path.write_bytes(data)
    with pytest.raises(LoadError) as caught:
        load(path, **options)
    return str(caught.value)


def node(document, index):
    return document["graph"]["nodes"][index]


def test_every_truncation_is_noticed(tmp_path):
    save(joint(), tmp_path / "good.fxg")
    data = (tmp_path / "good.fxg").read_bytes()
    for length in range(0, len(data), 97):
        assert "truncated" in load_error(tmp_path, data[:length])


def test_a_flipped_byte_is_noticed(tmp_path):
    save(joint(), tmp_path / "good.fxg")
    data = bytearray((tmp_path / "good.fxg").read_bytes())
    data[len(data) // 2] ^= 0xFF
    assert "bad.fxg" in load_error(tmp_path, bytes(data))


def test_another_format(tmp_path):
    assert "its format is not 'fxstack-interchange'" in error_of(tmp_path, lambda d: d | {"format": "onnx"})


@pytest.mark.parametrize("version", ["2.0", "1.2", "0.9"])
def test_another_version(version, tmp_path):
    message = error_of(tmp_path, lambda d: d | {"version": version})
    assert f"format version {version}, this reader understands 1.0 to 1.1" in message


@pytest.mark.parametrize("version", ["1", "x.y", "1.0.0", "", None, 1.0])
def test_a_malformed_version(version, tmp_path):
    assert "malformed format version" in error_of(tmp_path, lambda d: d | {"version": version})


def test_an_unknown_operator(tmp_path):
    def change(document):
        node(document, 3)["target"] = "torch.ops.aten.no_such_thing.default"

    message = error_of(tmp_path, change)
    assert "node 'mul'" in message
    assert "unknown operator 'torch.ops.aten.no_such_thing.default'" in message
    assert torch.__version__ in message


FORBIDDEN = [
    "os.system",
    "builtins.eval",
    "builtins.exec",
    "builtins.__import__",
    "torch.load",
    "torch.os.system",
    "torch.hub.load",
    "torch.ops.load_library",
    "torch.ops.aten.from_file.default",
    "torch.from_file",
    "torch.nn.functional.torch.load",
    "torch.ops.aten.__class__.x",
    "torch.ops.higher_order.__class__",
    "operator.methodcaller",
    "operator.call",
    "torch.compile",
    "torch._C._jit_pass_inline",
    "subprocess.run",
    "",
]


@pytest.mark.parametrize("target", FORBIDDEN)
def test_what_is_not_an_operator_is_refused(target, tmp_path):
    def change(document):
        node(document, 3)["target"] = target

    assert "operator" in error_of(tmp_path, change)


@pytest.mark.parametrize("target", FORBIDDEN)
def test_nor_does_it_pass_as_an_argument(target, tmp_path):
    def change(document):
        node(document, 3)["args"].append({"target": target})

    assert "operator" in error_of(tmp_path, change)


@pytest.mark.parametrize("method", ["__reduce_ex__x", "nope", "save", "x; import os", "a.b"])
def test_an_unknown_method(method, tmp_path):
    def change(document):
        item = next(n for n in document["graph"]["nodes"] if n["op"] == "call_method")
        item["target"] = method

    assert "unknown tensor method" in error_of(tmp_path, change, captured)


def test_a_duplicated_name(tmp_path):
    def change(document):
        node(document, 4)["name"] = "mul"

    assert "node 'mul': the name is used twice" in error_of(tmp_path, change)


@pytest.mark.parametrize("name", ["x): pass\nimport os\ndef f(", "import", "a b", "1a", "", "é-"])
def test_a_name_that_is_not_an_identifier(name, tmp_path):
    def change(document):
        node(document, 3)["name"] = name

    assert "is not an identifier" in error_of(tmp_path, change)


def test_an_input_named_like_code(tmp_path):
    def change(document):
        node(document, 0)["target"] = "x=print(1)"

    assert "target 'x=print(1)' is not an identifier" in error_of(tmp_path, change)


def test_a_keyword_argument_named_like_code(tmp_path):
    def change(document):
        node(document, 3)["kwargs"] = [["a=1, **b", 1]]

    assert "keyword 'a=1, **b' is not an identifier" in error_of(tmp_path, change)


def test_a_forward_reference(tmp_path):
    def change(document):
        node(document, 3)["args"][0] = {"node": "sigmoid"}

    message = error_of(tmp_path, change)
    assert "refers to node 'sigmoid', which is not defined before it" in message


def test_a_cycle(tmp_path):
    def change(document):
        node(document, 3)["args"][0] = {"node": "mul"}

    assert "a forward reference, a cycle, or a missing node" in error_of(tmp_path, change)


def test_a_missing_output(tmp_path):
    def change(document):
        document["graph"]["nodes"].pop()

    assert "must end in its output node" in error_of(tmp_path, change)


def test_nodes_after_the_output(tmp_path):
    def change(document):
        nodes = document["graph"]["nodes"]
        nodes.append({**nodes[-1], "name": "again"})

    assert "follows the output node" in error_of(tmp_path, change)


def test_a_signature_that_does_not_fit(tmp_path):
    def change(document):
        document["signature"]["inputs"].pop()

    message = error_of(tmp_path, change)
    assert "signature and graph of the file do not fit together" in message
    assert "3 placeholders, 2 input specifications" in message


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda d: d.pop("graph"), "document lacks 'graph'"),
        (lambda d: d | {"extra": 1}, "has the unknown key 'extra'"),
        (lambda d: d | {"stage": "other"}, "document.stage is 'other', must be one of captured"),
        (lambda d: d | {"graph": []}, "document.graph must be object, found list"),
        (lambda d: node(d, 0).update(meta={"odd": 1}), "has the unknown key 'odd'"),
        (lambda d: node(d, 0).update(op="call_module"), "is 'call_module', must be one of"),
        (lambda d: node(d, 0)["meta"].update(val={"odd": 1}), "unknown kind of value 'odd'"),
        (lambda d: node(d, 3)["args"].append({"odd": 1}), "unknown kind of argument 'odd'"),
        (lambda d: node(d, 3)["args"].append({"float": "1e999"}), "malformed float '1e999'"),
        (lambda d: node(d, 3)["args"].append({"dtype": "load"}), "unknown dtype 'load'"),
        (lambda d: node(d, 3)["args"].append({"device": "moon"}), "unknown device 'moon'"),
        (lambda d: node(d, 3)["args"].append({"slice": [1]}), "a slice has three parts"),
        (lambda d: node(d, 3)["args"].append({"symint": "q + 1"}), "malformed size expression"),
    ],
)
def test_a_malformed_document(change, expected, tmp_path):
    def quiet(document):
        made = change(document)
        return made if isinstance(made, dict) and "format" in made else None

    assert expected in error_of(tmp_path, quiet)


def tensor_of(document):
    return node(document, 0)["meta"]["val"]["tensor"]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("shape", [2**63], "impossible size"),
        ("shape", [-1, 3], "impossible size -1"),
        ("shape", [2] * 65, "at most 64 sizes"),
        ("shape", [1], "a tensor of 1 dimensions has 2 strides"),
        ("shape", ["s99", 3], "unknown symbol 's99'"),
        ("shape", ["__import__('os')", 3], "malformed size expression"),
        ("dtype", "Tensor", "unknown dtype 'Tensor'"),
    ],
)
def test_an_impossible_tensor(key, value, expected, tmp_path):
    assert expected in error_of(tmp_path, lambda d: tensor_of(d).update({key: value}))


def test_deep_nesting(tmp_path):
    def change(document):
        deep = 1
        for _ in range(70):
            deep = [deep]
        node(document, 3)["args"].append(deep)

    assert "nested deeper than 64" in error_of(tmp_path, change)


def test_nesting_beyond_what_python_parses(tmp_path):
    _, constants = parts(tmp_path)
    text = b'{"format":' + b"[" * 200_000
    assert "is not valid JSON" in load_error(tmp_path, pack(text, constants))


def test_a_duplicated_key(tmp_path):
    document, constants = parts(tmp_path)
    text = canonical_json(document)
    text = b'{"format":"fxstack-interchange",' + text[1:]
    assert "duplicated key 'format'" in load_error(tmp_path, pack(text, constants))


def test_a_number_that_is_not_json(tmp_path):
    _, constants = parts(tmp_path)
    assert "NaN is not JSON" in load_error(tmp_path, pack(b'{"format": NaN}', constants))


def test_limits_are_checked_before_reading(tmp_path):
    document, constants = parts(tmp_path)
    data = pack(canonical_json(document), constants)
    message = load_error(tmp_path, data, limits=Limits(document_bytes=10))
    assert "over the limit of 10" in message
    assert "over the limit of 1" in load_error(tmp_path, data, limits=Limits(constants_bytes=1))
    assert "over the limit of 2" in load_error(tmp_path, data, limits=Limits(nodes=2))


def archive(tmp_path, members, compression=zipfile.ZIP_STORED):
    path = tmp_path / "made.zip"
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in members:
            file.writestr(name, data)
    return path.read_bytes()


def test_a_compressed_member_is_refused(tmp_path):
    document, constants = parts(tmp_path)
    members = [("graph.json", canonical_json(document)), ("constants.safetensors", constants)]
    data = archive(tmp_path, members, zipfile.ZIP_DEFLATED)
    assert "is compressed or encrypted" in load_error(tmp_path, data)


def test_other_members_are_refused(tmp_path):
    message = load_error(tmp_path, archive(tmp_path, [("evil.py", "x")]))
    assert "an interchange file holds graph.json and constants.safetensors" in message


def test_constants_that_are_missing_or_damaged(tmp_path):
    document, constants = parts(tmp_path, GRAPHS["functional"])
    text = canonical_json(document)
    _, none = parts(tmp_path)
    assert "constants described and constants stored differ" in load_error(tmp_path, pack(text, none))
    assert "damaged" in load_error(tmp_path, pack(text, constants[:-1]))
    assert "damaged" in load_error(tmp_path, pack(text, b"\xff" * 20))


def test_a_constant_of_another_size(tmp_path):
    def change(document):
        document["constants"]["t0"]["shape"] = [2**40, 2**40]

    message = error_of(tmp_path, change, GRAPHS["functional"])
    assert "constant 't0': 24 bytes are stored, shape (1099511627776, 1099511627776)" in message


def test_a_constant_on_a_device_that_is_not_there(tmp_path):
    def change(document):
        document["constants"]["t0"]["device"] = "cuda:77"

    message = error_of(tmp_path, change, GRAPHS["functional"])
    assert "pass map_location='cpu'" in message


def test_an_attribute_that_would_replace_part_of_the_module(tmp_path):
    def change(document):
        graph = document["graph"]
        graph["attributes"]["forward"] = graph["attributes"].pop("table")

    message = error_of(tmp_path, change, GRAPHS["functional"])
    assert "'forward' would replace a part of GraphModule" in message


def test_a_symbol_declared_twice(tmp_path):
    def change(document):
        document["symbols"].append(document["symbols"][0])

    assert "is declared twice" in error_of(tmp_path, change, GRAPHS["joint_symbolic"])


def test_an_empty_range(tmp_path):
    def change(document):
        document["symbols"][0].update(lower=9, upper=3)

    assert "has the empty range 9..3" in error_of(tmp_path, change, GRAPHS["joint_symbolic"])
