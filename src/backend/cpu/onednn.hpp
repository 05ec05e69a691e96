#pragma once
// oneDNN primitives with prebuilt arguments and scratchpads in the plan's workspaces.

#include <cstdint>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <utility>
#include <vector>

#include "implementation.hpp"

namespace renai::cpu {

/// The engine and an in-order stream; shared by all primitives of the process, immutable after creation.
const dnnl::engine& onednn_engine();

/// Attributes that every primitive has: scratchpad memory is ours.
dnnl::primitive_attr user_scratchpad();

/// A primitive and its arguments at fixed addresses. Running it allocates nothing here.
class PreparedPrimitive {
 public:
  /// `arguments`: (DNNL_ARG_*, descriptor, address).
  struct Argument {
    int kind = 0;
    dnnl::memory::desc desc;
    void* data = nullptr;
  };
  PreparedPrimitive(dnnl::primitive primitive, const std::vector<Argument>& arguments);
  void run() const;

 private:
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

/// Moves values between two layouts.
dnnl::reorder::primitive_desc make_reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to);

/// What a dnnl::error says.
std::string onednn_reason(const dnnl::error& error);

/// "oneDNN 2.6.3 (avx512_core_bf16)"
std::string onednn_version();

}  // namespace renai::cpu
