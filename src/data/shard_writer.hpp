#pragma once
// One shard of a pack on disk.

#include <filesystem>
#include <string>
#include <string_view>

#include "pack_run.hpp"
#include "packing.hpp"
#include "renai/io/hdf5.hpp"

namespace renai {

/// What every shard says of itself.
void set_shard_attributes(H5File& file, const ShardPlan& plan, const std::string& split, std::string_view encoding,
                          const std::string& digest);

/// Writes the shard unless it is there, complete and undamaged. Reads its samples three times at most. Atomic.
/// Errors: DataError naming a sample whose label has no class; ResourceError naming the file.
ShardSummary make_raw_shard(const std::filesystem::path& out, const PackSource& source, const ShardPlan& plan,
                            const Advance& advance);

}  // namespace renai
