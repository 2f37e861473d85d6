"""What is read of each state of a row in a text: where it is, and how it is on its way before it is needed."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field

from weft.emit.expressions import memory_type, register_type
from weft.emit.state_points import StatePoints
from weft.emit.values import ZERO
from weft.graph.tile import Read
from weft.loops.affine import affine
from weft.loops.ir import free_names, substitute
from weft.plan.fold import PACKET_BYTES
from weft.plan.state_scan import staged


@dataclass(frozen=True)
class Copies:
    """Of what is read of each state, and all rows of a block read alike. packet: the name of the first of a thread's packets of
    a tile; source: where that is, of the next state to be copied; step: from there to the next; ring: where it goes. packets:
    of a tile, each of so many elements.
    """

    packet: str
    source: str
    step: str
    ring: str
    packets: int
    each: int


@dataclass
class StateReads(StatePoints):
    """How a launch reads what states have of their own."""

    rings: dict[str, str] = field(default_factory=dict)  # where copies bring what reads read, by reads
    copies: tuple[Copies, ...] = ()
    places_in_tiles: dict[int, str] = field(default_factory=dict)  # of a thread's first element, by elements of a packet

    def first_state(self) -> None:
        """Declare where states have what is read of each of them. Where threads wait for each other at each state, what the
        next one needs is on its way meanwhile.
        """
        self.runs, self.ahead, self.reads_ahead, self.pointers_of_states = {}, {}, [], []
        if self.s == "s":  # they are numbered otherwise
            return
        (axis,) = self.scans.states
        for read in self.needed(self.state_exprs()):
            if not isinstance(read, Read) or axis not in read.axes or not read.always or self.late(read):
                continue
            if read.name in self.rings:
                own = self.places_in_tiles[PACKET_BYTES // self.function.array(read.array).dtype.size]
                taken = f"weft::fetch_packets<{self.plan.points}>({self.rings[read.name]}, {self.slot(self.s)} + {own})"
                self.ahead[read.name] = taken
                continue
            along = self.scans.along in read.axes
            places = [k for k, i in enumerate(read.index) if axis in free_names(i)]
            form = affine(read.index[places[0]]) if len(places) == 1 else None
            if form is None or (along and not self.in_runs(read)) or any(free_names(i) & self.made.keys() for i in read.index):
                continue
            first = tuple(substitute(i, {axis: ZERO}) for i in read.index)
            dtype = self.function.array(read.array).dtype
            with self.spelled({self.axis.name: self.first}) if along else nullcontext():
                at = self.address(read.array, first)
            pointer = self.pointer(f"{read.array}_at", memory_type(dtype), at, self.step(read, places[0]))
            if along:
                self.runs[read.name] = pointer
                taken = self.taken(read)
            else:
                taken = f"{pointer}[0]"
            if self.crossed:
                kind = memory_type(dtype)
                kind = f"weft::Run<{kind}, {self.plan.points}>" if along else kind
                taken = self.read_ahead(f"{read.array}_ahead", kind, taken)
                if along:
                    self.ahead[read.name] = taken
            if not along:
                converted = memory_type(dtype) != register_type(dtype)
                self.tile_loads[read.array, read.index] = f"{register_type(dtype)}({taken})" if converted else taken

    def staged_reads(self) -> list[Read]:
        """What copies bring to shared memory of each state."""
        needed = {v.name for v in self.needed(self.state_exprs()) if isinstance(v, Read)}
        found = staged(self.function, self.scans, self.facts) if self.plan.stages and self.s != "s" else []
        return [r for r in found if r.name in needed]

    def first_copies(self) -> None:
        """Have the points of the first states come to shared memory, packets by all threads of the block."""
        line, plan = self.writer.line, self.plan
        threads, begun = plan.threads * plan.teams, 0
        flat = "threadIdx.x" if plan.teams == 1 else f"threadIdx.y * {plan.threads} + threadIdx.x"
        found: list[Copies] = []
        self.places_in_tiles = {}
        for read in self.staged_reads():
            (axis,), dtype = self.scans.states, self.function.array(read.array).dtype
            each, place = PACKET_BYTES // dtype.size, next(k for k, i in enumerate(read.index) if axis in free_names(i))
            packet, source = self.fresh.fresh(f"{read.array}_packet"), self.fresh.fresh(f"{read.array}_from")
            turned = begun % threads  # threads that have no packet of one array have some of the next one
            line(f"const int32_t {packet} = {f'({flat} + {threads - turned}) % {threads}' if turned else flat};")
            with self.spelled({self.axis.name: f"{self.stems['number']} * {plan.tile}"}):
                at = self.address(read.array, tuple(substitute(i, {axis: ZERO}) for i in read.index))
            line(f"const {memory_type(dtype)}* {source} = {at} + {packet} * {each};")
            if each not in self.places_in_tiles:
                self.places_in_tiles[each] = name = self.fresh.fresh("own_place")
                count = plan.points // each
                first = f"weft::packet_place<{count}>(threadIdx.x * {count}) * {each}"
                line(f"const int32_t {name} = weft::opaque(int32_t({first}));")
            packets = plan.tile // each
            found.append(Copies(packet, source, self.step(read, place), self.rings[read.name], packets, each))
            begun += packets
        self.copies = tuple(found)
        for k in range(plan.stages):
            self.copy_state(str(k))

    def copy_state(self, number: str) -> None:
        """Have the points of a state come to shared memory, if there is one."""
        line, threads = self.writer.line, self.plan.threads * self.plan.teams
        with self.writer.block(f"if ({number} < state_count)"):
            for c in self.copies:
                for k in range(0, c.packets, threads):
                    own, source = (f"{c.packet} + {k}", f"{c.source} + {k * c.each}") if k else (c.packet, c.source)
                    place = f"weft::packet_place<{self.plan.points // c.each}>({own}) * {c.each}"
                    copy = f"weft::copy_async<{PACKET_BYTES}>({c.ring} + {self.slot(number)} + {place}, {source});"
                    line(copy if c.packets - k >= threads else f"if ({own} < {c.packets}) {copy}")
                line(f"{c.source} += {c.step};")
        line("weft::commit_copies();")

    def slot(self, number: str) -> str:
        """Where the points of a state begin in a ring."""
        return f"({number} & {self.plan.stages - 1}) * {self.plan.tile}"

    def copies_there(self, later: int) -> None:
        """Wait until the block's copies are there but for those of the latest states."""
        self.writer.line(f"weft::wait_copies<{later}>();")
        self.writer.line("__syncthreads();")

    def step(self, read: Read, place: int) -> str:
        """How far it is in memory from one state to the next, which is the subscript at a place."""
        form = affine(read.index[place])
        assert form is not None
        count, stride = form.coefficient(self.scans.states[0]), self.stride(read.array, place)
        return stride if count == 1 else f"{count} * {stride}"

    def pointer(self, wanted: str, type_: str, at: str, step: str) -> str:
        """Declare a pointer that goes from state to state."""
        name = self.fresh.fresh(wanted)
        self.writer.line(f"const {type_}* {name} = {at};")
        self.pointers_of_states.append((name, step))
        return name

    def read_ahead(self, wanted: str, type_: str, taken: str) -> str:
        name = self.fresh.fresh(wanted)
        self.writer.line(f"{type_} {name} = {{}};")
        self.reads_ahead.append((name, taken))
        return name

    def next_state(self) -> None:
        """Go on to what is read of the next state."""
        line = self.writer.line
        for pointer, step in self.pointers_of_states:
            line(f"{pointer} += {step};")
        self.take_ahead(f"{self.s} + 1")

    def take_ahead(self, number: str) -> None:
        """Read what the state of this number needs, if there is one."""
        if self.reads_ahead:
            with self.writer.block(f"if ({number} < state_count)"):
                for name, taken in self.reads_ahead:
                    self.writer.line(f"{name} = {taken};")
