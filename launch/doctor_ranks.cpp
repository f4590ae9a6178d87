// What ranks can only find out together.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <sstream>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "core/base/host_name.h"
#include "core/base/read_file.h"
#include "data/hdf5/raw_file.h"
#include "launch/doctor.h"
#include "runtime/config/number.h"

namespace anabranch {

namespace {

// For one collective: whoever has not come by then will not.
constexpr double kDeadlineSeconds = 60;

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// "4 on 2 hosts: n1 2, n2 2".
std::string places(const std::vector<std::string>& hosts) {
  std::vector<std::pair<std::string, int>> counts;
  for (const std::string& host : hosts) {
    const auto at = std::ranges::find(counts, host, &std::pair<std::string, int>::first);
    if (at == counts.end()) {
      counts.emplace_back(host, 1);
    } else {
      ++at->second;
    }
  }
  std::string text = join(hosts.size(), " on ", counted(std::ssize(counts), "host"));
  for (size_t i = 0; i < counts.size(); ++i) {
    text += join(i == 0 ? ": " : ", ", counts[i].first, " ", counts[i].second);
  }
  return text;
}

// How far the clocks are from rank 0's, each read as soon as all have come, some times: the least
// difference has the least of the waiting in it.
Finding clocks(Group& world, const std::vector<std::string>& hosts) {
  constexpr int kRounds = 5;
  constexpr double kMost = 5;
  std::vector<double> offsets(hosts.size(), std::numeric_limits<double>::infinity());
  for (int round = 0; round < kRounds; ++round) {
    world.barrier();
    Tensor all({world.size()}, DType::kF64);
    world.all_gather(all, Tensor::of<double>({1}, {wall_clock()})).wait();
    for (size_t r = 0; r < offsets.size(); ++r) {
      const double offset = all.data<double>()[r] - all.data<double>()[0];
      if (std::abs(offset) < std::abs(offsets[r])) offsets[r] = offset;
    }
  }
  const auto worst = std::ranges::max_element(
      offsets, [](double a, double b) { return std::abs(a) < std::abs(b); });
  const double most = std::abs(*worst);
  const auto rank = static_cast<size_t>(worst - offsets.begin());
  if (most <= kMost) return {"clocks", true, fmt::format("within {:.3f} s", most)};
  return {"clocks", false,
          fmt::format("that of rank {} on {} is {:.1f} s {} rank 0's on {}; want at most {} s",
                      rank, hosts[rank], most, *worst > 0 ? "ahead of" : "behind", hosts[0], kMost),
          Fault::kConfig};
}

// Whether what rank 0 writes is there for all, who give a slow disk some seconds.
Finding shared_folder(Group& world, const std::string& folder,
                      const std::vector<std::string>& hosts) {
  constexpr auto kPatience = std::chrono::seconds(10);
  constexpr auto kLook = std::chrono::milliseconds(20);
  const std::string token = gather_text(world, join(host_name(), "-", getpid()))[0];
  const std::string path = join(folder, "/.doctor-shared-", token);
  std::string failure;
  try {
    if (world.rank() == 0) write_atomically(path, token);
  } catch (const std::exception& error) {
    failure = error.what();
  }
  failure = gather_text(world, failure)[0];
  if (!failure.empty()) return {"shared", false, folder + ": " + failure};
  const auto until = std::chrono::steady_clock::now() + kPatience;
  std::error_code ignored;
  while (!std::filesystem::exists(path, ignored) && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(kLook);
  }
  const bool seen = std::filesystem::exists(path, ignored);
  const std::vector<std::string> told = gather_text(world, seen ? "seen" : "");
  if (world.rank() == 0) std::filesystem::remove(path, ignored);
  const auto blind = std::ranges::find_if(told, [](const std::string& t) { return t != "seen"; });
  if (blind == told.end()) return {"shared", true, folder + " is one for all ranks"};
  const auto rank = static_cast<size_t>(blind - told.begin());
  return {
      "shared", false,
      join(folder, ": rank ", rank, " on ", hosts[rank], " does not see what rank 0 on ", hosts[0],
           " has written. The run directory must lie on a disk that all hosts share.")};
}

// Sums over all ranks, then rows from each to each, where the run will compute.
Finding collectives(RankProcess& process) {
  constexpr int64_t kCount = 1 << 18;
  Group& world = process.world();
  const auto n = static_cast<int64_t>(world.size());
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<float> mine(kCount, static_cast<float>(world.rank() + 1));
  Tensor sum = Tensor::of<float>({kCount}, mine).copy_in(process.context().pool);
  world.all_reduce_sum(sum).wait();
  const Tensor sums = sum.on_host();
  const int64_t of_all = n * (n + 1) / 2;
  const auto want = static_cast<float>(of_all);
  bool good = std::ranges::all_of(sums.span<float>(), [&](float x) { return x == want; });

  const std::vector<int64_t> one_each(static_cast<size_t>(n), 1);
  const std::vector<float> row(static_cast<size_t>(n), static_cast<float>(world.rank() + 1));
  const Tensor from = Tensor::of<float>({n, 1}, row).copy_in(process.context().pool);
  Tensor to = from.copy_in(process.context().pool);
  world.all_to_all(to, from, one_each, one_each).wait();
  const Tensor rows = to.on_host();
  for (int64_t r = 0; r < n; ++r) {
    good = good && rows.data<float>()[r] == static_cast<float>(r + 1);
  }
  const std::vector<std::string> told = gather_text(world, good ? "good" : "wrong");
  const auto bad = std::ranges::find(told, "wrong");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return {"collectives", bad == told.end(),
          bad == told.end()
              ? fmt::format("a sum of 1 MiB and rows from each to each are right, in {:.3f} s",
                            took.count())
              : join("wrong numbers on rank ", bad - told.begin()),
          Fault::kInternal};
}

// What hosts other than rank 0's find amiss, by their names. Only the first rank of a host speaks.
std::vector<Finding> elsewhere(RankProcess& process, const std::vector<Finding>& mine) {
  std::string text;
  for (const Finding& finding : mine) {
    if (finding.good || process.topology().local_rank != 0 || process.first()) continue;
    text += join(static_cast<int>(finding.fault), " ", finding.name, " on ", host_name(), "\t",
                 finding.what, "\n");
  }
  std::vector<Finding> findings;
  for (const std::string& told : gather_text(process.world(), text)) {
    std::istringstream in(told);
    int fault = 0;
    std::string name, what;
    while (in >> fault && in.ignore() && std::getline(in, name, '\t') && std::getline(in, what)) {
      findings.push_back({name, false, what, static_cast<Fault>(fault)});
    }
  }
  return findings;
}

}  // namespace

Finding time_left() {
  constexpr double kLeast = 30;
  const char* end = std::getenv("SLURM_JOB_END_TIME");
  if (end == nullptr || std::atof(end) <= 0) return {"time", true, "no limit is known"};
  const double left = std::atof(end) - wall_clock();
  return {"time", left >= kLeast,
          fmt::format("{:.0f} min {:.0f} s left{}", std::floor(std::max(0.0, left) / 60),
                      std::fmod(std::max(0.0, left), 60),
                      left < kLeast ? ", too little for a step and a save" : ""),
          Fault::kConfig};
}

std::vector<Finding> examine_ranks(RankProcess& process, const std::string& folder,
                                   const std::vector<Finding>& mine) {
  const std::vector<std::string>& hosts = process.topology().hosts;
  Group& world = process.world();
  world.set_deadline(kDeadlineSeconds);
  std::vector<Finding> findings = elsewhere(process, mine);
  findings.push_back({"ranks", true, places(hosts) + ", on " + process.devices().hardware()});
  findings.push_back(clocks(world, hosts));
  findings.push_back(shared_folder(world, folder, hosts));
  findings.push_back(collectives(process));
  return findings;
}

}  // namespace anabranch
