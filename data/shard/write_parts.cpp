#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>
#include <tuple>
#include <utility>

#include "core/base/error.h"
#include "data/shard/encode_pool.h"
#include "data/shard/parts.h"

namespace anabranch {
namespace {

using Clock = std::chrono::steady_clock;

// A batch ends with the document that reaches one of these.
constexpr int64_t kBatchBytes = int64_t{1} << 19U, kBatchDocuments = 4096;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Reads, hands out and writes on the caller's thread; the pool tokenises.
class PartWriter {
 public:
  PartWriter(const Tokenizer& tokenizer, const BuildOptions& options, int workers)
      : options_(options),
        narrow_(token_type(static_cast<int64_t>(tokenizer.vocab_size())) == Hdf5Type::kU16),
        most_pending_(4 * workers),
        names_{options.out},
        out_(names_.tokens(options.rank)),
        pool_(tokenizer, options.begin_documents ? tokenizer.bos_id() : std::nullopt, workers) {}

  void run(const std::vector<std::vector<InputText>>& files) {
    int64_t count = 0;
    for (const auto& source : files) {
      count += std::ssize(source);
      for (const InputText& file : source) progress_.bytes_total += file.bytes;
    }
    // Few files: every rank reads them all, and tokenises every ranks-th batch.
    const bool by_file = count >= 4 * options_.ranks;
    int64_t number = 0;
    for (size_t s = 0; s < files.size(); ++s) {
      for (size_t f = 0; f < files[s].size(); ++f, ++number) {
        if (!by_file || number % options_.ranks == options_.rank) {
          read_file(static_cast<int64_t>(s), static_cast<int64_t>(f), files[s][f].path, by_file);
        }
        bytes_before_ += files[s][f].bytes;
      }
    }
    while (pool_.pending() > 0) write_next(true);
    report(true);
    out_.commit();
    write_part_index(names_.index(options_.rank), batches_);
  }

 private:
  void read_file(int64_t source, int64_t file, const std::string& path, bool all_mine) {
    const auto documents =
        open_documents(path, options_.sources[static_cast<size_t>(source)].format);
    TextBatch batch;
    int64_t number = 0;
    const auto flush = [&] {
      const bool mine = all_mine || number % options_.ranks == options_.rank;
      batch.to.source = source;
      batch.to.file = file;
      batch.to.number = number++;
      batch.to.rank = options_.rank;
      if (mine) hand_out(std::move(batch));
      batch = {};
    };
    for (std::string document; documents->next(document);) {
      if (document.empty()) {
        if (!options_.skip_empty) {
          throw data_error(documents->where(), ": the document is empty; remove it, or let empty ",
                           "documents be left out and counted (skip_empty)");
        }
        ++batch.to.empty_documents;
        continue;
      }
      batch.bytes += std::ssize(document);
      batch.documents.push_back(std::move(document));
      document = {};
      if (batch.bytes >= kBatchBytes || std::ssize(batch.documents) >= kBatchDocuments) flush();
      progress_.bytes = bytes_before_ + documents->bytes_read();
      report(false);
    }
    if (!batch.documents.empty() || batch.to.empty_documents > 0) flush();
  }

  void hand_out(TextBatch batch) {
    pool_.push(std::move(batch));
    while (write_next(pool_.pending() >= most_pending_)) {
    }
  }

  // Writes the next finished batch; false if there is none (yet).
  bool write_next(bool wait) {
    TokenBatch batch;
    if (!pool_.pop(batch, wait)) return false;
    batch.facts.position = position_;
    if (narrow_) {
      const std::vector<uint16_t> narrow(batch.tokens.begin(), batch.tokens.end());
      out_.write(position_ * 2, narrow.data(), narrow.size() * 2);
    } else {
      out_.write(position_ * 4, batch.tokens.data(), batch.tokens.size() * 4);
    }
    position_ += std::ssize(batch.tokens);
    progress_.tokens = position_;
    progress_.documents += std::ssize(batch.facts.lengths);
    batches_.push_back(std::move(batch.facts));
    return true;
  }

  void report(bool last) {
    if (!options_.progress) return;
    if (!last && seconds_since(reported_) < 0.25) return;
    reported_ = Clock::now();
    progress_.seconds = seconds_since(begun_);
    if (last) progress_.bytes = progress_.bytes_total;
    options_.progress(progress_);
  }

  const BuildOptions& options_;
  bool narrow_;
  int64_t most_pending_;
  PartNames names_;
  AtomicFile out_;
  EncodePool pool_;
  std::vector<PartBatch> batches_;
  int64_t position_ = 0, bytes_before_ = 0;
  BuildProgress progress_;
  Clock::time_point begun_ = Clock::now(), reported_ = begun_;
};

}  // namespace

void write_parts(const Tokenizer& tokenizer, const BuildOptions& options,
                 const std::vector<std::vector<InputText>>& files) {
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const int workers = options.workers > 0 ? options.workers : cores;
  PartWriter(tokenizer, options, workers).run(files);
}

void write_part_index(const std::string& path, const std::vector<PartBatch>& batches) {
  AtomicFile out(path);
  int64_t at = 0;
  for (const PartBatch& b : batches) {
    const int64_t head[] = {b.source,
                            b.file,
                            b.number,
                            b.rank,
                            b.position,
                            b.text_bytes,
                            b.empty_documents,
                            b.invalid_utf8_documents,
                            std::ssize(b.lengths)};
    out.write(at, head, sizeof(head));
    at += static_cast<int64_t>(sizeof(head));
    for (const std::vector<uint32_t>* of : {&b.lengths, &b.words}) {
      out.write(at, of->data(), of->size() * sizeof(uint32_t));
      at += static_cast<int64_t>(of->size() * sizeof(uint32_t));
    }
  }
  out.commit();
}

std::vector<PartBatch> read_part_index(const PartNames& names, int ranks) {
  std::vector<PartBatch> all;
  for (int rank = 0; rank < ranks; ++rank) {
    const InputFile in(names.index(rank));
    for (int64_t at = 0; at < in.size();) {
      int64_t head[9];
      in.read(at, head, sizeof(head));
      at += static_cast<int64_t>(sizeof(head));
      PartBatch b{head[0], head[1], head[2], head[3], head[4], head[5], head[6], head[7], {}, {}};
      const int64_t bytes = head[8] * static_cast<int64_t>(sizeof(uint32_t));
      if (head[8] < 0 || 2 * bytes > in.size() - at) throw data_error(in.path(), " is damaged");
      for (std::vector<uint32_t>* of : {&b.lengths, &b.words}) {
        of->resize(static_cast<size_t>(head[8]));
        in.read(at, of->data(), static_cast<size_t>(bytes));
        at += bytes;
      }
      all.push_back(std::move(b));
    }
  }
  std::sort(all.begin(), all.end(), [](const PartBatch& a, const PartBatch& b) {
    return std::tie(a.source, a.file, a.number) < std::tie(b.source, b.file, b.number);
  });
  return all;
}

}  // namespace anabranch
