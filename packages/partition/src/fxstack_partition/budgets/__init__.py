"""Partitions under a budget of memory.

``budget`` is the partitioner; ``frontier``, ``lagrangian_sweep`` and ``local_search`` look for partitions; ``ilp``
is the exact and slow reference. The folder imports ``extraction``, ``mincut`` and ``ordering``. Begin with ``budget``.
"""
