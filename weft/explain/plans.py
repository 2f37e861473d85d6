"""The words of a plan: how each nest of a call runs on a GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from weft.compiler import Launch
from weft.compiler.blocks import why_apart
from weft.emit import entries
from weft.emit.names import kernel_entry
from weft.explain.blocked import blocked_line, blocked_lines
from weft.explain.drawn import drawn
from weft.explain.words import wrapped
from weft.graph.outer_states import OuterStates
from weft.graph.products import Products, factor_type, multiplied_type
from weft.graph.tile import Read
from weft.loops.ir import Expr, Load, substitute
from weft.loops.show import renamed, show_expr, user_names
from weft.loops.types import FLOAT32, FLOATS8, INT32, INT64
from weft.plan.block import BlockPlan
from weft.plan.chain import RUN_OF_PARTS, ChainPlan, sharing_of
from weft.plan.fold import FoldPlan
from weft.plan.join import BinsPlan, JoinPlan, PointsPlan, RowsPlan, SortPlan, join_steps
from weft.plan.latest import LastPlan
from weft.plan.map import MapPlan
from weft.plan.outer_states import CHUNK, OuterPlan, OuterStep, outer_steps
from weft.plan.product import ProductPlan
from weft.plan.recurrence import RecurrencePlan
from weft.plan.scan import ScanPlan
from weft.plan.state_scan import StatePlan
from weft.plan.threads import ThreadPlan
from weft.plan.wavefront import WavefrontPlan

_WIDEST = 48  # letters of a value beside which its home stands


def plan_lines(launch: Launch, numbers: Mapping[str, int]) -> list[str]:
    """How a nest runs on a GPU. numbers: the values of sizes and integers."""
    each = [f"launched {each}, in order"] if (each := _each(launch)) else []
    assert launch.where is not None
    alone = isinstance(launch.variant.plan, BlockPlan)
    why = "" if alone else why_apart(launch.where, launch.variant.nest, numbers)
    names = user_names(launch.where.analysis.function)
    told = [f"not one launch, whose blocks keep what they tell each other: {renamed(why, names)}"] if why else []
    return [*each, *_kernel_lines(launch), *told]


def value_lines(launch: Launch, numbers: Mapping[str, int]) -> list[str]:
    """What a launch computes: a line for each value, with where it is kept and what makes it, and the bytes that it moves.
    numbers: the values of sizes and integers.
    """
    found = drawn(launch, numbers)
    if found is None or launch.where is None:
        return []
    width = max((len(text) for text, _ in found.values if len(text) <= _WIDEST), default=0)
    lines = []
    for text, home in found.values:
        if len(text) <= width:
            lines.append(f"{text:<{width}}  {home}")
        else:
            lines += [*wrapped(text), f"{'':<{width}}  {home}"]
    bytes_, machine = found.traffic, launch.where.machine
    again = f" ({bytes_text(bytes_.moved)} by this plan)" if bytes_.moved > bytes_.read + bytes_.written else ""
    floor, about = (_seconds(s) for s in (bytes_.floor(machine), bytes_.estimate(machine)))
    lines.append(
        f"memory: {bytes_text(bytes_.read)} read, {bytes_text(bytes_.written)} written{again}; at"
        f" {machine.bandwidth / 1e12:.3g} TB/s at least {floor}, about {about}"
    )
    return lines


def bytes_text(n: int) -> str:
    """`12.3 MB`, with three digits."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n} bytes"


def _seconds(s: float) -> str:
    if s < 1e-8:
        return "0 us"
    return f"{s * 1e3:.3g} ms" if s >= 1e-3 else f"{s * 1e6:.3g} us"


def _each(launch: Launch) -> str:
    """`once for each t`, of a launch in a loop; nothing of others."""
    steps = ", ".join(a.var for a in launch.steps)
    when = f" with {' and '.join(show_expr(g.condition) for g in launch.when)}" if launch.when else ""
    return f"once for each {f'({steps})' if len(launch.steps) > 1 else steps}{when}" if steps else ""


def _kernel_lines(launch: Launch) -> list[str]:
    where = launch.where
    assert where is not None
    plan, (threads, teams, _) = launch.variant.plan, launch.block
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    grid = f"{_count(blocks, 'block')} of {_count(threads * teams, 'thread')}"
    if isinstance(plan, ThreadPlan):
        refused = where.analysis.lowered[launch.variant.nest].refused
        why = "" if refused is None else renamed(refused.why, user_names(where.analysis.function))
        why = re.sub(r"(is sequential): .*", r"\1", why)  # the loop's verdict says the rest
        if plan.shared:
            each = f"a block for each ({', '.join(plan.order)})" if plan.order else "one block does it all"
            return [f"{each}, whose threads share the loops inside, one after another", grid]
        if not plan.order:
            return ["one thread does it all: no loop outside is parallel", grid]
        return [f"a thread for each ({plan.each})" + (f", since {why}" if why else ""), grid]
    if isinstance(plan, BlockPlan):
        found = where.analysis.lowered[launch.variant.nest].blocks
        assert found is not None
        return [*blocked_lines(found, plan, user_names(where.analysis.function)), grid]
    if isinstance(plan, WavefrontPlan):
        return [*_in_steps(launch, plan), grid]
    if isinstance(plan, FoldPlan):
        return [*_folding(launch, plan), grid + (f", {teams} rows each" if teams > 1 else "")]
    if isinstance(plan, JoinPlan):
        return [*_joining(launch, plan), grid]
    if isinstance(plan, MapPlan):
        return [*_mapping(launch, plan), grid]
    if isinstance(plan, ChainPlan):
        return [*_chained(launch, plan), grid]
    if isinstance(plan, ProductPlan):
        return [*_multiplying(launch, plan), grid]
    if isinstance(plan, ScanPlan):
        return [*_scanning(launch, plan), grid + (f", {teams} rows each" if teams > 1 else "")]
    if isinstance(plan, OuterPlan):
        return [*_in_chunks(launch, plan), grid]
    if isinstance(plan, RecurrencePlan):
        return [*_in_order(launch, plan), grid + (f", {teams} rows each" if teams > 1 else "")]
    return [*_of_states(launch, plan), grid + (f", {teams} rows each" if teams > 1 else "")]


def _in_steps(launch: Launch, plan: WavefrontPlan) -> list[str]:
    """How the points of a wavefront are put into steps, and why that may be done."""
    assert launch.where is not None
    analysis = launch.where.analysis
    found, names = analysis.lowered[launch.variant.nest].wavefront, user_names(analysis.function)
    assert found is not None
    rows, points, slope = renamed(found.rows, names), renamed(found.points, names), found.slope
    vectors: dict[str, list[str]] = {}
    for d in found.dependences:
        over, along = ("*" if n is None else str(n) for n in (d.rows, d.points))
        vectors.setdefault(names(d.name), []).append(f"({over}, {along})")
    told = "; ".join(f"{name}: {', '.join(dict.fromkeys(own))}" for name, own in vectors.items())
    step = f"{rows} + {points}" if slope == 1 else f"{slope} * {rows} + {points}"
    item = f" for each ({', '.join(plan.order)})" if plan.order else ""
    who = "a block goes through strips" if not plan.shared else f"{_count(launch.grid[1], 'block')} share strips"
    return [
        f"skewed by ({slope}, 1): point ({rows}, {points}) happens at step {step}, so that the points of a step need nothing of"
        " each other",
        f"since every dependence is of an earlier step; its distances over ({rows}, {points}): {told}",
        f"{who} of {plan.threads} rows{item}, a thread for each {rows}, which goes through its {points} in order",
    ]


def _mapping(launch: Launch, plan: MapPlan) -> list[str]:
    """Which points a thread computes."""
    course = plan.courses[launch.course]
    if not course.axes:
        return ["one point"]
    groups = [*course.axes[: -2 if course.wrapped else -1], course.lane]
    *rows, lane = (f"({', '.join(group)}) as one" if len(group) > 1 else group[0] for group in groups)
    run = f"{course.vector} neighbours" if course.vector > 1 else "an element"
    turns = f", {course.turns} times" if course.turns > 1 else ""
    found = [f"rows: {', '.join(rows) or 'none'}; a thread takes {run} along {lane}{turns}"]
    if course.turned:
        found = [f"squares of {course.side} x {course.side} along {course.turned.replace('.', ' to ')} and {lane}"]
        found[0] += f", one of {', '.join(rows)}" if len(rows) > 1 else ""
        found.append(f"what lies along {course.turned} changes its order in shared memory")
    elif course.wrapped:
        found.append("what begins elsewhere in each row is read in packets that are shifted")
    elif course.shift is None:
        found.append("rows begin anywhere: what is before the first packet and after the last moves by itself")
    return found


def _mapping_line(launch: Launch, plan: MapPlan) -> str:
    """The same in a few words."""
    course = plan.courses[launch.course]
    if course.turned:
        return f"squares of {course.side} x {course.side}"
    return f"{course.vector} neighbours a thread" if course.vector > 1 else "an element a thread"


def _scanning(launch: Launch, plan: ScanPlan) -> list[str]:
    """How threads share the scans of a row."""
    rows = f"rows: {', '.join(plan.rows) or 'none'}"
    if plan.beside:
        how = f"{_count(plan.side * plan.vector, 'row')} side by side along {plan.lane}, "
        how += f"{_count(plan.threads // plan.side, 'thread')} each"
    else:
        how = f"{plan.threads} threads{' a row' if plan.rows else ''}, side by side along {plan.lane}"
    whose = "a row" if plan.rows else "the points"
    shared = f"{_count(launch.parts, 'block')} share {whose}: all run at once, and tell each other what their tiles do"
    if plan.cluster > 1:
        shared += f", those of a cluster of {plan.cluster} among them; of each row one hears of other clusters for all of it"
    return [f"{rows}; {how}", f"tiles of {_count(plan.tile, 'point')}", *([shared] if plan.shared else [])]


def _scanning_line(plan: ScanPlan) -> str:
    """The same in a few words."""
    whose = "a row" if plan.rows else "the points"
    if plan.shared:
        return f"blocks share {whose}"
    if plan.beside:
        return f"{_count(plan.threads // plan.side, 'thread')} a row"
    return f"{plan.threads} threads a row" if plan.rows else "which are one team"


def _of_states(launch: Launch, plan: StatePlan) -> list[str]:
    """How threads share the scans of the many states of a row."""
    where = launch.where
    assert where is not None
    scans = where.analysis.lowered[launch.variant.nest].states
    assert scans is not None
    rows, states = ", ".join(scans.rows) or "none", ", ".join(scans.states)
    if launch.entry.endswith("_after"):
        return [f"a thread for each point combines what {_count(launch.parts, 'block')} have made of their rows, in order"]
    how = f"{plan.threads} threads{' a row' if scans.rows else ''}, side by side along {scans.along}"
    found = [f"rows: {rows}; {how}", f"tiles of {_count(plan.tile, 'point')}, gone through once for each {states}"]
    early = ", ".join(dict.fromkeys(n for s in scans.early for n in s.names))
    if launch.entry.endswith("_before"):
        return [*found, f"keeps {early} before each tile"]
    if scans.early:
        found.append(f"tiles backwards: {early} goes on from where an earlier launch has kept it before the tile")
    return found


def _in_chunks(launch: Launch, plan: OuterPlan) -> list[str]:
    """What a block has of states that grow by outer products, and how it goes through its points."""
    found, step = _outer(launch, plan)
    growth, (first, second), along = found.growths[step.growth], found.sides, found.found.along
    assert launch.where is not None
    state = renamed(growth.scan.names[0], user_names(launch.where.analysis.function))
    parts = _count(launch.parts, "block")
    if step.joins:
        return [f"a thread has four of {state}: of what blocks of a row leave it makes what those after begin with"]
    wide = f"{plan.widths[1]} of {second}" if plan.tiled else f"all of {second}"
    lines = [f"rows: {', '.join(found.rows) or 'none'}; a block has {state} of all of {first} and {wide} in registers"]
    lines.append(f"goes through {along} in chunks of {CHUNK}, by products whose float32 factors are sums of three bfloat16")
    if not step.takes:
        return [*lines, f"{parts} share a row: each leaves what its points make of states of zeros"]
    if plan.shared:
        joined = ", which a launch has joined" if plan.joins[step.growth] else ", in order"
        lines.append(f"{parts} share a row: each goes on from what those before it have left{joined}")
    if found.meetings and not step.growth:
        lines.append(f"keeps {state} before each chunk")
    lines.append("a chunk in which something is not finite is gone through point by point")
    return lines


def _outer(launch: Launch, plan: OuterPlan) -> tuple[OuterStates, OuterStep]:
    assert launch.where is not None
    found = launch.where.analysis.lowered[launch.variant.nest].outer
    assert found is not None
    steps = outer_steps(found, plan, kernel_entry(launch.nest.name))
    return found, next(step for step in steps if step.entry == launch.entry)


def _in_chunks_line(launch: Launch, plan: OuterPlan) -> str:
    """The same in a few words."""
    _, step = _outer(launch, plan)
    if step.joins:
        return "the states that blocks begin with"
    return f"chunks of {CHUNK} points" if step.takes else "the states that they add"


def _in_order(launch: Launch, plan: RecurrencePlan) -> list[str]:
    """How threads share the states of a row that goes through its points in order."""
    where = launch.where
    assert where is not None
    found = where.analysis.lowered[launch.variant.nest].recurrences
    assert found is not None
    each = f"{_count(plan.states, 'state')} of each of {_count(plan.threads, 'thread')} in registers, along {found.state}"
    how = f"goes through {found.along} in order, {_count(plan.points, 'point')} of it read ahead"
    return [f"rows: {', '.join(found.rows)}; {each}", how]


def _of_states_line(launch: Launch, plan: StatePlan) -> str:
    """The same in a few words."""
    if launch.entry.endswith("_after"):
        return "a thread for each point"
    return f"{plan.threads} threads a row"


def _folding(launch: Launch, plan: FoldPlan) -> list[str]:
    """How threads share the folds of a row."""
    rows = f"rows: {', '.join(plan.rows) or 'none'}"
    if plan.beside:
        side = plan.across[0][0]
        how = f"{_count(side, 'row')} side by side along {plan.lane}, {_count(plan.threads // side, 'thread')} each"
    else:
        how = f"{plan.threads} threads{' a row' if plan.rows else ''}, side by side along {plan.lane}"
    if plan.chunks:
        home = "shared memory" if plan.inside else "registers"
        whose = f"which is read once and held in {home}" if plan.rows else f"what they take is read once and held in {home}"
        layout = f"layout (thread, (vector, chunk)) -> {plan.lane}: {plan.layout}"
        team = f"a cluster of {plan.cluster} blocks of " if plan.cluster > 1 else ""
        stays = ["blocks stay and go from row to row"] if plan.resident else []
        stays += ["and fold the columns of their rows for the next nest"] if plan.columns else []
        columns = [" ".join(stays)] if stays else []
        columns += [f"{plan.stages} rows are on their way to shared memory while one is worked on"] if plan.stages else []
        team += f"{plan.threads} threads{' a row' if plan.rows else ''}"
        return [f"{rows}; points: {plan.lane}", f"{team}, {whose}", *columns, layout]
    packets = [f"{plan.vector} neighbours at a time"] if plan.vector > 1 else []
    whose = "a row" if plan.rows else "the points"
    shared = [f"{_count(launch.parts, 'block')} share {whose}, their parts are combined in order"] if plan.shared else []
    running = ["sums are kept relative to the extrema so far, in one sweep with them"] if plan.running else []
    if plan.longer and launch.block[1] == 1:
        return [f"rows of more than {plan.longer:,} points, {launch.block[0]} threads for each", *running]
    return [f"{rows}; {', '.join([how, *packets])}", *running, *shared]


def _multiplying(launch: Launch, plan: ProductPlan) -> list[str]:
    """Which results a block has, and what its threads share."""
    assert launch.where is not None
    sweeps = launch.where.analysis.lowered[launch.variant.nest].multiplied
    assert sweeps is not None
    found, (rows, columns, points), (down, across) = plan.arranged(sweeps), plan.tile, plan.each
    named = {what: " and ".join(a.replace(".", " to ") for a in axes) for what, axes in
             (("rows", found.rows), ("columns", found.columns), ("points", found.over))}  # fmt: skip
    batch = f", one of {', '.join(found.batch)}" if found.batch else ""
    groups = f"; {plan.groups} groups of threads share them" if plan.groups > 1 else ""
    number = entries.of_products(launch.nest, plan).index(launch.entry)
    if number < sum(plan.packed):
        k = [k for k, packed in enumerate(plan.packed) if packed][number]
        function, operand = launch.where.analysis.function, found.operands[k]
        shown = renamed(show_expr(operand.value), user_names(function))
        eight = plan.type in ("float16", "bfloat16") and factor_type(function, found, operand) in FLOATS8
        exactly = f" as {plan.type}, exactly: instructions for 8 bits keep fewer bits of sums than float32" if eight else ""
        return [f"{shown} is written to memory in whole packets first, for tiles of it to be copied{exactly}"]
    if number > sum(plan.packed):
        return [f"what {plan.parts} blocks have left of each result is combined, in their order"]
    after = "a cluster of them combines what they have" if plan.together else "for a launch after to combine"
    shared = [f"{plan.parts} blocks share the points of each, {after}"] if plan.parts > 1 else []
    square = f"a block has {rows} x {columns} of {named['rows']} and {named['columns']}{batch}, a"
    if plan.streamed:
        return [
            f"{square} thread {across} columns, {plan.run_points} points of each at a time, by {_instruction(plan)}",
            *shared,
            f"what columns are made of is read once, {_count(plan.stages, 'run')} ahead; {plan.groups} warps share the points",
            *([] if plan.engine == "mma" else _no_matrices(launch, found, streamed=True)),
        ]
    if plan.engine != "fma":
        who = "warpgroup" if plan.engine == "wgmma" else "warp"
        way = "a warp brings them as boxes (TMA)" if plan.boxes else "threads copy them (cp.async)"
        stays = ["blocks stay and go from square to square"] if plan.resident else []
        moves = []
        if plan.window is not None:
            moving = " and ".join(point for point, *_ in plan.window.moves)
            moves = [f"all places of {found.operands[plan.window.operand].name} are rows: a step of {moving} is some of them"]
        told = " and ".join(f.names[0] for stage in found.across for f in stage)
        told = renamed(told, user_names(launch.where.analysis.function))
        met = [f"results stay in registers until the {plan.across} blocks of a row have told each other {told}"] if told else []
        if plan.crews > 1:
            stays = [f"blocks stay; {plan.crews} warpgroups have squares of their own: one writes while another multiplies"]
        return [
            f"{square} {who} {down} x {across}, by {plan.atom.name}",
            *stays,
            *shared,
            *met,
            *moves,
            f"tiles of {points} points along {named['points']} in shared memory, {plan.stages} turns of them; {way}",
            f"layout (thread, value) -> ({named['rows']}, {named['columns']}) of an instruction: {plan.atom.c}",
        ]
    return [
        f"{square} thread {down} x {across}",
        *shared,
        f"tiles of {points} points along {named['points']} in shared memory, the next on their way to registers{groups}",
        f"layout (thread, value) -> {named['rows']}: {plan.rows}",
        f"layout (thread, value) -> {named['columns']}: {plan.columns}",
        *_no_matrices(launch, found),
    ]


def _chained(launch: Launch, plan: ChainPlan) -> list[str]:
    """Which rows a block has, and how it goes through the columns."""
    assert launch.where is not None
    whole = launch.where.analysis.lowered[launch.variant.nest].chain
    assert whole is not None
    found = plan.arranged(whole)
    (rows, lanes, turn), (points, _) = plan.sums.tile, plan.registers
    batch = f", one of {', '.join(found.sums.batch)}" if found.sums.batch else ""
    own = f"{rows} x {lanes} of {found.row} and {found.lane}" if found.sums.folds else f"{rows} of {found.row}"
    atom = (plan.sums if found.sums.folds else plan.scores).atom
    relative = [r.sum for r in found.repairs]
    moved = [f"{', '.join(relative)} kept relative to {found.repairs[0].extremum} so far"] if relative else []
    longest = found.stop == 1 and not found.told_by_rows
    order = "the longest tiles of rows first" if longest else "blocks stay and go through tiles of rows"
    order = "blocks stay and take the longest tile of rows that nobody has" if plan.taken else order
    if launch.entry != entries.of_chained_products(launch.nest, plan):
        if plan.skips:
            told = "tells what a condition compares of them, from the least to the largest"
            return [f"a block has {turn} of {found.column}, and {told}"]
        if plan.taken:
            return ["a thread tells that no tile of rows is taken"]
        if plan.meeting == "tickets":
            return ["a thread has a tile of rows, of which no block has left a part"]
        share = sharing_of(plan)
        each = f"{share} threads have" if share > 1 else "a thread has"
        return [f"{each} {RUN_OF_PARTS} of {found.lane} of a row, whose {plan.parts} parts are combined in their order"]
    if plan.together:
        moved.append(f"{plan.together} of {found.row}, which have {found.column} in common, are the rows of a tile")
    if plan.parts > 1:
        who = {"after": "leave parts of its rows for the next launch", "cluster": "combine parts of its rows as a cluster",
               "tickets": "leave parts of its rows in memory, which the one that comes last combines"}  # fmt: skip
        moved.append(f"{plan.parts} blocks share the columns of a tile, and {who[plan.meeting]}")
    if plan.skips and found.mask is not None:
        loads: dict[str, Expr] = {v.name: Load(v.array, v.index, v.type) for v in found.values if isinstance(v, Read)}
        asked = renamed(show_expr(substitute(found.mask.condition, loads)), user_names(launch.where.analysis.function))
        moved.append(f"turns in which data tell that no {found.row} and {found.column} have {asked} are left out")
    return [
        f"a block has {own}{batch}, a warpgroup 64 of its rows, by {atom.name}",
        f"scores of {found.row} and {found.column} stay in registers; a turn takes {turn} of {found.column}"
        + (", of those that rows have" if found.bounded else ""),
        *moved,
        f"tiles in shared memory, {plan.sums.stages} turns of them; a thread brings them as boxes (TMA)"
        + (f", {plan.box_columns} of {found.column} each, of the page that is told" if plan.page else ""),
        f"warpgroups take turns at the tensor cores, {points} registers a thread; {order}",
    ]


def _instruction(plan: ProductPlan) -> str:
    return "mma.sync m16n8k16" if plan.engine == "mma" else "multiply-adds"


def _no_matrices(launch: Launch, found: Products, streamed: bool = False) -> list[str]:
    """Why sums of products do not run on tensor cores, and what would change it."""
    assert launch.where is not None
    function = launch.where.analysis.function
    if not all(found.neutral(f) and f.types[0] in (FLOAT32, INT32, INT64) for f in found.folds):
        return []
    types = {o: factor_type(function, found, o) for o in found.operands}
    others, whole = [o for o, t in types.items() if t is None], found.folds[0].types[0].category == "int"
    shown = " and ".join(renamed(show_expr(o.value), user_names(function)) for o in others)
    if whole and others:
        return [f"multiply-adds: tensor cores take int8 and uint8, widened to int32, which {shown} may not be"]
    if others:
        return [f"multiply-adds: tensor cores take float16 and bfloat16, which {shown} may not be; .to(torch.bfloat16) rounds"]
    if multiplied_type(function, found, 1) is None:
        return ["multiply-adds: the factors are of different types, and tensor cores multiply one"]
    if streamed:
        return ["multiply-adds: of few rows, tensor cores take what is in memory in 16 bits"]
    return ["multiply-adds: so many products may not fit into int32, in which tensor cores sum them"]


_SORTING = {
    "keys": "values are joined to {0} in the order of its elements, so that the bits are always the same: the element of each",
    "count": "sorted by element, digit {1} of {2}: how many have it",
    "place": "sorted by element, digit {1} of {2}: where those begin that have it",
    "move": "sorted by element, digit {1} of {2}: all in their place",
    "sum": "joined, {3} neighbours a {4}: round {1}",
    "last": "the last of each element is found in the order of elements",
    "store": "the last of each element is stored",
}
# Where the last of each element is found without sorting.
_FINDING = {
    "keys": "what comes last is stored to each element of {0}, so that it is always the same: the element of each",
    "last": "the last of each element is found by atomics",
}


_BINNING = {
    "bins": "values are joined to {0} in the order of points, by each warp to elements of its own in shared memory",
    "total": "what blocks have is joined to {0} in their order",
}


def _joining(launch: Launch, plan: JoinPlan) -> list[str]:
    """How values are joined to the elements that the data choose."""
    assert launch.where is not None
    joins = launch.where.analysis.lowered[launch.variant.nest].joins
    assert joins is not None
    shown = user_names(launch.where.analysis.function)
    arrays = ", ".join(dict.fromkeys(renamed(w.array, shown) for w in joins.writes if w.join))
    steps = dict(zip(entries.of_joins(launch.nest, plan), join_steps(plan), strict=True))
    step = steps[launch.entry]
    group = plan.groups[step.group]
    if isinstance(group, LastPlan):
        texts = _SORTING if group.digits else _SORTING | _FINDING
        return [texts[step.kind].format(arrays, step.number + 1, group.digits)]
    if isinstance(group, BinsPlan):
        return [_BINNING[step.kind].format(arrays)]
    if isinstance(group, RowsPlan):
        whose = "each thread, of a lane of a row" if group.lanes else "each warp, of a row"
        return [f"values are joined to {arrays} in the order of points, by {whose}, in shared memory first"]
    if isinstance(group, SortPlan):
        neighbours = group.chunks[step.number] if step.kind == "sum" else 0
        whose = "warp" if group.abreast else "thread"
        return [_SORTING[step.kind].format(arrays, step.number + 1, group.digits, neighbours, whose)]
    held = [renamed(f"{o.array} first in shared memory{f', {o.copies} copies a block' if o.copies > 1 else ''}", shown)
            for o in group.own]  # fmt: skip
    how = f"values are joined to {arrays} by atomics, in any order: the same bits in each"
    return [how, *(f"joined to {text}" for text in held)]


def _folding_line(launch: Launch, plan: FoldPlan) -> str:
    """The same in a few words."""
    whose = "a row" if plan.rows else "the points"
    if plan.longer and launch.block[1] == 1:
        return f"a block for each row of more than {plan.longer:,} points"
    if plan.shared:
        return f"blocks share {whose}" if launch.grid[1] > 1 else "which combine their parts"
    if plan.beside:
        return f"{_count(plan.threads // plan.across[0][0], 'thread')} a row"
    held = f", held in {'shared memory' if plan.inside else 'registers'}" if plan.chunks else ""
    return (f"{_count(plan.threads * plan.cluster, 'thread')} a row" if plan.rows else "which are one team") + held


def _joining_line(plan: JoinPlan) -> str:
    """The same in a few words."""
    ways = ["sorted by element and joined in order"] if any(isinstance(g, SortPlan) for g in plan.groups) else []
    ways += ["joined in order in shared memory"] if any(isinstance(g, BinsPlan | RowsPlan) for g in plan.groups) else []
    last = [g for g in plan.groups if isinstance(g, LastPlan)]
    ways += ["the last of each element found and stored"] if any(not g.digits for g in last) else []
    ways += ["sorted by element, the last of each stored"] if any(g.digits for g in last) else []
    points = [g for g in plan.groups if isinstance(g, PointsPlan)]
    ways += ["joined by atomics" + (", in shared memory first" if any(g.own for g in points) else "")] if points else []
    return " and ".join(ways)


def plan_line(launches: Sequence[Launch]) -> str:
    """The plan of a call in one line."""
    kernels = []
    for launch in launches:
        plan, (threads, teams, _) = launch.variant.plan, launch.block
        blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
        if isinstance(plan, ThreadPlan):
            each, alone = ("a block", "one block") if plan.shared else ("a thread", "one thread")
            how = f"{each} for each ({plan.each})" if plan.order else f"{alone} does it all"
        elif isinstance(plan, BlockPlan):
            assert launch.where is not None
            how = blocked_line(plan, user_names(launch.where.analysis.function))
        elif isinstance(plan, WavefrontPlan):
            how = "a thread a row, some steps behind the row before"
        elif isinstance(plan, FoldPlan):
            how = _folding_line(launch, plan)
        elif isinstance(plan, JoinPlan):
            how = _joining_line(plan)
        elif isinstance(plan, MapPlan):
            how = _mapping_line(launch, plan)
        elif isinstance(plan, ChainPlan):
            how = f"{plan.sums.tile[0]} rows each, scores in registers"
        elif isinstance(plan, ProductPlan):
            how = f"{plan.tile[0]} x {plan.tile[1]} results each"
        elif isinstance(plan, ScanPlan):
            how = _scanning_line(plan)
        elif isinstance(plan, OuterPlan):
            how = _in_chunks_line(launch, plan)
        elif isinstance(plan, RecurrencePlan):
            how = f"{_count(plan.threads, 'thread')} a row, its points in order"
        else:
            how = _of_states_line(launch, plan)
        each = f", {_each(launch)}" if launch.steps else ""
        if isinstance(plan, JoinPlan) and len(join_steps(plan)) > 1:
            kernels.append(f"{how}, in {len(join_steps(plan))} steps{each}")
            continue
        kernels.append(f"{_count(blocks, 'block')} of {_count(threads * teams, 'thread')}, {how}{each}")
    count = "" if len(kernels) == 1 else f"{len(kernels)} kernels: "
    return count + "; ".join(dict.fromkeys(kernels)) if kernels else "nothing to launch"


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
