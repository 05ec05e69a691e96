#include <algorithm>
#include <map>
#include <sstream>

#include "renai/base/check.hpp"
#include "renai/comm/control_group.hpp"

namespace renai {
namespace {

constexpr char kSeparator = '\x1f';

std::string encode(const RankPlace& place) {
  std::string text;
  for (const std::string& field : {place.host, place.device, place.uuid, std::to_string(place.numa_node)}) {
    RENAI_CHECK(field.find(kSeparator) == std::string::npos, "a host or device name holds a control character");
    text += field + kSeparator;
  }
  return text + std::to_string(place.pid);
}

RankPlace decode(const std::string& text, int rank) {
  std::istringstream fields(text);
  std::string numa, pid;
  RankPlace place;
  place.rank = rank;
  std::getline(fields, place.host, kSeparator);
  std::getline(fields, place.device, kSeparator);
  std::getline(fields, place.uuid, kSeparator);
  std::getline(fields, numa, kSeparator);
  std::getline(fields, pid, kSeparator);
  RENAI_CHECK(!numa.empty() && !pid.empty(), "rank " + std::to_string(rank) + " sent no place");
  place.numa_node = std::stoi(numa);
  place.pid = std::stol(pid);
  return place;
}

/// Ranks per host where all hosts hold equally many, consecutive ranks in a power of two; else 1.
int contiguous_ranks_per_host(const std::vector<RankPlace>& places) {
  const int size = places.front().local_size;
  if ((size & (size - 1)) != 0) return 1;
  for (const RankPlace& place : places) {
    const RankPlace& leader = places[static_cast<std::size_t>(place.rank - place.rank % size)];
    if (place.local_size != size || place.host != leader.host || place.local_rank != place.rank % size) return 1;
  }
  return size;
}

}  // namespace

HostTopology gather_topology(ControlGroup& control, const RankPlace& own) {
  const auto texts = control.all_gather(encode(own), "gathering the host topology");
  HostTopology topology;
  std::map<std::string, int> ranks_on;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    topology.places.push_back(decode(texts[rank], static_cast<int>(rank)));
    topology.places.back().local_rank = ranks_on[topology.places.back().host]++;
  }
  for (RankPlace& place : topology.places) place.local_size = ranks_on[place.host];
  topology.ranks_per_host = contiguous_ranks_per_host(topology.places);
  return topology;
}

std::string HostTopology::print() const {
  std::size_t host_width = 4, device_width = 6;
  for (const RankPlace& place : places) {
    host_width = std::max(host_width, place.host.size());
    device_width = std::max(device_width, place.device.size());
  }
  const auto pad = [](const std::string& text, std::size_t width) {
    return text + std::string(text.size() < width ? width - text.size() : 0, ' ');
  };
  std::ostringstream out;
  out << "rank  " << pad("host", host_width) << "  local   " << pad("device", device_width)
      << "  numa  pid      uuid\n";
  for (const RankPlace& place : places) {
    const std::string local = std::to_string(place.local_rank) + " of " + std::to_string(place.local_size);
    out << pad(std::to_string(place.rank), 4) << "  " << pad(place.host, host_width) << "  " << pad(local, 6) << "  "
        << pad(place.device, device_width) << "  "
        << pad(place.numa_node < 0 ? "-" : std::to_string(place.numa_node), 4) << "  "
        << pad(std::to_string(place.pid), 7) << "  " << (place.uuid.empty() ? "-" : place.uuid) << '\n';
  }
  out << (ranks_per_host > 1
              ? "reduction: inside each host first (" + std::to_string(ranks_per_host) + " ranks each), then across\n"
              : std::string("reduction: flat\n"));
  return out.str();
}

}  // namespace renai
