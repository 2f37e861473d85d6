// What generated C++ needs besides the scalar functions: its arguments, checked subscripts, and tiles of several rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "weft/algebra_of_one.cuh"
#include "weft/rare.hpp"
#include "weft/scalar.cuh"

// Of a function whose loops have independent iterations: in the widest vectors there are. GCC takes half of 512 bits otherwise.
#if defined(__AVX512F__) && defined(__GNUC__) && !defined(__clang__)
#define WEFT_WIDEST __attribute__((target("prefer-vector-width=512")))
#else
#define WEFT_WIDEST
#endif

// One argument of a kernel.
union weft_slot {
    void* pointer;
    int64_t integer;
    double number;
};

namespace weft {

// Whether a subscript lies in [0, size); if not, `outside` takes `code`, which names the array. It has no sign: 0, that nothing
// has failed, is what OpenMP's maximum of no values is then too.
inline bool inside(int64_t index, int64_t size, uint64_t code, uint64_t& outside) {
    const bool valid = uint64_t(index) < uint64_t(size);
    outside = valid ? outside : code;
    return valid;
}

// Whether a condition holds; if not, `outside` takes `code`, which names the fault, unless there was one before.
inline bool holds(bool valid, uint64_t code, uint64_t& outside) {
    outside = valid || outside > 0 ? outside : code;
    return valid;
}

constexpr int most_parts = 256;  // threads that share out the iterations of one reduction

// ---------------------------------------------------------------- lanes consecutive in memory

// How many consecutive lanes a thread takes at a time, of `lanes` in each of `outer` groups: as many as leave work to
// every thread (longer stretches of memory are read faster), but no more than `most`.
inline int64_t lane_block(int64_t lanes, int64_t outer, int most, int threads) {
    const int64_t share = (lanes * outer + threads - 1) / std::max(threads, 1);
    return std::clamp<int64_t>((share + 63) / 64 * 64, 64, most);
}

// Bring `count` elements near before they are used, into a level of the caches: the hardware foresees no jump from one stretch of
// memory to another. Always inlined: GCC leaves out a call of what it takes to do nothing.
template <int level = 2, class T> __attribute__((always_inline)) inline void prefetch(const T* first, int count) {
    for (int i = 0; i < count; i += 64 / int(sizeof(T))) __builtin_prefetch(first + i, 0, 4 - level);
}

// ---------------------------------------------------------------- tiles
//
// A tile holds `steps` consecutive elements of each of `lanes` rows, transposed to [step][lane], in the register type:
// a loop over the steps then runs its lanes as one vector. Rows are read and written in whole cache lines.

constexpr int tile_steps = 16;
template <class T, int lanes> using tile = T[tile_steps][lanes];

namespace detail {

// An 8 x 8 block of 4-byte elements, transposed in registers: halves, then pairs, then neighbours change places.
typedef float quarter_line __attribute__((vector_size(16), aligned(4), may_alias));
typedef float half_line __attribute__((vector_size(32), aligned(4), may_alias));

inline void transpose_8x8(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
    half_line row[8], pair[8];
    for (int i = 0; i < 4; ++i) {
        const float* low = from + i * from_stride;
        const float* high = low + 4 * from_stride;
        for (int half = 0; half < 2; ++half)
            row[i + 4 * half] = __builtin_shufflevector(*reinterpret_cast<const quarter_line*>(low + 4 * half),
                                                        *reinterpret_cast<const quarter_line*>(high + 4 * half),
                                                        0, 1, 2, 3, 4, 5, 6, 7);
    }
    for (int i = 0; i < 8; i += 2) {
        pair[i] = __builtin_shufflevector(row[i], row[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        pair[i + 1] = __builtin_shufflevector(row[i], row[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; ++j) {
            float* column = to + (i + 2 * j) * to_stride;
            *reinterpret_cast<half_line*>(column) =
                __builtin_shufflevector(pair[i + j], pair[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            *reinterpret_cast<half_line*>(column + to_stride) =
                __builtin_shufflevector(pair[i + j], pair[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
}

// A 4 x 4 block of 8-byte elements.
typedef double double_words __attribute__((vector_size(32), aligned(8), may_alias));

inline void transpose_4x4(const double* from, int64_t from_stride, double* to, int64_t to_stride) {
    double_words row[4], pair[4];
    for (int i = 0; i < 4; ++i) row[i] = *reinterpret_cast<const double_words*>(from + i * from_stride);
    for (int i = 0; i < 4; i += 2) {
        pair[i] = __builtin_shufflevector(row[i], row[i + 1], 0, 4, 2, 6);
        pair[i + 1] = __builtin_shufflevector(row[i], row[i + 1], 1, 5, 3, 7);
    }
    for (int i = 0; i < 2; ++i) {
        *reinterpret_cast<double_words*>(to + i * to_stride) =
            __builtin_shufflevector(pair[i], pair[i + 2], 0, 1, 4, 5);
        *reinterpret_cast<double_words*>(to + (i + 2) * to_stride) =
            __builtin_shufflevector(pair[i], pair[i + 2], 2, 3, 6, 7);
    }
}

// to[j][i] = from[i][j] for a whole tile.
template <int rows, int columns, class T>
inline void transpose(const T* from, int64_t from_stride, T* to, int64_t to_stride) {
    if constexpr (sizeof(T) == 4 && rows % 8 == 0 && columns % 8 == 0) {
        for (int i = 0; i < rows; i += 8)
            for (int j = 0; j < columns; j += 8)
                transpose_8x8(reinterpret_cast<const float*>(from) + i * from_stride + j, from_stride,
                              reinterpret_cast<float*>(to) + j * to_stride + i, to_stride);
    } else if constexpr (sizeof(T) == 8 && rows % 4 == 0 && columns % 4 == 0) {
        for (int i = 0; i < rows; i += 4)
            for (int j = 0; j < columns; j += 4)
                transpose_4x4(reinterpret_cast<const double*>(from) + i * from_stride + j, from_stride,
                              reinterpret_cast<double*>(to) + j * to_stride + i, to_stride);
    } else {
        for (int i = 0; i < rows; ++i)
            for (int j = 0; j < columns; ++j) to[j * to_stride + i] = from[i * from_stride + j];
    }
}

template <class A, class B> inline constexpr bool same = false;
template <class A> inline constexpr bool same<A, A> = true;

// Of several rows, once for all the places of a kernel that do so: what transposes a tile is long when it is unrolled.
template <int lanes, class T, class M>
[[gnu::noinline]] void load_rows(tile<T, lanes>& to, const M* first, int64_t row_stride, int steps) {
    if (steps == tile_steps) {
        if constexpr (same<T, M>) {
            transpose<lanes, tile_steps>(first, row_stride, &to[0][0], lanes);
        } else {
            T converted[lanes][tile_steps];
            for (int w = 0; w < lanes; ++w)
                for (int s = 0; s < tile_steps; ++s) converted[w][s] = T(first[w * row_stride + s]);
            transpose<lanes, tile_steps>(&converted[0][0], tile_steps, &to[0][0], lanes);
        }
    } else {
        for (int w = 0; w < lanes; ++w)
            for (int s = 0; s < steps; ++s) to[s][w] = T(first[w * row_stride + s]);
    }
}

template <int lanes, class T, class M>
[[gnu::noinline]] void store_rows(const tile<T, lanes>& from, M* first, int64_t row_stride, int steps) {
    if (steps == tile_steps) {
        if constexpr (same<T, M>) {
            transpose<tile_steps, lanes>(&from[0][0], lanes, first, row_stride);
        } else {
            T rows[lanes][tile_steps];
            transpose<tile_steps, lanes>(&from[0][0], lanes, &rows[0][0], tile_steps);
            for (int w = 0; w < lanes; ++w)
                for (int s = 0; s < tile_steps; ++s) first[w * row_stride + s] = rows[w][s];
        }
    } else {
        for (int w = 0; w < lanes; ++w)
            for (int s = 0; s < steps; ++s) first[w * row_stride + s] = from[s][w];
    }
}

}  // namespace detail

// tile[s][w] = first[w * row_stride + s] for s < steps.
template <int lanes, class T, class M>
inline void load_tile(tile<T, lanes>& to, const M* first, int64_t row_stride, int steps) {
    if constexpr (lanes > 1) {
        detail::load_rows(to, first, row_stride, steps);
    } else {
        for (int s = 0; s < steps; ++s) to[s][0] = T(first[s]);
    }
}

// first[w * row_stride + s] = tile[s][w] for s < steps.
template <int lanes, class T, class M>
inline void store_tile(const tile<T, lanes>& from, M* first, int64_t row_stride, int steps) {
    if constexpr (lanes > 1) {
        detail::store_rows(from, first, row_stride, steps);
    } else {
        for (int s = 0; s < steps; ++s) first[s] = from[s][0];
    }
}

// ---------------------------------------------------------------- scans
//
// One vector of iterations at a time: what each contributes is composed in log2 steps, each step combining every lane
// with the one 1, 2, 4, ... before it; `carried` then enters from the left. before[w] is the value when iteration w
// starts; `carried` becomes the value after the last. A product of factors may overflow where no value does (a value of 0
// never meets it): such scans tell whether all values are finite, and if not, the iterations must run in order.

#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
#elif defined(__AVX__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif

template <class T> constexpr int scan_lanes = vector_bytes / int(sizeof(T));

namespace detail {

template <class T> struct vector_of {
    typedef T type __attribute__((vector_size(vector_bytes)));
};
template <class T> using vector = typename vector_of<T>::type;

template <class V, class T> inline V load_vector(const T* from) {
    V value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

// The lanes moved up by `distance`, those of `fill` below.
template <int distance, class V, std::size_t... lane>
inline V shifted(V value, V fill, std::index_sequence<lane...>) {
    constexpr int lanes = int(sizeof...(lane));
    return __builtin_shufflevector(value, fill,
                                   (int(lane) < distance ? lanes + int(lane) : int(lane) - distance)...);
}
template <int distance, class T> inline vector<T> shift(vector<T> value, T fill) {
    return shifted<distance>(value, vector<T>{} + fill, std::make_index_sequence<scan_lanes<T>>());
}

// `value` in the lanes from `distance` on, `first` below.
template <int distance, class V, std::size_t... lane> inline V from_lane(V first, V value, std::index_sequence<lane...>) {
    constexpr int lanes = int(sizeof...(lane));
    return __builtin_shufflevector(first, value, (int(lane) < distance ? int(lane) : lanes + int(lane))...);
}

template <class T, int distance> inline void compose_affine(vector<T>& coefficient, vector<T>& addend) {
    if constexpr (distance < scan_lanes<T>) {
        const vector<T> sum = coefficient * shift<distance>(addend, T(0)) + addend;
        // infinity * 0 must not reach the lanes that have nothing before them
        addend = from_lane<distance>(addend, sum, std::make_index_sequence<scan_lanes<T>>());
        coefficient *= shift<distance>(coefficient, T(1));
        compose_affine<T, 2 * distance>(coefficient, addend);
    }
}

template <int distance, class T, class Combine> inline vector<T> compose(vector<T> value, T neutral, Combine combine) {
    if constexpr (distance < scan_lanes<T>) {
        return compose<2 * distance>(vector<T>(combine(shift<distance>(value, neutral), value)), neutral, combine);
    } else {
        return value;
    }
}

// The sum of all lanes, in the last one.
template <int distance, class T> inline T total(vector<T> value) {
    if constexpr (distance < scan_lanes<T>) return total<2 * distance, T>(value + shift<distance>(value, T(0)));
    else return value[scan_lanes<T> - 1];
}

template <class T> inline bool all_finite(vector<T> value) {
    if constexpr (std::numeric_limits<T>::has_infinity) return total<1, T>(value - value) == T(0);
    else return true;
}

template <class T, class Combine>
inline void scan(const T* addend, T& carried, T* before, T neutral, Combine combine) {
    vector<T> value = combine(vector<T>{} + neutral, load_vector<vector<T>>(addend));
    value = combine(vector<T>{} + carried, compose<1>(value, neutral, combine));
    const vector<T> earlier = shift<1>(value, carried);
    std::memcpy(before, &earlier, sizeof earlier);
    carried = value[scan_lanes<T> - 1];
}

template <class T> constexpr T missing(T otherwise) {
    return std::numeric_limits<T>::has_quiet_NaN ? std::numeric_limits<T>::quiet_NaN() : otherwise;
}

}  // namespace detail

// carried = coefficient[w] * carried + addend[w]
template <class T> inline bool scan_affine(const T* coefficient, const T* addend, T& carried, T* before) {
    auto product = detail::load_vector<detail::vector<T>>(coefficient);
    auto sum = detail::load_vector<detail::vector<T>>(addend);
    detail::compose_affine<T, 1>(product, sum);
    sum += product * carried;
    const auto earlier = detail::shift<1>(sum, carried);
    std::memcpy(before, &earlier, sizeof earlier);
    carried = sum[scan_lanes<T> - 1];
    return detail::all_finite<T>(sum);
}

template <class T> inline void scan_sum(const T* addend, T& carried, T* before) {
    detail::scan(addend, carried, before, T(0), [](auto a, auto b) { return a + b; });
}
template <class T> inline bool scan_product(const T* factor, T& carried, T* before) {
    detail::scan(factor, carried, before, T(1), [](auto a, auto b) { return a * b; });
    return detail::all_finite<T>(detail::load_vector<detail::vector<T>>(before)) && is_finite(carried);
}
template <class T> inline void scan_python_max(const T* value, T& carried, T* before) {
    detail::scan(value, carried, before, detail::lowest<T>(), [](auto a, auto b) { return python_max(a, b); });
}
template <class T> inline void scan_python_min(const T* value, T& carried, T* before) {
    detail::scan(value, carried, before, detail::highest<T>(), [](auto a, auto b) { return python_min(a, b); });
}
template <class T> inline void scan_maximum(const T* value, T& carried, T* before) {
    detail::scan(value, carried, before, detail::lowest<T>(), [](auto a, auto b) { return maximum(a, b); });
}
template <class T> inline void scan_minimum(const T* value, T& carried, T* before) {
    detail::scan(value, carried, before, detail::highest<T>(), [](auto a, auto b) { return minimum(a, b); });
}
template <class T> inline void scan_drop_nan_max(const T* value, T& carried, T* before) {
    const T neutral = detail::missing(detail::lowest<T>());
    detail::scan(value, carried, before, neutral, [](auto a, auto b) { return drop_nan_max(a, b); });
}
template <class T> inline void scan_drop_nan_min(const T* value, T& carried, T* before) {
    const T neutral = detail::missing(detail::highest<T>());
    detail::scan(value, carried, before, neutral, [](auto a, auto b) { return drop_nan_min(a, b); });
}

}  // namespace weft
