#pragma once
// Small text functions for messages.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace renai {

/// The candidate with the smallest edit distance to `name`, or "" when none is near (distance over half the length).
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

/// "did you mean 'x'?" or the list of all candidates when none is near.
std::string suggest_name(std::string_view name, std::span<const std::string> candidates);

/// "1.5 MiB", "640 B". Units: bytes.
std::string format_bytes(std::int64_t size_bytes);

/// Joins with a separator.
std::string join(std::span<const std::string> parts, std::string_view separator);

/// The text for HTML and XML, inside double quotes too: & < > " become entities.
std::string escape_markup(std::string_view text);

/// Lower-case hexadecimal, 16 digits.
std::string hex64(std::uint64_t value);

}  // namespace renai
