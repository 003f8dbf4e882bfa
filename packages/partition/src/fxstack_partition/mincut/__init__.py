"""The minimum cut that chooses the saved values.

``network`` builds the flow network of a joint graph, ``solve`` cuts the network with one of several solvers. The folder imports
``joint`` and ``policy``; networkx is the reference solver. Begin with ``network``.
"""
