#include "image_tree.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <utility>

#include "renai/base/error.hpp"
#include "renai/base/file_error.hpp"

namespace renai {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kDeepest = 64;

using FileId = std::pair<dev_t, ino_t>;

/// Missing things have no id.
bool find_id(const fs::path& path, FileId& id) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return false;
  id = {status.st_dev, status.st_ino};
  return true;
}

std::string extension_of(const std::string& name) {
  const auto dot = name.rfind('.');
  if (dot == std::string::npos || dot + 1 == name.size()) return {};
  std::string extension = name.substr(dot + 1);
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return extension;
}

bool is_image_name(const std::string& name) {
  static const std::array<std::string, 5> kKinds{"jpg", "jpeg", "jpe", "jfif", "png"};
  return std::find(kKinds.begin(), kKinds.end(), extension_of(name)) != kKinds.end();
}

/// An entry of a folder. Folders sort as if their name ended in a slash, which gives paths in byte order.
struct Entry {
  std::string key;
  bool folder = false;
};

std::vector<Entry> entries_of(const fs::path& folder) {
  std::vector<Entry> entries;
  std::error_code error, dangling;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const bool inner = at->is_directory(dangling);
    entries.push_back({at->path().filename().string() + (inner ? "/" : ""), inner});
  }
  if (error) fail_reading("reading folder " + printable(folder.string()), error.value());
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.key < b.key; });
  return entries;
}

/// Walks one split.
class Walk {
 public:
  Walk(const fs::path& input, ImageTree& tree, ImageList& list) : input_(input), tree_(tree), list_(list) {}

  /// `relative` ends in a slash.
  void add_class(const std::string& relative, std::int32_t label) {
    const std::int64_t before = list_.size();
    label_ = label;
    enter(relative);
    if (list_.size() > before) return;
    throw DataError("class folder " + printable((input_ / relative).string()), "it holds no JPEG or PNG image",
                    "remove the folder, or put images into it");
  }

 private:
  void enter(const std::string& relative) {
    FileId id;
    if (!find_id(input_ / relative, id)) return;
    if (std::find(above_.begin(), above_.end(), id) != above_.end()) {
      ++tree_.loops;
      return;
    }
    if (above_.size() >= kDeepest) {
      throw DataError("folder " + printable((input_ / relative).string()),
                      "it lies more than " + std::to_string(kDeepest) + " folders deep in its class",
                      "bring its images further up, or take it out of the input");
    }
    above_.push_back(id);
    const std::uint32_t folder = list_.add_folder(relative);
    for (const Entry& entry : entries_of(input_ / relative)) {
      if (entry.key.front() == '.') {
        ++tree_.hidden;
      } else if (entry.folder) {
        enter(relative + entry.key);
      } else if (is_image_name(entry.key)) {
        list_.add(folder, label_, entry.key);
      } else {
        ++tree_.other_kinds[extension_of(entry.key)];
      }
    }
    above_.pop_back();
  }

  const fs::path& input_;
  ImageTree& tree_;
  ImageList& list_;
  std::int32_t label_ = 0;
  std::vector<FileId> above_;  ///< The folders that lead here.
};

/// Names of the folders in `folder`, with their slash; files beside them are counted as left out.
std::vector<std::string> class_folders(const fs::path& folder, ImageTree& tree) {
  std::vector<std::string> names;
  for (const Entry& entry : entries_of(folder)) {
    if (entry.key.front() == '.') {
      ++tree.hidden;
    } else if (entry.folder) {
      names.push_back(entry.key.substr(0, entry.key.size() - 1));
    } else {
      ++tree.other_kinds[extension_of(entry.key)];
    }
  }
  // By the names themselves: their slashes would sort otherwise.
  std::sort(names.begin(), names.end());
  return names;
}

void list_split(const fs::path& input, const std::string& prefix, ImageTree& tree, ImageList& list) {
  Walk walk(input, tree, list);
  for (const std::string& name : class_folders(input / prefix, tree)) {
    const auto found = std::lower_bound(tree.classes.begin(), tree.classes.end(), name);
    if (found == tree.classes.end() || *found != name) {
      throw DataError("class folder " + printable((input / prefix / name).string()),
                      "there are no training images of such a class", "put the same classes into both folders");
    }
    walk.add_class(prefix + name + "/", static_cast<std::int32_t>(found - tree.classes.begin()));
  }
}

}  // namespace

std::uint32_t ImageList::add_folder(const std::string& relative) {
  folders_.push_back(relative);
  return static_cast<std::uint32_t>(folders_.size() - 1);
}

void ImageList::add(std::uint32_t folder, std::int32_t label, const std::string& name) {
  folder_of_.push_back(folder);
  labels_.push_back(label);
  names_ += name;
  ends_.push_back(names_.size());
}

std::string ImageList::path(std::int64_t i) const {
  const auto at = static_cast<std::size_t>(i);
  const std::uint64_t begin = at == 0 ? 0 : ends_[at - 1];
  return folders_[folder_of_[at]] + names_.substr(begin, ends_[at] - begin);
}

ImageList ImageList::select(const std::vector<std::int64_t>& places) const {
  ImageList list;
  list.folders_ = folders_;
  for (const std::int64_t place : places) {
    const auto at = static_cast<std::size_t>(place);
    const std::uint64_t begin = at == 0 ? 0 : ends_[at - 1];
    list.add(folder_of_[at], labels_[at], names_.substr(begin, ends_[at] - begin));
  }
  return list;
}

ImageTree list_images(const fs::path& input) {
  require_named_folder("input " + printable(input.string()), input, "name the folder of the classes");
  ImageTree tree;
  const bool split = fs::is_directory(input / "train");
  const std::string prefix = split ? "train/" : "";
  tree.classes = class_folders(input / prefix, tree);
  tree.hidden = 0;  // Counted when the classes are listed.
  tree.other_kinds.clear();
  if (tree.classes.empty()) {
    throw DataError("input " + printable((input / prefix).string()), "it has no folders of classes",
                    std::string("put the images of each class into a folder with the class's name") +
                        (split ? "; if 'train' is a class itself, name it otherwise" : ""));
  }
  list_split(input, prefix, tree, tree.train);
  for (const char* name : {"val", "validation", "test"}) {
    if (!split || !tree.val_folder.empty() || !fs::is_directory(input / name)) continue;
    tree.val_folder = name;
    list_split(input, tree.val_folder + "/", tree, tree.val);
    if (tree.val.size() > 0) continue;
    throw DataError("input " + printable((input / name).string()), "it has no folders of classes",
                    "put validation images into it as they are in 'train', or remove it");
  }
  return tree;
}

std::string printable(const std::string& text) {
  std::string result;
  unsigned before = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned>(static_cast<unsigned char>(c));
    const bool wide = before == 0xc2 && byte >= 0x80 && byte < 0xa0;
    before = byte;
    if (c == '\\') {
      result += "\\\\";
    } else if (byte < 0x20 || byte == 0x7f || wide) {
      if (wide) result.pop_back();
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\x%02x", byte);
      result += escaped;
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace renai
