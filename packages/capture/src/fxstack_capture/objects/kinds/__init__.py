"""One module for each kind of object of the program.

Each module wraps objects of its kind and reads them piece by piece. The kinds are containers, append-only
lists, iterators, functions, instances of classes, and contexts of ``autograd.Function``. The functions take
``trace.state.Objects``. Begin with ``containers``.
"""
