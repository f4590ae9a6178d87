// MPI, from its start to its end, as one object of main().
#pragma once

#include <memory>

#include "parallel/comm/group.h"

namespace anabranch {

// Starts MPI when made and ends it when destroyed: at most one per process. All groups made from it
// must be gone by then. If it is destroyed because of an exception, it ends the job instead,
// since the other ranks would wait in MPI_Finalize for ever.
class MpiWorld {
 public:
  // Also tells malloc to keep what it frees: fresh pages are slow, and MPI asks for many.
  MpiWorld();
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  [[nodiscard]] int rank() const { return rank_; }

  [[nodiscard]] int size() const { return size_; }

  // All ranks of the job. Every rank makes its groups in the same order.
  [[nodiscard]] std::unique_ptr<Group> group() const;

  // Ends all ranks of the job at once, mpirun's exit code being `exit_code`; to be called by
  // launch, after it has printed what went wrong.
  [[noreturn]] static void abort(int exit_code);

 private:
  int rank_ = 0;
  int size_ = 1;
  int exceptions_;  // in flight when it was made
};

// Whether this process was started by mpirun or srun, so that it has to start MPI.
[[nodiscard]] bool started_by_mpi();

// Its number among those that were started together, and how many they are, as the launcher says
// before MPI is there; 0 and 1 if it is alone.
[[nodiscard]] int started_rank();
[[nodiscard]] int started_ranks();

}  // namespace anabranch
