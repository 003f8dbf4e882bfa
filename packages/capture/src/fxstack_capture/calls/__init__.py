"""Run a call: choose a rule, the interpreter, torch's recorder or CPython.

``dispatch`` makes calls. ``decisions.precedence`` is the ordered list of what can decide a call. ``rules``
has the rules of library functions. ``decisions.policy`` lists the C code that may run for real.
``c_functions`` has facts about C functions, and ``native_run`` runs them. ``polyfills`` replaces C code that
calls functions of the program. The folder imports ``objects``, ``torch_side`` and ``interpreter``. Begin with
``decisions.precedence``.
"""
