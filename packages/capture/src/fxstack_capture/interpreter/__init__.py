"""The bytecode interpreter of the trace.

``BytecodeInterpreter`` runs Python functions on real objects. It executes the steps of decoded programs
(``program``) by ``handlers``. ``trace.objects`` implements attributes, globals and cells. ``trace.calls``
implements calls, operators and iteration. Begin with ``machine``.
"""
