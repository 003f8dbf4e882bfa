"""The bytecode interpreter of the trace.

``BytecodeInterpreter`` runs Python functions on real objects; everything that is not bytecode it
asks of ``trace.objects`` (attributes, globals, cells) and ``trace.calls`` (calls, operators,
iteration).
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
