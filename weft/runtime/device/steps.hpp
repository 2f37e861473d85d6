// Launches in loops, without Python between them.
#pragma once
#include <cstdint>

namespace weft {

constexpr int most_steps = 8;  // loops around a launch

// Whether there is a launch: `taken` for the values of the variables of `count` loops, the last one's the fastest, each of which
// counts from `first` on and is the same again after `period` of them.
struct StepGuard {
    int64_t count, depth[most_steps], first[most_steps], period[most_steps];
    const char* taken;
    bool holds(const int64_t* variables) const {
        int64_t place = 0;
        for (int64_t k = 0; k < count; ++k) place = place * period[k] + (variables[depth[k]] - first[k]) % period[k];
        return taken[place] != 0;
    }
};

// A launch of the GPU's driver, where all guards hold. The variable of loop `depth[k]` goes into the word at `word[k]`, for each of the `count`.
struct StepLaunch {
    int (*launch)(const void* config, void* function, void** parameters, void** extra);
    const void* config;
    void* function;
    void** parameters;
    int64_t count;
    int64_t* word[most_steps];
    int64_t depth[most_steps];
    int64_t guards;
    StepGuard guard[most_steps];
    bool taken(const int64_t* variables) const {
        for (int64_t k = 0; k < guards; ++k) {
            if (!guard[k].holds(variables)) return false;
        }
        return true;
    }
};

// A loop's end: a sum of multiples of the variables of the loops around it.
struct StepBound {
    int64_t constant, factor[most_steps];
    int64_t value(const int64_t* variables, int64_t depth) const {
        int64_t sum = constant;
        for (int64_t k = 0; k < depth; ++k) sum += factor[k] * variables[k];
        return sum;
    }
};

// One of a list: launch number `launch`; or, where that is below 0, a loop whose body are the `length` items that follow.
struct StepItem {
    int64_t launch, length, step;
    StepBound start, stop;
};

inline int run_steps(const StepLaunch* launches, const StepItem* item, const StepItem* end, int64_t* variables, int64_t depth) {
    while (item != end) {
        if (item->launch >= 0) {
            const StepLaunch& own = launches[item->launch];
            ++item;
            if (!own.taken(variables)) continue;
            for (int64_t k = 0; k < own.count; ++k) *own.word[k] = variables[own.depth[k]];
            if (const int status = own.launch(own.config, own.function, own.parameters, nullptr)) return status;
            continue;
        }
        const StepItem* const body = item + 1;
        const int64_t stop = item->stop.value(variables, depth);
        int64_t& variable = variables[depth];
        for (variable = item->start.value(variables, depth); item->step > 0 ? variable < stop : variable > stop; variable += item->step) {
            if (const int status = run_steps(launches, body, body + item->length, variables, depth + 1)) return status;
        }
        item = body + item->length;
    }
    return 0;
}

}  // namespace weft

// The driver's status: of the first launch that fails, else 0.
extern "C" int run_steps(const weft::StepLaunch* launches, const weft::StepItem* items, int64_t count) {
    int64_t variables[weft::most_steps];
    return weft::run_steps(launches, items, items + count, variables, 0);
}
