"""Debuggers of torch's compiler under the drop-in: entries of code objects, and depyf."""

import importlib.util
import subprocess
import sys

import pytest
import torch
from torch._dynamo import eval_frame

import fxstack


@pytest.fixture
def installed():
    fxstack.install()
    yield
    fxstack.uninstall()


def scaled(x, n):
    return x.sin() * n


def test_entries_of_a_code_object(installed):
    torch._dynamo.reset()
    compiled = torch.compile(scaled, backend="eager", dynamic=False)
    for n in (2, 2, 3):
        compiled(torch.ones(3), n)
    entries = eval_frame._debug_get_cache_entry_list(scaled.__code__)
    assert entries[0].check_fn is entries[0].guard_manager
    fitting = [entry.guard_manager.check({"x": torch.ones(3), "n": 2}) for entry in entries]
    assert sorted(fitting) == [False, True]
    assert all(entry.code.co_name == "scaled" for entry in entries)
    assert all(isinstance(eval(part), str) for part in entries[0].guard_manager.code_parts)
    assert len(eval_frame._debug_get_cache_entry_list(scaled)) == 2


def test_without_the_dropin_there_are_entries_of_torch_only():
    fxstack.compile(lambda x: scaled(x, 4), backend="eager")(torch.ones(3))
    assert eval_frame._debug_get_cache_entry_list((lambda: 0).__code__) == []


def test_comptime_of_torch_runs_while_tracing(installed, capsys):
    from torch._dynamo.comptime import comptime

    def fn(x, n):
        y = x.sin() + n
        comptime.print_graph()
        comptime.print_locals()
        comptime.print_guards()
        comptime.print_bt()
        comptime.print(y)
        comptime(
            lambda ctx: print("seen", ctx.get_local("n").as_python_constant(), ctx.get_local("y").as_fake())
        )
        return y * 2

    torch._dynamo.reset()
    compiled = torch.compile(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(torch.ones(3), 2), (torch.ones(3).sin() + 2) * 2)
    out = capsys.readouterr().out
    assert out.count("seen") == 1
    for text in (
        "l_x.sin()",
        "n = 2\n",
        "type(x) is torch.Tensor",
        "while_tracing.<locals>.fn\n",
        "seen 2 FakeTensor",
    ):
        assert out.count(text) >= 1, text
    comptime.print(7)
    assert capsys.readouterr().out == "7\n"


def test_guard_fail_fn_hears_why_entries_do_not_fit(installed):
    def fn(x):
        return x * 3

    heard = []
    compiled = torch._dynamo.optimize("eager", guard_fail_fn=heard.append, dynamic=False)(fn)
    for size in (2, 2, 3):
        compiled(torch.ones(size))
    (failed,) = heard
    assert failed.orig_code is fn.__code__
    assert "sizes is (3) (was (2))" in failed.reason


def test_guard_export_fn_gets_the_guards_of_torch(installed):
    net, x = torch.nn.Linear(2, 2), torch.ones(3, 2)
    heard = []

    def fn(x, mode="a"):
        return net(x) * 3 if mode == "a" else x

    compiled = torch._dynamo.optimize("eager", guard_export_fn=heard.append, dynamic=False)(fn)
    compiled(x)
    compiled(x)
    (guards,) = heard
    assert type(guards) is torch._guards.GuardsSet
    by_name = {(guard.name, guard.create_fn_name()): guard for guard in reversed(list(guards))}
    tensor = by_name["x", "TENSOR_MATCH"]
    assert type(tensor) is torch._guards.Guard
    assert tensor.guard_types == ["TENSOR_MATCH"]
    assert tensor.is_local()
    assert tensor.obj_weakref() is x
    conditions = [guard.code_list[0] for guard in guards if guard.name == "x"]
    assert any(one.startswith("type(x) is torch.Tensor and x.dtype == torch.float32") for one in conditions)
    assert by_name["mode", "CONSTANT_MATCH"].code_list == ["mode == 'a'"]
    lines = {frame.filename for guard in guards for frame in guard.user_stack}
    assert __file__ in lines
    assert all(str(guard) and repr(guard) for guard in guards)
    assert len(sorted(guards)) == len(guards)


DEPYF = """
import sys
import torch
import fxstack
fxstack.install()
import depyf

@torch.compile
def rising(x):
    return x.sin() + 1

@torch.compile
def branching(x):
    y = x.sin()
    if y.sum() > 100:
        y = y * 2
    return y + 1

with depyf.prepare_debug(sys.argv[1]):
    x = torch.ones(3)
    torch.testing.assert_close(rising(x), x.sin() + 1)
    torch.testing.assert_close(branching(x), x.sin() + 1)
    torch.testing.assert_close(branching(x), x.sin() + 1)
"""


@pytest.mark.skipif(importlib.util.find_spec("depyf") is None, reason="needs depyf")
def test_depyf_fills_its_folder(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(DEPYF)
    subprocess.run([sys.executable, str(script), str(tmp_path / "out")], check=True)
    written = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert "_graph_" in written["__transformed_code_0_for_rising.py"]
    assert "type(x) is torch.Tensor" in written["full_code_for_rising_0.py"]
    assert "if y.sum() > 100" in written["full_code_for_branching_0.py"]
