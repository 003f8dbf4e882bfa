"""The bytecode interpreter of the trace.

``BytecodeInterpreter`` runs Python functions on real objects. ``trace.objects`` implements attributes,
globals and cells. ``trace.calls`` implements calls, operators and iteration.
"""
