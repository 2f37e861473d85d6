"""Load a cubin and launch it, through the CUDA driver's own library.

A launch costs about a microsecond of Python: the arguments are written by one C call into a record that the driver is
given by address, and `cuLaunchKernelEx` takes grid, block and stream in one structure. Nothing here synchronises or
allocates on the device, so launches can be captured in a CUDA graph. Kernels stay loaded as long as the process runs.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from weft.errors import DeviceMismatch, LaunchError
from weft.runtime.slots import Frame, Given, Slots, pack

_DEFAULT_SHARED = 48 * 1024  # bytes a block may have without asking for more
_INVALID_CONTEXT = 201
_NO_BINARY_FOR_GPU = 209
# numbers of the driver's enumerations
_FUNCTION = {"max_threads": 0, "static_shared": 1, "local": 3, "registers": 4}
_MAX_DYNAMIC_SHARED = 8
_COOPERATIVE, _CLUSTER_DIMENSION, _PROGRAMMATIC_SERIALIZATION = 2, 4, 6  # launch attributes
_LARGEST_CLUSTER = 8  # blocks, on every device that has clusters
_TENSOR_MAP_BYTES = 128
_DEVICE = {
    "multiprocessors": 16,
    "shared_per_block": 8,
    "shared_per_block_optin": 97,
    "shared_per_multiprocessor": 81,
    "shared_reserved": 111,
    "registers_per_multiprocessor": 82,
    "threads_per_multiprocessor": 39,
    "blocks_per_multiprocessor": 106,
    "l2_bytes": 38,
    "memory_kilohertz": 36,
    "memory_bus_bits": 37,
}
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76

_TARGETS = {(8, 0): "sm_80", (8, 6): "sm_86", (8, 9): "sm_89", (9, 0): "sm_90a"}

Size3 = tuple[int, int, int]


def target_arch(capability: tuple[int, int]) -> str:
    """The architecture to compile for: (9, 0) gives "sm_90a". Raises DeviceMismatch for one weft does not know."""
    if capability in _TARGETS:
        return _TARGETS[capability]
    known = ", ".join(f"{major}.{minor}" for major, minor in _TARGETS)
    raise DeviceMismatch(
        f"weft does not compile for GPUs of compute capability {capability[0]}.{capability[1]}",
        evidence=(f"it compiles for {known}",),
        remedy="move the tensors to such a GPU or to the CPU",
    )


class _Config(ctypes.Structure):
    """The driver's CUlaunchConfig."""

    _fields_ = (
        *((name, ctypes.c_uint) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared")),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


class _Attribute(ctypes.Structure):
    """The driver's CUlaunchAttribute: a number, and a union of 64 bytes that starts with what weft uses of it."""

    _fields_ = (("number", ctypes.c_uint64), ("value", ctypes.c_uint * 16))


class Driver:
    """The CUDA driver, with every status checked.

    library: libcuda, or what stands in for it. current_device: gives the calling thread's device, quickly.
    """

    def __init__(self, library: ctypes.CDLL, current_device: Callable[[], int]) -> None:
        self._library = library
        self.current_device = current_device
        # Taking addresses as plain ints, four arguments cost 0.3 us to convert; cuLaunchKernel's eleven cost 1.1 us.
        self.launch_kernel = library.cuLaunchKernelEx
        self.launch_kernel.argtypes = [ctypes.c_void_p] * 4
        self.clear: Callable[..., int] = library.cuMemsetD8Async
        self.clear.argtypes = [ctypes.c_uint64, ctypes.c_uint8, ctypes.c_size_t, ctypes.c_void_p]
        # of a tensor map; None of drivers that have no such maps
        self.replace_address: Callable[..., int] | None = getattr(library, "cuTensorMapReplaceAddress", None)
        self._contexts: dict[int, int] = {}
        self.call("cuInit", 0)

    def status(self, function: str, *arguments: object) -> int:
        return int(getattr(self._library, function)(*arguments))

    def call(self, function: str, *arguments: object) -> None:
        """Call a function of the driver. Raises LaunchError if it fails."""
        if status := self.status(function, *arguments):
            raise self.error(status, f"{function} failed")

    def error(self, status: int, what: str, *evidence: str) -> LaunchError:
        """The error for a failed call: the driver's name for it and its words."""
        words = []
        for function in ("cuGetErrorName", "cuGetErrorString"):
            text = ctypes.c_char_p()
            self.status(function, status, ctypes.byref(text))
            words.append((text.value or b"unknown error").decode())
        remedy = "an error of an earlier kernel can surface here: run with CUDA_LAUNCH_BLOCKING=1 to find it"
        return LaunchError(f"{what}: {words[0]}", evidence=(f"{words[1]} ({status})", *evidence), remedy=remedy)

    def context(self, device: int) -> int:
        """The device's primary context, the one PyTorch uses; kept for as long as the process runs."""
        if device not in self._contexts:
            context = ctypes.c_void_p()
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._ordinal(device))
            self._contexts[device] = context.value or 0
        return self._contexts[device]

    def enter(self, device: int) -> None:
        """The device's context is current for this thread from here on, if none was: as after any call of CUDA's runtime."""
        current = ctypes.c_void_p()
        self.call("cuCtxGetCurrent", ctypes.byref(current))
        if not current.value:
            self.call("cuCtxSetCurrent", ctypes.c_void_p(self.context(device)))

    @contextmanager
    def on(self, device: int) -> Iterator[None]:
        """The device's context is current for this thread inside, and what was current before is so again after."""
        self.call("cuCtxPushCurrent_v2", ctypes.c_void_p(self.context(device)))
        try:
            yield
        finally:
            self.status("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def device_attribute(self, device: int, attribute: int) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, self._ordinal(device))
        return value.value

    def device_name(self, device: int) -> str:
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, len(name), self._ordinal(device))
        return name.value.decode()

    def _ordinal(self, device: int) -> ctypes.c_int:
        count, ordinal = ctypes.c_int(), ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        if not 0 <= device < count.value:
            raise DeviceMismatch(
                f"there is no GPU {device}",
                evidence=(f"the CUDA driver shows {count.value}, counted from 0",),
                remedy="look at CUDA_VISIBLE_DEVICES",
            )
        self.call("cuDeviceGet", ctypes.byref(ordinal), device)
        return ordinal


@functools.lru_cache(maxsize=1)
def find_driver() -> Driver:
    """The machine's CUDA driver. Raises DeviceMismatch where there is none or PyTorch was built without CUDA."""
    try:
        # Not PyDLL: a launch can wait for room in the stream, and what it waits for may be a Python callback.
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DeviceMismatch(
            "there is no CUDA driver on this machine",
            evidence=(str(error),),
            remedy="install NVIDIA's driver, or use CPU tensors",
        ) from error
    return Driver(library, _torch_function("_cuda_getDevice"))


@functools.lru_cache(maxsize=1)
def current_stream() -> Callable[[int], int]:
    """A function from a device's index to PyTorch's current stream on it, as the driver's handle."""
    return _torch_function("_cuda_getCurrentRawStream")


def _torch_function(name: str) -> Callable[..., int]:
    import torch

    function: Callable[..., int] | None = getattr(torch._C, name, None)
    if function is None:
        raise DeviceMismatch(
            "this PyTorch is built without CUDA",
            evidence=(f"torch {torch.__version__}",),
            remedy="install a CUDA build of PyTorch, or use CPU tensors",
        )
    return function


@dataclass(frozen=True)
class DeviceProperties:
    """A GPU: its target architecture, memory sizes in bytes, and how much fits one of its multiprocessors.

    shared_per_block_optin: what a block may have at most; shared_per_block: what it may have without asking.
    shared_reserved: what the system takes of the multiprocessor's shared memory for each block.
    """

    name: str
    capability: tuple[int, int]
    arch: str
    multiprocessors: int
    shared_per_block: int
    shared_per_block_optin: int
    shared_per_multiprocessor: int
    shared_reserved: int
    registers_per_multiprocessor: int
    threads_per_multiprocessor: int
    blocks_per_multiprocessor: int
    l2_bytes: int
    memory_kilohertz: int
    memory_bus_bits: int

    @property
    def bandwidth(self) -> float:
        """Bytes of memory a second: two transfers a cycle of its clock."""
        return 2e3 * self.memory_kilohertz * self.memory_bus_bits / 8


def device_properties(index: int) -> DeviceProperties:
    """The properties of PyTorch's device `cuda:index`. Raises DeviceMismatch if weft cannot use it."""
    return _properties(find_driver(), index)


@functools.lru_cache(maxsize=64)
def _properties(driver: Driver, index: int) -> DeviceProperties:
    major, minor = (driver.device_attribute(index, a) for a in (_CAPABILITY_MAJOR, _CAPABILITY_MINOR))
    return DeviceProperties(
        name=driver.device_name(index),
        capability=(major, minor),
        arch=target_arch((major, minor)),
        **{name: driver.device_attribute(index, attribute) for name, attribute in _DEVICE.items()},
    )


@dataclass(frozen=True)
class KernelHandle:
    """A kernel loaded on one device: the driver's address of it and what it takes.

    registers, local: a thread's, local in bytes. static_shared: bytes a block. max_threads: the largest block.
    """

    driver: Driver
    function: int
    entry: str
    device: int
    registers: int
    local: int
    static_shared: int
    max_threads: int

    def occupancy(self, threads: int, shared_bytes: int = 0) -> int:
        """How many blocks of so many threads and bytes of dynamic shared memory fit a multiprocessor at a time."""
        blocks = ctypes.c_int()
        with self.driver.on(self.device):
            self.allow(shared_bytes)
            self.driver.call(
                "cuOccupancyMaxActiveBlocksPerMultiprocessor",
                ctypes.byref(blocks),
                ctypes.c_void_p(self.function),
                threads,
                ctypes.c_size_t(shared_bytes),
            )
        return blocks.value

    def admit(self, grid: Size3, block: Size3, shared_bytes: int, cluster: Size3, cooperative: bool) -> None:
        """Raise LaunchError if such a launch is beyond the kernel or the device; ask for large shared memory."""
        faults = []
        threads = block[0] * block[1] * block[2]
        if not 0 < threads <= self.max_threads or block[2] > 64:
            faults.append(f"a block of {block} is {threads} threads, and this kernel allows {self.max_threads}")
        if not (0 <= grid[0] < 2**31 and 0 <= grid[1] < 2**16 and 0 <= grid[2] < 2**16):
            faults.append(f"a grid of {grid} is beyond (2147483647, 65535, 65535)")
        room = _properties(self.driver, self.device).shared_per_block_optin - self.static_shared
        if not 0 <= shared_bytes <= room:
            faults.append(f"{shared_bytes} bytes of dynamic shared memory are asked for, {room} are free in a block")
        faults += self._cluster_faults(grid, cluster)
        if not faults and cooperative:
            fit = self.occupancy(threads, shared_bytes) * _properties(self.driver, self.device).multiprocessors
            if (blocks := grid[0] * grid[1] * grid[2]) > fit:
                faults.append(f"{blocks} blocks are to run at once, and {fit} fit the device")
        if faults:
            raise LaunchError(f"{self.entry} cannot be launched so", evidence=faults, remedy="choose a smaller tile")
        with self.driver.on(self.device):
            self.allow(shared_bytes)

    def _cluster_faults(self, grid: Size3, cluster: Size3) -> list[str]:
        if cluster == (1, 1, 1):
            return []
        faults = []
        blocks = cluster[0] * cluster[1] * cluster[2]
        if not 0 < blocks <= _LARGEST_CLUSTER or min(cluster) < 1:
            faults.append(f"a cluster of {cluster} is {blocks} blocks, and it can have 1 to {_LARGEST_CLUSTER}")
        elif any(g % c for g, c in zip(grid, cluster, strict=True)):
            faults.append(f"a grid of {grid} is not made of whole clusters of {cluster}")
        capability = _properties(self.driver, self.device).capability
        if capability < (9, 0):
            faults.append(f"clusters need compute capability 9.0, and this device has {capability[0]}.{capability[1]}")
        return faults

    def allow(self, shared_bytes: int) -> None:
        # All there is rather than what is asked for: another launcher of this kernel may need more than this one.
        if shared_bytes + self.static_shared > _DEFAULT_SHARED:
            room = _properties(self.driver, self.device).shared_per_block_optin - self.static_shared
            self.driver.call("cuFuncSetAttribute", ctypes.c_void_p(self.function), _MAX_DYNAMIC_SHARED, room)


def load(binary: bytes, entry: str, device: int, driver: Driver | None = None) -> KernelHandle:
    """Load the kernel `entry` of a cubin on a device (PyTorch's index).

    Not to be called while a CUDA graph is captured. Raises LaunchError, or DeviceMismatch if the cubin is for another
    architecture.
    """
    driver = driver or find_driver()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    with driver.on(device):
        status = driver.status("cuModuleLoadData", ctypes.byref(module), binary)
        if status == _NO_BINARY_FOR_GPU:
            raise DeviceMismatch(
                f"{entry} is compiled for another architecture than that of GPU {device}",
                evidence=(driver.device_name(device),),
                remedy=f"compile it for {_properties(driver, device).arch}",
            )
        if status:
            raise driver.error(status, f"{entry} cannot be loaded on GPU {device}")
        if status := driver.status("cuModuleGetFunction", ctypes.byref(function), module, entry.encode()):
            raise driver.error(status, f"the program has no kernel {entry}")

        def attribute(number: int) -> int:
            value = ctypes.c_int()
            driver.call("cuFuncGetAttribute", ctypes.byref(value), number, function)
            return value.value

        facts = {name: attribute(number) for name, number in _FUNCTION.items()}
    return KernelHandle(driver, function.value or 0, entry, device, **facts)


# A kernel that does nothing, of which a device is asked how many of its clusters fit.
_NOTHING = b".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry nothing() { ret; }\n\0"


@functools.lru_cache(maxsize=64)
def clusters_at_once(device: int, blocks: int) -> int:
    """How many clusters of so many blocks a device has at once, each block with a multiprocessor for itself."""
    driver, found = find_driver(), ctypes.c_int()
    kernel, shared = load(_NOTHING, "nothing", device), device_properties(device).shared_per_block_optin
    attribute = _Attribute(_CLUSTER_DIMENSION, (ctypes.c_uint * 16)(blocks, 1, 1))
    config = _Config(blocks, 1, 1, 32, 1, 1, shared, None, ctypes.addressof(attribute), 1)
    with driver.on(device):
        kernel.allow(shared)
        given = ctypes.c_void_p(kernel.function), ctypes.byref(config)
        driver.call("cuOccupancyMaxActiveClusters", ctypes.byref(found), *given)
    return found.value


class Launcher:
    """A kernel with its grid, block, dynamic shared memory in bytes and fixed arguments; may be shared by threads.

    cluster: blocks of a cluster. cooperative: all blocks run at once, as grid_sync needs. dependent: it may begin before the
    launch before it on the stream has ended, and awaits it by itself (from compute capability 9.0 on). tensor_maps: encodings
    of 128 bytes, the kernel's parameters after its slots. boxes: those after them, of tensors whose addresses are given at
    launch.

    Nothing is launched for a grid that is empty. Raises LaunchError if such a launch is beyond the device.
    """

    def __init__(
        self,
        handle: KernelHandle,
        grid: Size3,
        block: Size3,
        shared_bytes: int,
        slots: Slots,
        *,
        cluster: Size3 = (1, 1, 1),
        cooperative: bool = False,
        dependent: bool = False,
        tensor_maps: Sequence[bytes] = (),
        boxes: Sequence[GivenMap] = (),
    ) -> None:
        handle.admit(grid, block, shared_bytes, cluster, cooperative)
        self._handle = handle
        self._function = handle.function
        self._device = handle.device
        self._current_device = handle.driver.current_device
        self._launch_kernel = handle.driver.launch_kernel
        self._empty = 0 in grid
        self._shape = (*grid, *block, shared_bytes)
        self._slots = slots
        dependent = dependent and _properties(handle.driver, handle.device).capability >= (9, 0)
        self._extras = _extras(cluster, cooperative, dependent, tensor_maps)
        self._boxes = tuple(GivenMap(box.position, self._in_context(box.encode)) for box in boxes)
        # Frames not in use. Taking one out and putting it back are atomic, so no two threads share a frame.
        self._frames = [LaunchFrame(slots, self._shape, self._extras, self._boxes)]

    def _in_context(self, encode: Callable[[int], bytes]) -> Callable[[int], bytes]:
        """What makes a map, which asks for a context; a thread of autograd's may have none yet."""

        def encoded(address: int) -> bytes:
            self._handle.driver.enter(self._device)
            return encode(address)

        return encoded

    def launch(self, stream: int, *values: int | float) -> None:
        """Launch on a stream (the driver's handle) of the kernel's device, with the given slots in order."""
        if self._empty:
            return
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = LaunchFrame(self._slots, self._shape, self._extras, self._boxes)
        frame.write(*values)
        frame.config.stream = stream
        if self._current_device() == self._device:
            status = self._launch_kernel(frame.config_address, self._function, frame.parameters_address, None)
        else:
            status = _INVALID_CONTEXT
        if status:
            self._launch_elsewhere(status, frame)
        self._frames.append(frame)

    def parts(self) -> LaunchParts | None:
        """What a launch consists of, for callers that spell it out.

        None where nothing is launched, and where a launch has tensor maps of its own: `launch` does those.
        """
        extras, replace_address = self._extras, self._handle.driver.replace_address
        if self._empty or (self._boxes and replace_address is None) or (extras is not None and extras.map_addresses):
            return None

        def fresh() -> LaunchFrame:
            return LaunchFrame(self._slots, self._shape, extras, self._boxes)

        attributes = None if extras is None else extras.attributes
        return LaunchParts(
            self._frames, fresh, self._launch_kernel, self._function, self._launch_elsewhere, self._shape, self._slots,
            attributes, self._boxes, replace_address,
        )  # fmt: skip

    @property
    def empty(self) -> bool:
        """Whether nothing is launched."""
        return self._empty

    def taken(self) -> tuple[LaunchFrame, int, int]:
        """A frame of its own for a caller that launches many times, the address of the driver's function that does, and the
        kernel's.
        """
        frame = LaunchFrame(self._slots, self._shape, self._extras, self._boxes)
        return frame, ctypes.cast(self._launch_kernel, ctypes.c_void_p).value or 0, self._function

    @contextmanager
    def current(self) -> Iterator[None]:
        """The kernel's device is current for this thread inside."""
        with self._handle.driver.on(self._device):
            yield

    def error(self, status: int) -> LaunchError:
        """What a launch failed with."""
        facts = f"grid {self._shape[:3]}, block {self._shape[3:6]}, {self._shape[6]} bytes of shared memory"
        return self._handle.driver.error(status, f"{self._handle.entry} was not launched", facts)

    def _launch_elsewhere(self, status: int, frame: LaunchFrame) -> None:
        """Another device is current, or nothing is yet in this thread: launch under the kernel's own context."""
        driver = self._handle.driver
        if status == _INVALID_CONTEXT:
            driver.enter(self._device)  # a thread of autograd's: its next launch goes the quick way
            with driver.on(self._device):
                status = self._launch_kernel(frame.config_address, self._function, frame.parameters_address, None)
        if status:
            raise self.error(status)


class Clearer:
    """Sets so many bytes of memory to 0, in the order of the launches on a stream."""

    def __init__(self, driver: Driver, device: int, count: int) -> None:
        self._driver, self._device, self._count = driver, device, count

    def launch(self, stream: int, address: int) -> None:
        """On a stream (the driver's handle) of the device."""
        driver, status = self._driver, _INVALID_CONTEXT
        if driver.current_device() == self._device:
            status = driver.clear(address, 0, self._count, stream)
        if status == _INVALID_CONTEXT:
            driver.enter(self._device)
            with driver.on(self._device):
                status = driver.clear(address, 0, self._count, stream)
        if status:
            self._failed(status)

    def _failed(self, status: int, frame: object = None) -> None:
        raise self._driver.error(status, f"{self._count} bytes of memory were not cleared")

    def parts(self) -> ClearParts:
        return ClearParts(self._driver.clear, pack([Given.POINTER, self._count]), self._failed)


@dataclass(frozen=True)
class ClearParts:
    """What clearing memory consists of: `clear(address, 0, bytes, stream)`. slots: the address and the bytes. failed: what
    raises the error of a status.
    """

    clear: Callable[..., int]
    slots: Slots
    failed: Callable[[int, object], None]


@dataclass(frozen=True)
class LaunchParts:
    """One launch, step by step: take a frame of `frames` or a fresh one, write the given slots, set its stream, call
    `launch_kernel(frame.config_address, function, frame.parameters_address, None)`, hand a status that is not 0 to
    `failed(status, frame)`, put the frame back. shape: grid, block, bytes of dynamic shared memory. slots: of a frame.
    attributes: the driver's, which the configuration of a frame points to. boxes: parameters after the slots, which a frame
    writes too; replace_address: gives the encoding of one another address.
    """

    frames: list[LaunchFrame]
    fresh: Callable[[], LaunchFrame]
    launch_kernel: Callable[..., int]
    function: int
    failed: Callable[[int, LaunchFrame], None]
    shape: tuple[int, ...]
    slots: Slots
    attributes: ctypes.Array[_Attribute] | None
    boxes: tuple[GivenMap, ...]
    replace_address: Callable[..., int] | None


@dataclass(frozen=True)
class _Extras:
    """What launches have beside a shape and slots, the same for all: the driver only reads it, so frames share it.

    attributes: the driver's. maps: holds the tensor maps, at map_addresses.
    """

    attributes: ctypes.Array[_Attribute]
    maps: ctypes.Array[ctypes.c_char]
    map_addresses: tuple[int, ...]


def _extras(cluster: Size3, cooperative: bool, dependent: bool, tensor_maps: Sequence[bytes]) -> _Extras | None:
    """None where there is nothing."""
    attributes = []
    if cluster != (1, 1, 1):
        attributes.append(_Attribute(_CLUSTER_DIMENSION, (ctypes.c_uint * 16)(*cluster)))
    if cooperative:
        attributes.append(_Attribute(_COOPERATIVE, (ctypes.c_uint * 16)(1)))
    if dependent:
        attributes.append(_Attribute(_PROGRAMMATIC_SERIALIZATION, (ctypes.c_uint * 16)(1)))
    if not attributes and not tensor_maps:
        return None
    if any(len(encoding) != _TENSOR_MAP_BYTES for encoding in tensor_maps):
        raise LaunchError(
            f"a tensor map has {_TENSOR_MAP_BYTES} bytes",
            evidence=(f"they have {', '.join(str(len(encoding)) for encoding in tensor_maps)}",),
            remedy="encode them by weft.runtime.tensor_map",
        )
    maps = ctypes.create_string_buffer(_TENSOR_MAP_BYTES * len(tensor_maps) + 64)
    first = ctypes.addressof(maps) + -ctypes.addressof(maps) % 64
    addresses = tuple(first + _TENSOR_MAP_BYTES * n for n in range(len(tensor_maps)))
    for address, encoding in zip(addresses, tensor_maps, strict=True):
        ctypes.memmove(address, encoding, _TENSOR_MAP_BYTES)
    return _Extras((_Attribute * len(attributes))(*attributes), maps, addresses)


@dataclass(frozen=True)
class GivenMap:
    """A tensor map of a tensor whose address is given at launch, as the so manieth of the given values. encode: the driver's
    128 bytes for an address.
    """

    position: int
    encode: Callable[[int], bytes]


class LaunchFrame(Frame):
    """A frame with what the driver wants beside it: the launch configuration and the addresses of the slots."""

    __slots__ = ("config", "config_address", "maps", "parameters", "parameters_address")

    def __init__(
        self, slots: Slots, shape: tuple[int, ...], extras: _Extras | None = None, boxes: Sequence[GivenMap] = ()
    ) -> None:
        super().__init__(slots)
        self.config = _Config(*shape)
        self.config_address = ctypes.addressof(self.config)
        addresses = [self.address + 8 * n for n in range(len(slots))]
        if extras is not None:
            self.config.attributes = ctypes.addressof(extras.attributes)
            self.config.attribute_count = len(extras.attributes)
            addresses += extras.map_addresses
        if boxes:
            self.maps = ctypes.create_string_buffer(_TENSOR_MAP_BYTES * len(boxes) + 64)
            first = ctypes.addressof(self.maps) + -ctypes.addressof(self.maps) % 64
            own = [first + _TENSOR_MAP_BYTES * n for n in range(len(boxes))]
            addresses += own
            self.write = _mapping(self.write, boxes, own)
        self.parameters = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        self.parameters_address = ctypes.addressof(self.parameters)


def _mapping(write: Callable[..., None], boxes: Sequence[GivenMap], addresses: Sequence[int]) -> Callable[..., None]:
    """A function that writes the given slots and, of tensors that lie elsewhere than before, their maps."""
    last: list[int | float] = [-1] * len(boxes)

    def mapped(*values: int | float) -> None:
        write(*values)
        for k, box in enumerate(boxes):
            if (value := values[box.position]) != last[k]:
                ctypes.memmove(addresses[k], box.encode(int(value)), _TENSOR_MAP_BYTES)
                last[k] = value

    return mapped
