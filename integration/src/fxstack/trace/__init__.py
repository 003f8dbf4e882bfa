"""The record of the compilations of a process: one frozen record for each event, written as JSON lines at once.

``FXSTACK_TRACE=folder`` (or ``FXSTACK_REPORT=folder``) writes ``folder/trace-PID.jsonl``; a process that crashes leaves
the events before. ``load`` reads such files, ``events`` makes the records of one compiled callable. ``records`` defines
the events, ``schema()`` returns their JSON schema. The version grows when the meaning of a field changes.
"""

from fxstack.trace.callable import events
from fxstack.trace.codec import TraceError, schema
from fxstack.trace.records import VERSION, Event
from fxstack.trace.session import Session, load, load_folder

__all__ = ["VERSION", "Event", "Session", "TraceError", "events", "load", "load_folder", "schema"]
