// How the ranks of a job share its work: who is whose neighbour, and what is split over whom.
//
// `model` groups are consecutive ranks of training, and ranks of one host are consecutive too, in
// whatever order they were launched: so what travels most stays within a host. Samples go by the
// rank in training, hence a run's losses do not depend on the placement.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/mesh.h"
#include "parallel/topology.h"
#include "runtime/config/validate.h"
#include "runtime/device_choice.h"
#include "runtime/memory_need.h"

namespace anabranch {

// Where a rank runs.
struct RankPlace {
  std::string host;
  int threads = 1;
  // Bytes of the host, of what its control groups leave the job, or of its GPUs.
  double memory = 0;
};

// Collective: every rank's place, by rank.
std::vector<RankPlace> gather_places(Group& world, const RankPlace& mine);

struct RankPlan {
  std::vector<std::string> hosts;  // in order of first appearance
  std::vector<int> ranks_of_host;  // by host
  std::vector<int> order;          // launched rank by rank in training
  int least_threads = 1, most_threads = 1;
  DevicePlan devices;  // for whoever makes the plan to fill in
  MeshShape shape;
  std::string stream_layout = "none";  // whole: streams of their own, dealt as they are
  int zero = 0;
  BatchPlan batch;
  int64_t micro_batch = 1;
  MemoryNeed need;             // of the fullest rank, before activations
  double least_memory = 0;     // bytes of the tightest host, for its ranks together
  std::string why_model;       // the reason for shape.model
  std::string why_order;       // and for the order
  bool crosses_hosts = false;  // whether a group of `model` ranks lies on several hosts

  // Whether ranks in training are numbered otherwise than they were launched.
  [[nodiscard]] bool reordered() const;
};

// The need of the fullest rank if the ranks have this shape.
using NeedOf = std::function<MemoryNeed(const MeshShape& shape)>;

// As the model's own parameters say, with no memory taken.
NeedOf need_of(const Config& config, int64_t vocabulary);

// The plan of a validated configuration, equal on all ranks that pass the same.
//
//   places  by launched rank
//   need    what one rank keeps
//
// `parallel.model: auto` is 1 if that fits every host, else the smallest legal number that does,
// those before others whose groups stay within a host. Throws Error (config, 78) with the numbers
// and the legal values if batch, pool or model do not go with the ranks, or nothing fits.
RankPlan plan_ranks(const Config& config, const std::vector<RankPlace>& places, const NeedOf& need);

// The configuration with what the plan chose in place of `auto`.
Config as_planned(const Config& config, const RankPlan& plan);

// Collective: `world` in the order of the plan; null if that is the order it has.
std::unique_ptr<Group> training_group(Group& world, const RankPlan& plan);

// An aligned table, a line each; and the same as one JSON document.
std::string plan_table(const RankPlan& plan);
std::string rank_plan_json(const RankPlan& plan);

}  // namespace anabranch
