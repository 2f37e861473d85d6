// Blocks that go through the tiles of a row side by side: each tells the others what its tile does to a state. All of them run
// at once (a cooperative launch), and each reads what all of them have told, so no word goes from block to block to block.
#pragma once
#include "weft/atomic.cuh"
#include "weft/team.cuh"

namespace weft {

// Memory that blocks tell each other values through: 8 bytes for each 4 of a value, which the turn goes with. So a word says
// itself whether it has come, and nothing orders it. It is 0 at first; turns count from 1, and use four places by turns: who
// tells of one has heard of the one two turns before, so all have heard of the one four turns before.
template <class Value> inline constexpr int told_words = (sizeof(Value) + 3) / 4;

template <class Value> WEFT_FUNCTION void tell(uint64_t* place, const Value& value, uint32_t turn) {
    constexpr int count = told_words<Value>;
    uint32_t words[count] = {};
    memcpy(words, &value, sizeof value);
    const auto word = [&](int k) { return uint64_t(turn) << 32 | words[k]; };
    if constexpr (count % 2 == 0) {
#pragma unroll
        for (int k = 0; k < count; k += 2) store_two_relaxed<Scope::gpu>(place + k, word(k), word(k + 1));
    } else {
#pragma unroll
        for (int k = 0; k < count; ++k) store_relaxed<Scope::gpu>(place + k, word(k));
    }
}

namespace detail {
// The words of a value, two an instruction where these lie at multiples of 16 bytes: an instruction asks for each sector anew.
template <int count> WEFT_FUNCTION void load_words(const uint64_t* place, uint64_t (&word)[count]) {
    if constexpr (count % 2 == 0) {
#pragma unroll
        for (int k = 0; k < count; k += 2) load_two_relaxed<Scope::gpu>(place + k, word[k], word[k + 1]);
    } else {
#pragma unroll
        for (int k = 0; k < count; ++k) word[k] = load_relaxed<Scope::gpu>(place + k);
    }
}
}  // namespace detail

// Waits until it is told.
template <class Value> WEFT_FUNCTION Value told(const uint64_t* place, uint32_t turn) {
    constexpr int count = told_words<Value>;
    uint32_t words[count];
    bool all;
    do {
        uint64_t word[count];
        detail::load_words(place, word);
        all = true;
#pragma unroll
        for (int k = 0; k < count; ++k) {
            words[k] = uint32_t(word[k]);
            all = all && uint32_t(word[k] >> 32) == turn;
        }
    } while (!all);
    Value value;
    memcpy(&value, words, sizeof value);
    return value;
}

// Words of several values: of `rows` rows, `next` places apart, from as many parts as `count` says, `stride` places apart.
template <class Value, int rows, int most> struct Told {
    static constexpr int size = told_words<Value>;
    uint64_t word[rows][most][size];

    // Loads that are on their way; what nobody was asked for is there.
    WEFT_FUNCTION void ask(const uint64_t* first, uint32_t stride, uint32_t next, int count, uint32_t turn) {
#pragma unroll
        for (int j = 0; j < most; ++j) {
#pragma unroll
            for (int v = 0; v < rows; ++v) {
                if (j < count) {
                    detail::load_words(first + (j * stride + v * next) * size, word[v][j]);
                } else {
#pragma unroll
                    for (int k = 0; k < size; ++k) word[v][j][k] = uint64_t(turn) << 32;
                }
            }
        }
    }
    // Those again that have not come.
    WEFT_FUNCTION void ask_again(const uint64_t* first, uint32_t stride, uint32_t next, uint32_t turn) {
#pragma unroll
        for (int j = 0; j < most; ++j) {
#pragma unroll
            for (int v = 0; v < rows; ++v) {
                if (!there(v, j, turn)) detail::load_words(first + (j * stride + v * next) * size, word[v][j]);
            }
        }
    }
    // Whether one of them has come, and whether all have.
    WEFT_FUNCTION bool there(int row, int part, uint32_t turn) const {
        bool all = true;
#pragma unroll
        for (int k = 0; k < size; ++k) all = all && uint32_t(word[row][part][k] >> 32) == turn;
        return all;
    }
    WEFT_FUNCTION bool there(uint32_t turn) const {
        bool all = true;
#pragma unroll
        for (int j = 0; j < most; ++j) {
#pragma unroll
            for (int v = 0; v < rows; ++v) all = all && there(v, j, turn);
        }
        return all;
    }
    WEFT_FUNCTION Value value(int row, int part) const {
        uint32_t words[size];
#pragma unroll
        for (int k = 0; k < size; ++k) words[k] = uint32_t(word[row][part][k]);
        Value value;
        memcpy(&value, words, sizeof value);
        return value;
    }
};

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

// Parts that a thread asks at a time, so that the words of all are on their way.
template <class Value, int across, int rows>
inline constexpr int parts_at_a_time = across == 1 || rows * told_words<Value> > 4 ? 1 : 2;

// How the blocks of a row tell each other what their tiles do to its state: of threads that lie one below the other, the first
// ones (threadIdx.x < across) tell it, if they have rows, and all of them listen. The memory has room for 4 * rows * parts *
// Chain::words.
template <class Algebra, class State, int across, int threads> struct Chain {
    using Value = typename Algebra::Value;
    using Both = detail::Both<Algebra>;
    static constexpr int words = told_words<Value> + told_words<State>;
    static constexpr int down = threads / across, places = across * (threads / (across > 32 ? across : 32));

    // Blocks that run at once are few: places are counted in 32 bits.
    uint64_t* memory;
    uint32_t first, stride, next;  // place of part 0, from part to part, from row to row
    uint32_t turns;                // places of one turn
    int part, parts;
    bool tells;

    WEFT_FUNCTION Chain(uint64_t* memory, int64_t row, int64_t rows, int64_t part, int64_t parts, bool has_rows = true)
        : memory(memory), first(uint32_t(across == 1 ? row * parts : row)), stride(uint32_t(across == 1 ? 1 : rows)),
          next(uint32_t(across == 1 ? parts : 1)), turns(uint32_t(rows * parts)), part(int(part)), parts(int(parts)),
          tells(has_rows && threadIdx.x < across) {}

    // Of what tiles do, and after these, of states.
    WEFT_FUNCTION uint64_t* place(uint32_t of_part, uint32_t turn, uint32_t row = 0) const {
        return memory + ((turn & 3) * turns + first + of_part * stride + row * next) * told_words<Value>;
    }
    WEFT_FUNCTION uint64_t* place_of_state(uint32_t of_part, uint32_t turn, uint32_t row = 0) const {
        return memory + 4 * turns * told_words<Value>
             + ((turn & 3) * turns + first + of_part * stride + row * next) * told_words<State>;
    }

    // Tell the others what this block's tile of a turn does to each of a thread's rows.
    template <int rows> WEFT_FUNCTION void tells_of(const Value (&own)[rows], uint32_t turn) const {
        if (tells) {
#pragma unroll
            for (int v = 0; v < rows; ++v) tell(place(part, turn, v), own[v], turn);
        }
    }
    WEFT_FUNCTION void tells_of(const Value& own, uint32_t turn) const {
        if (tells) tell(place(part, turn), own, turn);
    }

    // The words that a thread hears of a turn first: it can ask for them before it needs them.
    template <int rows> using Asked = Told<Value, rows, parts_at_a_time<Value, across, rows>>;
    template <int rows> WEFT_FUNCTION void ask(Asked<rows>& asked, uint32_t turn, int some = 0) const {
        const int each = (parts + down - 1) / down, begin = int(threadIdx.x) / across * each + some;
        asked.ask(place(begin, turn), stride, next, minimum(each - some, parts - begin), turn);
    }

    // For each of a thread's rows, what the parts before this one do in this turn, and what all parts do, always combined in
    // the same way. whole: whether all of that is finite, as far as this thread has heard it. `scratch` has room for `places`
    // values of each row. All lanes of a warp leave a loop together, since shuffles follow.
    template <int rows>
    WEFT_FUNCTION void hear(
        Asked<rows>& asked, Prefix<Algebra> (&others)[rows], uint32_t turn, typename Both::Value* scratch, bool& whole) const {
        const int y = threadIdx.x / across, each = (parts + down - 1) / down;
        typename Both::Value both[rows];
#pragma unroll
        for (int v = 0; v < rows; ++v) both[v] = Both::identity();
        constexpr int most = parts_at_a_time<Value, across, rows>;
        for (int some = 0; some < each; some += most) {
            const int begin = y * each + some, count = minimum(each - some, parts - begin);
            if (some > 0) ask<rows>(asked, turn, some);
            while (!__all_sync(0xffffffffu, asked.there(turn))) asked.ask_again(place(begin, turn), stride, next, turn);
#pragma unroll
            for (int j = 0; j < most; ++j) {
#pragma unroll
                for (int v = 0; v < rows; ++v) {
                    if (j >= count) continue;
                    const Value other = asked.value(v, j);
                    whole = whole && finite_parts(other);
                    const auto combined = Algebra::combine(both[v].first, other);
                    both[v].first = begin + j < part ? combined : both[v].first;
                    both[v].second = Algebra::combine(both[v].second, other);
                }
            }
        }
#pragma unroll
        for (int v = 0; v < rows; ++v) {
            const auto all = across == 1 ? reduce<Both, threads>(both[v], scratch + v * places)
                                         : reduce_down<Both, across, threads>(both[v], scratch + v * places);
            others[v] = {all.first, all.second};
        }
    }
    WEFT_FUNCTION Prefix<Algebra> hear(Asked<1>& asked, uint32_t turn, typename Both::Value* scratch, bool& whole) const {
        Prefix<Algebra> others[1];
        hear(asked, others, turn, scratch, whole);
        return others[0];
    }

    // The same where composing them overflows: the state that is before this part, and the one after all.
    WEFT_FUNCTION void replay(uint32_t turn, State& before, State& last, int value = 0) const {
        for (int k = 0; k < parts; ++k) {
            if (k == part) before = last;
            Algebra::apply(told<Value>(place(k, turn, value), turn), last);
        }
    }

    // Where a tile itself cannot be composed, blocks change the state one after another: from the one before,
    WEFT_FUNCTION State received(uint32_t turn, State before, int value = 0) const {
        return part == 0 ? before : told<State>(place_of_state(part - 1, turn, value), turn);
    }
    // and on to the next; the state after all of them.
    WEFT_FUNCTION State handed_on(uint32_t turn, State after, int value = 0) const {
        if (tells) tell(place_of_state(part, turn, value), after, turn);
        return told<State>(place_of_state(parts - 1, turn, value), turn);
    }
};

}  // namespace weft
