"""One module for each kind of object of the program.

Each module wraps objects of its kind and reads them piece by piece: dictionaries (``lazy_dict``), iterators,
functions, append-only lists, instances of classes. The functions take ``trace.state.Objects``. Begin with
``containers``.
"""
