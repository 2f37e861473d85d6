// Blocks that go through the tiles of a row side by side: each tells the others what its tile does to a state. All of them run
// at once (a cooperative launch), and each reads what all of them have told, so no word goes from block to block to block.
#pragma once
#include "weft/atomic.cuh"
#include "weft/team.cuh"

namespace weft {

// Memory that blocks tell each other values through: 8 bytes for each 4 of a value, which the turn goes with. So a word says
// itself whether it has come, and nothing orders it. It is 0 at first; turns count from 1, and use two places by turns.
template <class Value> inline constexpr int told_words = (sizeof(Value) + 3) / 4;

template <class Value> WEFT_FUNCTION void tell(uint64_t* place, const Value& value, uint32_t turn) {
    uint32_t words[told_words<Value>] = {};
    memcpy(words, &value, sizeof value);
#pragma unroll
    for (int k = 0; k < told_words<Value>; ++k) store_relaxed<Scope::gpu>(place + k, uint64_t(turn) << 32 | words[k]);
}

// Waits until it is told.
template <class Value> WEFT_FUNCTION Value told(const uint64_t* place, uint32_t turn) {
    uint32_t words[told_words<Value>];
#pragma unroll
    for (int k = 0; k < told_words<Value>; ++k) {
        uint64_t word;
        do word = load_relaxed<Scope::gpu>(place + k);
        while (uint32_t(word >> 32) != turn);
        words[k] = uint32_t(word);
    }
    Value value;
    memcpy(&value, words, sizeof value);
    return value;
}

namespace detail {
// Two values that are combined side by side.
template <class Algebra> struct Both {
    struct Value {
        static constexpr bool compound = true;
        typename Algebra::Value first, second;
        template <class F> WEFT_FUNCTION Value each(F f) const { return {f(first), f(second)}; }
    };
    static WEFT_FUNCTION Value identity() { return {Algebra::identity(), Algebra::identity()}; }
    static WEFT_FUNCTION Value combine(const Value& a, const Value& b) {
        return {Algebra::combine(a.first, b.first), Algebra::combine(a.second, b.second)};
    }
};
struct Finite {
    bool& all;
    template <class T> WEFT_FUNCTION T operator()(const T& value) const {
        if constexpr (Compound<T>::value) return value.each(*this);
        else all = all && is_finite(value);
        return value;
    }
};
}  // namespace detail

template <class Value> WEFT_FUNCTION bool finite_parts(const Value& value) {
    bool all = true;
    detail::Finite{all}(value);
    return all;
}

// How the blocks of a row tell each other what their tiles do to its state: of threads that lie one below the other, the first
// ones (threadIdx.x < across) tell it, if they have rows, and all of them listen. The memory has room for 2 * rows * parts *
// Chain::words.
template <class Algebra, class State, int across, int threads> struct Chain {
    using Value = typename Algebra::Value;
    using Both = detail::Both<Algebra>;
    static constexpr int words = told_words<Value> + told_words<State>;
    static constexpr int down = threads / across, places = across * (threads / (across > 32 ? across : 32));

    uint64_t* memory;  // of part 0, in even turns
    int64_t stride;    // from part to part
    int64_t turns;     // from even turns to odd ones
    int64_t row;       // from row to row
    int64_t part, parts;
    bool tells;

    WEFT_FUNCTION Chain(uint64_t* all, int64_t row, int64_t rows, int64_t part, int64_t parts, bool has_rows = true)
        : memory(all + row * (across == 1 ? parts : 1) * words), stride((across == 1 ? 1 : rows) * words),
          turns(rows * parts * words), row((across == 1 ? parts : 1) * words), part(part), parts(parts),
          tells(has_rows && threadIdx.x < across) {}

    WEFT_FUNCTION uint64_t* place(int64_t of_part, uint32_t turn, int value = 0) const {
        return memory + (turn & 1) * turns + of_part * stride + value * row;
    }

    // For each of a thread's rows, what the parts before this one do in this turn, and what all parts do, always combined in
    // the same way. whole: whether all of that is finite, as far as this thread has heard it. `scratch` has room for `places`
    // values of each row.
    template <int rows>
    WEFT_FUNCTION void exchange(
        const Value (&own)[rows], Prefix<Algebra> (&others)[rows], uint32_t turn, typename Both::Value* scratch,
        bool& whole) const {
        const int y = threadIdx.x / across;
        if (tells) {
#pragma unroll
            for (int v = 0; v < rows; ++v) tell(place(part, turn, v), own[v], turn);
        }
        const int64_t each = (parts + down - 1) / down;
#pragma unroll
        for (int v = 0; v < rows; ++v) {
            auto both = Both::identity();
            for (int64_t k = y * each; k < (y + 1) * each && k < parts; ++k) {
                const auto other = told<Value>(place(k, turn, v), turn);
                whole = whole && finite_parts(other);
                if (k < part) both.first = Algebra::combine(both.first, other);
                both.second = Algebra::combine(both.second, other);
            }
            const auto all = reduce_down<Both, across, threads>(both, scratch + v * places);
            others[v] = {all.first, all.second};
        }
    }
    WEFT_FUNCTION Prefix<Algebra> exchange(
        const Value& own, uint32_t turn, typename Both::Value* scratch, bool& whole) const {
        const Value owns[1] = {own};
        Prefix<Algebra> others[1];
        exchange(owns, others, turn, scratch, whole);
        return others[0];
    }

    // The same where composing them overflows: the state that is before this part, and the one after all.
    WEFT_FUNCTION void replay(uint32_t turn, State& before, State& last, int value = 0) const {
        for (int64_t k = 0; k < parts; ++k) {
            if (k == part) before = last;
            Algebra::apply(told<Value>(place(k, turn, value), turn), last);
        }
    }

    // Where a tile itself cannot be composed, blocks change the state one after another: from the one before,
    WEFT_FUNCTION State received(uint32_t turn, State before, int value = 0) const {
        return part == 0 ? before : told<State>(place(part - 1, turn, value) + told_words<Value>, turn);
    }
    // and on to the next; the state after all of them.
    WEFT_FUNCTION State handed_on(uint32_t turn, State after, int value = 0) const {
        if (tells) tell(place(part, turn, value) + told_words<Value>, after, turn);
        return told<State>(place(parts - 1, turn, value) + told_words<Value>, turn);
    }
};

}  // namespace weft
