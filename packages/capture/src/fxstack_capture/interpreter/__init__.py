"""The bytecode interpreter of the trace.

``BytecodeInterpreter`` runs Python functions on real objects: it executes the steps of decoded programs
(``program``) with ``handlers``. ``trace.objects`` implements attributes, globals and cells, ``trace.calls`` calls,
operators and iteration. Begin with ``machine``.
"""
