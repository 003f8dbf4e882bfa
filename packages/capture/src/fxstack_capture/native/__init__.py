"""The frame hook and the guard engine: typed doors to the C extension ``fxstack_capture._native``.

Importing this module never fails. Without the extension ``AVAILABLE`` is False, ``WHY_MISSING`` says why and
what to install, and everything below raises ``NativeMissingError`` when called (``SKIP`` and ``RUN`` exist always).

**Compile mode** (per thread, on only while one of these calls runs)::

    run_with(callback, owner, fn, args=(), kwargs=None)   # fn(*args, **kwargs) with compile mode on
    Optimized(fn, callback, owner)                         # a callable that does the same; binds as a method, has
                                                           # a __dict__ (functools.update_wrapper works), weakrefs
    Disabled(fn)                                           # a callable that runs fn with every mode off
    mode() -> "off" | "compile" | "intercept"              # of this thread, now

``owner`` is an instance of ``Owner`` (subclass it as you like); entries belong to one owner and die with it.
For a fresh frame of a function (not generators, coroutines, class bodies, modules) whose entries for this
owner all miss, the hook calls, with all modes off and tracing (sys.settrace/setprofile) suspended::

    callback(func: FunctionType, code: CodeType, locals: dict[str, object], cells: tuple[CellType, ...])

``locals`` holds the arguments as the frame sees them (``*args`` as one tuple, ``**kwargs`` as one dict),
``cells`` is the closure. It returns

- an ``Entry``: it is installed for ``code`` (unless it already is), its guards are checked, and the frame runs it
  (should its guards reject the very frame it was made for, the frame runs plainly);
- ``SKIP``: this code is never offered to this owner again and runs plainly (calls inside of it are still hooked);
- ``RUN``: this frame runs plainly, ask again next time (calls inside of it are still hooked).

What the callback raises, the frame raises.

**Entries**::

    Entry(owner, tree: Tree | None, code: CodeType)    # .owner .tree .code .hits (int, settable); tree None: no guards
    install(code, entry); remove(code, entry)          # code: the original code object; most recently hit first
    entries(code, owner=None) -> list[Entry]
    skip(code, owner=None)                             # as the answer SKIP; owner None: for everybody
    is_skipped(code, owner=None) -> bool
    reset(code, owner=None)                            # forget entries and skips
    Owner().clear()                                    # forget everything of this owner

``Entry.code`` must take the same arguments and have the same free variables in the same order as the original
(``install`` checks, ValueError says what differs); its globals are the original function's. An entry is held by its
owner alone: it goes when the owner goes, when the original code object goes, when ``remove``/``reset`` says so, or when an object goes
that one of its guards holds by weak reference.

**Intercept mode** (per thread, while the call runs)::

    intercept(callback, fn, args=(), kwargs=None, passthrough=None)

calls ``fn(*args, **kwargs)`` for real; every Python frame that starts meanwhile in this thread is not executed:
``callback(func, args: tuple, kwargs: dict)`` is called in its place, with all modes off, and its result (or exception) is the call's.
This includes lambdas and *calls of* generator functions, coroutine functions and async generator functions (the callback returns the
generator-like object). Not intercepted, i.e. executed for real with intercept mode staying on: class bodies and
module code, code marked with ``never_intercept(code)``, resumptions of real generators. Executed for real with every mode
off until they return: frames whose file name starts with one of the prefixes of ``passthrough = Passthrough(("/x/torch/_ops", ...))``
(make one and keep it: the decision is cached per code object).

**Guards**: see ``guards.tree``; ``Tree`` is made there.
"""
