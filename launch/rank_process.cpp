#include "launch/rank_process.h"

#include <chrono>
#include <exception>
#include <iostream>
#include <thread>

#include "core/base/error.h"
#include "core/base/parallel_for.h"

namespace anabranch {
namespace {

// What every rank finds wrong alike (a bad key, a missing file) rank 0 says and ends the job; the
// others speak only if it does not.
constexpr auto kRankZeroFirst = std::chrono::milliseconds(1500);

[[noreturn]] void end_job(RankProcess& process, const std::string& what, Fault fault) {
  if (!process.first()) std::this_thread::sleep_for(kRankZeroFirst);
  const auto rank = static_cast<size_t>(process.context().rank);
  std::cerr << join("anabranch: error: rank ", rank, " on ", process.topology().hosts[rank], ": ",
                    what, "\n")
            << std::flush;
  MpiWorld::abort(static_cast<int>(fault));
}

}  // namespace

RankProcess::RankProcess(int64_t threads) {
  if (started_by_mpi()) {
    mpi_ = std::make_unique<MpiWorld>();
    world_ = mpi_->group();
  } else {
    world_ = self_group();
  }
  topology_ = find_topology(*world_);
  context_.rank = world_->rank();
  context_.size = world_->size();
  context_.pool = std::make_shared<Pool>();
  context_.threads = threads > 0 ? static_cast<int>(threads) : topology_.threads;
  context_.trace = &trace_;
  set_thread_count(context_.threads);
  world_->set_trace(&trace_);
}

void RankProcess::open_log(const std::string& file) {
  log_ = std::make_unique<Log>(context_.rank, file, false);
  context_.log = log_.get();
}

int run_rank(int64_t threads, const std::function<int(RankProcess&)>& body) {
  RankProcess process(threads);
  if (process.world().size() == 1) return body(process);
  try {
    return body(process);
  } catch (const Error& error) {
    end_job(process, error.what(), error.fault());
  } catch (const std::exception& error) {
    end_job(process, error.what(), Fault::kInternal);
  }
}

}  // namespace anabranch
