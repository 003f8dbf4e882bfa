"""Each setting of ``torch._dynamo.config`` has a row, and each row that sets an option has its effect."""

import dataclasses
import logging

import pytest
import torch
import torch._dynamo.config as dynamo

import fxstack_capture as fx
from fxstack_capture import CaptureOptions
from fxstack_capture.driver.errors import RecompileLimitError, TracingWarning
from fxstack_interchange.torch_facts.settings_table import DYNAMO, TABLES
from fxstack_interchange.torch_facts.torch_settings import find_setting

X = torch.ones(3)
LOG = logging.getLogger("fxstack.test_settings")
LIBRARY = torch.library.Library("fxstack_settings", "DEF")
LIBRARY.define("plain(Tensor x) -> Tensor")
LIBRARY.impl("plain", lambda x: x + 1, "CompositeExplicitAutograd")


def graphs(fn, *calls, settings, **options):
    """The number of graphs that calls of ``fn`` make under settings of torch; results are those of eager."""
    found = []
    compiled = fx.optimize(lambda graph, _: (found.append(graph), graph.forward)[1], **options)(fn)
    for args in calls:
        with dynamo.patch(**settings):
            result = compiled(*args)
        torch.testing.assert_close(result, fn(*args))
    return len(found)


def test_every_setting_has_a_row():
    assert [name for name in dynamo._config if find_setting(DYNAMO, name) is None] == []


def test_every_option_exists():
    options = {field.name for field in dataclasses.fields(CaptureOptions)}
    named = {row.option for row in TABLES[DYNAMO].values() if row.option is not None}
    assert named - options == {"repro_after", "repro_level"}  # of fxstack itself


def prints(x):
    y = x + 1
    print(end=f"{len(y)}")
    LOG.warning("%s", y)
    return y * 2


def shows(x):
    y = x + 1
    print(y.sum())
    return y * 2


SIZES = [(torch.ones(n),) for n in (3, 4, 5)]
NUMBERS = [(X, 2), (X, 3), (X, 4)]
FLOATS = [(X, 0.5), (X, 1.5), (X, 2.5)]
EFFECTS = {
    "disable": (shows, [(X,)], {"disable": True}, 0),
    "scalar": (lambda x: x + x.sum().item(), [(X,)], {"capture_scalar_outputs": True}, 1),
    "no scalar": (lambda x: x + x.sum().item(), [(X,)], {}, 2),
    "shapes": (lambda x: x[x > 0] * 2, [(X,)], {"capture_dynamic_output_shape_ops": True}, 1),
    "automatic": (lambda x: x * 2, SIZES, {}, 2),
    "not automatic": (lambda x: x * 2, SIZES, {"automatic_dynamic_shapes": False}, 3),
    "dynamic at once": (lambda x: x * 2, SIZES, {"assume_static_by_default": False}, 1),
    "integers": (lambda x, n: x * n, NUMBERS, {}, 2),
    "constant integers": (lambda x, n: x * n, NUMBERS, {"specialize_int": True}, 3),
    "floats": (lambda x, n: x * n, FLOATS, {}, 2),
    "constant floats": (lambda x, n: x * n, FLOATS, {"specialize_float": True}, 3),
    "reordered": (shows, [(X,)], {"reorderable_logging_functions": {print}}, 1),
    "in order": (shows, [(X,)], {}, 2),
    "ignored": (shows, [(X,)], {"ignore_logging_functions": {print}}, 1),
    "ignored method": (prints, [(X,)], {"ignore_logging_functions": {LOG.warning}}, 1),
    "ignored methods": (prints, [(X,)], {"ignore_logging_functions": {logging.Logger.warning}}, 1),
    "reordered method": (prints, [(X,)], {"reorderable_logging_functions": {LOG.warning}}, 1),
    "compliant": (lambda x: torch.ops.aten.sin.default(x), [(X,)], {"only_allow_pt2_compliant_ops": True}, 1),
}


@pytest.mark.parametrize("name", EFFECTS)
@pytest.mark.usefixtures("capsys")
def test_effects(name):
    fn, calls, settings, expected = EFFECTS[name]
    assert graphs(fn, *calls, settings=settings) == expected


def test_operators_that_are_not_compliant_end_the_graph():
    def fn(x):
        return torch.ops.fxstack_settings.plain(x.sin())

    with (
        dynamo.patch(only_allow_pt2_compliant_ops=True),
        pytest.raises(fx.Unsupported, match="pt2_compliant_tag"),
    ):
        fx.optimize(fullgraph=True)(fn)(X)
    fx.optimize(fullgraph=True)(fn)(X)


def test_reordered_calls_happen_behind_the_graph_in_order(capsys):
    def fn(x):
        print("first", x.sum().shape)
        y = x + 1
        print("second", y)
        return y

    with dynamo.patch(reorderable_logging_functions={print}):
        fx.optimize(fullgraph=True)(fn)(X)
    assert capsys.readouterr().out == f"first {X.sum().shape}\nsecond {X + 1}\n"


def test_recompile_limit():
    assert graphs(lambda x, n: x * n, *NUMBERS, settings={"recompile_limit": 1, "specialize_int": True}) == 1
    with pytest.raises(RecompileLimitError):
        settings = {"recompile_limit": 1, "specialize_int": True, "fail_on_recompile_limit_hit": True}
        graphs(lambda x, n: x * n, *NUMBERS, settings=settings)


def test_error_on_recompile():
    with pytest.raises(fx.RecompileError):
        graphs(lambda x: x * 2, *SIZES, settings={"error_on_recompile": True})


def test_verify_correctness():
    with dynamo.patch(verify_correctness=True), pytest.raises(fx.WrongResultError):
        fx.optimize(lambda graph, _: lambda *args: [arg + 1 for arg in args])(lambda x: x * 3)(X)


def test_suppressed_errors_are_warned_of():
    def refusing(_graph, _inputs):
        raise ValueError("no")

    fn = fx.optimize(refusing)(lambda x: x * 3)
    with dynamo.patch(suppress_errors=True), pytest.warns(TracingWarning, match="suppress_errors is set"):
        torch.testing.assert_close(fn(X), X * 3)
    with pytest.raises(fx.BackendError):
        fx.optimize(refusing)(lambda x: x * 3)(X)


@pytest.mark.parametrize(("setting", "expected"), [(False, 1), (True, 2)])
def test_compiled_autograd_makes_a_graph_of_a_backward_pass(setting, expected):
    def fn(x):
        loss = x.sin().sum()
        fx.graph_break()
        return torch.autograd.grad(loss, x)

    found, x = [], X.clone().requires_grad_()
    with dynamo.patch(compiled_autograd=setting):
        compiled = fx.optimize(lambda graph, _: (found.append(graph), graph.forward)[1])(fn)
        torch.testing.assert_close(compiled(x), (X.cos(),))
    assert len(found) == expected


def test_a_method_of_another_object_keeps_its_rule(caplog):
    other = logging.getLogger("fxstack.other")

    def fn(x):
        if LOG.isEnabledFor(logging.INFO):
            x = x + 1
        return x * 2 if other.isEnabledFor(logging.CRITICAL) else x

    settings = {"ignore_logging_functions": {LOG.isEnabledFor}}
    caplog.set_level(logging.DEBUG)
    found = []
    compiled = fx.optimize(lambda graph, _: (found.append(graph), graph.forward)[1])(fn)
    with dynamo.patch(**settings):
        torch.testing.assert_close(compiled(X), X * 2)
    assert len(found) == 1


def test_an_option_precedes_the_setting():
    options = CaptureOptions(recompile_limit=2, specialize_int=True)
    assert graphs(lambda x, n: x * n, *NUMBERS, settings={"recompile_limit": 1}, options=options) == 2


def patched(x):
    before = dynamo.capture_scalar_outputs
    with torch._dynamo.patch_dynamo_config(capture_scalar_outputs=True, verbose=True):
        y = x * 2
        during = dynamo.capture_scalar_outputs
    return y + 1, before, during, dynamo.capture_scalar_outputs


@torch._dynamo.patch_dynamo_config(capture_scalar_outputs=True)
def decorated(x):
    return x * 2


def around_a_break(x):
    with torch._dynamo.patch_dynamo_config(capture_scalar_outputs=True):
        return x * x.sum().item(), dynamo.capture_scalar_outputs


def refused(x):
    try:
        torch._dynamo.patch_dynamo_config(recompile_limit=3)
    except ValueError as error:
        return x * 2, str(error)


@pytest.mark.parametrize("fn", [patched, decorated, refused])
def test_settings_are_patched_inside_of_a_graph(fn):
    compiled = fx.optimize(fullgraph=True)(fn)
    assert repr(compiled(X)) == repr(compiled(X)) == repr(fn(X))


def test_settings_are_patched_around_a_graph_break():
    assert repr(fx.optimize()(around_a_break)(X)) == repr(around_a_break(X))
    assert not dynamo.capture_scalar_outputs
