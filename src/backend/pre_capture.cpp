// What ranks do together before and while they capture. Knows no device.

#include "renai/backend/pre_capture.hpp"

#include <algorithm>

#include "renai/base/check.hpp"
#include "renai/base/digest.hpp"
#include "renai/base/lines.hpp"
#include "renai/comm/ranks.hpp"

namespace renai {
namespace {

/// "at line 3: rank 0 has 'lr = 0.1', rank 2 has 'lr = 0.2'"
std::string describe_difference(const std::vector<std::string>& texts, int rank_a, int rank_b) {
  const auto a = lines_of(texts[static_cast<std::size_t>(rank_a)]);
  const auto b = lines_of(texts[static_cast<std::size_t>(rank_b)]);
  const std::size_t line = first_difference(a, b);
  const auto show = [line](int rank, const std::vector<std::string>& lines) {
    return "rank " + std::to_string(rank) + " has " + (line < lines.size() ? "'" + lines[line] + "'" : "nothing there");
  };
  return "at line " + std::to_string(line + 1) + ": " + show(rank_a, a) + ", " + show(rank_b, b);
}

/// One line a section: name, tab, digest.
std::string summarize(const Fingerprint& fingerprint) {
  std::string text;
  for (const auto& [name, content] : fingerprint.sections) text += name + '\t' + hash128(content).hex() + '\n';
  return text;
}

[[noreturn]] void refuse_section_lists(const std::vector<std::string>& summaries) {
  const RankSplit split = split_ranks(summaries);
  throw PeerError(
      name_ranks(split.odd) + " made another kind of fingerprint than rank " + std::to_string(split.reference),
      describe_difference(summaries, split.reference, split.odd.front()),
      "start all ranks with the same build of renai");
}

/// Index of the first section whose digests differ.
std::size_t first_differing_section(const std::vector<std::string>& summaries, std::size_t sections) {
  std::vector<std::vector<std::string>> lines;
  for (const std::string& summary : summaries) lines.push_back(lines_of(summary));
  for (const auto& other : lines) {
    if (other.size() != sections) refuse_section_lists(summaries);
  }
  std::size_t first = sections;
  for (std::size_t i = sections; i-- > 0;) {
    for (const auto& other : lines) {
      if (other[i].substr(0, other[i].find('\t')) != lines[0][i].substr(0, lines[0][i].find('\t')))
        refuse_section_lists(summaries);
      if (other[i] != lines[0][i]) first = i;
    }
  }
  return first;
}

}  // namespace

void compare_fingerprints(ControlGroup& control, const Fingerprint& own) {
  const auto summaries = control.all_gather(summarize(own), "comparing fingerprints");
  if (std::ranges::all_of(summaries, [&](const std::string& other) { return other == summaries.front(); })) return;
  // Every rank has all summaries and comes to the same section, so the second exchange meets too.
  const std::size_t section = first_differing_section(summaries, own.sections.size());
  const auto& [name, content] = own.sections[section];
  const auto texts = control.all_gather(content, "comparing fingerprints, section " + name);
  const RankSplit split = split_ranks(texts);
  RENAI_CHECK(!split.odd.empty(), "section '" + name + "' differs by digest but not by text");
  const std::string failed = name_ranks(split.odd) + (split.odd.size() == 1 ? " differs" : " differ") + " from rank " +
                             std::to_string(split.reference) + " in section '" + name + "' of the fingerprint";
  const std::string why = describe_difference(texts, split.reference, split.odd.front());
  if (name == "recipe" || name == "command line" || name == "checkpoint")
    throw UserError(failed, why, "start all ranks with the same options and recipe files");
  throw PeerError(failed, why, "start all ranks with the same build, libraries, devices and files");
}

void CaptureCoordinator::run(const std::string& key, const std::function<void()>& record,
                             const std::function<void()>& instantiate) {
  state_ = CaptureState::idle;
  try {
    const auto keys = control_->all_gather(key, "arriving for the capture of " + key);
    for (std::size_t rank = 0; rank < keys.size(); ++rank) {
      if (keys[rank] == key) continue;
      throw PeerError(
          "rank " + std::to_string(rank) + " arrived for another capture than rank " + std::to_string(control_->rank()),
          "it captures " + keys[rank] + ", this rank " + key, "start all ranks with the same build");
    }
    state_ = CaptureState::arrived;
    state_ = CaptureState::recording;
    record();
    state_ = CaptureState::recorded;
    instantiate();
    state_ = CaptureState::instantiated;
    control_->barrier("leaving the capture of " + key);
    state_ = CaptureState::done;
  } catch (const Error& error) {
    state_ = CaptureState::failed;
    control_->report_failure(error);
    throw;
  } catch (const std::exception& error) {
    state_ = CaptureState::failed;
    control_->report_failure(InternalError("the capture of " + key + " failed", error.what()));
    throw;
  }
}

}  // namespace renai
