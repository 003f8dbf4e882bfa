"""Facts about a joint graph that every partitioner needs.

``joint.analyze`` computes the record ``JointFacts`` (its fields are in ``record``). ``ops`` classifies operators,
``storage`` finds the nodes that share memory, and ``cost`` estimates bytes, operations and seconds. ``index_graph``
holds the graph as lists of integers, which searches read. ``narrow`` finds values that a smaller dtype holds exactly;
``rng_replay`` replays random draws in the backward. The folder imports ``options``. Begin with ``joint``.
"""
