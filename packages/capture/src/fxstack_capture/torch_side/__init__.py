"""Tensors, symbolic numbers and the FX graph of one trace.

``recording.tracer`` owns the graph. ``fakes`` runs operators on fake tensors. ``rules`` has the rules for
calls that need more than one node. The folders use ``recording.protocol.TracerProtocol`` instead of the
tracer class. They import ``trace``, ``shapes`` and ``guards.records``. Begin with ``recording.tracer``.
"""
