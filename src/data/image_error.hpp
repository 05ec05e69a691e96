#pragma once
// Why one image of many cannot be used.

#include <stdexcept>

namespace renai {

/// The reason alone; callers add which image it is.
class ImageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace renai
