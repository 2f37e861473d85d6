"""What the simulator finds, in words: each finding of the engine with its places, evidence and a remedy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weft.runtime.simulator.results import Finding, Place

Places = tuple[Place, "Place | None", "Place | None"]


@dataclass(frozen=True)
class Found:
    """A finding as the engine tells it. places: by site. array: what lies at an offset of a region, and where in it.

    variables: those of shared memory, with offset, bytes and name.
    """

    facts: Mapping[str, Any]
    times: int
    places: Sequence[Places | None]
    array: Callable[[int, int], tuple[Any, int] | None]
    variables: Sequence[Any]

    def place(self, key: str = "site") -> Places | None:
        site = self.facts.get(key, 0)
        return self.places[site] if site else None

    def line(self, key: str = "site") -> str:
        """The line of a site, with the header it lies in: "linrec.cu:40 (weft/team.cuh:130)"."""
        places = self.place(key)
        if places is None:
            return "the host, before the launch"
        return f"{places[0]} ({places[1]})" if places[1] is not None else str(places[0])

    def actor(self, key: str) -> str:
        """A thread or an asynchronous unit in words."""
        who = self.facts.get(key)
        if who is None:
            return "another thread"
        block = _index(who["block"])
        if "thread" in who:
            return f"thread {_index(who['thread'])} of block {block}"
        of = int(who["of"])
        match who["agent"]:
            case "cp.async":
                return f"the asynchronous copies (cp.async) of thread {of} of block {block}"
            case "bulk":
                return f"the bulk copies of thread {of} of block {block}"
            case "wgmma":
                return f"wgmma of warpgroup {of} of block {block}"
            case "mbarrier":
                return f"a bulk copy that completes on an mbarrier of block {block}"
            case other:
                return f"{other} of block {block}"

    def where(self) -> str:
        """The address as an element of an array."""
        f = self.facts
        if "region" not in f:
            return f"address {f.get('address', 0):#x}, which is no memory of the kernel's"
        offset, size = int(f["offset"]), int(f["bytes"])
        if f["space"] == "shared":
            own = next((v for v in self.variables if v.offset <= offset < v.offset + v.bytes), None)
            if own is not None:
                return f"{own.name} + {offset - own.offset} bytes, in shared memory ({size} bytes)"
            before = [v for v in self.variables if v.offset + v.bytes <= offset]
            last = before[-1] if before else None
            near = f", {offset - last.offset - last.bytes} bytes past the end of {last.name}" if last is not None else ""
            return f"shared memory that belongs to no variable{near} ({size} bytes)"
        found = self.array(int(f["region"]), offset)
        if found is None:
            return f"offset {offset}"
        tensor, at = found
        elements = tensor.bytes // tensor.element_bytes
        element, rest = divmod(at, tensor.element_bytes)
        more = f"{size} bytes at byte {rest} of it" if rest else f"{size} bytes"
        if (index := _coordinates(tensor, element)) is not None:
            return f"{tensor.name}[{', '.join(map(str, index))}] ({more})"
        return f"element {element} of {tensor.name}, which has {elements} from its first to its last ({more})"


def _coordinates(tensor: Any, element: int) -> tuple[int, ...] | None:
    """The index of an element by its place in memory; None where it is none of the array's, or its strides overlap."""
    if tensor.shape is None or tensor.strides is None or element < 0:
        return None
    index = [0] * len(tensor.shape)
    rest = element
    for axis in sorted(range(len(index)), key=lambda a: -tensor.strides[a]):
        if tensor.strides[axis] > 0:
            index[axis], rest = divmod(rest, tensor.strides[axis])
    inside = rest == 0 and all(i < n for i, n in zip(index, tensor.shape, strict=True))
    return tuple(index) if inside else None


def _index(three: Sequence[int]) -> str:
    x, y, z = three
    return f"({x}, {y}, {z})" if z else f"({x}, {y})" if y else str(x)


def told(found: Found) -> Finding | None:
    """The finding in words; None where both places turn out to be one line, so that nothing is wrong."""
    facts = found.facts
    kind = str(facts["kind"])
    if kind in ("divergent barrier", "divergent warp") and ("sites" in facts or facts.get("kinds") is False):
        own, other = found.place(), found.place("other")
        if own is not None and other is not None and own[:2] == other[:2]:
            return None
    shown, message, evidence, remedy = _WORDS.get(kind, _unknown)(found)
    places = found.place() or (Place("", 0), None, None)
    return Finding(shown, message, tuple(e for e in evidence if e), remedy, *places, found.times)


Words = tuple[str, str, tuple[str, ...], str]

_DID = {"read": "reads", "write": "writes"}
_BEFORE = {"read": "was read", "write": "was written"}


def _between(f: Found) -> tuple[str, ...]:
    facts = f.facts
    return (
        f"at {f.where()}",
        f"{f.actor('actor')} {_DID[facts['action']]} it at {f.line()}",
        f"{f.actor('by')} {_DID[facts['did']]} it at {f.line('other')}",
    )


def _race(f: Found) -> Words:
    agent = "agent" in (f.facts.get("by") or {})
    missing = "no wait for the copy lies between them" if agent else "no barrier or other synchronisation orders the two"
    remedy = (
        "wait for the copy (wait_copies, Mbarrier::wait, wgmma_wait), then a barrier where other threads read it"
        if agent
        else "put __syncthreads() (or the barrier of the threads concerned) between the two accesses"
    )
    first, second = f.facts["did"], f.facts["action"]
    what = "two writes" if first == second else f"a {first} and a {second}"
    return "race", f"{what} of the same memory, in no order", (*_between(f), missing), remedy


def _slot(f: Found) -> Words:
    return (
        "slot reused",
        "an asynchronous copy overwrites memory that may still be read",
        (*_between(f), "nothing tells the copy that the readers are done"),
        "let the readers arrive at a barrier that the issuing thread waits for before it starts the copy",
    )


def _phase(f: Found) -> Words:
    parity, phases = f.facts["waited_parity"], f.facts["waited_phases"]
    return (
        "wrong phase",
        "a read of what a bulk copy is still writing, after a wait that did not wait for it",
        (*_between(f), f"the thread's last wait was for parity {parity}, when {phases} phases were over"),
        "wait for the phase that counts this copy: its parity flips each time the barrier is used again",
    )


def _proxy(f: Found) -> Words:
    return (
        "missing proxy fence",
        "the async proxy accesses memory that threads wrote by ordinary stores, without a proxy fence between",
        _between(f),
        "call fence_proxy_async() in the threads that wrote, before the barrier",
    )


def _bounds(f: Found) -> Words:
    action = _DID[f.facts["action"]]
    inside = f.facts.get("between") and f.facts.get("space") == "global"
    between = "between the elements of an array" if inside else "out of bounds"
    return (
        "out of bounds",
        f"an access {between}",
        (f"{f.actor('actor')} {action} {f.where()}",),
        "guard the access, or correct its index",
    )


def _uninitialised(f: Found) -> Words:
    return (
        "uninitialised read",
        "a read of memory that nobody has written",
        (f"{f.actor('actor')} reads {f.where()}",),
        "write it first, on every path",
    )


def _registers(f: Found) -> Words:
    return (
        "uninitialised read",
        f"{f.facts.get('what', 'registers')} that were never given a value",
        (f.actor("actor"),),
        "set them before the instruction reads them",
    )


def _misaligned(f: Found) -> Words:
    return (
        "misaligned",
        f"an access of {f.facts['bytes']} bytes at an address that is no multiple of {f.facts['alignment']}",
        (f"{f.actor('actor')}: {f.where()}",),
        "use a narrower access, or align the address",
    )


def _barrier(f: Found) -> Words:
    facts = f.facts
    if "ended" in facts:
        evidence = (
            f"{facts['arrived']} of {facts['expected']} threads came to the barrier, among them {f.actor('actor')}",
            f"{facts['ended']} threads have ended without it, among them {f.actor('by')}",
        )
    else:
        evidence = (f"{f.actor('actor')} is at {f.line()}", f"{f.actor('by')} is at {f.line('other')}")
    return (
        "divergent barrier",
        "a barrier that not all threads of the block come to",
        evidence,
        "let all threads of the block execute the same barrier: keep it out of branches that only some take",
    )


def _count(f: Found) -> Words:
    facts = f.facts
    more = f"others expect {facts['expected']}" if "expected" in facts else ""
    return (
        "barrier count",
        "a named barrier with a wrong number or count of threads",
        (f"{f.actor('actor')} waits at barrier {facts['id']} for {facts['threads']} threads", more),
        "numbers are 0 to 15, counts multiples of 32 up to the block's, the same for all",
    )


def _mask(f: Found) -> Words:
    facts = f.facts
    mask = f"{facts['mask']:#010x}"
    evidence: tuple[str, ...]
    if "other_mask" in facts:
        other = f"{f.actor('by')} gives {facts['other_mask']:#010x} at {f.line('other')}"
        evidence = (f"{f.actor('actor')} gives {mask}", other)
    elif "source" in facts:
        evidence = (f"{f.actor('actor')} reads lane {facts['source']}, which is not in its mask {mask}",)
    elif "absent" in facts:
        why = "has ended" if facts.get("exists") else "does not exist"
        evidence = (f"{f.actor('actor')} gives {mask}, but lane {facts['absent']} of its warp {why}",)
    else:
        evidence = (f"{f.actor('actor')} is lane {facts['lane']}, which is not in its mask {mask}",)
    return (
        "shuffle mask",
        "a warp operation whose mask is not the lanes that take part",
        evidence,
        "give the mask of exactly the lanes that execute the operation together",
    )


def _warp(f: Found) -> Words:
    return (
        "divergent warp",
        "lanes of one mask are at different operations of the warp",
        (f"{f.actor('actor')} is at {f.line()}", f"{f.actor('by')} is at {f.line('other')}"),
        "let all lanes of the mask execute the same operation",
    )


def _deadlock(f: Found) -> Words:
    waits = []
    for w in f.facts.get("waits", ()):
        own = Found(w, 1, f.places, f.array, f.variables)
        more = f" and {w['threads'] - 1} more" if w["threads"] > 1 else ""
        waits.append(f"{own.actor('first')}{more} wait{'s' if w['threads'] == 1 else ''} for {w['for']} at {own.line()}")
    return (
        "deadlock",
        "no thread can go on",
        tuple(waits),
        "see that every wait is matched: arrivals and bytes of an mbarrier, threads of a barrier, the parity waited for",
    )


def _peer(f: Found) -> Words:
    return (
        "peer exited",
        "an access to the shared memory of a block that may have ended",
        (f"{f.actor('actor')} accesses block rank {f.facts.get('peer', '?')} of its cluster: {f.where()}",),
        "let all blocks of the cluster meet (cluster_sync) after the last access to each other's memory",
    )


def _flight(f: Found) -> Words:
    return (
        "registers in flight",
        f"the registers of a wgmma are {'written' if f.facts['action'] == 'write' else 'read'} before it has finished",
        (f.actor("actor"),),
        "call wgmma_wait before its registers are used again",
    )


def _unfinished(f: Found) -> Words:
    if "load" in f.facts:
        return (
            "bulk copy unfinished",
            "a block ends before a bulk copy into its shared memory is known to be complete",
            (f"{f.actor('actor')} writes {f.where()}", "no thread of the block has waited for it"),
            "wait for the mbarrier of every bulk copy before the block ends",
        )
    return (
        "bulk copy unfinished",
        "a thread ends before its bulk stores have read shared memory",
        (f.actor("actor"),),
        "call bulk_commit() and bulk_wait_read<0>() before the block ends",
    )


def _simple(kind: str, message: str, remedy: str) -> Callable[[Found], Words]:
    def words(f: Found) -> Words:
        skip = ("kind", "site", "other", "actor", "by", "space", "region", "offset", "bytes", "action")
        facts = [f"{k.replace('_', ' ')}: {v}" for k, v in f.facts.items() if k not in skip]
        who = (f.actor("actor"),) if f.facts.get("actor") else ()
        where = (f"at {f.where()}",) if "region" in f.facts else ()
        return kind, message, (*who, *where, *facts), remedy

    return words


def _unknown(f: Found) -> Words:
    return _simple(str(f.facts["kind"]), str(f.facts["kind"]), "see docs/check.md")(f)


_WORDS: dict[str, Callable[[Found], Words]] = {
    "race": _race,
    "slot reused": _slot,
    "wrong phase": _phase,
    "missing proxy fence": _proxy,
    "out of bounds": _bounds,
    "uninitialised read": _uninitialised,
    "uninitialised registers": _registers,
    "misaligned": _misaligned,
    "divergent barrier": _barrier,
    "barrier count": _count,
    "shuffle mask": _mask,
    "divergent warp": _warp,
    "deadlock": _deadlock,
    "peer exited": _peer,
    "registers in flight": _flight,
    "trap": _simple("trap", "the kernel stops itself: a subscript read from memory left its array", "correct the subscripts"),
    "write to an input": _simple("write to an input", "a write to an array that is only read", "pass it to be written"),
    "does not end": _simple("does not end", "a thread makes no end", "see that its loops end"),
    "bulk copy unfinished": _unfinished,
    "too many blocks": _simple("too many blocks", "a launch of more blocks than the simulator numbers", "check smaller inputs"),
    "mbarrier not initialised": _simple(
        "mbarrier not initialised",
        "an mbarrier is used before its initialisation is known to this thread",
        "initialise it in one thread, then fence_mbarrier_init() and a barrier",
    ),
    "mbarrier phase": _simple(
        "mbarrier phase",
        "an mbarrier gets more than its phase takes",
        "see that arrivals and announced bytes of each phase are as many as it was initialised for",
    ),
    "byte count": _simple(
        "byte count",
        "bulk copies bring another number of bytes than was announced to their mbarrier",
        "announce (expect) exactly the bytes of the copies of the phase, those outside the tensor included",
    ),
    "bad copy": _simple("bad copy", "a copy whose addresses or size the hardware refuses", "see the rules of the copy"),
    "missing wgmma fence": _simple(
        "missing wgmma fence",
        "wgmma reads registers that were written without wgmma_fence() since",
        "call wgmma_fence() before the first wgmma and after registers are written",
    ),
    "register budget": _simple(
        "register budget", "warps ask for registers that the block does not have", "see that decreases pay for increases"
    ),
    "wrong memory": _simple(
        "wrong memory",
        "an instruction for one memory gets an address in another",
        "use the form for the memory that it is in: store, fetch_now and opaque are for global memory alone",
    ),
    "launch not awaited": _simple(
        "launch not awaited",
        "memory is accessed that the launch before may still be writing or reading",
        "call await_launch_before() in every thread, before it accesses memory",
    ),
    "swizzle": _simple(
        "swizzle",
        "wgmma reads shared memory in another swizzle than it was written in",
        "use the same swizzle in the tensor map and in the descriptor",
    ),
}  # fmt: skip
