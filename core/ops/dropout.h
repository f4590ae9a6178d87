// Dropout whose mask is a function of a key and of the element's place in the global batch.
//
//   e = (first_row + row) C + column
//   y = x / (1 - rate) if word e of the key's random sequence >= rate 2^32, else 0
//
// The word is number e % 4 of Philox block e / 4. The mask is the same on any number of ranks, in
// any split of rows over calls, and when computed again, so nothing is kept of it.
//
// Source: Srivastava et al., "Dropout", 2014.
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// key        mixed by the caller from seed, step, layer and site
// first_row  index of the first row of x among the rows of the whole batch
struct DropoutKey {
  uint64_t key;
  int64_t first_row;
};

// Drops elements of `x` [..., C] with probability `rate` and scales the others by 1 / (1 - rate).
// Without a tape, or with rate 0, gives x itself. Keeps nothing; its gradient is written over that
// of y if no one else holds it. Throws Error if rate is not in [0, 1).
Var dropout(const Var& x, double rate, DropoutKey key);

namespace cpu {

// y = mask * x; y may be x.
void dropout(Tensor& y, const Tensor& x, double rate, DropoutKey key);

}  // namespace cpu

namespace cuda {

void dropout(Tensor& y, const Tensor& x, double rate, DropoutKey key);

}  // namespace cuda
}  // namespace anabranch
