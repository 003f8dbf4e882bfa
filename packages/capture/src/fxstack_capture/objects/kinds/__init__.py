"""One module for each kind of object of the program.

How the kind is wrapped, and how it is read piece by piece: dictionaries (``lazy_dict``), iterators,
functions, lists that are only appended to, instances of classes. Functions take ``trace.state.Objects``.
Begin with ``containers``.
"""
