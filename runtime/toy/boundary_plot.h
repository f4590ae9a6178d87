// The decision boundaries of the toy of clusters, drawn.
#pragma once

#include <string>

#include "runtime/toy/clusters.h"

namespace anabranch {

// An SVG of two panels, dense and mixed: the side of each place in colour, the boundary, for the
// mixture where its gates change, and test points of the first seed, misses as crosses.
//
// The plane is that of e_1 and of e_2 or e_3, whichever the clusters differ more along (e_2 if
// equal); the third coordinate is 0 for the sides, and left out for points.
std::string draw_boundaries(const ClustersConfig& config, ClustersResult& result);

}  // namespace anabranch
