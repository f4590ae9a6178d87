// The states of a sweep's runs as text.
#pragma once

#include <string>

namespace anabranch {

class SweepBoard;

// A line a run: state, step, losses, speed, time left, attempts; then how many are in which state,
// and the failed ones with exit code and last line.
//
//   rows  at most so many lines, those of runs that something happens to first; 0: all, in order
std::string sweep_table(const SweepBoard& board, size_t rows = 0);

// The same as JSON.
std::string sweep_json(const SweepBoard& board);

// "3 done, 1 running, 2 waiting".
std::string sweep_totals(const SweepBoard& board);

// The failed runs, a line each: exit code, why, last line of the log; then those whose directory
// has damage. Empty: there are none.
std::string sweep_failures(const SweepBoard& board);

// "c-n2-s1: done, step 2/2, loss 5.5, validation loss 5.4": one run's state as a line.
std::string run_line(const SweepBoard& board, size_t run);

}  // namespace anabranch
