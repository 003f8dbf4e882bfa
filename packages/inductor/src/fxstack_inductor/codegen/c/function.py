"""Write kernels with inner loops along memory as C functions (``strategy`` selects these kernels)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property, partial

import torch

from fxstack_inductor.codegen.c.claims import Claim
from fxstack_inductor.codegen.c.halves import HALF_DTYPES, Halves, halves
from fxstack_inductor.codegen.c.loops import LoopWriter, flagged
from fxstack_inductor.codegen.c.ops import REGISTER
from fxstack_inductor.codegen.c.pointwise.row_values import row_values
from fxstack_inductor.codegen.c.ranges import Range, for_head, ranges
from fxstack_inductor.codegen.c.reductions.combine import Accumulator, accumulator, arg_step, key_step
from fxstack_inductor.codegen.c.reductions.lanes import Lanes, width_with_rest
from fxstack_inductor.codegen.c.reductions.lanes import width as lane_width
from fxstack_inductor.codegen.c.reductions.phases import TILE, Planner, arrays, scan_body, tiled, vector_body
from fxstack_inductor.codegen.c.reductions.saved import first_passes, saved_values
from fxstack_inductor.codegen.c.reductions.scan import ScanText
from fxstack_inductor.codegen.c.sharing import LINE, Sharing, share
from fxstack_inductor.codegen.c.streams import fenced
from fxstack_inductor.codegen.c.text import parameters
from fxstack_inductor.codegen.c.threads import KERNEL, bounds_of_share, name_of, team
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.expr import product
from fxstack_inductor.ir.kernel import Compute, Kernel, Loop, Scan, Store
from fxstack_inductor.ir.scalar_ops import EXPENSIVE

BLOCK = 2048
"""The number of elements summed in float before the partial sum is added to a double."""
MANY = 6
"""More cheap operations than this beside a scan are vector loops."""


class FunctionWriter(LoopWriter):
    """Writes the body of one function; ``strategy`` names the method to call: ``rows`` or ``whole``."""

    def __init__(self, kernel: Kernel, grain: int) -> None:
        super().__init__(kernel, grain)
        self.saved: dict[int, str] = {}
        self.scans = ScanText(kernel, self.names)

    # --- strategies -----------------------------------------------------------------------------------

    def rows(self) -> None:
        """Write passes over the inner loops for each outer point."""
        found = row_values(self.kernel)
        writer = self._once(found) if found else self
        writer._passes_of_rows()

    def _passes_of_rows(self) -> None:
        loops = self.kernel.outer
        self._share(ranges(loops))
        self._passes()
        self.out.close(len(loops))

    def whole(self) -> None:
        """Write code for few outer points: threads share the first inner loop; partial sums add in order.

        ``strategy`` also writes a version for one thread.
        """
        self._open_loops(self.kernel.outer)
        emitted: set[int] = set()
        for stage in range(self.facts.last_stage + 1):
            self._outer_values(stage, emitted)
            self._shared_pass(stage)
            self._outer_stores(stage, emitted)
        self.out.close(len(self.kernel.outer))

    # --- passes over the inner loops ------------------------------------------------------------------

    def _passes(self) -> None:
        """Write every pass over the inner loops, with the outer-level values and stores between the passes."""
        emitted: set[int] = set()
        self._plan_row_cache()
        for stage in range(self.facts.last_stage + 1):
            self._outer_values(stage, emitted)
            reduces = self.facts.reduces(stage)
            stores = self.facts.stores(stage, inner=True)
            if reduces or stores:
                self._row_pass(stage, reduces, stores)
            self._outer_stores(stage, emitted)

    def _outer_values(self, stage: int, emitted: set[int]) -> None:
        """Declare, as scalars, the values outside the inner loops that are known before pass ``stage``.

        ``emitted`` has the positions of the declared values.
        """
        ready = [k for k in self.facts.ready(stage) if k not in emitted]
        self._values(ready)
        emitted.update(ready)

    def _outer_stores(self, stage: int, emitted: set[int]) -> None:
        """Write the stores outside the inner loops whose values are known after pass ``stage``."""
        self._outer_values(stage + 1, emitted)
        if stage == 0:
            self._stores(self.facts.stores(0, inner=False))
        self._stores(self.facts.stores(stage + 1, inner=False))

    def _row_pass(self, stage: int, reduces: list[int], stores: list[Store]) -> None:
        """Write one pass: declare accumulators, walk through the inner loops, finish the accumulators."""
        loops = self.kernel.inner
        for k in reduces:
            self._declare_accumulator(k)
        self.out.write_lines(self.scans.declare(self._scans(stage, reduces, stores)))
        lanes = self._lanes(stage, reduces, stores)
        blocked = self._blocked(reduces)
        if blocked:
            self._declare_wide(reduces)
        else:
            self.out.write_lines(line for lane in lanes for line in lane.declare(f"v{lane.position}"))
        self._open_loops(loops[:-1])
        size = c_index(loops[-1].extent)
        if blocked:
            self.out.open(f"for (int64_t block = 0; block < {size}; block += {BLOCK})")
            self.out.line(f"const int64_t stop = {size} - block < {BLOCK} ? {size} : block + {BLOCK};")
            self._partials(reduces)
            self.out.write_lines(line for lane in lanes for line in lane.declare(f"part{lane.position}"))
        self._walk(stage, reduces, stores, lanes)
        if blocked:
            self.out.write_lines(line for lane in lanes for line in lane.fold(f"part{lane.position}"))
            self._add_partials(reduces)
            self.out.close()
        self.out.close(len(loops) - 1)
        if blocked:
            self._narrow(reduces)
        else:
            self.out.write_lines(line for lane in lanes for line in lane.fold(f"v{lane.position}"))

    def _walk(self, stage: int, reduces: list[int], stores: list[Store], lanes: list[Lanes]) -> None:
        """Write the last loop of a pass, or the part of the loop in one block."""
        last = self.kernel.inner[-1]
        span, prefix = ("0", c_index(last.extent)), "v"
        if self._blocked(reduces):
            span, prefix = ("block", "stop"), "part"
        scans = self._scans(stage, reduces, stores)
        if scans and self._costly(stage, reduces, stores):
            self._open_keys(reduces, prefix)
            self._tiles(stage, reduces, stores, span, prefix)
            self._close_keys(reduces, prefix)
            return
        computed = self._in_pass(stage, reduces, stores)
        width = lanes[0].width if lanes else None
        if not reduces and not scans:
            width = width_with_rest(self.kernel, computed)
        if width is not None:
            self._walk_lanes(stage, stores, lanes, width, span)
            return
        conversions = self._halves(stage, reduces, stores)
        self._open_keys(reduces, prefix)
        head = Claim.ORDER.comment if scans else self._head(stage, reduces, stores, prefix)
        with self._runs(conversions, span, head):
            self._inner_body(stage, stores, self._steps(reduces, prefix))
        self._close_keys(reduces, prefix)

    def _walk_lanes(
        self, stage: int, stores: list[Store], lanes: list[Lanes], width: int, span: tuple[str, str]
    ) -> None:
        """Write the last loop of a pass over ``span`` in steps of ``width`` points; the last step ends where the row ends."""
        steps = {lane.position: lane.step(self._reduced(lane.position)) for lane in lanes}
        reduces, last = list(steps), self.kernel.inner[-1]
        rest = (last.extent.as_int() or 0) % width > 0
        dtypes = HALF_DTYPES if rest else frozenset[torch.dtype]()
        conversions = self._halves(stage, reduces, stores, dtypes=dtypes, chunk=width, whole=True)
        with self.out.block(for_head("from" if rest else "at", *span, str(width))):
            if rest:
                self.out.line(f"const int64_t at = min_int64_t(from, {span[1]} - {width});")
                self.out.line("const int32_t before = from - at;")
            with self._converted(conversions, "at", str(width), str(width)):
                self.out.line(self._simd(self._in_pass(stage, reduces, stores)))
                with self.out.block(for_head("j", "0", str(width))):
                    self.out.line(f"const int64_t {last.var.name} = at + j;")
                    self._inner_body(stage, stores, steps)

    def _halves(
        self,
        stage: int,
        reduces: list[int],
        stores: list[Store],
        *,
        dtypes: frozenset[torch.dtype] = frozenset(),
        chunk: int | None = None,
        whole: bool = False,
    ) -> Halves:
        """Return the conversions of the loads and stores along the last loop of a pass."""
        saved = {k for k in self.saved if self._saved_before(k, stage)}
        computed = [k for k in self._in_pass(stage, reduces, stores) if k not in saved]
        last, outer = self.kernel.inner[-1].var, self.facts.outer
        # Sums are in the same runs for all addresses.
        skew = not reduces
        return halves(
            self.names, last, computed, stores, outer, dtypes=dtypes, chunk=chunk, skew=skew, whole=whole
        )

    def _lanes(self, stage: int, reduces: list[int], stores: list[Store]) -> list[Lanes]:
        """Return the lanes of a pass, one record per reduction; an empty list if lanes do not pay."""
        computed = self._in_pass(stage, reduces, stores)
        width = lane_width(self.kernel, computed, reduces)
        if width is None:
            return []
        rest = (self.kernel.inner[-1].extent.as_int() or 0) % width > 0
        return [Lanes(k, self.kernel.reduction(k).op, self._accumulator(k), width, rest) for k in reduces]

    def _in_pass(self, stage: int, reduces: list[int], stores: list[Store]) -> list[int]:
        """Return the positions of the values that pass ``stage`` computes for each inner point."""
        stop = self.facts.outer.union(k for k in self.saved if self._saved_before(k, stage))
        needed = self.facts.needed(self.facts.roots(reduces, stores), stop=stop)
        return [k for k in needed if k not in self.facts.outer]

    def _scans(self, stage: int, reduces: list[int], stores: list[Store]) -> list[int]:
        """Return the scans that a pass computes."""
        computed = self._in_pass(stage, reduces, stores)
        scans = [k for k in computed if isinstance(self.kernel.values[k], Scan)]
        return [k for k in scans if k not in self.saved or not self._saved_before(k, stage)]

    def _costly(self, stage: int, reduces: list[int], stores: list[Store]) -> bool:
        """Whether the values beside the scans of a pass take longer than stack arrays between vector loops."""
        found = [self.kernel.values[k] for k in self._in_pass(stage, reduces, stores)]
        computes = [v for v in found if isinstance(v, Compute)]
        return len(computes) > MANY or any(v.op in EXPENSIVE for v in computes)

    def _steps(self, reduces: list[int], prefix: str) -> dict[int, str]:
        """Return, for each reduction, the C statement that takes one element into its accumulator.

        The accumulator's name is ``prefix`` and the reduction's position, for example ``part3``.
        """
        keyed = {
            k: key_step(op, how.register, f"key{k}", self._reduced(k)) for k, op, how in self._keys(reduces)
        }
        return {k: keyed.get(k) or self._step(k, f"{prefix}{k}") for k in reduces}

    def _inner_body(self, stage: int, stores: list[Store], steps: dict[int, str]) -> None:
        """Write values and stores of one inner point; ``steps``: the statement of each reduction, by position."""
        for k in self._in_pass(stage, list(steps), stores):
            self.out.write_lines(self._inner_value(k, stage))
        self.out.write_lines(steps.values())
        self._stores(stores)

    def _inner_value(self, k: int, stage: int) -> list[str]:
        """Return C that declares a value of one inner point, which an earlier pass may have kept."""
        scan = isinstance(self.kernel.values[k], Scan)
        declared = self.scans.step if scan else self.names.declarations
        if k not in self.saved:
            return declared(k)
        place = f"{self.saved[k]}[{self.kernel.inner[-1].var.name}]"
        if self._saved_before(k, stage):
            return [f"const {REGISTER[self.kernel.values[k].dtype]} v{k} = {place};"]
        return [*declared(k), f"{place} = v{k};"]

    def _tiles(
        self, stage: int, reduces: list[int], stores: list[Store], span: tuple[str, str], prefix: str
    ) -> None:
        """Write the last loop of a pass with scans: vector loops over tiles, and the scans between them."""
        ready = frozenset(k for k in self.saved if self._saved_before(k, stage))
        planner = Planner(self.facts, self._in_pass(stage, reduces, stores), ready)
        phases, last = planner.phases(reduces, stores), self.kernel.inner[-1]
        point = f"const int64_t {last.var.name} = tile + j;"
        with self.out.block(for_head("tile", *span, str(TILE))):
            self.out.line(f"const int64_t count = min_int64_t({span[1]} - tile, {TILE});")
            in_arrays = tiled(planner, phases)
            self.out.write_lines(arrays(self.scans, in_arrays, 1, TILE))
            for phase in phases:
                conversions = halves(
                    self.names, last.var, phase.computed, phase.stores, self.facts.outer, chunk=TILE
                )
                with self._converted(conversions, "tile", "count", str(TILE)):
                    self.out.line(self._reducing(phase.computed, phase.reduces, prefix))
                    with self.out.block(for_head("j", "0", "count")):
                        self.out.line(point)
                        values = vector_body(self.names, phase, "0", partial(self._inner_value, stage=stage))
                        self.out.write_lines(values)
                        self.out.write_lines(self._steps(phase.reduces, prefix).values())
                        self._stores(phase.stores)
                if phase.scans:
                    self.out.line(Claim.ORDER.comment)
                    with self.out.block(for_head("j", "0", "count")):
                        self.out.line(point)
                        places = {k: f"tile{k}[0][j]" for k in in_arrays}
                        self.out.write_lines(scan_body(self.names, self.scans, planner, phase.scans, places))
                        kept = [k for k in phase.scans if k in self.saved]
                        self.out.write_lines(f"{self.saved[k]}[{last.var.name}] = v{k};" for k in kept)

    # --- floating-point extremes, compared as integers in vector loops -----------------------------------

    def _keys(self, reduces: list[int]) -> Iterator[tuple[int, str, Accumulator]]:
        """Yield the reductions whose vector loops compare integers, not floats: position, operation, accumulator."""
        for k in reduces:
            op = self.kernel.reduction(k).op
            if not op.startswith("arg") and (how := self._accumulator(k)).key:
                yield k, op, how

    def _open_keys(self, reduces: list[int], prefix: str) -> None:
        """Before a vector loop: declare the integers that stand for the accumulators of extremes."""
        for k, op, how in self._keys(reduces):
            self.out.line(f"{how.key} key{k} = {op}_key_{how.register}({prefix}{k});")

    def _close_keys(self, reduces: list[int], prefix: str) -> None:
        """After a vector loop: turn the integers back into the floats of the accumulators."""
        for k, _, how in self._keys(reduces):
            self.out.line(f"{prefix}{k} = key_value_{how.register}(key{k});")

    def _step(self, position: int, target: str) -> str:
        """Return the C statement that takes one element into the accumulator ``target``."""
        value = self.kernel.reduction(position)
        if value.op.startswith("arg"):
            operands = [self.names.operand(k) for k in value.args]
            return arg_step(value.op, f"best{position}", target, *operands)
        return self._accumulator(position).step.format(acc=target, x=self._reduced(position))

    def _reduced(self, position: int) -> str:
        """Return the C text of the element that a reduction takes in."""
        return self.names.operand(self.kernel.reduction(position).args[0])

    def _accumulator(self, position: int) -> Accumulator:
        """Return the record of how C code computes the reduction at ``position``."""
        value = self.kernel.reduction(position)
        return accumulator(value.op, value.dtype)

    def _declare_accumulator(self, position: int) -> None:
        """Declare the result ``v<position>`` with the neutral element; argmax and argmin need two variables."""
        value = self.kernel.reduction(position)
        if value.op.startswith("arg"):
            operand = self.kernel.values[value.args[0]].dtype
            self.out.line(f"{REGISTER[operand]} best{position} = 0; int64_t v{position} = -1;")
            return
        how = accumulator(value.op, value.dtype)
        self.out.line(f"{how.register} v{position} = {how.identity};")

    def _blocked(self, reduces: list[int]) -> bool:
        """Whether this pass sums so many numbers that it must add them block by block, to stay accurate."""
        kinds = [self.kernel.reduction(k) for k in reduces]
        if not any(v.op == "sum" and v.dtype.is_floating_point for v in kinds):
            return False
        if any(v.op.startswith("arg") for v in kinds):
            return False
        # Rows of several loops always use doubles: one float sum over all loops rounds thousands of times.
        count = product(loop.extent for loop in self.kernel.inner).as_int()
        return count is None or count > 2 * BLOCK or len(self.kernel.inner) > 1

    def _partials(self, reduces: list[int]) -> None:
        """Declare the sum of one block, ``part<k>``, for each reduction."""
        for k in reduces:
            how = self._accumulator(k)
            self.out.line(f"{how.register} part{k} = {how.identity};")

    def _declare_wide(self, reduces: list[int]) -> None:
        """Declare the double ``wide<k>`` that collects the sums of the blocks, for each sum of floats."""
        for k in reduces:
            how = self._accumulator(k)
            if how.wide != how.register:
                self.out.line(f"{how.wide} wide{k} = {how.identity};")

    def _add_partials(self, reduces: list[int]) -> None:
        """After a block: add its sum to the sum of all blocks."""
        for k in reduces:
            how = self._accumulator(k)
            target = f"wide{k}" if how.wide != how.register else f"v{k}"
            self.out.line(how.step.format(acc=target, x=f"part{k}"))

    def _narrow(self, reduces: list[int]) -> None:
        """After all blocks: convert the double sums to the results' type."""
        for k in reduces:
            how = self._accumulator(k)
            if how.wide != how.register:
                self.out.line(f"v{k} = ({how.register})wide{k};")

    def _head(self, stage: int, reduces: list[int], stores: list[Store], prefix: str) -> str:
        """Return the lines in front of the last loop of a pass without scans."""
        return self._reducing(self._in_pass(stage, reduces, stores), reduces, prefix)

    def _reducing(self, computed: list[int], reduces: list[int], prefix: str) -> str:
        """Return the pragma of a vector loop with reductions along the last loop; the reason if the loop stays scalar.

        ``prefix``: the begin of the accumulators' names, "v" or "part".
        """
        if any(self.kernel.reduction(k).op.startswith("arg") for k in reduces):
            return Claim.POSITION.comment
        accumulators = [(k, self._accumulator(k)) for k in reduces]
        clauses = [f" reduction({how.clause}:{'key' if how.key else prefix}{k})" for k, how in accumulators]
        return self._simd(computed, self.kernel.inner[-1], "".join(clauses))

    # --- values kept for a later pass -----------------------------------------------------------------

    def _plan_row_cache(self) -> None:
        """Choose the values that a later pass takes in, and declare an array for each."""
        if len(self.kernel.inner) != 1:
            return
        size = self.kernel.inner[0].extent.as_int()
        for k in () if size is None else saved_values(self.facts, size):
            self.saved[k] = f"row{k}"
            self.out.line(f"{REGISTER[self.kernel.values[k].dtype]} row{k}[{size}];")

    def _saved_before(self, position: int, stage: int) -> bool:
        """Whether an earlier pass has computed the value, so that this pass can read it from the stack array."""
        return self._first_pass.get(position, stage) < stage

    @cached_property
    def _first_pass(self) -> dict[int, int]:
        """The first pass that computes a value, by position."""
        return first_passes(self.facts)

    # --- passes shared by threads ---------------------------------------------------------------------

    def _shared_pass(self, stage: int) -> None:
        """Write one pass whose first inner loop threads share; each thread has its own partial results."""
        reduces = self.facts.reduces(stage)
        stores = self.facts.stores(stage, inner=True)
        if not reduces and not stores:
            return
        accumulators = [self._accumulator(k) for k in reduces]
        for k, how in zip(reduces, accumulators, strict=True):
            self.out.line(f"{how.register} v{k} = {how.identity};")
            self.out.line(f"{how.wide} shared{k}[threads * {LINE}] __attribute__((aligned({LINE})));")
        first, *rest = self.kernel.inner
        self.out.line(f"int64_t team{stage}[1];")
        start = len(self.out.lines)
        self.out.line(f"if (self == 0) *team{stage} = threads;")
        sharing = pass_sharing(self.kernel, stores)
        assert sharing is not None  # the strategy has checked
        self._note(sharing)
        self.out.write_lines(bounds_of_share(f"({c_index(first.extent)})", sharing.unit))
        for k, how in zip(reduces, accumulators, strict=True):
            self.out.line(f"{how.wide} own{k} = {how.identity};")
        self._shared_loops(stage, first, rest, reduces, stores)
        for k in reduces:
            self.out.line(f"shared{k}[self * {LINE}] = own{k};")
        body = self.out.lines[start:]
        results = [f"{how.wide}* shared{k}" for k, how in zip(reduces, accumulators, strict=True)]
        passed = [*self._captured(body), *results, f"int64_t* team{stage}"]
        body = fenced([*self.names.apart, *flagged(body, self.kernel)])
        text, statement = team(f"{KERNEL}_pass{stage}", passed, body)
        self.out.functions.append(text)
        self.out.lines[start:] = []
        self.out.line(statement)
        for k, how in zip(reduces, accumulators, strict=True):
            self.out.line(f"{how.wide} total{k} = {how.identity};")
            step = how.step.format(acc=f"total{k}", x=f"shared{k}[t * {LINE}]")
            self.out.line(f"for (int64_t t = 0; t < *team{stage}; t++) {step}")
            self.out.line(f"v{k} = total{k};")

    def _captured(self, body: Sequence[str]) -> list[str]:
        """Return the parameters of a function of a pass: the kernel's, and the values before the pass that ``body`` reads."""
        used = set(re.findall(r"\w+", "\n".join(body)))
        found = [f"const int64_t {loop.var.name}" for loop in self.kernel.outer]
        found += [f"const {REGISTER[self.kernel.values[k].dtype]} v{k}" for k in sorted(self.facts.outer)]
        return [*parameters(self.kernel)[:-1], *(text for text in found if name_of(text) in used)]

    def _shared_loops(
        self, stage: int, first: Loop, rest: list[Loop], reduces: list[int], stores: list[Store]
    ) -> None:
        """Write the inner loops of one thread in a shared pass; long loops are summed in blocks."""
        name = first.var.name
        if rest:
            self.out.open(for_head(name, "first", "last"))
            self._open_loops(rest[:-1])
            start, stop, opened = "0", c_index(rest[-1].extent), len(rest)
        else:
            self.out.open(for_head("block", "first", "last", str(BLOCK)))
            self.out.line(f"const int64_t stop = last - block < {BLOCK} ? last : block + {BLOCK};")
            start, stop, opened = "block", "stop", 1
        self._partials(reduces)
        self._open_keys(reduces, "part")
        head = self._head(stage, reduces, stores, "part")
        with self._runs(self._halves(stage, reduces, stores), (start, stop), head):
            self._inner_body(stage, stores, self._steps(reduces, "part"))
        self._close_keys(reduces, "part")
        for k in reduces:
            self.out.line(self._accumulator(k).step.format(acc=f"own{k}", x=f"part{k}"))
        self.out.close(opened)


def pass_sharing(kernel: Kernel, stores: Sequence[Store]) -> Sharing | None:
    """Return how threads share the first inner loop in a pass with ``stores``; None if they cannot."""
    first = kernel.inner[0]
    return share(kernel, [Range(first.var.name, first)], stores, around=kernel.outer)
