// main() of distributed tests: MPI around GoogleTest; the verdict is the worst of all ranks. Rank 0 prints as usual,
// the other ranks print failures only, with their number.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>

#include "leak_check_off.hpp"

namespace {

class FailurePrinter : public ::testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}
  void OnTestStart(const ::testing::TestInfo& test) override { test_ = &test; }
  /// GoogleTest holds its lock meanwhile: to ask it for the test that runs would wait for ever.
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d: %s.%s failed at %s:%d\n%s\n", rank_, test_ ? test_->test_suite_name() : "",
                 test_ ? test_->name() : "", result.file_name() ? result.file_name() : "?", result.line_number(),
                 result.summary());
  }

 private:
  int rank_;
  const ::testing::TestInfo* test_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);  // As start_mpi: blocking calls must not burn a shared core.
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  ::testing::InitGoogleTest(&argc, argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (provided != MPI_THREAD_MULTIPLE) {
    std::fprintf(stderr, "rank %d: the MPI library gives thread level %d, the tests need MPI_THREAD_MULTIPLE\n", rank,
                 provided);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  if (rank != 0) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter(rank));  // GoogleTest owns it.
  }
  const int own = RUN_ALL_TESTS();
  int worst = 0;
  MPI_Allreduce(&own, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0 && own == 0 && worst != 0) std::fprintf(stderr, "rank 0 passed, another rank failed\n");
  MPI_Finalize();
  return worst;
}
