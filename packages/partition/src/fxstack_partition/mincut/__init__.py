"""The minimum cut that chooses the saved values.

``network`` makes the flow network of a joint graph, ``solve`` holds the solvers by name. The folder imports
``joint`` and ``policy``; networkx is the reference solver. Begin with ``network``.
"""
