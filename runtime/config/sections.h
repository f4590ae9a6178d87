// The sections of a configuration but for the model and the optimizer. A key is one field and one
// line of `visit`: reading, bounds, help, the resolved dump and the table in configs/README.md all
// come from that line.
//
//   f(key, number, min, max, help)   both bounds are allowed values
//   f(key, word | switch | enum | list, help)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/values.h"

namespace anabranch {

// What run.name is made of.
inline constexpr std::string_view kNameCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

struct RunConfig {
  std::string name, dir;
  int64_t seed = 1;

  void visit(auto&& f) {
    f("name", name,
      "name of the run, used in metrics; empty: the run directory's, else the file's");
    f("dir", dir, "run directory; empty: runs/<name>");
    f("seed", seed, int64_t{0}, kMaxCount, "seed of initialisation and dropout");
  }

  bool operator==(const RunConfig&) const = default;
};

struct SourceConfig {
  std::string name;
  double weight = 1;

  void visit(auto&& f) {
    f("name", name, "a source of the data set");
    f("weight", weight, 1e-6, 1e6, "share of the samples, relative to the other sources");
  }

  bool operator==(const SourceConfig&) const = default;
};

struct DataConfig {
  std::string path;
  std::vector<SourceConfig> sources;
  int64_t seed = 1, prefetch = 4;
  Packing packing = Packing::kWindows;
  bool document_mask = false, verify = true;

  void visit(auto&& f) {
    f("path", path, "data directory: holds dataset.json and the shards");
    f("sources", sources,
      "other shares of the sources than the data set's: list of {name, weight}; "
      "one that is not listed is left out");
    f("seed", seed, int64_t{0}, kMaxCount, "seed of the order of samples");
    f("packing", packing, "how documents become samples");
    f("document_mask", document_mask,
      "attend within a document only, in validation too; positions go on across documents");
    f("prefetch", prefetch, int64_t{1}, int64_t{1024}, "micro-batches read ahead");
    f("verify", verify, "read every shard at start and check its checksums and token ids");
  }

  bool operator==(const DataConfig&) const = default;
};

struct TrainConfig {
  Precision precision = Precision::kFp32;
  int64_t steps = 0, tokens = 0;
  double epochs = 0;
  int64_t batch_tokens = 0, micro_batch = 1;
  Budget budget = Budget::kNone;
  double budget_ratio = 5;
  int64_t budget_vocabulary = 32768;
  Determinism deterministic = Determinism::kRun;
  GradWire grad_wire = GradWire::kFp32;
  int64_t log_every = 10, nonfinite_limit = 10;
  double outlier_sigma = 0;
  int64_t outlier_window = 128;

  void visit(auto&& f) {
    f("precision", precision, "compute type; master weights are fp32 (fp64: for tests, CPU only)");
    f("steps", steps, int64_t{0}, kMaxCount, "optimizer steps (this, tokens or epochs)");
    f("tokens", tokens, int64_t{0}, kMaxCount, "tokens to train on, rounded up to whole steps");
    f("epochs", epochs, 0.0, 1e6,
      "passes over the training samples, rounded up to whole steps; steps is set by it when the "
      "data is opened");
    f("batch_tokens", batch_tokens, int64_t{0}, kMaxCount,
      "tokens of one optimizer step over all ranks; accumulation follows from it");
    f("micro_batch", micro_batch, int64_t{1}, int64_t{65536},
      "sequences a rank computes at a time");
    f("budget", budget,
      "fills batch_tokens, and steps without tokens, from the size of a kappa_moe model: experts "
      "count by sqrt(top_k / experts), in authors whole where mixtures are few; given keys win");
    f("budget_ratio", budget_ratio, 0.001, 1e6, "tokens of a parameter in that budget");
    f("budget_vocabulary", budget_vocabulary, int64_t{1}, int64_t{1} << 31,
      "entries of the head that it counts; the data must have as many");
    f("deterministic", deterministic,
      "which runs are equal bit by bit: run, those of one layout; layout, also those of 1, 2, 4 or "
      "8 ranks, of as many threads each (slow, for tests: fp32, micro_batch 1)");
    f("grad_wire", grad_wire, "type of gradients between ranks");
    f("log_every", log_every, int64_t{1}, kMaxCount, "steps between two logged steps");
    f("nonfinite_limit", nonfinite_limit, int64_t{1}, kMaxCount,
      "skipped non-finite steps in a row that end the run");
    f("outlier_sigma", outlier_sigma, 0.0, 1e6,
      "skip a step whose loss or gradient norm is this many sigma out; 0: never");
    f("outlier_window", outlier_window, int64_t{8}, int64_t{65536},
      "steps over which outlier_sigma is measured");
  }

  bool operator==(const TrainConfig&) const = default;
};

struct ParallelConfig {
  AutoInt model;
  StreamLayoutChoice stream_layout = StreamLayoutChoice::kAuto;
  int64_t zero = 0;
  int64_t threads = 0;
  double bucket_mb = 25;
  int64_t deadline_seconds = 600, watchdog_seconds = 0, check_every = 1000;

  void visit(auto&& f) {
    f("model", model, int64_t{1}, int64_t{65536},
      "ranks that share one copy of the streams or experts");
    f("stream_layout", stream_layout,
      "what each of them has: gather, whole streams; slice, a slice of every stream");
    f("zero", zero, int64_t{0}, int64_t{1},
      "1: a rank keeps the optimizer's state of its share of the parameters only");
    f("threads", threads, int64_t{0}, int64_t{1024}, "threads of a rank; 0: its share of cores");
    f("bucket_mb", bucket_mb, 0.01, 4096.0, "megabytes of gradient reduced at a time");
    f("deadline_seconds", deadline_seconds, int64_t{1}, int64_t{86400},
      "a rank that waits longer for another gives up with exit code 69");
    f("watchdog_seconds", watchdog_seconds, int64_t{-1}, int64_t{86400},
      "a rank without progress for longer ends the job with exit code 69; 0: 60, or 10 median "
      "steps if they are longer; -1: never");
    f("check_every", check_every, int64_t{0}, kMaxCount,
      "steps between two comparisons of the weights that ranks share; 0: never");
  }

  bool operator==(const ParallelConfig&) const = default;
};

struct CheckpointConfig {
  int64_t every_steps = 0, keep_last = 3, keep_every = 0;
  std::vector<int64_t> words;
  bool async = true;

  void visit(auto&& f) {
    f("every_steps", every_steps, int64_t{0}, kMaxCount, "steps between saves; 0: at the end only");
    f("keep_last", keep_last, int64_t{1}, int64_t{100000}, "newest checkpoints that are kept");
    f("keep_every", keep_every, int64_t{0}, kMaxCount,
      "checkpoints of every n-th step are kept for good; 0: none");
    f("words", words, int64_t{1}, kMaxCount,
      "words of text trained on after which a checkpoint is kept for good, as "
      "checkpoints/words-N; rising");
    f("async", async, "write while training goes on");
  }

  bool operator==(const CheckpointConfig&) const = default;
};

struct EvalConfig {
  int64_t every_steps = 0, max_tokens = 0;

  void visit(auto&& f) {
    f("every_steps", every_steps, int64_t{0}, kMaxCount,
      "steps between validations; 0: at the end only");
    f("max_tokens", max_tokens, int64_t{0}, kMaxCount,
      "tokens of a validation; 0: the whole split");
  }

  bool operator==(const EvalConfig&) const = default;
};

struct MetricsConfig {
  std::string listen = "127.0.0.1:9464";
  double peak_tflops = 0;
  int64_t label_limit = 1024;

  void visit(auto&& f) {
    f("listen", listen, "host:port of the Prometheus endpoint (port 0: any free one), or off");
    f("peak_tflops", peak_tflops, 0.0, 1e6,
      "a rank's peak in TFLOP/s, which MFU is measured against; 0: unknown, no MFU");
    f("label_limit", label_limit, int64_t{0}, int64_t{100000},
      "series that a metric may have by layer, stream or expert; more are not scraped, 0: none");
  }

  bool operator==(const MetricsConfig&) const = default;
};

}  // namespace anabranch
