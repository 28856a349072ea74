#include "record/completion.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "base/error.h"
#include "format/format.h"
#include "record/hdf5.h"

namespace ttrace {
namespace {

// Sets the attribute `complete` to 0. Returns false where there is no mark.
bool clear_attribute(const std::filesystem::path& path) {
  [[maybe_unused]] const SilentHdf5 silent;
  // A file that was never closed is not a valid HDF5 file, and has no mark.
  if (H5Fis_hdf5(path.c_str()) <= 0) return false;
  const Handle file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), "opening the file");
  if (hdf5_check(H5Aexists(file, "complete"), "looking for the completion mark") == 0) return false;
  const Handle mark(H5Aopen(file, "complete", H5P_DEFAULT), "opening the completion mark");
  const std::uint8_t no = 0;
  hdf5_check(H5Awrite(mark, H5T_NATIVE_UINT8, &no), "clearing the completion mark");
  return true;
}

// Seals the file as one whose mark was taken back. The metadata was changed in place, so its extent is still the one in the seal.
void seal_again(const std::filesystem::path& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.exceptions(std::ios::failbit | std::ios::badbit);
  std::string header(kHeaderBytes, '\0');
  file.read(header.data(), static_cast<std::streamsize>(header.size()));
  Seal seal = read_seal(header);
  const auto size = std::filesystem::file_size(path);
  if (seal.metadata.offset > size || size - seal.metadata.offset != seal.metadata.bytes) {
    throw InputError(fmt::format("{}: its seal does not fit; expected a closed rank file", path.string()));
  }
  std::string metadata(seal.metadata.bytes, '\0');
  file.seekg(static_cast<std::streamoff>(seal.metadata.offset));
  file.read(metadata.data(), static_cast<std::streamsize>(metadata.size()));
  seal.complete = kTakenBack;
  put_seal(header, seal, metadata);
  file.seekp(0);
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
}

}  // namespace

bool take_back_completion_mark(const std::filesystem::path& rank_file) {
  try {
    if (!clear_attribute(rank_file)) return false;
    seal_again(rank_file);
    return true;
  } catch (const Hdf5Error& error) {
    throw InputError(fmt::format("{}: {}", rank_file.string(), error.what()));
  } catch (const std::ios::failure&) {
    throw InputError(fmt::format("{}: cannot be sealed again: {}", rank_file.string(), std::strerror(errno)));
  }
}

}  // namespace ttrace
