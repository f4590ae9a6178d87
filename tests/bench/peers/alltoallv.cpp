// What a dispatch to experts and back is measured against: a copy, MPI_Alltoallv there, another
// home, a copy. Prints medians over rounds of the slowest rank as JSON.
//
//   mpicxx -O3 alltoallv.cpp -o alltoallv && mpirun -np 2 ./alltoallv BYTES_OUT BYTES_HOME ROUNDS
//
// Bytes are those that a rank sends in all, as many to each rank, its own part among them.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <mpi.h>

namespace {

// One way: as many bytes to each rank.
class Way {
 public:
  Way(long bytes, int ranks)
      : each_(static_cast<int>(bytes / ranks)),
        counts_(static_cast<size_t>(ranks), each_),
        begins_(static_cast<size_t>(ranks)),
        from_(size(), 1),
        to_(size(), 2),
        copy_(size(), 3) {
    for (size_t r = 0; r < begins_.size(); ++r) begins_[r] = static_cast<int>(r) * each_;
  }

  void send() {
    MPI_Alltoallv(from_.data(), counts_.data(), begins_.data(), MPI_BYTE, to_.data(),
                  counts_.data(), begins_.data(), MPI_BYTE, MPI_COMM_WORLD);
  }

  void pack() { std::memcpy(from_.data(), copy_.data(), size()); }

  void unpack() { std::memcpy(copy_.data(), to_.data(), size()); }

 private:
  [[nodiscard]] size_t size() const { return counts_.size() * static_cast<size_t>(each_); }

  int each_;
  std::vector<int> counts_, begins_;
  std::vector<char> from_, to_, copy_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 4) {
    if (rank == 0) std::fputs("usage: alltoallv BYTES_OUT BYTES_HOME ROUNDS\n", stderr);
    MPI_Finalize();
    return 64;
  }
  Way out(std::atol(argv[1]), ranks), home(std::atol(argv[2]), ranks);
  const int rounds = std::max(std::atoi(argv[3]), 1);
  std::vector<double> seconds, transfers;
  for (int i = 0; i <= rounds; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    out.pack();
    const double packed = MPI_Wtime();
    out.send();
    home.send();
    const double sent = MPI_Wtime();
    home.unpack();
    double took[2] = {MPI_Wtime() - begin, sent - packed};
    MPI_Allreduce(MPI_IN_PLACE, took, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (i == 0) continue;  // it touches fresh memory
    seconds.push_back(took[0]);
    transfers.push_back(took[1]);
  }
  if (rank == 0) {
    std::printf("{\n  \"seconds\": %.9f,\n  \"transfer_seconds\": %.9f\n}\n", median(seconds),
                median(transfers));
  }
  MPI_Finalize();
  return 0;
}
