"""Graph files that are damaged, or made to run code: short errors, and nothing else runs."""

import random

import pytest
from damage import Damage, problem
from reachable import NAMES, found
from stage_graphs import captured
from test_bad_files import error_of

from fxstack_interchange import SaveError
from fxstack_interchange.format.files import to_bytes

SAMPLE = random.Random(0).sample(NAMES, 40)


@pytest.mark.parametrize("name", SAMPLE)
def test_what_files_may_name_returns_data_and_calls_nothing(name):
    assert found(name) == []


def method_of(document):
    return next(n for n in document["graph"]["nodes"] if n["op"] == "call_method")


METHODS = [
    "__call__",
    "__getattribute__",
    "__reduce_ex__",
    "__class__",
    "__add__",
    "register_hook",
    "map_",
    "apply_",
    "numpy",
]


@pytest.mark.parametrize(
    "method", [*METHODS, "data_ptr", "_view_func_unsafe", "module_load", "storage", "as_subclass"]
)
def test_methods_are_a_closed_list(method, tmp_path):
    message = error_of(tmp_path, lambda d: method_of(d).update(target=method), captured)
    assert f"unknown tensor method '{method}'" in message


NAMES_OF_CODE = [
    "register_hook",
    "__class__",
    "__func__",
    "__globals__",
    "grad_fn",
    "_backward_hooks",
    "",
    1,
    {"node": "x"},
    ["T"],
]


@pytest.mark.parametrize("name", NAMES_OF_CODE)
def test_attributes_are_a_closed_list(name, tmp_path):
    def change(document):
        method_of(document).update(
            op="call_function", target="builtins.getattr", args=[{"node": "x"}, name], kwargs=[]
        )

    assert "getattr of " in error_of(tmp_path, change, captured)


def test_getattr_is_no_argument(tmp_path):
    change = {"args": [{"node": "x"}, {"target": "builtins.getattr"}]}
    assert "getattr is no argument" in error_of(tmp_path, lambda d: method_of(d).update(change), captured)


TARGETS = [
    "operator.__call__",
    "torch.Tensor.__getattribute__",
    "torch.Tensor.__reduce_ex__",
    "torch.Tensor.map_",
]
TARGETS += [
    "torch.Tensor.__setattr__",
    "torch.nn.functional.handle_torch_function",
    "torch.functional.boolean_dispatch",
]
TARGETS += ["torch.ops.debugprims.load_tensor.default", "torch.ops.aten.save.default", "torch._from_blob"]


@pytest.mark.parametrize("target", TARGETS)
def test_functions_that_call_or_return_functions_are_refused(target, tmp_path):
    message = error_of(tmp_path, lambda d: method_of(d).update(op="call_function", target=target), captured)
    assert "unknown operator" in message or "is refused" in message


@pytest.mark.parametrize(("op", "target"), [("call_method", "register_hook"), ("call_function", getattr)])
def test_what_cannot_be_loaded_is_not_saved(op, target):
    graph = captured()
    (output,) = graph.graph_module.graph.find_nodes(op="output")
    with graph.graph_module.graph.inserting_before(output):
        x = graph.graph_module.graph.find_nodes(op="placeholder")[0]
        graph.graph_module.graph.create_node(op, target, (x, "__class__"))
    with pytest.raises(SaveError, match="register_hook|getattr of '__class__'"):
        to_bytes(graph)


@pytest.fixture(scope="module")
def damage():
    return Damage()


@pytest.mark.parametrize("number", range(0, 2500, 50))
def test_damage_gives_short_errors(number, damage, tmp_path):
    for step in (0, 7, 14, 21, 28):
        assert problem(damage.file(number + step), tmp_path / "bad.fxg") == ""


def test_long_texts_and_a_long_path(tmp_path):
    folder = tmp_path.joinpath(*["x" * 200] * 5)
    folder.mkdir(parents=True)
    message = error_of(folder, lambda d: method_of(d).update(target="y" * 100_000), captured)
    assert len(message) <= 500
    assert "unknown tensor method" in message
