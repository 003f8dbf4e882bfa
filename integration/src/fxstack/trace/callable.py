"""Make the records of one compiled callable after the fact, from its log."""

from __future__ import annotations

from collections.abc import Iterator

from fxstack.log import CompileLog
from fxstack.trace import describe, records
from fxstack.trace.records import Body, Event
from fxstack.trace.session import Session
from fxstack_partition import PartitionOptions


def events(log: CompileLog) -> Session:
    """Return the record of a callable from its log. Frames, guards and passes are only in files.

    ``fxstack.compile_log(compiled)`` returns the log of a callable.
    """
    return Session(tuple(Event(0.0, "", body) for body in _bodies(log)))


def _bodies(log: CompileLog) -> Iterator[Body]:
    """Yield the records of a log, graphs and programs in the order of the captured graphs."""
    from fxstack.trace.programs import program_of  # noqa: PLC0415 - torch's operation counts take 0.1 s to import

    yield from map(describe.break_of, log.breaks)
    yield from (
        describe.recompilation_of(recompilation)
        for recompilation in log.recompilations
        if recompilation.failures
    )
    yield from (records.Looked(log.captured_of(number).number, found=True) for number in log.from_disk)
    for number, graph in log.graphs:
        yield describe.stage_graph(log.captured_of(number), graph, {})
    yield from (describe.region_of(log.captured_of(number), region) for number, region in log.regions)
    for number, parts in log.partitions:
        yield describe.cut_of(log.captured_of(number), parts, PartitionOptions())
    for number, role, graph_module, lowered in log.programs:
        captured = log.captured_of(number)
        if role == "inference":
            yield describe.graph_of(captured, "functional", graph_module, {})
        yield program_of(captured, role, graph_module, lowered)
    for time in log.times:
        captured = log.captured_of(time.graph)
        yield records.Spent(captured.number, captured.place, time.stage, time.seconds)
