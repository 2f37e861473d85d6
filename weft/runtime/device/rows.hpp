// Products of rows that lie side by side in lanes, for generated C++: squares of results stay in registers.
#pragma once

#include <cstdlib>

#include "weft/host.hpp"

namespace weft {

template <class T> constexpr int rows_of_tile = 128 / int(sizeof(T));  // two lines of memory of each

#if defined(__AVX512F__)
constexpr int results_of_row = 8;  // in registers, of each row
#else
constexpr int results_of_row = 3;
#endif

// Memory of a thread, that begins a line.
template <class T> class Scratch {
    T* const first;

public:
    explicit Scratch(int64_t count) : first(static_cast<T*>(std::aligned_alloc(64, (count * sizeof(T) + 64) / 64 * 64))) {
        if (!first) std::abort();
    }
    Scratch(const Scratch&) = delete;
    ~Scratch() { std::free(first); }
    operator T*() const { return first; }
};

namespace detail {
template <class T> constexpr int vectors_of_tile = rows_of_tile<T> / scan_lanes<T>;

// sums[k][w] += the sum over points of left[point][w] * right[k * step + point * stride], for `count` places k
template <int count, class T>
inline void multiply_few(T* sums, const T* left, const T* right, int64_t points, int64_t step, int64_t stride) {
    constexpr int vectors = vectors_of_tile<T>, rows = rows_of_tile<T>, lanes = scan_lanes<T>;
    vector<T> sum[count][vectors] = {};
    for (int64_t p = 0; p < points; ++p) {
        vector<T> own[vectors];
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) own[v] = load_vector<vector<T>>(left + p * rows + v * lanes);
#pragma GCC unroll 8
        for (int k = 0; k < count; ++k) {
            const T other = right[k * step + p * stride];
#pragma GCC unroll 8
            for (int v = 0; v < vectors; ++v) sum[k][v] += own[v] * other;
        }
    }
#pragma GCC unroll 8
    for (int k = 0; k < count; ++k)
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) {
            T* to = sums + k * rows + v * lanes;
            const vector<T> both = load_vector<vector<T>>(to) + sum[k][v];
            __builtin_memcpy(to, &both, sizeof both);
        }
}
}  // namespace detail

// sums[k][w] += the sum over points of left[point][w] * right[k * step + point * stride], for `count` places k.
template <class T>
inline void multiply_rows(T* sums, const T* left, const T* right, int64_t count, int64_t points, int64_t step, int64_t stride) {
    constexpr int rows = rows_of_tile<T>, few = results_of_row;
    int64_t k = 0;
    for (; k + few <= count; k += few) detail::multiply_few<few>(sums + k * rows, left, right + k * step, points, step, stride);
    for (; k < count; ++k) detail::multiply_few<1>(sums + k * rows, left, right + k * step, points, step, stride);
}

// The same, where each row has but some points, as has(point, row) tells: 0 times an infinity that it does not have is none of
// its.
template <class T, class Has>
inline void multiply_rows_within(
    T* sums, const T* left, const T* right, int64_t count, int64_t points, int64_t step, int64_t stride, const Has& has
) {
    constexpr int rows = rows_of_tile<T>;
    for (int64_t p = 0; p < points; ++p)
        for (int64_t k = 0; k < count; ++k) {
            const T other = right[k * step + p * stride];
#pragma omp simd
            for (int w = 0; w < rows; ++w)
                sums[k * rows + w] += has(p, w) ? left[p * rows + w] * other : T(0);
        }
}

}  // namespace weft
