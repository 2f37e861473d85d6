"""Rows that lie in shared memory, where bulk copies bring them, as CUDA C++: read once, gone through as often as their folds
need it. Registers are left for what is computed, and of several small blocks of a multiprocessor one reads while another one
computes or writes. A block, or a cluster of blocks, has a row; each block has a part of it that is in one piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from weft.emit.expressions import memory_type, register_type
from weft.emit.fold_points import Work
from weft.emit.held import HeldEntry
from weft.graph.tile import Axis, Read
from weft.plan.fold import part_bytes
from weft.plan.scan import SLOT_ALIGNMENT

# Runs that a thread has in registers at a time.
_UNROLL = 4


@dataclass
class CopiedEntry(HeldEntry):
    """The one launch of a plan whose blocks hold their parts of a row in shared memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        lane = self.plan.lane
        self.keeps, self.several = None, set()
        self.anywhere = self.plan.vector == 1  # rows begin anywhere in memory, and in shared memory as far past a packet
        self.packed = set() if self.anywhere else {v.name for v in self.reads}
        self.begins, self.here, self.own_run = "0", "", self.fresh.fresh(f"{lane}_place")
        self.part = self.plan.holds // self.plan.cluster  # points of a block
        self.arrived = ""
        self.there: dict[str, str] = {}  # where a row of each read lies
        self.room: dict[str, str] = {}  # the memory for it, where a row begins anywhere in that
        self.waited: set[str] = set()

    def whose(self) -> str:
        return f"{super().whose()}, which lies in shared memory"

    def shared_memory(self) -> None:
        line, count, offset = self.writer.line, len(self.reads), 0
        line(f"extern __shared__ __align__({SLOT_ALIGNMENT}) unsigned char memory[];")
        for v in self.reads:
            dtype = self.function.array(v.array).dtype
            type_, name = memory_type(dtype), self.fresh.fresh(f"{v.name}_part")
            memory = f"reinterpret_cast<{type_}*>(memory{f' + {offset}' if offset else ''})"
            if self.anywhere:
                self.room[v.name] = memory
            else:
                line(f"{type_}* const {name} = {memory};")
            self.there[v.name] = name
            offset += part_bytes(self.plan, dtype.size)
        self.arrived = self.fresh.fresh("arrived")
        line(f"__shared__ weft::Mbarrier {self.arrived}[{count}];")
        with self.writer.block("if (threadIdx.x == 0)"):
            line(f"for (int32_t k = 0; k < {count}; ++k) {self.arrived}[k].init(1);")
            line("weft::fence_mbarrier_init();")
        super().shared_memory()

    def all_rows(self, axes: list[Axis], counts: dict[str, str], tiles: dict[str, str]) -> None:
        line = self.writer.line
        if self.plan.cluster > 1:
            self.begins = self.fresh.fresh(f"{self.plan.lane}_first")
            line(f"const int32_t {self.begins} = int32_t(weft::cluster_rank()) * {self.part};")
        super().all_rows(axes, counts, tiles)

    def read_row(self, tiles: dict[str, str]) -> None:
        line, rest = self.writer.line, self.extent if self.begins == "0" else f"{self.extent} - {self.begins}"
        self.here = self.fresh.fresh(f"{self.plan.lane}_here")
        bounded = f"weft::minimum<int64_t>({self.part}, {rest})"
        line(f"const int32_t {self.here} = int32_t(weft::maximum<int64_t>(0, {bounded}));")
        if self.anywhere:
            self.rows_anywhere()
            return
        with self.writer.block("if (threadIdx.x == 0)"):
            for k, v in enumerate(self.reads):
                with self.spelled({self.lane.name: self.begins}):
                    row, size = self.address(v.array, v.index), self.function.array(v.array).dtype.size
                arrived, whole, row = f"{self.arrived}[{k}]", f"{self.here} * {size}", row.removesuffix(" + 0")
                self.writer.cite(v.location)
                line(f"{arrived}.arrive_expect({whole});")
                some = f"if ({self.here} > 0) " if self.plan.cluster > 1 else ""
                line(f"{some}weft::bulk_load({self.there[v.name]}, {row}, {whole}, {arrived});")
        line("__syncthreads();  // all see where they wait for it")
        self.of_rows(self.told_early())

    def rows_anywhere(self) -> None:
        """What is no whole packet is brought there by threads."""
        line = self.writer.line
        for k, v in enumerate(self.reads):
            with self.spelled({self.lane.name: self.begins}):
                row = self.address(v.array, v.index).removesuffix(" + 0")
            self.writer.cite(v.location)
            copied = f"weft::bulk_row({self.room[v.name]}, {row}, {self.here}, {self.arrived}[{k}])"
            line(f"const auto* const {self.there[v.name]} = {copied};")
            self.names[v.name] = f"{register_type(v.type)}({self.there[v.name]}[{self.own_run}])"
            self.leaves.add(v.name)
        line("__syncthreads();  // all see where they wait for it, and what is there already")
        self.of_rows(self.told_early())

    def all_points(self, axes: list[Axis], work: Work, across: int) -> None:
        for k, v in enumerate(self.reads):
            if (v in work.values or self.anywhere) and v.name not in self.waited:
                self.waited.add(v.name)
                self.writer.line(f"{self.arrived}[{k}].wait(0);")
        super().all_points(axes, work, across)

    @contextmanager
    def runs(self) -> Iterator[None]:
        step, vector = self.plan.threads * self.plan.vector, self.plan.vector
        first = f"threadIdx.x * {vector}" if vector > 1 else "threadIdx.x"
        self.writer.line(f"#pragma unroll {_UNROLL if vector > 1 else 2 * _UNROLL}")
        turns = f"for (int32_t {self.own_run} = {first}; {self.own_run} < {self.here}; {self.own_run} += {step})"
        with self.writer.block(turns):
            mark = self.writer.mark()
            yield
            if self.writer.mentions(self.run, mark):
                whole = self.own_run if self.begins == "0" else f"{self.begins} + {self.own_run}"
                self.writer.insert(mark, f"const int32_t {self.run} = {whole};")

    def packet(self, read: Read, how: str = "fetch") -> str:
        if read.name not in self.there:
            return super().packet(read, how)
        vector = self.plan.vector
        return f"weft::fetch<{vector}, {self.width(read.array, vector)}>({self.there[read.name]} + {self.own_run})"
