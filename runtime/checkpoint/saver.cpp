#include "runtime/checkpoint/saver.h"

#include <algorithm>
#include <chrono>

#include "core/base/error.h"
#include "core/base/read_file.h"
#include "data/hdf5/file.h"
#include "runtime/checkpoint/late_files.h"

namespace anabranch {
namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Hdf5Type hdf5_type(DType type) {
  switch (type) {
    case DType::kF32:
      return Hdf5Type::kF32;
    case DType::kF64:
      return Hdf5Type::kF64;
    case DType::kI64:
      return Hdf5Type::kI64;
    default:
      AB_FAIL("state of type ", name_of(type), " is not saved");
  }
}

}  // namespace

CheckpointSaver::CheckpointSaver(CheckpointDirectory directory, int rank, int ranks,
                                 Retention retention, Trace* trace)
    : directory_(std::move(directory)),
      rank_(rank),
      ranks_(ranks),
      retention_(retention),
      trace_(trace) {}

CheckpointSaver::~CheckpointSaver() { join(); }

void CheckpointSaver::join() {
  if (thread_.joinable()) thread_.join();
}

std::string CheckpointSaver::error() const {
  const std::scoped_lock hold(lock_);
  return error_;
}

std::string CheckpointSaver::file_name(int rank, const char* extension) const {
  std::string digits = std::to_string(rank);
  digits.insert(0, digits.size() < 4 ? 4 - digits.size() : 0, '0');
  return "rank-" + digits + extension;
}

void CheckpointSaver::lay_out(const std::vector<StateItem>& items) {
  const std::vector<size_t> mine = stored_by(rank_, items);
  pieces_.resize(mine.size());
  for (size_t i = 0; i < mine.size(); ++i) {
    const StateItem& item = items[mine[i]];
    Piece& piece = pieces_[i];
    piece.item = mine[i];
    piece.entry = {item.name,
                   item.part,
                   item.from,
                   item.value.count(),
                   item.value.dtype(),
                   0,
                   file_name(rank_, ".h5")};
    if (piece.copy.empty() || piece.copy.dtype() != item.value.dtype() ||
        !(piece.copy.shape() == item.value.shape())) {
      piece.copy = item.value.device().is_cpu() ? item.value.like("checkpoint")
                                                : Tensor(item.value.shape(), item.value.dtype());
    }
  }
}

void CheckpointSaver::prepare(const std::vector<StateItem>& items) {
  lay_out(items);
  join();
  thread_ = std::thread([this] {
    for (Piece& piece : pieces_) piece.copy.fill_zero();
  });
}

void CheckpointSaver::start(const Manifest& header, const std::vector<StateItem>& items,
                            std::vector<std::string> labels) {
  AB_CHECK(phase() == Phase::kIdle, "a save starts while another is under way");
  const auto begin = Clock::now();
  const Span span(trace_, Lane::kSave, "snapshot");
  join();  // prepare() may still run
  header_ = header;
  labels_ = std::move(labels);
  timing_ = {};
  {
    const std::scoped_lock hold(lock_);
    error_.clear();
  }
  lay_out(items);
  for (Piece& piece : pieces_) {
    piece.copy.copy_from(items[piece.item].value);
    timing_.bytes += static_cast<int64_t>(piece.copy.bytes());
  }
  timing_.stall_seconds = seconds_since(begin);
  run(Phase::kWritten, &CheckpointSaver::write);
}

void CheckpointSaver::run(Phase on_success, void (CheckpointSaver::*work)()) {
  join();
  phase_ = on_success == Phase::kWritten ? Phase::kWriting : Phase::kPublishing;
  thread_ = std::thread([this, on_success, work] {
    try {
      (this->*work)();
      phase_ = on_success;
    } catch (const std::exception& failure) {
      const std::scoped_lock hold(lock_);
      error_ = failure.what();
      phase_ = Phase::kFailed;
    }
  });
}

void CheckpointSaver::write() {
  const auto begin = Clock::now();
  const Span span(trace_, Lane::kSave, "write");
  const fs::path folder = directory_.temporary(header_.step);
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) throw io_error("cannot create ", folder.string(), ": ", failure.message());

  Hdf5Writer file((folder / file_name(rank_, ".h5")).string());
  file.set("step", header_.step);
  for (const Piece& piece : pieces_) {
    check_finite(piece.entry.name, piece.copy);  // a poisoned model must not replace a good one
    const Shape& shape = piece.copy.shape();
    file.add(piece.entry.name, hdf5_type(piece.entry.type), {shape.begin(), shape.end()});
  }
  file.lay_out();
  std::vector<CheckpointEntry> entries;
  for (Piece& piece : pieces_) {
    piece.entry.crc32c =
        file.write(piece.entry.name, piece.copy.raw(), static_cast<int64_t>(piece.copy.bytes()));
    entries.push_back(piece.entry);
  }
  file.commit();
  write_atomically((folder / file_name(rank_, ".json")).string(), entries_json(entries));
  timing_.write_seconds = seconds_since(begin);
}

void CheckpointSaver::write_manifest() {
  const Span span(trace_, Lane::kSave, "publish");
  const fs::path folder = directory_.temporary(header_.step);
  Manifest manifest = header_;
  manifest.entries.clear();
  for (int rank = 0; rank < ranks_; ++rank) {
    const fs::path list = folder / file_name(rank, ".json");
    wait_for_file(list);
    for (CheckpointEntry& e : parse_entries(read_file(list.string()), list.string())) {
      manifest.entries.push_back(std::move(e));
    }
    fs::remove(list);
  }
  manifest.check_coverage();
  write_atomically((folder / "manifest.json").string(), manifest.json());
  directory_.label(header_.step, labels_);  // before the name it points to: a kill loses neither
  directory_.publish(header_.step);
  directory_.prune(retention_.keep_last, retention_.keep_every, header_.step);
}

void CheckpointSaver::publish() {
  AB_CHECK(phase() == Phase::kWritten, "publish before the file was written");
  if (rank_ == 0) {
    run(Phase::kIdle, &CheckpointSaver::write_manifest);
  } else {
    join();
    phase_ = Phase::kIdle;
  }
}

void CheckpointSaver::abandon() {
  join();
  if (rank_ == 0) {
    std::error_code ignored;
    fs::remove_all(directory_.temporary(header_.step), ignored);
  }
  phase_ = Phase::kIdle;
}

}  // namespace anabranch
