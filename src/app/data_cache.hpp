#pragma once
// --cache: the data set in the memory of each host before the first step.

#include "renai/train/recipe.hpp"
#include "world.hpp"

namespace renai {

/// The ranks of a host share the reading. Nothing happens without --cache. Errors: UserError when the set does not fit
/// into a host's free memory; ResourceError for a file that cannot be read.
void fill_cache(World& world, const Recipe& recipe);

}  // namespace renai
