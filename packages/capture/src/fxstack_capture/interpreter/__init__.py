"""The bytecode interpreter of the trace.

``BytecodeInterpreter`` runs Python functions on real objects. ``trace.objects`` implements attributes,
globals and cells. ``trace.calls`` implements calls, operators and iteration.
"""

from __future__ import annotations

from fxstack_capture.bytecode.program import ProgramTable
from fxstack_capture.interpreter.frame_rules import frame_rules, python_type_of, super_arguments
from fxstack_capture.interpreter.generators import TraceGenerator
from fxstack_capture.interpreter.machine import BytecodeInterpreter
from fxstack_capture.interpreter.values import NULL, Null

__all__ = [
    "NULL",
    "BytecodeInterpreter",
    "Null",
    "ProgramTable",
    "TraceGenerator",
    "frame_rules",
    "python_type_of",
    "super_arguments",
]
