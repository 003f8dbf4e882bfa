"""Partitions under a budget of memory.

``budget`` is the partitioner. ``frontier`` finds its candidates with ``lagrangian_sweep`` and ``local_search``. ``ilp``
is the exact and slow reference. The folder imports ``extraction``, ``mincut`` and ``ordering``. Begin with ``budget``.
"""
