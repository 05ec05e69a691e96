#include "operands.hpp"

#include "renai/base/check.hpp"

namespace renai::reference {

std::byte* Operands::address(TensorId id) const {
  const DTensor& place = context_.plan->tensor(id);
  RENAI_CHECK(place.placed(),
              "'" + node_.name + "' uses '" + context_.graph->tensor(id).name + "', which has no place");
  return context_.at(place);
}

View Operands::view(TensorId id) const {
  const DTensor& place = context_.plan->tensor(id);
  const Shape& shape = place.shape;
  const std::string& name = context_.graph->tensor(id).name;
  RENAI_CHECK(place.dtype == DType::f32, "'" + name + "' is f32");
  RENAI_CHECK(shape.rank() == 0 || place.padded_c == 0 || place.padded_c == shape[shape.rank() - 1],
              "'" + name + "' is dense");
  View view{reinterpret_cast<float*>(address(id))};
  switch (shape.rank()) {
    case 4:
      view.h = shape[1];
      view.w = shape[2];
      [[fallthrough]];
    case 2: view.n = shape[0]; [[fallthrough]];
    case 1: view.c = shape[shape.rank() - 1]; return view;
    default: throw InternalError("binding '" + node_.name + "'", "'" + name + "' has shape " + shape.str());
  }
}

}  // namespace renai::reference
