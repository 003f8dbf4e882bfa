"""The bytecode interpreter of the trace.

``BytecodeInterpreter`` runs Python functions on real objects; everything that is not bytecode it
asks of ``trace.objects`` (attributes, globals, cells) and ``trace.calls`` (calls, operators,
iteration).
"""
