// Attributes of H5File.
#include <cstring>

#include "h5_file.hpp"

namespace renai {
namespace {

constexpr std::size_t kLongestText = std::size_t{1} << 24;  // Bounds what a damaged header can make us allocate.

/// The attribute when object and attribute exist and it holds exactly one value.
h5::Attribute open_single(H5File::Impl& impl, const std::string& object, const std::string& name) {
  const std::string path = h5::object_path(object);
  if (H5Aexists_by_name(impl.file.get(), path.c_str(), name.c_str(), H5P_DEFAULT) <= 0) {
    H5Eclear2(H5E_DEFAULT);
    return {};
  }
  auto attribute =
      h5::own<h5::Attribute>(H5Aopen_by_name(impl.file.get(), path.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT));
  if (!attribute) h5::fail_read(impl.path, "attribute '" + name + "'");
  const auto space = h5::own<h5::Space>(H5Aget_space(attribute.get()));
  if (!space || H5Sget_simple_extent_npoints(space.get()) != 1) {
    h5::fail_data(impl.path, "attribute '" + name + "'", "it does not hold one value");
  }
  return attribute;
}

std::string read_variable(const H5File::Impl& impl, hid_t attribute, hid_t file_type, const std::string& name) {
  // The character set must be the file's: the library does not convert between them.
  const auto memory = h5::own<h5::Type>(H5Tcopy(H5T_C_S1));
  H5Tset_size(memory.get(), H5T_VARIABLE);
  H5Tset_cset(memory.get(), H5Tget_cset(file_type));
  char* text = nullptr;
  if (H5Aread(attribute, memory.get(), &text) < 0) {
    h5::fail_read(impl.path, "attribute '" + name + "'");
  }
  std::string value = text == nullptr ? "" : text;
  H5free_memory(text);
  return value;
}

std::string read_fixed(const H5File::Impl& impl, hid_t attribute, hid_t file_type, const std::string& name) {
  const std::size_t size_bytes = H5Tget_size(file_type);
  if (size_bytes == 0 || size_bytes > kLongestText) {
    h5::fail_data(impl.path, "attribute '" + name + "'", "its length is damaged");
  }
  std::string value(size_bytes, '\0');
  const auto memory = h5::own<h5::Type>(H5Tcopy(file_type));
  if (H5Aread(attribute, memory.get(), value.data()) < 0) {
    h5::fail_read(impl.path, "attribute '" + name + "'");
  }
  value.resize(::strnlen(value.data(), value.size()));
  if (H5Tget_strpad(file_type) == H5T_STR_SPACEPAD) value.erase(value.find_last_not_of(' ') + 1);
  return value;
}

void write_attribute(H5File::Impl& impl, const std::string& object, const std::string& name, hid_t type,
                     const void* value) {
  const std::string path = h5::object_path(object);
  const auto target = h5::own<h5::Object>(H5Oopen(impl.file.get(), path.c_str(), H5P_DEFAULT));
  if (!target) impl.fail("attribute '" + name + "' of '" + object + "'");
  if (H5Aexists(target.get(), name.c_str()) > 0) H5Adelete(target.get(), name.c_str());
  const auto space = h5::own<h5::Space>(H5Screate(H5S_SCALAR));
  const auto attribute =
      h5::own<h5::Attribute>(H5Acreate2(target.get(), name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT));
  if (!attribute || H5Awrite(attribute.get(), type, value) < 0) {
    impl.fail("attribute '" + name + "' of '" + object + "'");
  }
}

}  // namespace

std::optional<std::string> H5File::string_attribute(const std::string& object, const std::string& name) const {
  h5::Session session;
  const h5::Attribute attribute = open_single(*impl_, object, name);
  if (!attribute) return std::nullopt;
  const auto type = h5::own<h5::Type>(H5Aget_type(attribute.get()));
  if (!type || H5Tget_class(type.get()) != H5T_STRING) {
    h5::fail_data(impl_->path, "attribute '" + name + "'", "it is not a text");
  }
  const bool variable = H5Tis_variable_str(type.get()) > 0;
  return variable ? read_variable(*impl_, attribute.get(), type.get(), name)
                  : read_fixed(*impl_, attribute.get(), type.get(), name);
}

std::optional<std::int64_t> H5File::int_attribute(const std::string& object, const std::string& name) const {
  h5::Session session;
  const h5::Attribute attribute = open_single(*impl_, object, name);
  if (!attribute) return std::nullopt;
  const auto type = h5::own<h5::Type>(H5Aget_type(attribute.get()));
  std::int64_t value = 0;
  if (!type || H5Tget_class(type.get()) != H5T_INTEGER) {
    h5::fail_data(impl_->path, "attribute '" + name + "'", "it is not an integer");
  }
  if (H5Aread(attribute.get(), H5T_NATIVE_INT64, &value) < 0) {
    h5::fail_read(impl_->path, "attribute '" + name + "'");
  }
  return value;
}

void H5File::set_attribute(const std::string& object, const std::string& name, const std::string& value) {
  h5::Session session;
  const auto type = h5::own<h5::Type>(H5Tcopy(H5T_C_S1));
  H5Tset_size(type.get(), value.size() + 1);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  write_attribute(*impl_, object, name, type.get(), value.c_str());
}

void H5File::set_attribute(const std::string& object, const std::string& name, std::int64_t value) {
  h5::Session session;
  write_attribute(*impl_, object, name, H5T_NATIVE_INT64, &value);
}

}  // namespace renai
