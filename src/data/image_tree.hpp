#pragma once
// The images of a folder with one sub-folder a class.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace renai {

/// Files of one split in the byte order of their paths, class after class. Names lie in one text, so that a file costs
/// its name and 16 bytes.
class ImageList {
 public:
  void add(std::uint32_t folder, std::int32_t label, const std::string& name);
  std::uint32_t add_folder(const std::string& relative);

  std::int64_t size() const { return static_cast<std::int64_t>(labels_.size()); }
  std::int32_t label(std::int64_t i) const { return labels_[static_cast<std::size_t>(i)]; }
  /// Relative to the input folder.
  std::string path(std::int64_t i) const;
  /// The files at these places, in their order.
  ImageList select(const std::vector<std::int64_t>& places) const;

 private:
  std::vector<std::string> folders_;
  std::vector<std::uint32_t> folder_of_;
  std::vector<std::int32_t> labels_;
  std::vector<std::uint64_t> ends_;  ///< Where each name ends.
  std::string names_;
};

struct ImageTree {
  std::vector<std::string> classes;  ///< Folder names in byte order; a name's place is its label.
  ImageList train, val;              ///< val is empty where the tree has no folder for it.
  std::string val_folder;   ///< Of IN/train and IN/val (or validation, test); empty for a tree of classes alone.
  std::int64_t hidden = 0;  ///< Files and folders whose name starts with a dot: left out.
  std::int64_t loops = 0;   ///< Links that lead back to a folder above them: not followed.
  std::map<std::string, std::int64_t> other_kinds;  ///< Files left out, by extension.
};

/// Lists IN/class/... or, where IN/train is a folder, IN/train/class/... and IN/val/class/... Folders inside a class
/// are part of it. Links are followed. Images are known by their extension: jpg, jpeg, jpe, jfif, png, in any case.
/// Errors: UserError when there is no such folder; DataError when it has no classes, a class of the validation folder
/// is none of the training folder's, or a folder of a class holds no image.
ImageTree list_images(const std::filesystem::path& input);

/// A path or name for messages: backslashes are doubled, control characters (those of two bytes in UTF-8, U+0080 to
/// U+009F, too: terminals obey them) stand as \xNN, other bytes stay.
std::string printable(const std::string& text);

}  // namespace renai
