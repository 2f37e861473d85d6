"""Sums of points in the order of their elements, whose neighbours have neighbouring threads, as CUDA C++."""

from __future__ import annotations

from dataclasses import dataclass

from weft.emit.algebras import join
from weft.emit.sorts import SortBody
from weft.graph.tile import Axis
from weft.loops.ir import Ref
from weft.loops.types import INT64
from weft.plan.join import BLOCK, WARP, SortPlan


@dataclass
class AbreastBody(SortBody):
    """A step of what is sorted, whose sums are found by warps: each has a run of points, as many at once as it has threads, and
    some lanes of each point, so that where a point lies and what it has in common for these is told once.
    """

    def sums(self, memory: list[str], level: int) -> None:
        """What the points of a warp sum to: elements that no other warp has points of are joined to, the others left."""
        assert isinstance(self.plan, SortPlan)
        line, plan = self.writer.line, self.plan
        neighbours, each, (type_, algebra) = plan.chunks[level], plan.abreast, self.types
        keys, sources, *left = memory
        lanes = [self.axes[a] for a in plan.lanes]
        points = [self.axes[a] for a in self.group.points] if level == 0 else []
        own_lanes = f", {each} lanes of each" if lanes else ""
        line(f"// a warp has {neighbours} neighbours in the order of keys, a thread one at a time{own_lanes}")
        counts = {a.name: self.span(a, f"{a.name}_count") for a in lanes} | self.spans(points)
        line(f"const int64_t warp = int64_t(blockIdx.x) * {BLOCK // WARP} + threadIdx.x / {WARP};")
        line(f"const int64_t chunks = (count + {neighbours - 1}) / {neighbours};")
        if lanes:
            line(f"const int64_t lanes = {' * '.join(counts[a.name] for a in lanes)};")
            line(f"const int64_t chunk = warp % chunks, lane_first = warp / chunks * {each};")
            line("if (lane_first >= lanes) return;")
        else:
            line("const int64_t chunk = warp;")
            line("if (chunk >= chunks) return;")
        line(f"const int64_t cut = chunk * {neighbours}, next_cut = weft::minimum<int64_t>(cut + {neighbours}, count);")
        line("// a sum that goes on beyond a cut is the warp's before it; one that goes on far beyond is cut")
        line(f"const int32_t beyond = weft::keys_beyond({keys}, cut, count);")
        line(f"const int32_t next_beyond = weft::keys_beyond({keys}, next_cut, count);")
        line(f"const int64_t first = beyond < {WARP} ? cut + beyond : cut;")
        line(f"const int64_t last = next_beyond < {WARP} ? next_cut + next_beyond : next_cut;")
        if left:
            line(f"const int32_t open = beyond < {WARP} ? -1 : {keys}[cut];  // the key of a sum that is cut; -1: none")
            line(f"const int32_t cut_off = next_beyond < {WARP} ? -1 : {keys}[next_cut];")
            with self.writer.block(f"if (threadIdx.x % {WARP} == 0{' && lane_first == 0' if lanes else ''})"):
                line(f"{left[0]}[2 * chunk] = open;")
                line(f"{left[0]}[2 * chunk + 1] = cut_off;")
        line(f"{type_} carried[{each}];  // what earlier points of the warp sum to, of the last one's key")
        line("int32_t carried_key = -1;")
        with self.writer.block(f"for (int64_t start = first; start < last; start += {WARP})"):
            line(f"const int64_t at = start + threadIdx.x % {WARP};")
            line(f"const int32_t key = at < last ? {keys}[at] : -1;")
            line(f"const int32_t next = at + 1 < count ? {keys}[at + 1] : -1;")
            line(f"const bool here = uint32_t(key) < uint32_t({self.elements});  // else nothing is joined")
            with self.writer.block("if (!__any_sync(0xffffffffu, here))"):
                line("carried_key = -1;")
                line("continue;")
            line("const bool ends = here && (next != key || at + 1 == last);  // a sum")
            self.elements_of_lanes(lanes, counts)
            line(f"{type_} value[{each}], old[{each}];")
            line("#pragma unroll")
            with self.writer.block(f"for (int32_t v = 0; v < {each}; ++v)"):
                line(f"value[v] = {algebra}::identity();")
                line("old[v] = 0;")
            with self.writer.block("if (here)"):
                self.terms(points, lanes, sources, counts, level)
            line("const weft::Neighbours same = weft::neighbours_of(key);")
            line("#pragma unroll")
            with self.writer.block(f"for (int32_t v = 0; v < {each}; ++v)"):
                line(f"{type_} sum = weft::combine_neighbours<{algebra}>(value[v], same);")
                line(f"if (here && key == carried_key) sum = {algebra}::combine(carried[v], sum);")
                line(f"carried[v] = weft::shuffle(sum, {WARP - 1}, {WARP});")
                with self.writer.block(f"if (ends{' && lane_first + v < lanes' if lanes else ''})"):
                    self.join(left, bool(lanes))
            line(f"carried_key = weft::shuffle(key, {WARP - 1}, {WARP});")

    def elements_of_lanes(self, lanes: list[Axis], counts: dict[str, str]) -> None:
        """Where the elements of a key are: of one axis of lanes, as far from each other as its stride says."""
        w, line = self.group.write, self.writer.line
        type_ = self.types[0]
        if len(lanes) < 2:
            if lanes:
                self.places(lanes, "lane_first", counts)
            line(f"{type_}* const element = &{self.element(w.array, self.decoded())};  // of the first lane")
            return
        line(f"{type_}* element[{self.each}];")
        line("#pragma unroll")
        with self.writer.block(f"for (int32_t v = 0; v < {self.each}; ++v)"):
            line("const int64_t lane = weft::minimum<int64_t>(lane_first + v, lanes - 1);")
            self.places(lanes, "lane", counts)
            line(f"element[v] = &{self.element(w.array, self.decoded())};")

    @property
    def each(self) -> int:
        """How many lanes a thread has."""
        assert isinstance(self.plan, SortPlan)
        return self.plan.abreast

    @property
    def own(self) -> str:
        """The element of a lane."""
        if len(self.group.lanes) > 1:
            return "*element[v]"
        if not self.group.lanes:
            return "*element"
        (lane,) = self.group.lanes
        axis = self.group.write.index.index(Ref(lane, INT64))
        return f"element[v * {self.stride(self.group.write.array, axis)}]"

    def terms(self, points: list[Axis], lanes: list[Axis], sources: str, counts: dict[str, str], level: int) -> None:
        """What a point joins, lane by lane, and what the element holds where its sum ends."""
        assert isinstance(self.plan, SortPlan)
        w, line, plan = self.group.write, self.writer.line, self.plan
        needed = [] if level else self.needed([w.value])
        own = [v for v in needed if set(v.axes) & set(plan.lanes)]
        if not level:
            self.place(points, sources, counts)
            self.statements(tuple(self.let(v) for v in needed if v not in own))
        line("#pragma unroll")
        with self.writer.block(f"for (int32_t v = 0; v < {plan.abreast}; ++v)"):
            if lanes:
                line("const int64_t lane = weft::minimum<int64_t>(lane_first + v, lanes - 1);")
                self.places(lanes, "lane", counts)
            if level:
                line(f"value[v] = {sources}[at{' * lanes + lane' if lanes else ''}];")
            else:
                self.statements(tuple(map(self.let, own)))
                self.writer.cite(w.location)
                line(f"value[v] = {self.printer.value(w.value)};")
            line(f"if (ends{' && lane_first + v < lanes' if lanes else ''}) old[v] = {self.own};")

    def join(self, left: list[str], lanes: bool) -> None:
        """A sum is joined to its element, or left for the next round."""
        line, array = self.writer.line, self.function.array(self.group.write.array)
        joined = join(self.group.write.join, array.dtype).format("old[v]", "sum")
        if not left:
            line(f"{self.own} = {joined};")
            return
        slots = [f"2 * chunk{k}" for k in ("", " + 1")]
        before, after = (f"{left[1]}[{f'({slot}) * lanes + lane_first + v' if lanes else slot}]" for slot in slots)
        line(f"if (key == open) {before} = sum;")
        line(f"else if (key != cut_off) {self.own} = {joined};")
        line(f"if (key == cut_off) {after} = key == open ? {self.types[1]}::identity() : sum;")
