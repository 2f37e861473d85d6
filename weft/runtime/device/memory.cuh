// Moving tiles between global memory and registers: up to 16 bytes an instruction, op-math values on the register side.
#pragma once
#include "weft/address.cuh"

namespace weft {

// Whether a subscript read from memory lies inside its array; where it does not, `outside` keeps the array's number.
WEFT_FUNCTION bool inside(int64_t index, int64_t size, int64_t array, int64_t& outside) {
    const bool ok = index >= 0 && index < size;
    if (!ok) outside = array;
    return ok;
}

// Whether a condition holds; where it does not, `outside` keeps the number of the fault.
WEFT_FUNCTION bool holds(bool ok, int64_t fault, int64_t& outside) {
    if (!ok) outside = fault;
    return ok;
}

// What one instruction moves.
template <typename T, int count> struct alignas(count * sizeof(T)) Packet {
    T lane[count];
};

// Two neighbours of a 16-bit type in one word, the first in its low half.
template <typename T> WEFT_FUNCTION void unpack(uint32_t word, float& first, float& second) {
    T pair[2];
    pair[0].bits = uint16_t(word);
    pair[1].bits = uint16_t(word >> 16);
    first = float(pair[0]);
    second = float(pair[1]);
}
template <> WEFT_FUNCTION void unpack<bfloat16>(uint32_t word, float& first, float& second) {
    first = float_of(word << 16);
    second = float_of(word & 0xffff0000u);
}
template <typename T> WEFT_FUNCTION uint32_t pack(float first, float second) {
    return uint32_t(T(first).bits) | uint32_t(T(second).bits) << 16;
}
#if WEFT_ON_DEVICE
template <> WEFT_FUNCTION uint32_t pack<bfloat16>(float first, float second) {
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
}
template <> WEFT_FUNCTION uint32_t pack<float16>(float first, float second) {
    uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
}
#endif

template <typename T> inline constexpr bool is_half = false;
template <> inline constexpr bool is_half<float16> = true;
template <> inline constexpr bool is_half<bfloat16> = true;

template <typename T> inline constexpr bool is_boolean = false;
template <> inline constexpr bool is_boolean<boolean> = true;

// How many elements share a register, of so many: for the others the compiler knows best.
template <typename T, int count>
inline constexpr int sharing = is_half<T> && count % 2 == 0 ? 2 : is_boolean<T> && count % 4 == 0 ? 4 : 1;

// Neighbouring elements as they are in memory, waiting in registers: two of a 16-bit type, and four bools, share one.
template <typename T, int count, int shared = sharing<T, count>> struct Run {
    T lane[count];
    template <typename Value> WEFT_FUNCTION void unpack(Value (&tile)[count]) const {
#pragma unroll
        for (int v = 0; v < count; ++v) tile[v] = Value(lane[v]);
    }
    WEFT_FUNCTION void set(int v, T value) { lane[v] = value; }
    template <int width> WEFT_FUNCTION void read(const T* address) {
#pragma unroll
        for (int k = 0; k < count; k += width) {
            const auto packet = *reinterpret_cast<const Packet<T, width>*>(address + k);
#pragma unroll
            for (int v = 0; v < width; ++v) lane[k + v] = packet.lane[v];
        }
    }
};
template <typename T, int count> struct Run<T, count, 4> {
    uint32_t four[count / 4];
    WEFT_FUNCTION void unpack(bool (&tile)[count]) const {
#pragma unroll
        for (int v = 0; v < count; ++v) tile[v] = (four[v / 4] & 0xffu << 8 * (v % 4)) != 0;
    }
    WEFT_FUNCTION void set(int v, T value) {
        four[v / 4] = (four[v / 4] & ~(0xffu << 8 * (v % 4))) | uint32_t(value.bits) << 8 * (v % 4);
    }
    template <int width> WEFT_FUNCTION void read(const T* address) {
        if constexpr (width < 4) {
#pragma unroll
            for (int k = 0; k < count / 4; ++k) four[k] = 0;
#pragma unroll
            for (int v = 0; v < count; ++v) four[v / 4] |= uint32_t(address[v].bits) << 8 * (v % 4);
        } else {
#pragma unroll
            for (int k = 0; k < count; k += width) {
                const auto packet = *reinterpret_cast<const Packet<uint32_t, width / 4>*>(address + k);
#pragma unroll
                for (int v = 0; v < width; v += 4) four[(k + v) / 4] = packet.lane[v / 4];
            }
        }
    }
};
template <typename T, int count> struct Run<T, count, 2> {
    uint32_t pair[count / 2];
    WEFT_FUNCTION void unpack(float (&tile)[count]) const {
#pragma unroll
        for (int v = 0; v < count; v += 2) weft::unpack<T>(pair[v / 2], tile[v], tile[v + 1]);
    }
    WEFT_FUNCTION void set(int v, T value) {
        if (v % 2) pair[v / 2] = (pair[v / 2] & 0xffffu) | uint32_t(value.bits) << 16;
        else pair[v / 2] = (pair[v / 2] & 0xffff0000u) | value.bits;
    }
    template <int width> WEFT_FUNCTION void read(const T* address) {
        if constexpr (width == 1) {
#pragma unroll
            for (int v = 0; v < count; v += 2) pair[v / 2] = uint32_t(address[v].bits) | uint32_t(address[v + 1].bits) << 16;
        } else {
#pragma unroll
            for (int k = 0; k < count; k += width) {
                const auto packet = *reinterpret_cast<const Packet<uint32_t, width / 2>*>(address + k);
#pragma unroll
                for (int v = 0; v < width; v += 2) pair[(k + v) / 2] = packet.lane[v / 2];
            }
        }
    }
};

template <typename T, typename Value, int count>
WEFT_FUNCTION void unpack(const Run<T, count>& run, Value (&tile)[count]) {
    run.unpack(tile);
}

// One of these elements, of which the compiler knows the number.
template <typename Value, typename T, int count> WEFT_FUNCTION Value element(const Run<T, count>& run, int number) {
    Value tile[count];
    run.unpack(tile);
    return tile[number];
}

// The same address in global memory, but the compiler does not know it: loads through it stay where they are written.
template <typename T> WEFT_FUNCTION const T* opaque(const T* address) {
    uint64_t place = detail::global_address(address);
#if WEFT_ON_DEVICE
    asm volatile("" : "+l"(place));
    return static_cast<const T*>(__cvta_global_to_generic(place));
#else
    return address;
#endif
}

// The same number, but the compiler does not know it.
WEFT_FUNCTION int64_t opaque(int64_t value) {
#if WEFT_ON_DEVICE
    asm("" : "+l"(value));
#endif
    return value;
}

WEFT_FUNCTION int32_t opaque(int32_t value) {
#if WEFT_ON_DEVICE
    asm volatile("" : "+r"(value));
#endif
    return value;
}
WEFT_FUNCTION float opaque(float value) {
#if WEFT_ON_DEVICE
    asm volatile("" : "+f"(value));
#endif
    return value;
}

// What lies at an address is on its way to L2: no thread waits for it, or sees it.
template <typename T> WEFT_FUNCTION void fetch_ahead(const T* address) {
#if WEFT_ON_DEVICE
    asm volatile("prefetch.global.L2 [%0];" : : "l"(detail::global_address(address)) : "memory");
#endif
}

// The elements from `address` on, `width` of them an instruction; `address` is a multiple of those.
template <int count, int width, typename T> WEFT_FUNCTION Run<T, count> fetch(const T* address) {
    Run<T, count> run;
    run.template read<width>(address);
    return run;
}

// The line of 128 bytes of an element comes to L2, whoever asks for it later.
template <typename T> WEFT_FUNCTION void prefetch_line([[maybe_unused]] const T* address) {
#if WEFT_ON_DEVICE
    asm volatile("prefetch.global.L2 [%0];" : : "l"(address) : "memory");
#endif
}

// The same where a condition holds; elsewhere 0.
template <int count, int width, typename T> WEFT_FUNCTION Run<T, count> fetch_if(bool condition, const T* address) {
    Run<T, count> run = {};
    if (condition) run.template read<width>(address);
    return run;
}

// The same, before anything that comes after the warp's next barrier. Of loads through a pointer that nothing is stored through the
// compiler knows that they may come later, where their elements are needed: it waits for one row, then asks for the other.
template <int count, int width, typename T> WEFT_FUNCTION Run<T, count> fetch_now(const T* address) {
    constexpr int size = width * int(sizeof(T)), words = count * int(sizeof(T)) / 4;
    [[maybe_unused]] const uint64_t place = detail::global_address(address);
#if WEFT_ON_DEVICE
    if constexpr (size >= 4) {
        uint32_t word[words];
#pragma unroll
        for (int k = 0; k < words; k += size / 4) {
            if constexpr (size == 16) {
                asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                             : "=r"(word[k]), "=r"(word[k + 1]), "=r"(word[k + 2]), "=r"(word[k + 3])
                             : "l"(place + 4 * k)
                             : "memory");
            } else if constexpr (size == 8) {
                asm volatile("ld.global.v2.b32 {%0, %1}, [%2];"
                             : "=r"(word[k]), "=r"(word[k + 1]) : "l"(place + 4 * k) : "memory");
            } else {
                asm volatile("ld.global.b32 %0, [%1];" : "=r"(word[k]) : "l"(place + 4 * k) : "memory");
            }
        }
        Run<T, count> run;
        static_assert(sizeof run == sizeof word);
        memcpy(&run, word, sizeof run);
        return run;
    } else if constexpr (size == 2 && width == count) {
        uint16_t half;
        asm volatile("ld.global.u16 %0, [%1];" : "=h"(half) : "l"(place) : "memory");
        Run<T, count> run;
        static_assert(sizeof run == sizeof half);
        memcpy(&run, &half, sizeof run);
        return run;
    }
#endif
    return fetch<count, width>(address);
}

// Where a packet of 16 bytes lies in a tile in shared memory, of which a thread has `packets` neighbours: those of a warp's
// threads that are read together are in different banks.
template <int packets> WEFT_FUNCTION int packet_place(int packet) { return packet ^ (packet / 8 & (packets - 1)); }
// The elements of a run of a tile that lies so. place: of its first one.
template <int count, typename T> WEFT_FUNCTION Run<T, count> fetch_packets(const T* tile, int place) {
    constexpr int width = 16 / sizeof(T), packets = count / width;
    Packet<uint32_t, 4> words[packets];
#pragma unroll
    for (int k = 0; k < packets; ++k) words[k] = *reinterpret_cast<const Packet<uint32_t, 4>*>(tile + (place ^ k * width));
    Run<T, count> run;
    memcpy(&run, words, sizeof run);
    return run;
}

// How many of so many elements one instruction moves at the most.
template <typename T, int count> inline constexpr int in_packet = count * sizeof(T) > 16 ? int(16 / sizeof(T)) : count;

// Whether an address is one of packets of this many elements.
template <int count, typename T> WEFT_FUNCTION bool aligned(const T* address) {
    return uint64_t(address) % (count * sizeof(T)) == 0;
}

// How many elements an address is past one of packets.
template <int count, typename T> WEFT_FUNCTION int64_t past_packet(const T* address) {
    return int64_t(uint64_t(address) / sizeof(T) % count);
}

// The elements from `address` on, which lies between packets: those packets that have them, moved down by as many bytes as the
// address is past the first.
template <int count, typename T> WEFT_FUNCTION Run<T, count> fetch_shifted(const T* address) {
    constexpr int width = in_packet<T, count>, words = width * sizeof(T) / 4, wanted = count * sizeof(T) / 4;
    const int past = int(past_packet<width>(address)), bytes = past * int(sizeof(T));
    uint32_t word[wanted + words];
#pragma unroll
    for (int k = 0; k <= count; k += width) {
        const auto packet = *reinterpret_cast<const Packet<uint32_t, words>*>(address - past + k);
#pragma unroll
        for (int w = 0; w < words; ++w) word[k / width * words + w] = packet.lane[w];
    }
#pragma unroll
    for (int step = words / 2; step > 0; step /= 2) {
#pragma unroll
        for (int k = 0; k + step < wanted + words; ++k) word[k] = bytes & 4 * step ? word[k + step] : word[k];
    }
    if constexpr (sizeof(T) < 4) {
#pragma unroll
        for (int k = 0; k < wanted; ++k) word[k] = uint32_t((uint64_t(word[k + 1]) << 32 | word[k]) >> 8 * (bytes % 4));
    }
    Run<T, count> run;
    memcpy(&run, word, sizeof run);
    return run;
}

// Neighbouring elements from `address` on, which are those from `first` on of a row of which low to high are there; others
// are 0. width: elements an instruction, 0 where the address tells.
template <int count, int width, typename T>
WEFT_FUNCTION Run<T, count> fetch_run(const T* address, int64_t first, int64_t low, int64_t high) {
    if (first >= low && first + count <= high) {
        if constexpr (width > 0) return fetch<count, width>(address);
        constexpr int widest = in_packet<T, count>;
        return aligned<widest>(address) ? fetch<count, widest>(address) : fetch<count, 1>(address);
    }
    Run<T, count> run = {};
#pragma unroll
    for (int v = 0; v < count; ++v) {
        if (first + v >= low && first + v < high) run.set(v, address[v]);
    }
    return run;
}

// The same where a condition holds, too.
template <int count, int width, typename T>
WEFT_FUNCTION Run<T, count> fetch_if(bool condition, const T* address, int64_t first, int64_t low, int64_t high) {
    return fetch_run<count, width>(address, first, low, condition ? high : low);
}

// As fetch_run of what no thread writes meanwhile: where the address is none of packets, those that have the elements are read whole,
// if they are the row's.
template <int count, typename T>
WEFT_FUNCTION Run<T, count> fetch_anywhere(const T* address, int64_t first, int64_t low, int64_t high) {
    constexpr int widest = in_packet<T, count>;
    if constexpr (widest * sizeof(T) >= 4) {
        const int64_t packet = first - past_packet<widest>(address);
        if (packet != first && packet >= low && packet + widest + count <= high) return fetch_shifted<count>(address);
    }
    return fetch_run<count, 0>(address, first, low, high);
}

// Neighbours in the order of rows, `left` of which are there. The first is number `place` of a row of `size`, at `here`; those of
// the next row are as far from `next`. step: 0 where all of a row are the same.
template <int count, int step, typename T>
WEFT_FUNCTION Run<T, count> fetch_over(const T* here, const T* next, int64_t place, int64_t size, int64_t left) {
    if constexpr (step == 0) {
        const T first = *here, second = size - place < minimum<int64_t>(count, left) ? *next : first;
        Run<T, count> run = {};
#pragma unroll
        for (int v = 0; v < count; ++v) run.set(v, place + v < size ? first : second);
        return run;
    }
    if (place + count <= size) return fetch_anywhere<count>(here, place, 0, size);
    Run<T, count> run = {};
#pragma unroll
    for (int v = 0; v < count; ++v) {
        if (v < left) run.set(v, place + v < size ? here[v] : next[v]);
    }
    return run;
}

// Every `stride`-th element.
template <int count, typename T> WEFT_FUNCTION Run<T, count> fetch_strided(const T* address, int64_t stride) {
    Run<T, count> run = {};
#pragma unroll
    for (int v = 0; v < count; ++v) run.set(v, address[v * stride]);
    return run;
}

// Element v where 0 <= first + v < size, elsewhere 0.
template <int count, typename T>
WEFT_FUNCTION Run<T, count> fetch_within(const T* address, int64_t stride, int64_t first, int64_t size) {
    Run<T, count> run = {};
#pragma unroll
    for (int v = 0; v < count; ++v) {
        if (first + v >= 0 && first + v < size) run.set(v, address[v * stride]);
    }
    return run;
}

// Element v is row[first + v - 1], the column before those of an aligned run; before the row, 0.
template <int count, int width, typename T> WEFT_FUNCTION Run<T, count> fetch_before(const T* row, int64_t first) {
    Packet<T, count> here;
#pragma unroll
    for (int k = 0; k < count; k += width) {
        *reinterpret_cast<Packet<T, width>*>(&here.lane[k]) = *reinterpret_cast<const Packet<T, width>*>(row + first + k);
    }
    Run<T, count> run = {};
#pragma unroll
    for (int v = 1; v < count; ++v) run.set(v, here.lane[v - 1]);
    if (first > 0) run.set(0, row[first - 1]);
    return run;
}

// Element v is row[first + v + 1], the column after those of an aligned run; from the row's end at `size` on, 0.
template <int count, int width, typename T>
WEFT_FUNCTION Run<T, count> fetch_after(const T* row, int64_t first, int64_t size) {
    Packet<T, count> here;
#pragma unroll
    for (int k = 0; k < count; k += width) {
        *reinterpret_cast<Packet<T, width>*>(&here.lane[k]) = *reinterpret_cast<const Packet<T, width>*>(row + first + k);
    }
    Run<T, count> run = {};
#pragma unroll
    for (int v = 0; v < count - 1; ++v) run.set(v, here.lane[v + 1]);
    if (first + count < size) run.set(count - 1, row[first + count]);
    return run;
}

// One instruction for the whole packet: left to itself the compiler stores values that were computed one by one so.
template <typename T, int width> WEFT_FUNCTION void put(T* address, const Packet<T, width>& packet) {
    [[maybe_unused]] const uint64_t place = detail::global_address(address);
#if WEFT_ON_DEVICE
    const auto* const words = reinterpret_cast<const uint32_t*>(&packet);
    if constexpr (sizeof packet == 16) {
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                     : : "l"(place), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]) : "memory");
        return;
    } else if constexpr (sizeof packet == 8) {
        asm volatile("st.global.v2.b32 [%0], {%1, %2};" : : "l"(place), "r"(words[0]), "r"(words[1]) : "memory");
        return;
    }
#endif
    *reinterpret_cast<Packet<T, width>*>(address) = packet;
}

// The same for 16 bytes that no thread reads soon: the L2 cache gives them up first.
template <typename T, int width> WEFT_FUNCTION void put_streaming(T* address, const Packet<T, width>& packet) {
    static_assert(sizeof packet == 16, "one instruction a packet");
#if WEFT_ON_DEVICE
    const uint64_t place = detail::global_address(address);
    const auto* const words = reinterpret_cast<const uint32_t*>(&packet);
    asm volatile("st.global.cs.v4.b32 [%0], {%1, %2, %3, %4};"
                 : : "l"(place), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]) : "memory");
#else
    put(address, packet);
#endif
}

// The consecutive elements from `address` on = tile, rounded to the type in memory.
template <int width, typename T, typename Value, int count>
WEFT_FUNCTION void store(T* address, const Value (&tile)[count]) {
#pragma unroll
    for (int k = 0; k < count; k += width) {
        if constexpr (is_half<T> && width % 2 == 0) {
            Packet<uint32_t, width / 2> packet;
#pragma unroll
            for (int v = 0; v < width; v += 2) packet.lane[v / 2] = pack<T>(tile[k + v], tile[k + v + 1]);
            put(reinterpret_cast<uint32_t*>(address + k), packet);
        } else {
            Packet<T, width> packet;
#pragma unroll
            for (int v = 0; v < width; ++v) packet.lane[v] = T(tile[k + v]);
            put(address + k, packet);
        }
    }
}

// The same of two, by one instruction.
template <typename T> WEFT_FUNCTION void store_pair(T* address, float first, float second) {
    if constexpr (is_half<T>) put(reinterpret_cast<uint32_t*>(address), Packet<uint32_t, 1>{pack<T>(first, second)});
    else put(address, Packet<T, 2>{T(first), T(second)});
}

// The elements from `shared` on = the values of a tile, in shared memory.
template <int width, typename T, typename Value, int count>
WEFT_FUNCTION void keep(T* shared, const Value (&tile)[count]) {
#pragma unroll
    for (int k = 0; k < count; k += width) {
        if constexpr (is_half<T> && width % 2 == 0) {
            Packet<uint32_t, width / 2> packet;
#pragma unroll
            for (int v = 0; v < width; v += 2) packet.lane[v / 2] = pack<T>(tile[k + v], tile[k + v + 1]);
            *reinterpret_cast<Packet<uint32_t, width / 2>*>(shared + k) = packet;
        } else {
            Packet<T, width> packet;
#pragma unroll
            for (int v = 0; v < width; ++v) packet.lane[v] = T(tile[k + v]);
            *reinterpret_cast<Packet<T, width>*>(shared + k) = packet;
        }
    }
}

// The same of elements that are moved as they are.
template <int width, typename T, int count> WEFT_FUNCTION void store(T* address, const Run<T, count>& run) {
    static_assert(is_half<T> && count % 2 == 0, "two of a half type share a register");
    if constexpr (width == 1) {
#pragma unroll
        for (int v = 0; v < count; ++v) address[v].bits = uint16_t(run.pair[v / 2] >> 16 * (v % 2));
    } else {
#pragma unroll
        for (int k = 0; k < count; k += width) {
            Packet<uint32_t, width / 2> packet;
#pragma unroll
            for (int v = 0; v < width; v += 2) packet.lane[v / 2] = run.pair[(k + v) / 2];
            put(reinterpret_cast<uint32_t*>(address + k), packet);
        }
    }
}

// The neighbours from `address` on = tile, those that are points of a row from low to high. width: as of fetch_run.
template <int width, typename T, typename Value, int count>
WEFT_FUNCTION void store_run(T* address, int64_t first, int64_t low, int64_t high, const Value (&tile)[count]) {
    if (first >= low && first + count <= high) {
        constexpr int widest = width > 0 ? width : in_packet<T, count>;
        if (width > 0 || aligned<widest>(address)) store<widest>(address, tile);
        else store<1>(address, tile);
        return;
    }
#pragma unroll
    for (int v = 0; v < count; ++v) {
        if (first + v >= low && first + v < high) address[v] = T(tile[v]);
    }
}
template <int width, typename T, int count>
WEFT_FUNCTION void store_run(T* address, int64_t first, int64_t low, int64_t high, const Run<T, count>& run) {
    if (first >= low && first + count <= high) {
        constexpr int widest = width > 0 ? width : in_packet<T, count>;
        if (width > 0 || aligned<widest>(address)) store<widest>(address, run);
        else store<1>(address, run);
        return;
    }
#pragma unroll
    for (int v = 0; v < count; ++v) {
        if (first + v >= low && first + v < high) address[v].bits = uint16_t(run.pair[v / 2] >> 16 * (v % 2));
    }
}

}  // namespace weft
