#include "shard_summary.hpp"

#include <sstream>

#include "renai/base/error.hpp"

namespace renai {

std::string print_summary(const ShardSummary& summary) {
  std::ostringstream text;
  text << "digest " << summary.digest << "\nsamples " << summary.samples << ' ' << summary.encoded_here << "\nunits "
       << summary.units;
  for (std::size_t c = 0; c < summary.sum.size(); ++c) text << ' ' << summary.sum[c] << ' ' << summary.square_sum[c];
  text << "\nclasses " << summary.samples_by_class.size();
  for (const auto& [label, count] : summary.samples_by_class) text << ' ' << label << ' ' << count;
  text << "\nrefused " << summary.refused.size() << '\n';
  for (const std::string& line : summary.refused) text << line << '\n';
  text << "end\n";
  return text.str();
}

ShardSummary parse_summary(const std::string& text) {
  std::istringstream in(text);
  ShardSummary summary;
  std::string word;
  std::size_t count = 0;
  in >> word >> summary.digest >> word >> summary.samples >> summary.encoded_here >> word >> summary.units;
  for (std::size_t c = 0; c < summary.sum.size(); ++c) in >> summary.sum[c] >> summary.square_sum[c];
  in >> word >> count;
  for (std::size_t i = 0; i < count && in; ++i) {
    std::int32_t label = 0;
    in >> label;
    in >> summary.samples_by_class[label];
  }
  in >> word >> count;
  std::string line;
  std::getline(in, line);
  for (std::size_t i = 0; i < count && std::getline(in, line); ++i) summary.refused.push_back(line);
  if (!(in >> word) || word != "end") {
    throw DataError("the summary of a shard", "it is not whole", "pack the data set again with --overwrite");
  }
  return summary;
}

}  // namespace renai
