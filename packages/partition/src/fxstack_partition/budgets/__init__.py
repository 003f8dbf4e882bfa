"""Partitions under a budget of memory.

``budget`` is the partitioner; ``simulate`` computes the memory of a step; ``frontier``, ``lagrangian_sweep``
and ``local_search`` look for partitions; ``ilp`` is the exact and slow reference; ``order`` reorders a
stage's nodes. ``compact`` holds the joint graph as numbers, which the search works on. The folder imports
``mincut``, ``joint`` and ``extraction``. Begin with ``budget``.
"""
