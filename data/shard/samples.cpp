#include "data/shard/samples.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace anabranch {

Samples::Samples(const DataSource& source, Packing packing, int64_t T, bool documents)
    : tokens_(source.train), packing_(packing), T_(T) {
  if (T < 1) throw config_error("a context of ", T, " tokens; expected at least 1");
  if (documents || packing == Packing::kBestFit) documents_ = tokens_.document_offsets();
  if (packing == Packing::kWindows) {
    count_ = std::max<int64_t>(0, (tokens_.tokens() - 1) / T);
  } else {
    auto kept = read_rows(rows_path(source.folder, T), documents_, T + 1);
    rows_ = kept ? *std::move(kept) : best_fit_rows(documents_, T + 1);
    count_ = rows_.rows();
  }
  if (count_ > 0) return;
  throw data_error("source ", source.name, " in ", source.folder, " has ", tokens_.tokens(),
                   " training tokens, too few for one sample of a context of ", T, " (", T + 1,
                   " tokens); shorten the context or take more text");
}

template <class F>
void Samples::for_pieces(int64_t sample, const F& f) const {
  AB_CHECK(sample >= 0 && sample < count_, "sample ", sample, " of ", count_);
  if (packing_ == Packing::kWindows) {
    f(sample * T_, T_ + 1);
    return;
  }
  const auto row = static_cast<size_t>(sample);
  int64_t room = T_ + 1;
  for (uint64_t i = rows_.begins[row]; i < rows_.begins[row + 1]; ++i) {
    const size_t document = rows_.documents[i];
    const auto begin = static_cast<int64_t>(documents_[document]);
    const int64_t count = std::min(room, static_cast<int64_t>(documents_[document + 1]) - begin);
    f(begin, count);
    room -= count;
  }
  AB_CHECK(room == 0, "row ", sample, " of the table is ", room, " tokens short");
}

void Samples::read(int64_t sample, int32_t* to) const {
  for_pieces(sample, [&](int64_t first, int64_t count) {
    tokens_.read(first, count, to);
    to += count;
  });
}

void Samples::document_starts(int64_t sample, int32_t* to) const {
  AB_CHECK(!documents_.empty(), "samples that do not know their documents");
  int64_t at = 0;
  for_pieces(sample, [&](int64_t first, int64_t count) {
    count = std::min(count, T_ - at);
    starts_of_documents(documents_, first, count, static_cast<int32_t>(at), to + at);
    at += count;
  });
}

std::string Samples::where(int64_t sample, int64_t i) const {
  std::string place;
  for_pieces(sample, [&](int64_t first, int64_t count) {
    if (i >= 0 && i < count) place = tokens_.where(first + i);
    i -= count;
  });
  return place;
}

void write_row_tables(const Dataset& dataset, int64_t T) {
  for (const DataSource& source : dataset.sources()) {
    const std::vector<uint64_t> documents = source.train.document_offsets();
    write_rows(rows_path(source.folder, T), best_fit_rows(documents, T + 1), documents);
  }
}

}  // namespace anabranch
