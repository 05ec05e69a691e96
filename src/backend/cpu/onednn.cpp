#include "onednn.hpp"

#include <oneapi/dnnl/dnnl_debug.h>

#include "renai/base/error.hpp"
#include "renai/tensor/dtensor.hpp"

namespace renai::cpu {
namespace {

const char* isa_name(dnnl::cpu_isa isa) {
  switch (isa) {
    case dnnl::cpu_isa::sse41: return "sse41";
    case dnnl::cpu_isa::avx: return "avx";
    case dnnl::cpu_isa::avx2: return "avx2";
    case dnnl::cpu_isa::avx2_vnni: return "avx2_vnni";
    case dnnl::cpu_isa::avx512_mic: return "avx512_mic";
    case dnnl::cpu_isa::avx512_mic_4ops: return "avx512_mic_4ops";
    case dnnl::cpu_isa::avx512_core: return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni: return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16: return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx: return "avx512_core_amx";
    case dnnl::cpu_isa::all: return "all";
  }
  return "unknown";
}

}  // namespace

const dnnl::engine& onednn_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

PreparedPrimitive::PreparedPrimitive(dnnl::primitive primitive, const std::vector<Argument>& arguments)
    : primitive_(std::move(primitive)), stream_(onednn_engine()) {
  for (const Argument& argument : arguments) {
    if (argument.desc.get_size() == 0) continue;
    memories_.emplace_back(argument.desc, onednn_engine(), argument.data);
    arguments_.push_back({argument.kind, memories_.back().get()});
  }
}

void PreparedPrimitive::run() const {
  const dnnl_status_t status =
      dnnl_primitive_execute(primitive_.get(), stream_.get(), static_cast<int>(arguments_.size()), arguments_.data());
  if (status != dnnl_success) {
    throw BackendError("running a oneDNN primitive", std::string("status ") + dnnl_status2str(status),
                       "see what the library says with ONEDNN_VERBOSE=1, or use --device reference");
  }
}

dnnl::reorder::primitive_desc make_reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
  return {onednn_engine(), from, onednn_engine(), to, user_scratchpad()};
}

std::string onednn_reason(const dnnl::error& error) {
  return std::string("oneDNN: ") + error.what() + " (" + dnnl_status2str(error.status) + ")";
}

std::string onednn_version() {
  const dnnl::version_t* version = dnnl::version();
  return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch) + " (" + isa_name(dnnl::get_effective_cpu_isa()) + ")";
}

}  // namespace renai::cpu
