// What stands before the text of a kernel: CUDA's own words, and the headers that most kernels include, read once for all.
#pragma once
#include "weft/cuda.hpp"
#include "weft/memory.cuh"
#include "weft/team.cuh"
