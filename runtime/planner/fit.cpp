#include "runtime/planner/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <utility>

#include "core/base/parallel_for.h"
#include "core/nn/init.h"
#include "core/ops/add.h"
#include "core/ops/linear_cross_entropy.h"
#include "runtime/bench/product_run.h"
#include "runtime/bench/timing.h"
#include "runtime/config/number.h"
#include "runtime/memory_need.h"

namespace anabranch {
namespace {

constexpr int64_t kRepeats = 3;
constexpr int kRounds = 5;

// Operations, logits and bytes a second of a core; seconds of a call; a part hidden.
struct Rates {
  double large = 0, small = 0, bf16 = 0, fp64 = 0, attention = 0, call = 0, softmax = 0, memory = 0,
         overlap = 0;
};

// Of three significant digits: what a measurement is worth.
double rounded(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g", value);
  double result = 0;
  return parse_number(text.data(), result) ? result : 0;
}

class Fitter {
 public:
  Fitter(Group& world, const Topology& topology, const RankContext& context)
      : world_(world), context_(context), threads_(std::max(context.threads, 1)) {
    hosts_ = topology.hosts;
    std::ranges::sort(hosts_);
    const auto end = std::unique(hosts_.begin(), hosts_.end());
    hosts_.erase(end, hosts_.end());
    source_ = join("measured: ", counted(world.size(), "rank"), " of ", counted(threads_, "thread"),
                   " on ", counted(std::ssize(hosts_), "host"));
    local_size_ = topology.local_size;
    host_ = static_cast<int>(
        std::ranges::find(hosts_, topology.hosts[static_cast<size_t>(world.rank())]) -
        hosts_.begin());
  }

  Machine run(const std::string& name, const CommBenchOptions& options) {
    Machine m;
    m.name = name;
    m.about = source_;
    measure_device(m);
    const double cores = threads_ * local_size_;
    m.host.devices = measured(cores);
    m.host.cores = measured(cores);
    m.device.memory = {rounded(physical_memory() / cores), "the host's memory by core"};
    const std::unique_ptr<Group> host = world_.split(host_, world_.rank());
    if (host->size() > 1) {
      m.links.push_back(
          fit_link(bench_collectives(*host, options), host->size(), LinkLevel::kHost, source_));
    }
    if (hosts_.size() > 1) {
      m.links.push_back(fit_link(bench_collectives(world_, options), world_.size(),
                                 LinkLevel::kNetwork, source_));
    }
    return m;
  }

 private:
  [[nodiscard]] Figure measured(double value) const { return {rounded(value), source_}; }

  // The median of a few calls, behind a barrier; of the slowest rank.
  template <class F>
  double seconds(F&& f) {
    world_.barrier();
    return slowest(world_, median(seconds_of(kRepeats, f)));
  }

  // Operations a second of a core, of products forward and backward in the order of a step: each
  // finds its operands as cold as the others leave them.
  double product_rate(std::vector<ProductRun>& runs) {
    double flops = 0;
    for (const ProductRun& run : runs) flops += 3 * run.flops();
    const double once = seconds([&] {
      for (ProductRun& run : runs) run.y();
      for (size_t i = runs.size(); i-- > 0;) {
        runs[i].dx();
        runs[i].dw();
      }
    });
    return flops / once / threads_;
  }

  double product_rate(int64_t rows, int64_t in, int64_t out, DType type) {
    std::vector<ProductRun> one;
    one.emplace_back(Product{"fit", rows, in, out}, rows, type, context_.pool);
    return product_rate(one);
  }

  // Of a small model: four layers of attention's and the feed-forward part's four products.
  double small_product_rate() {
    constexpr int64_t kRows = 1024, kWidth = 192;
    if (small_.empty()) {
      const std::array<std::pair<int64_t, int64_t>, 4> of_layer = {
          {{kWidth, 3 * kWidth}, {kWidth, kWidth}, {kWidth, 4 * kWidth}, {4 * kWidth, kWidth}}};
      for (int layer = 0; layer < 4; ++layer) {
        for (const auto& [in, out] : of_layer) {
          small_.emplace_back(Product{"fit", kRows, in, out}, kRows, DType::kF32, context_.pool);
        }
      }
    }
    return product_rate(small_);
  }

  double attention_rate(DType type) {
    const AttentionProduct product{"fit", 4, 4, 256, 64};
    const AttentionRun run(product, type, context_.pool);
    constexpr double kBackwardToo = 3.5;
    return kBackwardToo * 2 * product.macs() / seconds([&] { run.op(); }) / threads_;
  }

  // All of them in turn, several times over: what disturbs a machine for a moment disturbs one
  // round.
  Rates measure_rates() {
    std::vector<Rates> rounds;
    for (int round = 0; round < kRounds; ++round) {
      Rates r;
      r.large = product_rate(1024, 1024, 4096, DType::kF32);
      r.small = small_product_rate();
      r.bf16 = product_rate(1024, 1024, 4096, DType::kBF16);
      r.fp64 = product_rate(256, 128, 256, DType::kF64);
      r.attention = attention_rate(DType::kF32);
      r.call = call_seconds(r.small);
      r.softmax = softmax_rate(r.small);
      r.memory = memory_rate();
      if (world_.size() > 1) r.overlap = overlap();
      rounds.push_back(r);
    }
    Rates middle;
    for (double Rates::*rate :
         {&Rates::large, &Rates::small, &Rates::bf16, &Rates::fp64, &Rates::attention, &Rates::call,
          &Rates::softmax, &Rates::memory, &Rates::overlap}) {
      std::vector<double> all;
      all.reserve(rounds.size());
      for (const Rates& r : rounds) all.push_back(r.*rate);
      middle.*rate = median(all);
    }
    return middle;
  }

  void measure_device(Machine& m) {
    m.device.kind = DeviceKind::kCpu;
    const Rates r = measure_rates();
    const double peak = std::max(r.large, r.small);
    m.device.peak.fp32 = measured(peak);
    m.device.peak.bf16 = measured(r.bf16);
    m.device.peak.fp64 = measured(r.fp64);
    m.device.product_share = measured(r.small / peak);
    m.device.attention_share = measured(std::min(r.attention / peak, 1.0));
    m.device.call_seconds = measured(r.call);
    m.device.softmax = measured(r.softmax);
    m.device.bandwidth = measured(r.memory);
    m.device.bandwidth_share = {1, "the bandwidth is measured"};
    m.device.overlap =
        world_.size() > 1 ? measured(r.overlap) : Figure{0, "one rank has nobody to wait for"};
  }

  // What a small product takes beyond its operations.
  double call_seconds(double rate) {
    const Product product{"fit", 64, 64, 64};
    ProductRun run(product, product.rows, DType::kF32, context_.pool);
    constexpr int kCalls = 32;  // of each direction
    const double once = seconds([&] {
                          for (int i = 0; i < kCalls; ++i) run.all();
                        }) /
                        (3 * kCalls);
    return std::max(once - run.flops() / (rate * threads_), 1e-7);
  }

  // Logits a second of a core, of a head so narrow that its products are little beside them.
  double softmax_rate(double rate) {
    constexpr int64_t kRows = 1024, kWidth = 64, kVocabulary = 8192;
    Param w("fit", {kVocabulary, kWidth}, Init::normal(0.02F));
    allocate(w, DType::kF32, context_.pool);
    initialise(w, 1);
    const Tensor x = random_values({kRows, kWidth}, DType::kF32, context_.pool);
    const Tensor targets = random_ids({kRows}, kVocabulary, 1, context_.pool);
    const double once = seconds([&] {
      Tape tape;
      (void)linear_cross_entropy(tape.input(x), w, targets, 1);
    });
    const double logits = static_cast<double>(kRows) * kVocabulary;
    const double products = 3 * 2 * logits * kWidth / (rate * threads_);
    return logits / std::max(once - products, once / 4) / threads_;
  }

  // Bytes a second of a core, of an addition of tensors that no cache holds.
  double memory_rate() {
    const Shape shape{int64_t{8} << 20};
    const Tensor x = random_values(shape, DType::kF32, context_.pool);
    Tensor y = x.like("bench"), z = x.like("bench");
    y.copy_from(x);
    const double once = seconds([&] { cpu::add(z, x, y); });
    return 3 * static_cast<double>(x.bytes()) / once / threads_;
  }

  // Of a reduction and products that take about as long, the part of one that the other hides.
  double overlap() {
    constexpr int64_t kBytes = int64_t{8} << 20;
    Tensor x({kBytes / 4}, DType::kF32, context_.pool, "bench");
    x.fill_zero();
    const Product product{"fit", 512, 256, 512};
    ProductRun run(product, product.rows, DType::kF32, context_.pool);
    const double alone = seconds([&] { world_.all_reduce_sum(x).wait(); });
    const double once = seconds([&] { run.all(); });
    const auto rounds = static_cast<int64_t>(std::ceil(alone / once));
    const auto compute = [&] {
      for (int64_t i = 0; i < rounds; ++i) run.all();
    };
    const double computing = seconds(compute);
    const double both = seconds([&] {
      const Work work = world_.all_reduce_sum(x);
      compute();
      work.wait();
    });
    return std::clamp((alone + computing - both) / std::min(alone, computing), 0.0, 1.0);
  }

  Group& world_;
  const RankContext& context_;
  int threads_, local_size_ = 1, host_ = 0;
  std::vector<std::string> hosts_;
  std::string source_;
  std::vector<ProductRun> small_;  // products of a small model
};

}  // namespace

LinkFigures fit_link(const std::vector<CommTiming>& timings, int ranks, LinkLevel level,
                     const std::string& source) {
  std::map<int64_t, std::vector<const CommTiming*>> by_size;
  for (const CommTiming& t : timings) by_size[t.bytes].push_back(&t);
  const double doublings = std::ceil(std::log2(std::max(ranks, 2)));
  // An all-reduce pays the latency twice.
  const auto pays = [&](const CommTiming& t) {
    return doublings * (t.kind == CollectiveKind::kAllReduceSum ? 2 : 1);
  };
  std::vector<double> smallest;
  if (!by_size.empty()) {
    for (const CommTiming* t : by_size.begin()->second) {
      smallest.push_back(t->seconds / pays(*t));
    }
  }
  LinkFigures link{level, {rounded(median(smallest)), source}, {}};
  for (const auto& [bytes, all] : by_size) {
    constexpr int64_t kSmall = 4096;  // below, latency is all there is
    if (bytes < kSmall && by_size.size() > 1) continue;
    std::vector<double> rates;
    for (const CommTiming* t : all) {
      const double moving = std::max(t->seconds - link.latency.value * pays(*t), t->seconds / 10);
      rates.push_back(t->bus_bandwidth(ranks) * t->seconds / moving);
    }
    link.curve.push_back({static_cast<double>(bytes), rounded(median(rates)), source});
  }
  return link;
}

Machine fit_machine(const std::string& name, Group& world, const Topology& topology,
                    const RankContext& context, const CommBenchOptions& options) {
  return Fitter(world, topology, context).run(name, options);
}

}  // namespace anabranch
