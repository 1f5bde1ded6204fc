// Folders that are replaced as a whole (checkpoints, models). A folder ends with manifest.json, the size and SHA-256 of
// every other file; it is written beside the old one and swapped in, so that a kill at any moment leaves the old or the
// new folder readable.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/error.h"

namespace ramify::io {

inline constexpr std::string_view kManifestName = "manifest.json";

// How the new folder takes the old one's place. `renames` (old to FOLDER.old, new to FOLDER) is what `exchange` falls
// back to on file systems without an atomic exchange.
enum class FolderSwap { exchange, renames };

class FolderWriter {
 public:
  // Begins FOLDER.tmp-PID, after removing what killed writers of the same folder have left.
  explicit FolderWriter(std::string folder);
  ~FolderWriter();  // without commit(): the temporary folder is removed
  FolderWriter(const FolderWriter&) = delete;
  FolderWriter& operator=(const FolderWriter&) = delete;

  // Where to write the file `name` by other means (a SafetensorsWriter, say). Names have no '/'.
  std::string path(std::string_view name) const;
  void write(std::string_view name, std::string_view bytes);

  // Manifest, flush, swap; then the old folder is removed.
  void commit(FolderSwap swap = FolderSwap::exchange);

 private:
  std::string folder_;
  std::string temporary_;  // empty: committed
};

// Whether there is a folder to be opened, the one before a swap that was cut short included.
bool folder_exists(const std::string& folder);

// The path to read from: `folder` if its manifest holds, else `folder`.old (a swap was cut short) if that one's does.
// Error naming the first file that is missing or differs otherwise. Reads every file once.
std::string open_folder(const std::string& folder);

}  // namespace ramify::io
