"""Facts about a joint graph that every partitioner needs.

``joint.analyze`` computes the record ``JointFacts``; ``ops`` classifies operators, ``storage`` says who
shares memory, ``cost`` and ``work`` give bytes and seconds, ``merge`` removes repeated computations. The
folder imports ``options``. Begin with ``joint``.
"""
