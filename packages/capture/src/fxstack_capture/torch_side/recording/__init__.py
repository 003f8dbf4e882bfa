"""The graph under construction, and the tracer that owns the graph.

``tracer`` implements ``trace.protocols.TorchSide``. ``graph`` makes nodes and placeholders. ``execution`` runs a
call on fakes. ``finishing`` closes the graph. ``protocol`` declares the members of the tracer that the other
folders use. Begin with ``tracer``.
"""
