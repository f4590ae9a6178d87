#include "runtime/device_choice.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "core/base/error.h"
#include "runtime/config/nearest.h"
#include "runtime/config/number.h"
#include "runtime/config/validate_deterministic.h"

namespace anabranch {
namespace {

// The oldest GPUs that the kernels are compiled for.
constexpr int kLeastMajor = 8;

// What a rank tells the others: the GPU it would take, or why it has none.
struct Offer {
  std::string host;
  int seen = 0;      // GPUs that the process sees
  int index = -1;    // of the one it takes; -1: none
  std::string name;  // of the GPU
  std::string id;
  std::string why;  // there is none
};

Offer offer_of(const GpuSight& seen, int local_rank) {
  Offer offer;
  offer.seen = static_cast<int>(seen.gpus.size());
  offer.why = seen.why_none;
  if (offer.seen == 0) return offer;
  const int index = offer.seen == 1 ? 0 : local_rank;
  if (index >= offer.seen) return offer;  // refused by who sees all ranks
  const Gpu& gpu = seen.gpus[static_cast<size_t>(index)];
  if (gpu.major < kLeastMajor) {
    offer.why = join(gpu.name, " has compute capability ", gpu.major, ".", gpu.minor,
                     ", and the kernels need ", kLeastMajor, ".0");
    return offer;
  }
  offer.index = index;
  offer.name = gpu.name;
  offer.id = gpu.id;
  return offer;
}

// By rank; a line for each field, none of which has one.
std::vector<Offer> exchange_offers(const Offer& mine, const Topology& places, Group& world) {
  const std::vector<std::string> texts = gather_text(
      world, join(mine.seen, "\n", mine.index, "\n", mine.name, "\n", mine.id, "\n", mine.why));
  std::vector<Offer> offers;
  for (size_t r = 0; r < texts.size(); ++r) {
    std::istringstream in(texts[r]);
    Offer offer;
    offer.host = places.hosts[r];
    in >> offer.seen >> offer.index;
    in.ignore();
    std::getline(in, offer.name);
    std::getline(in, offer.id);
    std::getline(in, offer.why);
    offers.push_back(std::move(offer));
  }
  return offers;
}

// The ranks of each host, in the order of hosts' first ranks.
std::vector<std::vector<size_t>> by_host(const std::vector<Offer>& offers) {
  std::vector<std::vector<size_t>> hosts;
  for (size_t r = 0; r < offers.size(); ++r) {
    const auto found = std::ranges::find_if(
        hosts, [&](const auto& ranks) { return offers[ranks.front()].host == offers[r].host; });
    if (found == hosts.end()) {
      hosts.push_back({r});
    } else {
      found->push_back(r);
    }
  }
  return hosts;
}

std::string rank_list(const std::vector<size_t>& ranks) {
  std::vector<std::string> words;
  words.reserve(ranks.size());
  for (const size_t r : ranks) words.push_back(std::to_string(r));
  return (ranks.size() == 1 ? "rank " : "ranks ") + word_list(words);
}

void refuse_crowds(const std::vector<Offer>& offers, const DeviceWish& wish) {
  for (const std::vector<size_t>& ranks : by_host(offers)) {
    for (size_t local = 0; local < ranks.size(); ++local) {
      const int seen = offers[ranks[local]].seen;
      if (seen < 2 || static_cast<int>(local) < seen) continue;
      throw config_error(offers[ranks[local]].host, " has ", counted(std::ssize(ranks), "rank"),
                         ", of which rank ", ranks[local], " sees ", counted(seen, "GPU"),
                         ": start at most one rank a GPU, or ", wish.instead);
    }
  }
}

bool has_one(const Offer& offer) { return offer.index >= 0; }

void refuse_ranks_without(const std::vector<Offer>& offers, const DeviceWish& wish) {
  const auto without = std::ranges::find_if_not(offers, has_one);
  if (without == offers.end()) return;
  throw config_error("rank ", without - offers.begin(), " on ", without->host,
                     " has no GPU that it can use (", without->why,
                     "), and other ranks have: ", wish.instead, ", or leave that host out");
}

// NCCL has no communicators with two ranks on one GPU.
void refuse_shared(const std::vector<Offer>& offers, const DeviceWish& wish) {
  for (const std::vector<size_t>& ranks : by_host(offers)) {
    std::map<std::string, std::vector<size_t>> users;
    for (const size_t r : ranks) users[offers[r].id].push_back(r);
    for (const auto& [id, sharing] : users) {
      if (sharing.size() < 2) continue;
      const Offer& first = offers[sharing.front()];
      throw config_error(rank_list(sharing), " of ", first.host, " would compute on one GPU, ",
                         first.name, " ", id, ": give each rank one of its own, e.g. by ",
                         "CUDA_VISIBLE_DEVICES, start fewer ranks, or ", wish.instead);
    }
  }
}

// Ranks that see one GPU alone while their host has others, in one warning.
void warn_of_hidden(const std::vector<Offer>& offers, std::vector<std::string>& warnings) {
  std::string text;
  for (const std::vector<size_t>& ranks : by_host(offers)) {
    std::map<std::string, int> gpus;
    std::vector<size_t> narrow;
    for (const size_t r : ranks) {
      ++gpus[offers[r].id];
      if (offers[r].seen == 1) narrow.push_back(r);
    }
    if (narrow.empty() || gpus.size() < 2) continue;
    text += join(text.empty() ? "" : "; ", rank_list(narrow), " of ", offers[ranks.front()].host,
                 narrow.size() == 1 ? " sees" : " see", " one GPU of ", gpus.size());
  }
  if (!text.empty()) {
    warnings.push_back(text + ": GPUs that are hidden from each other may copy through the host");
  }
}

}  // namespace

bool runs_on_gpu(const Config& config) { return !is_of_any_layout(config); }

DeviceWish device_wish(const Config& config) { return {config.device, runs_on_gpu(config)}; }

DeviceWish inference_wish(const Config& config) { return {config.device, true}; }

std::string DevicePlan::text() const {
  return of_rank.empty() ? "cpu, " + why : "cuda, " + why + "; " + hardware();
}

std::string DevicePlan::hardware() const {
  if (of_rank.empty()) return "cpu";
  std::map<std::string, int> names;
  for (const std::string& gpu : of_rank) ++names[gpu.substr(0, gpu.rfind(' '))];
  std::string list;
  for (const auto& [name, count] : names) {
    list += join(list.empty() ? "" : ", ", count, " ", name);
  }
  return list;
}

DevicePlan choose_devices(const DeviceWish& wish, const GpuSight& seen, const Topology& places,
                          Group& world) {
  DevicePlan plan;
  plan.why = wish.asked == DeviceChoice::kAuto ? "auto: " : join("as ", wish.by, " says");
  if (wish.asked == DeviceChoice::kCpu) return plan;
  const std::vector<Offer> offers =
      exchange_offers(offer_of(seen, places.local_rank), places, world);
  std::string why_not;
  if (std::ranges::none_of(offers, has_one)) {
    why_not = offers.front().why;
  } else if (!wish.able) {
    why_not = "train.deterministic: layout does not run on GPUs yet";
  }
  if (!why_not.empty()) {
    if (wish.asked == DeviceChoice::kCuda) {
      throw config_error(wish.by, " is cuda, but ", why_not, "; ", wish.instead);
    }
    plan.why += why_not;
    return plan;
  }
  refuse_crowds(offers, wish);
  refuse_ranks_without(offers, wish);
  refuse_shared(offers, wish);
  if (wish.asked == DeviceChoice::kAuto) plan.why += "every rank has a GPU";
  for (const Offer& offer : offers) plan.of_rank.push_back(offer.name + " " + offer.id);
  plan.mine = {Device::Kind::kCuda, offers[static_cast<size_t>(world.rank())].index};
  warn_of_hidden(offers, plan.warnings);
  return plan;
}

}  // namespace anabranch
