#pragma once
// What options change in a model: its initialisation and its dropout.

#include <string>
#include <vector>

#include "renai/model/model_spec.hpp"

namespace renai {

/// kaiming-normal, kaiming-uniform, xavier-normal, xavier-uniform, trunc-normal, torchvision.
std::vector<std::string> init_words();

/// Sets the rule of a word. `torchvision`: what torchvision does with the network of this name, torch_default where it
/// has none. Errors: UserError for another word.
void set_init(ModelSpec& model, const std::string& word);

/// Sets the rate of every dropout layer. A model without one gets the layer "dropout" (or "dropout.1", ... where that
/// name is taken) before its last linear layer, unless the rate is 0. Errors: UserError for a model without either.
void set_dropout(ModelSpec& model, float rate);

/// Whether set_zero_gamma finds a batch norm.
bool ends_blocks_in_norms(const ModelSpec& model);

/// Lets the scale of the last batch norm of each residual block start at 0. Such is a batch norm that an add layer
/// reads and, where it reads several, the one with the longest way from the network's input: the others are
/// projections. Source: Goyal et al., "Accurate, Large Minibatch SGD", 2017, section 5.1. Errors: UserError for a model
/// without such a batch norm, where a scale of 0 would do nothing or block the gradient.
void set_zero_gamma(ModelSpec& model);

}  // namespace renai
