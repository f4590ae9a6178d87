#include "data/validation.h"

#include <algorithm>

#include "core/base/error.h"

namespace anabranch {

Validation::Validation(const DataSource& source, int64_t vocab_size, ValidationOptions options)
    : source_(source), vocab_size_(vocab_size), options_(options) {
  AB_CHECK(options_.T >= 1 && options_.micro_batch >= 1, "batches of [", options_.micro_batch, ", ",
           options_.T, "]");
  AB_CHECK(options_.rank >= 0 && options_.rank < options_.ranks, "rank ", options_.rank, " of ",
           options_.ranks);
  const int64_t there = source.val.tokens() - 1;
  if (there < 1) {
    throw data_error("source ", source.name, " in ", source.folder, " has ", source.val.tokens(),
                     " validation tokens; build the shards with a validation fraction above 0, or ",
                     "switch validation off");
  }
  if (options_.with_document_starts) documents_ = source.val.document_offsets();
  const int64_t T = options_.T;
  stride_ = options_.stride > 0 ? options_.stride : T;
  AB_CHECK(stride_ <= T, "windows of ", T, " tokens, ", stride_, " apart");
  const auto behind = [&](int64_t targets) { return std::max<int64_t>(targets - T, 0); };
  windows_ = 1 + (behind(there) + stride_ - 1) / stride_;
  if (options_.max_tokens > 0) {
    windows_ = std::min(windows_, 1 + behind(options_.max_tokens) / stride_);
  }
  targets_ = std::min(there, T + (windows_ - 1) * stride_);
  const int64_t together = options_.micro_batch * options_.ranks;
  batches_ = (windows_ + together - 1) / together;
}

Batch Validation::at(int64_t i) const {
  AB_CHECK(i >= 0 && i < batches_, "batch ", i, " of ", batches_);
  const int64_t B = options_.micro_batch, T = options_.T;
  Batch batch;
  batch.inputs = Tensor({B, T}, DType::kI32, nullptr, "data");
  batch.targets = Tensor({B, T}, DType::kI32, nullptr, "data");
  batch.inputs.fill_zero();
  std::ranges::fill(batch.targets.span<int32_t>(), -1);
  if (options_.with_document_starts) {
    batch.document_starts = Tensor({B, T}, DType::kI32, nullptr, "data");
    batch.document_starts.fill_zero();
  }
  batch.first_sample = i * B * options_.ranks;
  std::vector<int32_t> tokens(static_cast<size_t>(T + 1));
  for (int64_t b = 0; b < B; ++b) {
    const int64_t window = (i * options_.ranks + options_.rank) * B + b;
    batch.samples.push_back(window);
    if (window >= windows_) continue;
    const int64_t first = window * stride_, count = std::min(T, targets_ - first);
    const int64_t known = window == 0 ? 0 : T - stride_;  // targets of the windows before
    source_.val.read(first, count + 1, tokens.data());
    for (int64_t t = 0; t <= count; ++t) {
      const int32_t id = tokens[static_cast<size_t>(t)];
      if (id >= 0 && (vocab_size_ == 0 || id < vocab_size_)) continue;
      throw data_error(source_.val.where(first + t), " is ", id, "; the vocabulary has ",
                       vocab_size_, " entries");
    }
    std::copy_n(tokens.begin(), count, batch.inputs.data<int32_t>() + b * T);
    std::copy(tokens.begin() + 1 + known, tokens.begin() + 1 + count,
              batch.targets.data<int32_t>() + b * T + known);
    batch.target_tokens += count - known;
    if (batch.document_starts.empty()) continue;
    starts_of_documents(documents_, first, T, 0, batch.document_starts.data<int32_t>() + b * T);
  }
  return batch;
}

}  // namespace anabranch
