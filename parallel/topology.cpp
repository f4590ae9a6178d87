#include "parallel/topology.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sched.h>
#include <sstream>
#include <utility>

#include "core/base/error.h"
#include "core/base/host_name.h"

namespace anabranch {
namespace {

// FNV-1a: texts that differ by accident have different ones.
uint64_t hash_of(const std::string& text) {
  uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return hash;
}

// The first lines in which two texts differ, without the spaces around them.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  const auto trimmed = [](const std::string& line) {
    const size_t begin = line.find_first_not_of(' ');
    return begin == std::string::npos ? std::string() : line.substr(begin);
  };
  std::istringstream as(a), bs(b);
  std::string line_a, line_b;
  while (true) {
    const bool more_a = static_cast<bool>(std::getline(as, line_a));
    const bool more_b = static_cast<bool>(std::getline(bs, line_b));
    if (!more_a) line_a = "nothing more";
    if (!more_b) line_b = "nothing more";
    if (line_a != line_b || (!more_a && !more_b)) return {trimmed(line_a), trimmed(line_b)};
  }
}

std::vector<int> numbers(const std::string& text) {
  std::istringstream in(text);
  std::vector<int> all;
  for (int n = 0; in >> n;) all.push_back(n);
  return all;
}

// 0 if it is not set to a number; OMP_NUM_THREADS may be a list, whose first entry counts.
int threads_asked_for() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  int threads = 0;
  if (text != nullptr) std::from_chars(text, text + std::char_traits<char>::length(text), threads);
  return std::max(threads, 0);
}

}  // namespace

std::vector<int> allowed_cores() {
  constexpr int kMostCores = 8192;
  std::vector<int> cores;
  cpu_set_t* set = CPU_ALLOC(kMostCores);
  const size_t bytes = CPU_ALLOC_SIZE(kMostCores);
  CPU_ZERO_S(bytes, set);
  if (sched_getaffinity(0, bytes, set) == 0) {
    for (int core = 0; core < kMostCores; ++core) {
      if (CPU_ISSET_S(static_cast<size_t>(core), bytes, set)) cores.push_back(core);
    }
  }
  CPU_FREE(set);
  return cores;
}

int share_of_cores(const std::vector<std::vector<int>>& masks, int local_rank) {
  const auto me = static_cast<size_t>(local_rank);
  AB_CHECK(me < masks.size(), "local rank ", local_rank, " of ", masks.size());
  int share = 0;
  size_t turn = 0;
  for (const int core : masks[me]) {
    std::vector<size_t> users;
    for (size_t r = 0; r < masks.size(); ++r) {
      if (std::find(masks[r].begin(), masks[r].end(), core) != masks[r].end()) users.push_back(r);
    }
    if (users[turn++ % users.size()] == me) ++share;
  }
  return std::max(share, 1);
}

Topology find_topology(Group& world) {
  Topology topology;
  topology.hosts = gather_text(world, host_name());
  std::string mine;
  for (const int core : allowed_cores()) mine += join(core, ' ');
  const std::vector<std::string> texts = gather_text(world, mine);
  std::vector<std::vector<int>> masks;
  const auto me = static_cast<size_t>(world.rank());
  for (size_t r = 0; r < topology.hosts.size(); ++r) {
    if (topology.hosts[r] != topology.hosts[me]) continue;
    if (r == me) topology.local_rank = static_cast<int>(masks.size());
    masks.push_back(numbers(texts[r]));
  }
  topology.local_size = static_cast<int>(masks.size());
  const int asked = threads_asked_for();
  topology.threads = asked > 0 ? asked : share_of_cores(masks, topology.local_rank);
  return topology;
}

std::vector<std::string> gather_text(Group& group, const std::string& text) {
  const int size = group.size();
  Tensor lengths({size}, DType::kI64);
  group.all_gather(lengths, Tensor::of<int64_t>({1}, {std::ssize(text)})).wait();
  const std::span<const int64_t> all = lengths.span<int64_t>();
  const int64_t longest = *std::max_element(all.begin(), all.end());
  Tensor mine({longest}, DType::kU8);
  Tensor whole({longest * size}, DType::kU8);
  mine.fill_zero();
  std::copy(text.begin(), text.end(), mine.data<uint8_t>());
  group.all_gather(whole, mine).wait();
  std::vector<std::string> texts;
  for (int r = 0; r < size; ++r) {
    const uint8_t* begin = whole.data<uint8_t>() + r * longest;
    texts.emplace_back(begin, begin + all[static_cast<size_t>(r)]);
  }
  return texts;
}

std::set<std::string> lines_of_all(Group& group, const std::string& text) {
  std::set<std::string> all;
  for (const std::string& theirs : gather_text(group, text)) {
    std::istringstream lines(theirs);
    for (std::string line; std::getline(lines, line);) all.insert(line);
  }
  return all;
}

void require_same(Group& group, const std::string& what, const std::string& value) {
  // Whole texts travel only if they differ, which the hashes tell all ranks alike.
  const Tensor mine = Tensor::of<int64_t>({1}, {static_cast<int64_t>(hash_of(value))});
  Tensor hashes({group.size()}, DType::kI64);
  group.all_gather(hashes, mine).wait();
  const std::span<const int64_t> seen = hashes.span<int64_t>();
  const auto other = std::ranges::find_if(seen, [&](int64_t hash) { return hash != seen[0]; });
  if (other == seen.end()) return;
  const auto r = static_cast<size_t>(other - seen.begin());
  const std::vector<std::string> texts = gather_text(group, value);
  const std::vector<std::string> hosts = gather_text(group, host_name());
  const auto [first, differs] = first_difference(texts[0], texts[r]);
  throw config_error(what, " differs between ranks: rank 0 on ", hosts[0], " has '", first,
                     "' but rank ", r, " on ", hosts[r], " has '", differs,
                     "'; start every rank with the same program, configuration and files");
}

}  // namespace anabranch
