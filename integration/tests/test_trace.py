"""The record of a session: what a training program writes, what is read back, and what is refused."""

import itertools
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import jsonschema
import pytest
import torch

import fxstack
from fxstack.trace import Event, TraceError, events, load, load_folder, records, schema
from fxstack.trace.codec import KINDS, from_line, to_line
from fxstack.trace.listener import TraceListener
from fxstack.trace.writer import TraceWriter, describe_process

PROGRAM = Path(__file__).with_name("train_gpt_like.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of ``FXSTACK_TRACE``, ``FXSTACK_REPORT`` and ``FXSTACK_DEBUG_DIR`` of a training program."""
    made = tmp_path_factory.mktemp("trained")
    command = [sys.executable, "-m", "fxstack", "run", "--debug", "", "--report", made / "report", PROGRAM]
    environment = {
        **os.environ,
        "FXSTACK_TRACE": str(made / "trace"),
        "FXSTACK_DEBUG_DIR": str(made / "passes"),
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("loss ")
    return made


@pytest.fixture(scope="module")
def session(folder):
    (made,) = load_folder(folder / "trace")
    return made


def test_a_training_program_has_every_kind_of_event(session):
    missing = {kind for kind in KINDS.values() if not session.of(kind)}
    assert missing <= {records.Looked}  # while a record is written, no program comes from the disk


def test_events_are_in_order_of_time(session):
    times = [event.time for event in session.events]
    assert times == sorted(times)


def test_every_line_fits_the_schema(folder):
    validator = jsonschema.Draft202012Validator(schema())
    (path,) = (folder / "trace").glob("trace-*.jsonl")
    for line in path.read_text().splitlines():
        kind = json.loads(line)["kind"]
        (of_kind,) = (s for s in schema()["oneOf"] if s["properties"]["kind"]["const"] == kind)
        validator.evolve(schema=of_kind).validate(json.loads(line))


def test_the_break_is_at_its_line_with_a_fix(session):
    record = session.of(records.Break)[0]
    line = PROGRAM.read_text().splitlines()[record.stack[-1].line - 1]
    assert record.reason == "data-dependent-branch"
    assert "if logits.abs().max() > 1e4" in line
    assert "torch.where" in record.fix


def test_the_recompilation_names_the_argument_that_changed(session):
    failure = session.of(records.Recompilation)[0].failures[-1]
    assert failure.source == "idx"
    assert "sizes is (4, 9) (was (4, 6))" in failure.found


def test_the_dynamic_size_is_a_symbol(session):
    symbols = [symbol for graph in session.of(records.Graph) for symbol in graph.symbols]
    assert any((symbol.hint, symbol.lower) == (9, 2) for symbol in symbols)


def test_parameters_have_their_paths(session):
    joint = next(graph for graph in session.of(records.Graph) if graph.stage == "joint")
    assert "blocks.0.ln1.weight" in {item.source for item in joint.inputs}


def test_guards_say_what_needs_them_and_what_they_cost(session):
    guards = session.of(records.Frame)[0].guards
    assert all(guard.nanoseconds > 0 and guard.text for guard in guards)
    assert any("train_gpt_like.py" in guard.needed_by for guard in guards)


def test_source_lines_of_called_functions_are_recorded(session):
    captured = next(graph for graph in session.of(records.Graph) if graph.stage == "captured")
    assert any("scaled_dot_product_attention" in source.text for source in captured.sources)


def test_the_partition_says_why(session):
    cut = session.of(records.Cut)[0]
    assert cut.saved and all(value.rule for value in cut.saved)
    assert cut.timeline


def test_kernels_have_buffers_bytes_and_stacks(session):
    steps = [step for program in session.of(records.Program) for step in program.steps if step.kernel]
    assert any(step.stacks for step in steps)
    assert all(step.buffers and step.read_bytes + step.written_bytes > 0 for step in steps)


def test_the_folder_has_a_file_for_each_run_of_a_pass(folder, session):
    ran = Counter(f"{done.stage}_{done.name}" for done in session.of(records.PassRun))
    files = Counter(
        re.search(r"_pass_(\w+)\.txt", path.name)[1] for path in (folder / "passes").glob("*_pass_*")
    )
    assert files == ran
    assert len(ran) > 25


def test_passes_that_did_something_show_what_they_changed(folder):
    (session,) = load_folder(folder / "report")
    done = {f"{run.stage}:{run.name}": run.changes for run in session.of(records.PassRun) if not run.why}
    assert all(
        done[name]
        for name in (
            "functionalize:record_forward",
            "joint:trace_backward",
            "partition:cut_network",
            "schedule:fuse_tensors",
        )
    )


def test_a_call_of_each_repeated_program_is_measured_in_a_report(folder):
    (session,) = load_folder(folder / "report")
    measured = session.of(records.Measured)
    programs = {(p.graph, p.role): p for p in session.of(records.Program)}
    assert {m.role for m in measured} == {"forward", "backward"}
    for each in measured:
        names = {step.name for step in programs[each.graph, each.role].steps}
        assert names <= {step.name for step in each.steps}
    assert any(m.moments for m in session.of(records.MeasuredMemory))


def test_an_event_is_read_back_as_written(session):
    for event in itertools.islice(session.events, 20):
        assert from_line(to_line(event), "").body == event.body


def write(path, *lines):
    path.write_text("\n".join(lines))
    return path


GOOD = to_line(Event(0.5, "main", describe_process())).rstrip("\n")


def test_a_cut_last_line_is_left_out(tmp_path):
    session = load(write(tmp_path / "trace-1.jsonl", GOOD, '{"kind":"Loo'))
    assert [type(event.body) for event in session.events] == [records.Started]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (GOOD.replace('"version":1', '"version":99'), "line 1: version 99; this fxstack reads version 1"),
        ("[]", "line 1: no event of a record"),
        ('{"kind":"Unheard"}', "line 1: no event of a record: KeyError"),
        (
            '{"kind":"Looked","time":1,"thread":"t","graph":"x","found":true}',
            "line 1: no event .*int was expected, not 'x'",
        ),
        ('{"kind":"Looked","time":1,"thread":"t","graph":1}', "line 1: no event .*has fields"),
        ("[" * 100_000, "line 1: no event of a record"),
    ],
)
def test_what_is_no_record_is_refused_with_its_line(tmp_path, line, message):
    with pytest.raises(TraceError, match=message):
        load(write(tmp_path / "trace-1.jsonl", line, ""))


LOOKED = to_line(Event(1.0, "main", records.Looked(1, True))).rstrip("\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no record of fxstack, .*: it has no whole line"),
        (b"\x7fELF\x00\xff\n\xfe\n", "is no record of fxstack, .*: 2 lines are no events; .*line 1: "),
        (b"import torch\n", "is no record of fxstack, .*: 1 lines are no events; .*line 1: "),
        (None, "is a folder: pass one of its files .*load_folder"),
    ],
    ids=["empty", "binary", "a program", "folder"],
)
def test_what_is_no_record_at_all_is_refused(tmp_path, content, message):
    path = tmp_path / "trace-1.jsonl"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(TraceError, match=message):
        load(path)


def test_damaged_lines_are_skipped_and_named(tmp_path):
    path = tmp_path / "trace-1.jsonl"
    path.write_bytes(b"\n".join([GOOD.encode(), b"\xff\x00", LOOKED.encode(), b"{}", b""]))
    session = load(path)
    assert [type(event.body) for event in session.events] == [records.Started, records.Looked]
    assert [text.partition(": ")[0] for text in session.skipped] == [f"{path}, line 2", f"{path}, line 4"]


def test_a_folder_with_files_of_other_kinds(tmp_path):
    write(tmp_path / "trace-1.jsonl", GOOD, LOOKED, "")
    write(tmp_path / "trace-2.jsonl", GOOD.replace('"version":1', '"version":99'), LOOKED, "")
    (tmp_path / "trace-3.jsonl").touch()
    (tmp_path / "trace-4.jsonl").mkdir()
    (session,) = load_folder(tmp_path)
    assert ["trace-2" in session.skipped[0], "trace-4" in session.skipped[1]] == [True, True]
    assert len(session.skipped) == 2
    with pytest.raises(TraceError, match="is a file: pass the folder"):
        load_folder(tmp_path / "trace-1.jsonl")


def test_a_folder_without_a_record_says_how_to_make_one(tmp_path):
    with pytest.raises(TraceError, match=f"no file trace-.*FXSTACK_REPORT={tmp_path}"):
        load_folder(tmp_path)


def test_a_folder_that_cannot_be_written_is_reported_once(tmp_path):
    (tmp_path / "file").touch()
    writer = TraceWriter()
    with pytest.warns(UserWarning, match="no trace can be written into .*file") as caught:
        for _ in range(2):
            writer.write(str(tmp_path / "file"), records.Looked(1, True))
    assert len(caught) == 1


def test_a_forked_child_writes_its_own_file(tmp_path):
    writer = TraceWriter()
    writer.write(str(tmp_path), records.Looked(1, True))
    sys.stdout.flush()
    if (child := os.fork()) == 0:
        writer.write(str(tmp_path), records.Looked(2, True))
        os._exit(0)
    os.waitpid(child, 0)
    graphs = [[look.graph for look in session.of(records.Looked)] for session in load_folder(tmp_path)]
    assert sorted(graphs) == [[1], [2]]


def test_a_callable_has_a_record_after_the_fact():
    compiled = fxstack.compile(lambda x: (x.sin() @ x).softmax(-1))
    compiled(torch.randn(3, 3, requires_grad=True)).sum().backward()
    session = events(fxstack.compile_log(compiled))
    assert {graph.stage for graph in session.of(records.Graph)} == {"joint", "forward", "backward"}
    assert {program.role for program in session.of(records.Program)} == {"forward", "backward"}
    assert session.of(records.Cut)


def test_a_convolution_whose_input_needs_no_gradient_is_recorded(tmp_path):
    """Its backward has no first result, which torch's count of operations expects."""
    program = "import torch, fxstack\nfxstack.compile(torch.nn.Conv2d(3, 4, 3))(torch.ones(1, 3, 5, 5)).sum().backward()"
    environment = {**os.environ, "FXSTACK_TRACE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    (session,) = load_folder(tmp_path)
    steps = [
        step for made in session.of(records.Program) for step in made.steps if "convolution" in step.name
    ]
    assert len(steps) == 2 and all(step.operations > 0 for step in steps)
    assert "is missing" not in done.stderr


def test_sizes_from_data_have_a_record():
    options = {"capture_dynamic_output_shape_ops": True}
    compiled = fxstack.compile(lambda x: x.nonzero().float() * 2, options=options)
    compiled(torch.tensor([1.0, 0.0, 2.0]))
    session = events(fxstack.compile_log(compiled))
    assert {op.bytes for graph in session.of(records.Graph) for op in graph.operations} == {0}
    assert session.of(records.Program)[0].memory


def test_what_cannot_be_described_is_reported_once_and_the_program_goes_on():
    listener = TraceListener(lambda: True, lambda body: None)
    with pytest.warns(UserWarning, match="a part of the record is missing: ZeroDivisionError") as caught:
        for _ in range(2):
            listener._add(lambda: 1 / 0)
    assert len(caught) == 1
