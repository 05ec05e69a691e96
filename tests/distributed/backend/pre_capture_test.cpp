// Coordinated capture and fingerprint comparison over real ranks, faults included.
#include "renai/backend/pre_capture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <thread>

#include "../comm/support.hpp"
#include "renai/comm/mpi.hpp"
#include "renai/device/host.hpp"

namespace renai {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using testing::meet;
using testing::seconds_since;

constexpr milliseconds kLong{30'000}, kShort{700};

class Ranks : public ::testing::Test {
 protected:
  void TearDown() override { meet(); }
  int rank() const { return mpi->rank(); }
  int ranks() const { return mpi->world_size(); }
  int last() const { return ranks() - 1; }
  std::string last_name() const { return "rank " + std::to_string(last()); }
  std::unique_ptr<MpiSession> mpi = start_mpi();
};

class Coordinated : public Ranks {};

TEST_F(Coordinated, WalksThroughItsStates) {
  const auto control = mpi->make_control_group(kLong);
  CaptureCoordinator coordinator(*control);
  EXPECT_EQ(coordinator.state(), CaptureState::idle);
  std::vector<CaptureState> seen;
  for (const std::string key : {"DEEP_COMM", "FIRST_COMM"}) {
    coordinator.run(
        key, [&] { seen.push_back(coordinator.state()); }, [&] { seen.push_back(coordinator.state()); });
    EXPECT_EQ(coordinator.state(), CaptureState::done);
  }
  EXPECT_EQ(seen, (std::vector<CaptureState>{CaptureState::recording, CaptureState::recorded, CaptureState::recording,
                                             CaptureState::recorded}));
}

TEST_F(Coordinated, NobodyRecordsBeforeAllHaveArrivedAndNobodyLeavesBeforeAllAreDone) {
  if (ranks() == 1) GTEST_SKIP() << "needs two ranks";
  const auto control = mpi->make_control_group(kLong);
  CaptureCoordinator coordinator(*control);
  meet();
  const auto start = testing::Clock::now();
  if (rank() == last()) std::this_thread::sleep_for(milliseconds{100});
  double recorded_at = 0;
  coordinator.run(
      "DEEP_COMM", [&] { recorded_at = seconds_since(start); },
      [&] {
        if (rank() == 0) std::this_thread::sleep_for(milliseconds{100});
      });
  EXPECT_GE(recorded_at, 0.07);
  EXPECT_GE(seconds_since(start), 0.15);
}

TEST_F(Coordinated, ARankThatNeverArrivesIsNamed) {
  if (ranks() == 1) GTEST_SKIP() << "needs two ranks";
  const auto control = mpi->make_control_group(kShort);
  CaptureCoordinator coordinator(*control);
  meet();
  if (rank() == last()) return;
  bool recorded = false;
  const auto start = testing::Clock::now();
  try {
    coordinator.run(
        "DEEP_COMM", [&] { recorded = true; }, [] {});
    FAIL() << "nobody was missed";
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(), HasSubstr(last_name()));
    EXPECT_THAT(error.what(), HasSubstr("arriving for the capture of DEEP_COMM"));
  }
  EXPECT_FALSE(recorded);
  EXPECT_EQ(coordinator.state(), CaptureState::failed);
  EXPECT_LT(seconds_since(start), 5.0);
}

TEST_F(Coordinated, ARankWithAnotherKeyIsNamedWithBothKeys) {
  if (ranks() == 1) GTEST_SKIP() << "needs two ranks";
  const auto control = mpi->make_control_group(kLong);
  CaptureCoordinator coordinator(*control);
  try {
    coordinator.run(
        rank() == last() ? "STATS_COMM" : "DEEP_COMM", [] {}, [] {});
    FAIL() << "the keys differ";
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("STATS_COMM"));
    EXPECT_THAT(error.what(), HasSubstr("DEEP_COMM"));
  }
  EXPECT_EQ(coordinator.state(), CaptureState::failed);
}

TEST_F(Coordinated, AFailureOfOneRankEndsAllAtOnce) {
  if (ranks() == 1) GTEST_SKIP() << "needs two ranks";
  for (const bool while_recording : {true, false}) {
    meet();
    const auto session = start_mpi();  // A failure is for good: the other case needs a board of its own.
    const auto control = session->make_control_group(kLong);
    CaptureCoordinator coordinator(*control);
    const auto start = testing::Clock::now();
    const auto fail = [&](bool here) {
      if (here && rank() == last()) throw std::runtime_error("out of handles");
    };
    if (rank() == last()) {
      EXPECT_THROW(coordinator.run(
                       "DEEP_COMM", [&] { fail(while_recording); }, [&] { fail(!while_recording); }),
                   std::runtime_error);
    } else {
      try {
        coordinator.run(
            "DEEP_COMM", [] {}, [] {});
        FAIL() << "the failure was not noticed";
      } catch (const PeerError& error) {
        EXPECT_THAT(error.what(), HasSubstr(last_name() + " on "));
        EXPECT_THAT(error.what(), HasSubstr("the capture of DEEP_COMM failed; out of handles"));
      }
    }
    EXPECT_EQ(coordinator.state(), CaptureState::failed);
    EXPECT_LT(seconds_since(start), 5.0);
  }
}

TEST_F(Coordinated, ARankThatHangsWhileRecordingIsNamed) {
  if (ranks() == 1) GTEST_SKIP() << "needs two ranks";
  const auto control = mpi->make_control_group(kShort);
  CaptureCoordinator coordinator(*control);
  meet();
  try {
    coordinator.run(
        "DEEP_COMM",
        [&] {
          if (rank() == last()) std::this_thread::sleep_for(milliseconds{2500});
        },
        [] {});
    FAIL() << "nobody was missed";
  } catch (const PeerError& error) {
    if (rank() != last()) {
      EXPECT_THAT(error.what(), HasSubstr(last_name() + " while leaving the capture of DEEP_COMM"));
    }
  }
}

Fingerprint make_fingerprint() {
  return {{{"recipe", "lr = 0.1\nglobal_batch = 64\nseed = 1\n"},
           {"build", "renai 0.1.0\n"},
           {"atlas", "DEEP_COMM 0\nFIRST_COMM 1\n"}}};
}

class Fingerprints : public Ranks {
 protected:
  /// What comparing gives on this rank; the error's kind and text, or "equal".
  std::pair<ErrorKind, std::string> compare(const Fingerprint& own) {
    try {
      compare_fingerprints(*control, own);
      return {ErrorKind::internal, "equal"};
    } catch (const Error& error) {
      return {error.kind(), error.what()};
    }
  }
  std::unique_ptr<ControlGroup> control = mpi->make_control_group(kLong);
};

TEST_F(Fingerprints, EqualOnesPass) {
  EXPECT_EQ(compare(make_fingerprint()).second, "equal");
  EXPECT_EQ(compare({}).second, "equal");
}

TEST_F(Fingerprints, ADifferentRecipeIsTheUsersMistakeAndNamesTheLine) {
  if (ranks() == 1) GTEST_SKIP() << "needs two ranks";
  Fingerprint own = make_fingerprint();
  if (rank() == last()) {
    own.sections[0].second = "lr = 0.1\nglobal_batch = 128\nseed = 2\n";
    own.sections[2].second = "other";  // Follows from the recipe; the first section counts.
  }
  const auto [kind, text] = compare(own);
  EXPECT_EQ(kind, ErrorKind::user);
  EXPECT_THAT(text, HasSubstr(last_name() + " differs from rank 0 in section 'recipe'"));
  EXPECT_THAT(text,
              HasSubstr("at line 2: rank 0 has 'global_batch = 64', " + last_name() + " has 'global_batch = 128'"));
}

TEST_F(Fingerprints, OtherSectionsArePeerErrors) {
  if (ranks() == 1) GTEST_SKIP() << "needs two ranks";
  Fingerprint own = make_fingerprint();
  if (rank() == last()) own.sections[2].second = "DEEP_COMM 0\n";
  const auto [kind, text] = compare(own);
  EXPECT_EQ(kind, ErrorKind::peer);
  EXPECT_THAT(text, HasSubstr("section 'atlas'"));
  EXPECT_THAT(text, HasSubstr("rank 0 has 'FIRST_COMM 1', " + last_name() + " has nothing there"));
}

TEST_F(Fingerprints, TheMajorityIsRightAndAllOddRanksAreNamed) {
  if (ranks() < 4) GTEST_SKIP() << "needs four ranks";
  Fingerprint own = make_fingerprint();
  if (rank() == 0) own.sections[1].second = "renai 0.0.9\n";
  if (ranks() == 8 && rank() == 5) own.sections[1].second = "renai 0.0.8\n";
  const auto [kind, text] = compare(own);
  EXPECT_EQ(kind, ErrorKind::peer);
  EXPECT_THAT(text, HasSubstr(ranks() == 8 ? "ranks 0, 5 differ from rank 1" : "rank 0 differs from rank 1"));
  EXPECT_THAT(text, HasSubstr("rank 1 has 'renai 0.1.0', rank 0 has 'renai 0.0.9'"));
}

TEST_F(Fingerprints, OtherListsOfSectionsAreRefused) {
  if (ranks() == 1) GTEST_SKIP() << "needs two ranks";
  Fingerprint own = make_fingerprint();
  if (rank() == last()) own.sections.pop_back();
  EXPECT_THAT(compare(own).second, HasSubstr(last_name() + " made another kind of fingerprint"));
  own = make_fingerprint();
  if (rank() == last()) own.sections[1].first = "libraries";
  EXPECT_THAT(compare(own).second, HasSubstr(last_name() + " made another kind of fingerprint"));
}

TEST_F(Fingerprints, LongTextsAreComparedInFull) {
  if (ranks() == 1) GTEST_SKIP() << "needs two ranks";
  std::string text;
  for (int line = 0; line < 50'000; ++line) text += "tensor " + std::to_string(line) + "\n";
  Fingerprint own{{{"plans", text}}};
  if (rank() == last()) own.sections[0].second.replace(text.find("tensor 49999"), 12, "tensor 4999x");
  EXPECT_THAT(compare(own).second, HasSubstr("at line 50000"));
}

/// Counts what capture_atlas asks for. Collective graphs reduce `values`; all others count their runs.
class CountingBackend final : public Backend {
 public:
  std::string name() const override { return "counting"; }
  std::string library() const override { return "none"; }
  Support supports(Precision) const override { return Support::ok(); }
  KernelBook survey(const ComputationGraph&, const ShapeTable&, std::span<const CompileSpec>) override { return {}; }
  void warm_up(const BindContext&, GraphId id) override { ++warmed[id]; }
  void record(const BindContext& context, GraphId id, int part, Stream& stream) override {
    ++recorded[{id, part}];
    if (is_collective(id)) {
      context.communicator->tree_reduce(values.data(), static_cast<std::int64_t>(values.size()), scratch.data(), stream,
                                        std::string(graph_id_name(id)));
    } else {
      dynamic_cast<HostStream&>(stream).enqueue([this, id] { ++runs[id]; });
    }
  }

  std::map<GraphId, int> warmed, runs;
  std::map<std::pair<GraphId, int>, int> recorded;
  std::vector<float> values = std::vector<float>(100);
  std::vector<std::byte> scratch = std::vector<std::byte>(4096);
};

class CaptureAtlas : public Ranks {
 protected:
  void SetUp() override {
    if ((ranks() & (ranks() - 1)) != 0) GTEST_SKIP() << "needs a power of two of ranks";
  }
  static GraphOptions options_of(int ranks) {
    GraphOptions options;
    options.world_size = ranks;
    return options;
  }
  void make_atlas() {
    graph = std::make_unique<ComputationGraph>(build_computation_graph(load_model("mlp"), options_of(ranks())));
    const auto specs = make_specs({.train_samples = 100,
                                   .val_samples = 50,
                                   .global_batch = 32,
                                   .val_global_batch = 32,
                                   .resolutions = {{28, 0}},
                                   .val_resolution = 28});
    atlas = std::make_unique<GraphAtlas>(build_atlas(*graph, specs));
    communicator = mpi->make_communicator(kLong);
    BindContext context;
    context.graph = graph.get();
    context.communicator = communicator.get();
    contexts.assign(specs.size(), context);
    for (int i = 0; i < kStreamCount; ++i) streams.push_back(device->create_stream(i));
  }

  std::unique_ptr<Device> device = make_host_device();
  std::vector<std::unique_ptr<Stream>> streams;
  std::unique_ptr<ComputationGraph> graph;
  std::unique_ptr<GraphAtlas> atlas;
  std::unique_ptr<Communicator> communicator;
  std::vector<BindContext> contexts;
};

TEST_F(CaptureAtlas, EveryKeyIsWarmedAndCapturedOnceAndReplays) {
  make_atlas();
  CountingBackend backend;
  const auto control = mpi->make_control_group(kLong);
  const PreCaptureResult result = capture_atlas(*atlas, contexts, backend, streams, *control);
  ASSERT_EQ(result.graphs.size(), atlas->captures().size());
  EXPECT_GE(result.seconds, 0.0);
  EXPECT_TRUE(backend.runs.empty()) << "capturing ran something";
  int collectives = 0;
  for (std::size_t i = 0; i < result.graphs.size(); ++i) {
    const CaptureKey& key = atlas->captures()[i];
    EXPECT_EQ(result.graphs[i].part_count(), graph->part_count(key.id));
    EXPECT_GE(backend.warmed[key.id], 1);
    collectives += key.collective ? 1 : 0;
    if (key.collective) {
      // Once for the first exchange, once for the capture.
      EXPECT_EQ((backend.recorded[{key.id, 0}]), 2);
      std::ranges::copy(testing::vector_of(rank(), 100), backend.values.begin());
      Stream& stream = *streams[static_cast<std::size_t>(StreamId::COMM)];
      result.graphs[i].launch(stream);
      stream.synchronize();
      EXPECT_EQ(backend.values, testing::serial_tree_vector(ranks(), 100)) << graph_id_name(key.id);
    } else {
      const int before = backend.runs[key.id];
      Stream& stream = *streams[static_cast<std::size_t>(atlas->slot(key.plan, key.id).stream)];
      for (int part = 0; part < result.graphs[i].part_count(); ++part) result.graphs[i].launch(stream, part);
      stream.synchronize();
      EXPECT_EQ(backend.runs[key.id], before + result.graphs[i].part_count());
    }
  }
  EXPECT_GT(collectives, 0);
}

TEST_F(CaptureAtlas, ARankThatStaysAwayIsNamed) {
  if (ranks() == 1) GTEST_SKIP() << "needs two ranks";
  make_atlas();
  CountingBackend backend;
  const auto control = mpi->make_control_group(kShort);
  meet();
  if (rank() == last()) return;
  try {
    capture_atlas(*atlas, contexts, backend, streams, *control);
    FAIL() << "nobody was missed";
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(), HasSubstr(last_name() + " while arriving for the first exchange of "));
  }
}

}  // namespace
}  // namespace renai
