#pragma once
// What a continued run may differ in from the one that wrote its checkpoint.

#include <string>

#include "renai/checkpoint/state_dict.hpp"
#include "renai/train/recipe.hpp"

namespace renai {

/// A continued run must be the same run: data, model and every option that can change a bit; one that the checkpoint
/// does not know, because it is older, had its default. A run may be lengthened (--epochs, --steps), which also
/// stretches a cosine schedule.
/// Errors: UserError naming `file` and the first difference.
void require_same_run(const Recipe& recipe, const StateDict& state, const std::string& file,
                      const std::string& data_digest);

}  // namespace renai
