// Rows of a table looked up by id, optionally with rows of a second table looked up by position.
//
//   y[n] = table[ids[n]] + position_table[positions[n]]
//   dtable[v] (+)= sum over n with ids[n] = v of dy[n], in order of n
#pragma once

#include "core/autograd/tape.h"

namespace anabranch {

// Looks up every id. Ids carry no gradient, so the tape is passed; it may be null.
//
//   ids             [N]     int32
//   table           [V, C]
//   positions       [N]     int32; may be empty if there is no position table
//   position_table  [T, C]  of table's type; may be null
//   y               [N, C]  of table's type
//
// Keeps ids and positions. Throws Error (data) if an id or a position is not in its table, naming
// where it stands; Error if shapes or types do not fit.
//
// With the tables on a GPU, ids and positions in the host's memory are checked and copied there.
// Those in its own memory are not looked at by the host: the row of one that is not in its table is
// NaN, so that the loss shows it.
Var embedding(Tape* tape, const Tensor& ids, Param& table, const Tensor& positions = {},
              Param* position_table = nullptr);

namespace cpu {

void embedding_forward(Tensor& y, const Tensor& ids, const Tensor& table, const Tensor& positions,
                       const Tensor* position_table);
void embedding_backward(GradSink& dtable, const Tensor& ids, const Tensor& dy);

}  // namespace cpu

namespace cuda {

void embedding_forward(Tensor& y, const Tensor& ids, const Tensor& table, const Tensor& positions,
                       const Tensor* position_table);
// Adds up the rows of an id by fixed pieces, in their order.
void embedding_backward(GradSink& dtable, const Tensor& ids, const Tensor& dy);

}  // namespace cuda
}  // namespace anabranch
