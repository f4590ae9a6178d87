#include "runtime/bench/generate_bench.h"

#include "core/base/error.h"
#include "core/nn/init.h"
#include "runtime/bench/paired.h"
#include "runtime/bench/timing.h"
#include "runtime/generator.h"
#include "runtime/models/registry.h"

namespace anabranch {
namespace {

std::vector<std::vector<int32_t>> random_prompts(const GenerateBenchOptions& o) {
  const Tensor ids = random_ids({o.batch, o.prompt_tokens}, o.vocabulary, 1, nullptr);
  std::vector<std::vector<int32_t>> prompts;
  for (int64_t i = 0; i < o.batch; ++i) {
    const int32_t* begin = ids.data<int32_t>() + i * o.prompt_tokens;
    prompts.emplace_back(begin, begin + o.prompt_tokens);
  }
  return prompts;
}

// A model of random weights and the prompts it goes on from.
class Sampler {
 public:
  // Throws Error (usage, 64) if they do not fit its context.
  Sampler(const Config& config, const GenerateBenchOptions& options,
          const std::shared_ptr<Pool>& pool)
      : options_(options), pool_(pool), prompts_(random_prompts(options)) {
    if (options.prompt_tokens + options.tokens > config.model.context) {
      throw usage_error(options.prompt_tokens, " prompt tokens and ", options.tokens,
                        " new ones exceed the model's context of ", config.model.context,
                        ": the cache would start over and be measured too");
    }
    model_ = make_model(config, options.vocabulary);
    const bool on_gpu = pool->device().is_cuda();
    model_->visit([&](Param& w) {
      allocate(w, master_type(config.train.precision), on_gpu ? nullptr : pool);
      initialise(w, 1);
      if (on_gpu) keep_value_in(w, pool);
    });
    result_.parameters = model_->cost().parameters;
  }

  // Rounds below 0 do not count.
  void run(int64_t round) {
    SamplingOptions sampling;
    sampling.max_tokens = options_.tokens;
    sampling.temperature = options_.temperature;
    int64_t told = 0;
    double first = 0;
    const int64_t waits = pool_->stream().waits();
    const Stopwatch watch;
    generate(*model_, prompts_, sampling, [&](size_t, int32_t) {
      if (++told == options_.batch) first = watch.seconds();
    });
    const double all = watch.seconds();
    result_.gpu_waits = pool_->stream().waits() - waits;
    if (round < 0) return;
    result_.prefill_seconds.push_back(first);
    result_.decode_seconds.push_back(all - first);
  }

  [[nodiscard]] GenerateBench result() const {
    GenerateBench result = result_;
    result.pool_peak_bytes = pool_->usage().peak;
    return result;
  }

 private:
  GenerateBenchOptions options_;
  std::shared_ptr<Pool> pool_;
  std::vector<std::vector<int32_t>> prompts_;
  std::unique_ptr<Model> model_;
  GenerateBench result_;
};

}  // namespace

GenerateBench bench_generate(const Config& config, const GenerateBenchOptions& options,
                             const std::shared_ptr<Pool>& pool) {
  Sampler sampler(config, options, pool);
  for (int64_t round = -1; round < options.rounds; ++round) sampler.run(round);
  return sampler.result();
}

std::array<GenerateBench, 2> bench_generate(const Config& config, const Config& against,
                                            const GenerateBenchOptions& options,
                                            const std::shared_ptr<Pool>& pool) {
  Sampler first(config, options, pool), second(against, options, pool);
  take_turns(
      options.rounds, [&](int64_t round) { first.run(round); },
      [&](int64_t round) { second.run(round); });
  return {first.result(), second.result()};
}

}  // namespace anabranch
