#pragma once
// OpCase: one line of tests/cases/<operator>.txt, shared by parity tests and benchmarks.
//
// A line is a name and key=value pairs: "odd n=2 h=7 w=5 c=3 out=4 k=3 pad=1". '#' starts a comment. Keys: n h w c (the
// input), k or kh kw, stride or stride_h stride_w, pad or pad_h pad_w, dilation or dilation_h dilation_w, groups, out,
// bias, kind, ceil, count_pad, p, classes, smoothing ... ; what is absent takes the operator's default.

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "renai/graph/op.hpp"
#include "renai/tensor/shape.hpp"

namespace renai::test {

struct OpCase {
  std::string op;    ///< The file's stem: "conv2d".
  std::string name;  ///< "odd"
  std::map<std::string, std::string> attributes;

  bool has(const std::string& key) const { return attributes.contains(key); }
  std::int64_t integer(const std::string& key, std::int64_t otherwise) const;
  /// Errors: UserError when absent.
  std::int64_t integer(const std::string& key) const;
  float real(const std::string& key, float otherwise) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  /// [n, h, w, c], or [n, c] where h is absent.
  Shape input_shape() const;
  WindowParams window() const;
};

inline std::ostream& operator<<(std::ostream& out, const OpCase& op_case) {
  return out << op_case.op << " " << op_case.name;
}

/// All cases of `folder`/`op`.txt. Errors: UserError naming file and line.
std::vector<OpCase> read_op_cases(const std::string& folder, const std::string& op);

}  // namespace renai::test
