"""Sums of points in the order of their elements, whose neighbours have neighbouring threads, as CUDA C++."""

from __future__ import annotations

from dataclasses import dataclass

from weft.emit.algebras import join
from weft.emit.sorts import SortBody
from weft.graph.tile import Axis
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
        line(f"const int64_t first = chunk * {neighbours}, last = weft::minimum<int64_t>(first + {neighbours}, count);")
        if left:
            line("// the key of the first sum, where that goes on one of the warp before; -1: it does not")
            line(f"const int32_t open = first > 0 && {keys}[first - 1] == {keys}[first] ? {keys}[first] : -1;")
            self.leave_keys(keys, left[0], bool(lanes))
        line(f"{type_} carried[{each}];  // what earlier points of the warp sum to, of the last one's key")
        line("int32_t carried_key = -1;")
        with self.writer.block(f"for (int64_t start = first; start < last; start += {WARP})"):
            line(f"const int64_t at = start + threadIdx.x % {WARP};")
            line(f"const int32_t key = at < last ? {keys}[at] : -1;")
            line(f"const int32_t next = at + 1 < count ? {keys}[at + 1] : -1;")
            line(f"const bool here = uint32_t(key) < uint32_t({self.elements});  // else nothing is joined")
            line("const bool ends = here && (next != key || at + 1 == last);  // a sum")
            line(f"{type_} value[{each}], old[{each}];")
            line(f"{type_}* element[{each}];")
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

    def leave_keys(self, keys: str, left: str, lanes: bool) -> None:
        line = self.writer.line
        with self.writer.block(f"if (threadIdx.x % {WARP} == 0{' && lane_first == 0' if lanes else ''})"):
            line(f"{left}[2 * chunk] = open;")
            line(f"{left}[2 * chunk + 1] = last < count && {keys}[last] == {keys}[last - 1] ? {keys}[last - 1] : -1;")

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
            line(f"element[v] = &{self.element(w.array, self.decoded())};")
            line("if (ends) old[v] = *element[v];")

    def join(self, left: list[str], lanes: bool) -> None:
        """A sum is joined to its element, or left for the next round."""
        line, array = self.writer.line, self.function.array(self.group.write.array)
        joined = join(self.group.write.join, array.dtype).format("old[v]", "sum")
        if not left:
            line(f"*element[v] = {joined};")
            return
        slots = [f"2 * chunk{k}" for k in ("", " + 1")]
        before, after = (f"{left[1]}[{f'({slot}) * lanes + lane_first + v' if lanes else slot}]" for slot in slots)
        line(f"if (key == open) {before} = sum;")
        line(f"else if (next != key) *element[v] = {joined};")
        line(f"if (next == key) {after} = key == open ? {self.types[1]}::identity() : sum;")
