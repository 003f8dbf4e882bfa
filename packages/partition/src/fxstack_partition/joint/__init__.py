"""Facts about a joint graph that every partitioner needs.

``joint.analyze`` computes the record ``JointFacts``; ``ops`` classifies operators, ``storage`` says who shares
memory, ``cost`` and ``work`` give bytes and seconds. ``compact`` holds the graph as numbers, which searches work on.
``narrow`` says which values a smaller dtype holds exactly, ``rng_replay`` which random numbers can be drawn again.
The folder imports ``options``. Begin with ``joint``.
"""
