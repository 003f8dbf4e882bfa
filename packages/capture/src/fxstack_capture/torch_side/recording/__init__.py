"""The graph under construction and the tracer that owns it.

``tracer`` implements ``trace.seams.TorchSide``; ``graph`` makes nodes and placeholders, ``execution`` runs a
call on fakes, ``finishing`` closes the graph, ``protocol`` says what the other folders use of the tracer.
Begin with ``tracer``.
"""
