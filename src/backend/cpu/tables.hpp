#pragma once
// The lists of implementations by kind of operator, each in the order in which they are tried.

#include <vector>

#include "implementation.hpp"

namespace renai::cpu {

std::vector<Implementation> conv_implementations();
std::vector<Implementation> linear_implementations();
std::vector<Implementation> norm_implementations();
std::vector<Implementation> activation_implementations();
std::vector<Implementation> pool_implementations();
std::vector<Implementation> adaptive_pool_implementations();
std::vector<Implementation> join_implementations();   ///< add, flatten
std::vector<Implementation> input_implementations();  ///< normalize_input, dropout
/// The naive loops take whatever is left: the loss, joins and what is small. Always last.
std::vector<Implementation> reference_implementations();

}  // namespace renai::cpu
