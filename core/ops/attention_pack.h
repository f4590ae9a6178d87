// Moves rows of a packed activation into the tiles of attention_tile.h and back, converting to the
// type of the sums and transposing on the way.
#pragma once

#include <cstdint>

#include "core/tensor/bf16.h"

namespace anabranch::cpu {

// Rows of an activation: [rows, width], `stride` elements apart.
template <class T>
struct Rows {
  T* data;
  int64_t stride, rows, width;
};

// to[r, c] = scale * from[r, c], with zeros in columns width .. to_stride.
void load_rows(float* to, int64_t to_stride, const Rows<const float>& from, float scale);
void load_rows(float* to, int64_t to_stride, const Rows<const Bf16>& from, float scale);
void load_rows(double* to, int64_t to_stride, const Rows<const double>& from, double scale);

// to[c, r] = scale * from[r, c], in rows of kQueryTile lanes, with zeros in lanes from.rows on.
void load_lanes(float* to, const Rows<const float>& from, float scale);
void load_lanes(float* to, const Rows<const Bf16>& from, float scale);
void load_lanes(double* to, const Rows<const double>& from, double scale);

// to[r, c] (+)= from[r, c]
void store_rows(const Rows<float>& to, const float* from, int64_t from_stride, bool accumulate);
void store_rows(const Rows<Bf16>& to, const float* from, int64_t from_stride, bool accumulate);
void store_rows(const Rows<double>& to, const double* from, int64_t from_stride, bool accumulate);

// to[r, c] (+)= from[c, r], from rows of kQueryTile lanes.
void store_lanes(const Rows<float>& to, const float* from, bool accumulate);
void store_lanes(const Rows<Bf16>& to, const float* from, bool accumulate);
void store_lanes(const Rows<double>& to, const double* from, bool accumulate);

// to[r] = sum_c a[r, c] b[r, c]
void dot_rows(float* to, const Rows<const float>& a, const Rows<const float>& b);
void dot_rows(float* to, const Rows<const Bf16>& a, const Rows<const Bf16>& b);
void dot_rows(double* to, const Rows<const double>& a, const Rows<const double>& b);

}  // namespace anabranch::cpu
