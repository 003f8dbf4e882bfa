"""``fxstack explain``, ``report``, ``passes``, ``config``."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_cli import invoke

from fxstack.debug.passes import all_passes

PROGRAM = Path(__file__).with_name("train_gpt_like.py")


def explained(*arguments):
    command = [sys.executable, "-m", "fxstack", "explain", *arguments, str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    printed = done.stderr if "--json" in arguments else done.stdout  # only JSON is on stdout
    assert "loss " in printed
    return done.stdout


def test_explain_says_what_breaks_the_graph_and_what_to_do():
    text = " ".join(explained().split())
    assert "1 function compiled into 4 graphs, with 2 graph breaks and 2 recompilations." in text
    assert re.search(
        r"2 breaks at .*train_gpt_like.py:\d+ in GPT.forward because .* Fix: Use torch.where", text
    )


def test_explain_tells_of_a_program_that_is_killed(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import os, torch\ntorch.compile(torch.sin)(torch.ones(3))\nos.kill(os.getpid(), 9)")
    command = [sys.executable, "-m", "fxstack", "explain", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "0 graph breaks" in done.stdout) == (-9, True)


def test_explain_as_json():
    told = json.loads(explained("--json"))
    assert told["breaks"][0]["reason"] == "data-dependent-branch"
    assert told["recompilations"][0]["failures"][-1]["source"] == "idx"
    assert set(told["seconds"]) == {"capture", "functionalize", "partition", "inductor"}


def test_report_names_what_is_missing(tmp_path):
    status, printed = invoke("report", str(tmp_path))
    assert status == 2
    assert f"fxstack report: {tmp_path}: no file trace-*.jsonl" in printed


def test_passes_are_listed_in_order_with_their_files():
    status, printed = invoke("passes", "--json")
    listed = json.loads(printed)
    stages = list(dict.fromkeys(known["stage"] for known in listed))
    assert (status, stages[:3]) == (0, ["capture", "functionalize", "joint"])
    assert all(Path(known["file"]).is_file() and known["sentence"].endswith(".") for known in listed)


def test_every_pass_of_every_stage_is_listed():
    packages = ("fxstack_capture", "fxstack_functionalize", "fxstack_partition", "fxstack_inductor")
    stages = {s: p for name in packages for s, p in importlib.import_module(f"{name}.passes").STAGES.items()}
    assert {(k.stage, k.name) for k in all_passes()} == {(s, p.name) for s in stages for p in stages[s]}


def test_examples_are_printed():
    status, printed = invoke("passes", "fuse", "--examples")
    assert (status, '>>> example("fuse_tensors"' in printed) == (0, True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("recompile_limit", "sets the option recompile_limit"),
        ("replay_side_effects", "no effect: side effects are always replayed"),
        ("rewrite_assert", "sets the option assume_checks: a failed assertion"),
        ("max_autotune_gemm_backends", "no effect"),
    ],
)
def test_settings_of_torch_have_a_meaning(name, text):
    status, printed = invoke("config", name)
    assert status == 0
    assert text in " ".join(printed.split())


@pytest.mark.parametrize("command", ["passes", "config", "options"])
def test_unknown_names_say_how_to_list_all(command):
    status, printed = invoke(command, "nonsense")
    assert (status, f"'fxstack {command}' lists all" in " ".join(printed.split())) == (2, True)


def test_rule_says_what_decides_a_call():
    status, printed = invoke("rule", "torch.sin")
    assert status == 0 and "torch.sin (builtin_function_or_method)\n  decided by: operator" in printed
    (answer,) = json.loads(invoke("rule", "--json", "len")[1])
    assert answer["decided_by"]["place"].startswith("calls/rules/builtins/builtin_functions.py")
    status, printed = invoke("rule", "torch.sinn")
    assert status == 2 and "nothing is called torch.sinn; near are" in printed
