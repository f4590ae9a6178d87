#include "runtime/bench/generate_bench.h"

#include "core/base/error.h"
#include "core/nn/init.h"
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

}  // namespace

GenerateBench bench_generate(const Config& config, const GenerateBenchOptions& options,
                             const std::shared_ptr<Pool>& pool) {
  if (options.prompt_tokens + options.tokens > config.model.context) {
    throw usage_error(options.prompt_tokens, " prompt tokens and ", options.tokens,
                      " new ones exceed the model's context of ", config.model.context,
                      ": the cache would start over and be measured too");
  }
  const auto model = make_model(config, options.vocabulary);
  model->visit([&](Param& w) {
    allocate(w, master_type(config.train.precision), pool);
    initialise(w, 1);
  });
  const auto prompts = random_prompts(options);
  SamplingOptions sampling;
  sampling.max_tokens = options.tokens;
  sampling.temperature = options.temperature;

  GenerateBench result;
  result.parameters = model->cost().parameters;
  for (int64_t round = 0; round <= options.rounds; ++round) {
    int64_t told = 0;
    double first = 0;
    const Stopwatch watch;
    generate(*model, prompts, sampling, [&](size_t, int32_t) {
      if (++told == options.batch) first = watch.seconds();
    });
    const double all = watch.seconds();
    if (round == 0) continue;
    result.prefill_seconds.push_back(first);
    result.decode_seconds.push_back(all - first);
  }
  result.pool_peak_bytes = pool->usage().peak;
  return result;
}

}  // namespace anabranch
