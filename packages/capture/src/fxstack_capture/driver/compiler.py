"""``FrameCompiler``: the callback of the frame hook, which turns a frame into an entry.

A ``FrameCompiler`` belongs to one ``optimize`` call. It owns the entries (through ``native.Owner``), the
resume functions and the shape histories of the functions that ran under it.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import perf_counter
from types import CellType, CodeType, FunctionType
from typing import Any, Final

from fxstack_capture import native
from fxstack_capture.breaks import BreakRecord, GraphBreak, graph_break
from fxstack_capture.calls.rules.torch.modules import first_lazy, while_lazy
from fxstack_capture.driver import deferred_compilation as deferred
from fxstack_capture.driver.alternate_backends import Alternates
from fxstack_capture.driver.attempts.outcomes import PlainPython, PlainUntil, Traced
from fxstack_capture.driver.attempts.steps import write
from fxstack_capture.driver.attempts.tracing import FrameTracing
from fxstack_capture.driver.backend import Backend, compile_graph
from fxstack_capture.driver.code_history import CodeState, CodeStates
from fxstack_capture.driver.contracts import CallContract, renamed_arguments
from fxstack_capture.driver.errors import (
    BackendError,
    ComptimeError,
    Unsupported,
    graph_error,
    plain,
    unsupported,
)
from fxstack_capture.driver.frame_of_call import real_frame
from fxstack_capture.driver.frame_policy import builtins_in_use
from fxstack_capture.driver.frame_policy.disabling import disabled_code, is_disabled, is_skipping
from fxstack_capture.driver.frame_policy.fullgraph import demand_compiled
from fxstack_capture.driver.frame_policy.policy import (
    foreign_state,
    forward_of,
    is_foreign,
    is_module_call,
    is_own,
    is_traced_by_others,
)
from fxstack_capture.driver.frame_policy.replaced_functions import ReplacedFunctions
from fxstack_capture.driver.profitability import Trials
from fxstack_capture.driver.replacement import (
    GUARDING,
    WRITING,
    Replacement,
    Written,
    gets_tensors,
    has_tensors,
    run,
)
from fxstack_capture.driver.reports.compilation import compilation
from fxstack_capture.driver.reports.exported_guards import exported
from fxstack_capture.driver.reports.mistakes import Mistakes, UnconfirmedError
from fxstack_capture.driver.reports.recompiling import (
    Recompilation,
    announce,
    exceeded_limit,
    fitting_entry,
    limit_reached,
    notify,
    refusal,
)
from fxstack_capture.driver.reports.records import FrameRecord, Observer, Reasons, Tally, Verdict, place_of
from fxstack_capture.emit.endings.raising import raising_frame
from fxstack_capture.emit.frame import Emitted
from fxstack_capture.emit.resume import Resumptions
from fxstack_capture.guards.accesses import RealFrame
from fxstack_capture.guards.records import Guard
from fxstack_capture.interpreter.program import ProgramTable
from fxstack_capture.options import CaptureOptions, with_environment, with_fullgraph, with_settings
from fxstack_capture.shapes.contract import ShapeContractError
from fxstack_capture.shapes.symbolic.guards import is_demand_of_unbacked
from fxstack_capture.stance import current_stance, with_changes
from fxstack_capture.torch_side.global_state.unloaded import leave_compiler_unloaded
from fxstack_capture.torch_side.subclasses.suspended_modes import put_back, set_aside
from fxstack_capture.versions.instruction_sets import program_table
from fxstack_interchange.collector import held_signals, paused_collector
from fxstack_interchange.passes import StoppedAfterPass, working_on
from fxstack_interchange.torch_facts.compiled_autograd import without_compiled_autograd
from fxstack_interchange.torch_facts.torch_settings import warn_of_ignored

# Tracing changes torch state of the whole process, such as the default dtype, so one thread traces at a time.
_TRACING: Final = threading.RLock()

# If a function has no torch operations, the compiler traces this many of its frames, or compiles them because
# of graph breaks. After that, the function stays in plain Python.
_PATIENCE = 2

_REGION = "Torch-Compiled Region: "  # tools that read torch's profiles look for these words
_REPLACED = "while the program replaces functions that a compiler needs"


class FrameCompiler:
    """Compiles the frames that calls of one compiled callable reach, with one backend and one set of options."""

    def __init__(
        self,
        backend: Backend,
        options: CaptureOptions,
        owner: Any,
        observer: Observer | None = None,
        records: list[FrameRecord] | None = None,
    ) -> None:
        """``records`` gets a record of each frame. With None, the compiler keeps no traced object alive."""
        self.backend = backend
        self._options = with_fullgraph(with_environment(options))
        self.owner = owner
        self.observer = observer
        self.root: Any = None
        """The module whose calls are compiled. None if the compiled callable is no module."""
        self.contract: CallContract | None = None
        """The shape contract of the calls, or None: which argument sizes are fixed and which are equal."""
        self.first: CodeType | None = None
        """The code object of the outermost frame of a call, or None if the call begins in C code."""
        self.records = records
        self.programs: ProgramTable = program_table()
        self.resumptions = Resumptions(self._never_trace)
        self._polyfilled: set[int] = set()
        """Ids of the program's code objects in which a graph has broken below C code."""
        self.states = CodeStates()
        self.alternates = Alternates()
        self.tally = Tally()
        self.reasons = Reasons()
        self.trials = Trials(self.tally, self.records)
        self._replaced = ReplacedFunctions()
        self.mistakes = Mistakes()

    def _never_trace(self, code: CodeType) -> None:
        """Exclude generated code from tracing."""
        if native.AVAILABLE:
            native.skip(code)

    @property
    def options(self) -> CaptureOptions:
        """The options of the next compilation, with torch's settings and the changes of ``patch_options``."""
        return with_fullgraph(with_changes(with_settings(self._options)))

    def with_backend(self, backend: Backend) -> FrameCompiler:
        """Return a compiler with another backend, the same options and its own entries. For ``Alternates``."""
        compiler = FrameCompiler(backend, self._options, native.Owner(), self.observer, self.records)
        compiler.root, compiler.contract, compiler.first = self.root, self.contract, self.first
        compiler.states.profile = self.states.profile
        return compiler

    def reset(self) -> None:
        """Delete all entries and histories, so that the next call compiles again. ``api.reset`` calls this."""
        self.alternates.clear()
        self.owner.clear()
        self.resumptions.clear()
        self.states.clear()
        self.trials.restart()
        self.mistakes.said.clear()

    # --- the callback ----------------------------------------------------------------------------

    def callback(
        self,
        function: FunctionType,
        code: CodeType,
        arguments: dict[str, object],
        cells: tuple[CellType, ...],
    ) -> Any:
        """Compile a frame that no entry accepts. The frame hook calls this method.

        Return the entry, or the way in which the hook runs the frame (``native.RUN`` or ``native.SKIP``).
        """
        # Check calls of modules first, because each call of a module gets here if it runs in plain Python.
        if (is_module_call(code) and arguments.get("self") is not self.root) or self.options.disable:
            return native.RUN
        if builtins_in_use.are_replaced():
            return self._forbidden(code, code, _REPLACED)
        if is_traced_by_others():
            return native.RUN
        if self._replaced.are_there():
            return self._forbidden(code, self._named(code), _REPLACED)
        replaced = builtins_in_use.replaced_in_libraries()
        if replaced is not None and not self.options.fullgraph:
            builtins_in_use.warn_once(replaced)
            return native.RUN
        if code is self.first and self.options.fullgraph:
            demand_compiled(function)
        if is_skipping(code):
            return native.SKIP
        if is_skipping(sys._getframe(1).f_code):
            return native.RUN
        frame = real_frame(function, code, arguments, cells)
        if is_disabled(function):
            if not is_foreign(code):
                self.reasons.add(code, "it is marked as not to be compiled")
            return native.Entry(self.owner, None, disabled_code(frame, code))
        if is_foreign(code) or is_own(function):
            return native.SKIP
        foreign = foreign_state({} if self.resumptions.of(code) is None else arguments)
        if foreign is not None:
            self.reasons.add(self._named(code), foreign)
            return native.RUN
        with set_aside(), without_compiled_autograd():
            return self._called(frame, code, replaced)

    def _called(self, frame: RealFrame, code: CodeType, replaced: str | None) -> Any:
        """Compile a frame, unless an entry fits or a policy lets the frame run in plain Python.

        Raises if the stance forbids compiling. The caller has suspended the program's torch-function modes.
        """
        lazy = first_lazy(self.root) if is_module_call(code) else None
        if lazy is not None:
            return self._defer(frame, code, while_lazy(lazy), "a module in it is still lazy", lazy=True)
        stance = current_stance()
        if stance.name == "eager_on_recompile":
            return native.RUN
        if replaced is not None:
            raise unsupported(graph_break("replaced-by-program", replaced).record)
        with held_signals(), _TRACING, paused_collector():
            leave_compiler_unloaded()
            state = self.states.of(code)
            deferred.remove_deferring_entries(code, state)
            with put_back():
                fitting, recompilation = fitting_entry(frame, self._named(code), code, self.owner)
            fitting = fitting or deferred.entry_under_checkpoint(self.owner, code, state)
            if fitting is not None:  # another thread has compiled the frame
                return fitting
            self.tally.traced += 1
            if stance.forbids_compiling:
                raise refusal(recompilation, stance.forbids_compiling)
            if stance.name == "eager_then_compile" and not (state.met or recompilation.failures):
                return self._run_plain_first(frame, code, state)
            if self._is_idle(frame, code, recompilation):
                return native.SKIP
            equal = self.states.equal_to(code)
            exceeded = exceeded_limit(recompilation, state.entries, equal.usage(self.owner), self.options)
            if exceeded:
                if not equal.has_warned:
                    self._warn_of_limit(recompilation, exceeded)
                    equal.has_warned = True
                return native.SKIP
            if recompilation.failures:
                announce(recompilation, code, self.options, self.observer)
            with compilation(self.observer, self._named(code), state):
                entry = self._compile(frame, code, state, recompilation)
            if isinstance(entry, native.Entry) and entry.tree is not None and self.owner is not None:
                # Install the entry while this thread holds the lock. The hook would install it later, after
                # the release of the lock, and another thread could compile the frame again in between.
                native.install(code, entry)
            return entry

    def _forbidden(self, code: CodeType, named: CodeType, why: str) -> Any:
        """Run the frame in plain Python. ``why`` is a phrase such as "while the program replaces functions".

        ``named`` is the function that messages name. Under ``fullgraph``, raise an error if this is the first
        frame of a call. Without an error, this method calls no builtin.
        """
        # Torch's exporter replaces functions such as ``max`` as well, and then traces the operators of a
        # plain call.
        if code is self.first and self.options.fullgraph and not is_traced_by_others():
            raise plain(f"{named.co_qualname}, {why},")
        self.reasons.add(named, why)
        return native.RUN

    def _defer(self, frame: RealFrame, code: CodeType, until: Guard, why: str, *, lazy: bool) -> Any:
        """Run the frame in plain Python until the guard ``until`` fails. ``why`` is the reason for reports.

        ``lazy``: the call creates the parameters of lazy modules. ``fullgraph`` allows this.
        """
        if self.options.fullgraph and not lazy:
            raise plain(f"{self._named(code).co_qualname} ({why})")
        self._record(code, Verdict.PLAIN, why=why)
        self.reasons.is_deferred = True
        return deferred.defer(self.owner, frame, code, self.states.of(code), until)

    def _is_idle(self, frame: RealFrame, code: CodeType, recompilation: Recompilation) -> bool:
        """Whether calls of a function without tensor arguments and graphs repeatedly find no entry."""
        # For example, a module's ``__getattr__`` gets another name in each call.
        if len(recompilation.failures) < _PATIENCE or self.options.fullgraph or gets_tensors(frame):
            return False
        return not self.states.of(self.resumptions.user_of(code)).computes

    def _compile(
        self, frame: RealFrame, code: CodeType, state: CodeState, recompilation: Recompilation
    ) -> Any:
        """Compile the frame. If an observer of passes stops the compilation, run the frame in plain Python."""
        warn_of_ignored(self._named(code))
        try:
            with working_on(place_of(self._named(code))):
                return self._compiled(frame, code, state, recompilation)
        except StoppedAfterPass as stopped:
            self._record(code, Verdict.PLAIN, why=str(stopped) or "an observer of passes has stopped it")
            return native.SKIP

    def _compiled(
        self, frame: RealFrame, code: CodeType, state: CodeState, recompilation: Recompilation
    ) -> Any:
        """Trace the frame, and return the result of ``callback``. An error of the compiler leads to plain
        Python.
        """
        started = perf_counter()
        try:
            outcome = self._write(frame, code, state)
        except (Unsupported, ComptimeError, ShapeContractError, StoppedAfterPass):
            raise
        except Exception as error:
            return self._failed(code, error)
        if isinstance(outcome, PlainUntil):
            lazy = outcome.record.reason.id == "plain-python"
            return self._defer(frame, code, outcome.until, outcome.text, lazy=lazy)
        if isinstance(outcome, PlainPython):
            return self._not_traced(code, state, outcome)
        if self.observer is not None:
            self.observer.on_trace(perf_counter() - started)
        return self._install(frame, code, state, outcome, recompilation)

    def _run_plain_first(self, frame: RealFrame, code: CodeType, state: CodeState) -> Any:
        """Run the first call under ``eager_then_compile`` in plain Python, and record its sizes."""
        state.met = True
        with suppress(Exception):  # the next call is compiled and raises the error again
            self._write(frame, code, state)
        return native.RUN

    def inspect(self, frame: RealFrame, code: CodeType) -> None:
        """Trace a frame and record the result. The graph is not compiled. ``explain`` calls this method."""
        outcome = self._write(frame, code, CodeState())
        if isinstance(outcome, Written):
            draft, captured = outcome.draft, outcome.captured
            graph = None if captured is None else captured.graph_module
            emitted = Emitted(code) if draft is None else draft.complete(graph)
            self._note(frame, code, outcome, emitted, None)
        else:
            self._record(code, Verdict.PLAIN, why=outcome.text)

    # --- tracing ---------------------------------------------------------------------------------

    def _write(self, frame: RealFrame, code: CodeType, state: CodeState) -> Traced:
        """Trace the frame, and return the draft of its replacement, or the reason to run it in plain Python."""
        shared = self.options, self.programs, self.resumptions, self.contract, self._polyfilled
        report = partial(self._report, code)
        is_first = code is self.first
        return write(FrameTracing(frame, code, state, *shared, is_first, self.owner is not None, report))

    def _report(self, code: CodeType, record: BreakRecord, *, is_error: bool) -> None:
        """Record a graph break. Raise ``Unsupported`` if graph breaks are forbidden."""
        self.tally.breaks += 1
        self.reasons.add(self._named(code), record.title)
        if self.observer is not None:
            self.observer.on_break(record)
        if is_error or self.options.fullgraph or record.reason.id == "forbidden":
            raise unsupported(record)
        self.mistakes.warn_if_mistake(self._named(code), record)

    # --- verdicts --------------------------------------------------------------------------------

    def _install(
        self,
        frame: RealFrame,
        code: CodeType,
        state: CodeState,
        written: Written,
        recompilation: Recompilation,
    ) -> Any:
        """Make guards and code, and compile the graph. Return the entry, or the way to run plain Python."""
        draft, options = written.draft, self.options
        whole = options.fullgraph
        wanted = whole or written.graph_break or self._follows_a_graph(code)
        if draft is not None and not (wanted or has_tensors(draft)):
            return self._plain(code, state, "no torch operation was captured")
        replacement = run(GUARDING, Replacement(frame, code, written, options, written.guards))
        if replacement.error is not None:
            return self._failed(code, replacement.error)
        failure = replacement.failure
        if failure is not None and (is_demand_of_unbacked(failure.guard) or state.may_have_changed()):
            self._record(code, Verdict.PLAIN, why=failure.message)
            return self._forbidden(code, self._named(code), failure.message)
        if failure is not None:
            return self._failed(code, RuntimeError(f"guards reject their own frame: {failure.message}"))
        if draft is not None and draft.has_effects and deferred.is_under_checkpoint():
            self.reasons.add(self._named(code), "a checkpoint around it repeats its side effects")
            return deferred.plain_under_checkpoint(self.owner, code, state, code.replace())
        where = place_of(self._named(code))
        if draft is not None and draft.captured is not None:
            notify(self.observer, "on_captured", where, draft.captured)
            try:
                graph = compile_graph(self.backend, draft.captured, where, options, frame)
            except BackendError as error:
                if options.suppress_errors and not whole:
                    self.mistakes.warn_of_suppressed(self._named(code), error)
                    self._record(code, Verdict.PLAIN, why=str(error))
                    return native.SKIP
                if whole or not self._replaced.explain(error):
                    raise
                self._record(code, Verdict.PLAIN, why=str(error))
                return native.RUN
            except GraphBreak as reason:
                return self._not_traced(code, state, PlainPython(reason.record, reason.record.message))
            replacement = replace(replacement, graph=graph)
        replacement = run(WRITING, replacement)
        state.entries += 1
        return self._entry(replacement, recompilation)

    def _entry(self, replacement: Replacement, recompilation: Recompilation) -> Any:
        """Record the compilation, and return the entry that runs the replacement code."""
        code, draft, emitted = replacement.code, replacement.written.draft, replacement.emitted
        written = replace(replacement.written, guards=replacement.guards)
        if draft is None or emitted is None:
            note = partial(self._record, code, Verdict.PLAIN)
            fatal = self.options.fullgraph
            unconfirmed = UnconfirmedError(code, written.error, fatal, self.mistakes, note)
            emitted = raising_frame(replacement.frame, code, self._never_trace, unconfirmed)
            self._note(replacement.frame, code, written, emitted, recompilation)
            return unconfirmed.entered(native.Entry(self.owner, replacement.tree, emitted.code))
        self._note(replacement.frame, code, written, emitted, recompilation)
        if self.options.guard_export_fn is not None and draft.captured is not None:
            self.options.guard_export_fn(exported(replacement.guards, replacement.frame))
        entry = native.Entry(self.owner, replacement.tree, emitted.code, emitted.inputs is not None)
        if has_tensors(draft):
            self.tally.graphs += 1
            self.states.of(self.resumptions.user_of(code)).computes = True
            entry.region = _REGION + place_of(self._named(code))
        return entry

    def _follows_a_graph(self, code: CodeType) -> bool:
        """Whether ``code`` is a resume function of a function that has graphs with tensors."""
        # A resume function after the last iteration of a loop has no operations, but the loop itself has.
        user = self.resumptions.user_of(code)
        return user is not code and self.states.of(user).computes

    def _note(
        self,
        frame: RealFrame,
        code: CodeType,
        written: Written,
        emitted: Emitted,
        recompilation: Recompilation | None,
    ) -> None:
        """Record a compilation that has an entry. ``emitted`` is the code that replaces the frame."""
        self._record(
            code,
            Verdict.COMPILED if written.raised is None else Verdict.RAISES,
            why=written.error,
            captured=written.captured,
            guards=written.guards,
            names=renamed_arguments(frame, code),
            graph_break=written.graph_break,
            emitted=emitted,
            recompilation=recompilation if recompilation is not None and recompilation.failures else None,
        )

    def _plain(self, code: CodeType, state: CodeState, why: str) -> Any:
        """Record that the frame runs in plain Python. The hook skips a function that often has no operations."""
        self._record(code, Verdict.PLAIN, why=why)
        state.without_operations += 1
        return native.SKIP if state.without_operations > _PATIENCE else native.RUN

    def _not_traced(self, code: CodeType, state: CodeState, plain: PlainPython) -> Any:
        """Run the frame in plain Python, because its trace or its backend gave up. Raise under ``fullgraph``."""
        if self.options.fullgraph:
            raise unsupported(plain.record)
        self.mistakes.warn_if_mistake(self._named(code), plain.record)
        return self._plain(code, state, plain.why)

    def _warn_of_limit(self, recompilation: Recompilation, exceeded: str) -> None:
        """Warn once that a function has reached a recompilation limit (``exceeded_limit``), or raise."""
        raises = self.options.fail_on_recompile_limit or self.options.fullgraph
        text = limit_reached(recompilation, exceeded, raises=raises)
        if self.records is not None:
            where = recompilation.name, recompilation.file, recompilation.line
            self.records.append(FrameRecord(*where, Verdict.PLAIN, why=text))

    def _failed(self, code: CodeType, error: Exception) -> Any:
        """Handle a defect of the compiler: warn once, and run the frame in plain Python."""
        if self.options.fullgraph:
            raise graph_error(error) from error
        text = f"{type(error).__name__}: {error}"
        self.mistakes.warn(self._named(code), text)
        self._record(code, Verdict.PLAIN, why=text)
        return native.SKIP

    def _named(self, code: CodeType) -> CodeType:
        """Return the code of the user's function that messages name for a frame of ``code``.

        For a resume function: the function that it continues. For a call of a module: ``forward``.
        """
        return forward_of(self.root, self.resumptions.user_of(code))

    def _record(self, of: CodeType, verdict: Verdict, why: str = "", **facts: Any) -> None:
        """Record the verdict on a frame, and notify the observer. ``facts`` are fields of ``FrameRecord``."""
        named = self._named(of)
        if verdict is Verdict.PLAIN:
            self.reasons.add(named, why)
        where = named.co_qualname, named.co_filename, named.co_firstlineno
        record = FrameRecord(*where, verdict, why, resumed=self.resumptions.user_of(of) is not of, **facts)
        if self.records is not None:
            self.records.append(record)
        notify(self.observer, "on_frame", record)
