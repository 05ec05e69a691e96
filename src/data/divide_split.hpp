#pragma once
// Dividing a training split in two, where a set comes without validation samples.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "packing.hpp"

namespace renai {

/// Errors: UserError for values that make no sense.
void check_division(const SplitDivision& division);
std::string division_settings(const SplitDivision& division);

/// Whether a sample belongs to validation. `name` says which it is, `place` is its place among its like.
/// Determinism: by fraction a pure function of name and seed, so other samples change nothing; by place otherwise.
bool is_validation(const SplitDivision& division, std::string_view name, std::int64_t place);

/// Takes the validation samples out of the training split, by their number in it. Nothing happens where no division is
/// asked for. Errors: UserError when the set has a validation split already, or one of the two would be empty.
void divide_training_split(PackSource& source, const SplitDivision& division);

}  // namespace renai
