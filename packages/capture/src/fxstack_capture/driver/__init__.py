"""From a frame without a valid entry to an entry.

``compiler`` is the callback of the frame hook; ``tracing`` traces a frame to its end or to a graph break;
``attempt`` runs one trace; ``backend`` calls the backend; ``states`` remembers what happened to each code
object. ``frame_policy`` says which frames are left alone, ``reports`` what users are told. The folder imports
every other folder of the package. Begin with ``compiler``.
"""
