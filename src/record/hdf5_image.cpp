#include "record/hdf5_image.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "format/run_attributes.h"
#include "record/hdf5.h"
#include "record/memory_driver.h"
#include "sketch/cells.h"

namespace ttrace {
namespace {

std::uint64_t aligned(std::uint64_t offset) { return (offset + kDataAlignment - 1) / kDataAlignment * kDataAlignment; }

// Makes a property list that keeps no times, so that the same trace gives the same bytes.
Handle properties(hid_t property_class) {
  Handle list(H5Pcreate(property_class), "creating properties");
  hdf5_check(H5Pset_obj_track_times(list, false), "creating properties");
  return list;
}

Handle create_file(hid_t driver, const std::shared_ptr<MemoryFile>& memory) {
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), "creating properties");
  hdf5_check(use_memory_driver(access, driver, memory), "setting the file driver");
  // Names by the thousand in one group need the link storage of 1.8, which every reader knows.
  hdf5_check(H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18), "setting the format version");
  const Handle creation = properties(H5P_FILE_CREATE);
  return Handle(H5Fcreate("ttrace", H5F_ACC_TRUNC, creation, access), "creating the metadata");
}

template <typename T>
void write_attribute(hid_t file, const char* name, hid_t type, const T& value) {
  const Handle space(H5Screate(H5S_SCALAR), "creating a dataspace");
  const Handle attribute(H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT), "creating an attribute");
  hdf5_check(H5Awrite(attribute, type, static_cast<const void*>(&value)), "writing an attribute");
}

void write_attributes(hid_t file, const RunAttributes& run, bool complete) {
  const Handle string = hdf5_string_type();
  write_attribute(file, "ttrace_version", H5T_STD_I32LE, run.version);
  write_attribute(file, "run_id", string, run.run_id.c_str());
  write_attribute(file, "world_size", H5T_STD_I32LE, run.world_size);
  write_attribute(file, "rank", H5T_STD_I32LE, run.rank);
  write_attribute(file, "axes", string, run.axes.c_str());
  write_attribute(file, "views", string, run.views.c_str());
  write_attribute(file, "aliases", string, run.aliases.c_str());
  write_attribute(file, "coordinates", string, run.coordinates.c_str());
  write_attribute(file, "compute_dtype", string, run.compute_dtype.c_str());
  write_attribute(file, "provenance", string, run.provenance.c_str());
  if (complete) write_attribute(file, "complete", H5T_STD_U8LE, std::uint8_t{1});
}

class Datasets {
 public:
  Datasets(hid_t file, MemoryFile& memory) : file_(file), memory_(memory) {
    hdf5_check(H5Pset_layout(creation_, H5D_CONTIGUOUS), "creating properties");
    hdf5_check(H5Pset_alloc_time(creation_, H5D_ALLOC_TIME_EARLY), "creating properties");
    hdf5_check(H5Pset_fill_time(creation_, H5D_FILL_TIME_NEVER), "creating properties");
    hdf5_check(H5Pset_char_encoding(links_, H5T_CSET_UTF8), "creating properties");
    for (std::uint8_t value = kDtypeFirst; value <= kDtypeLast; ++value) {
      types_[value] = hdf5_type(static_cast<Dtype>(value));
    }
  }

  // Makes the dataset of a tensor whose bytes are in the file already.
  void adopt(const Index& index, const IndexRow& row) {
    std::string link(index.name_of(row));
    for (std::size_t at = 0; (at = link.find('/', at)) != link.npos;) link.replace(at, 1, "\u2215");
    std::array<hsize_t, kMaxDims> shape{};
    Entry entry;
    const std::int64_t* const stored = index.shapes.data() + row.shape;
    set_shape(entry, row.dtype, Shape(stored, stored + row.ndim), stored + row.ndim);
    const Shape sizes = entry.sketch ? cell_grid(entry.shape, entry.sketch->edges) : entry.shape.get();
    std::copy(sizes.begin(), sizes.end(), shape.begin());
    const Handle space(row.ndim == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(row.ndim, shape.data(), nullptr),
                       "creating a dataspace");
    if (row.bytes > 0) memory_.next_dataset = row.offset;
    const Handle dataset(
        H5Dcreate2(open_group(row), link.c_str(), entry.sketch ? cell_type(entry.dtype) : types_[row.dtype], space,
                   links_, creation_, H5P_DEFAULT),
        "creating a dataset");
    // HDF5's interface does not say when it allocates, so the result is checked.
    if (row.bytes > 0 && H5Dget_offset(dataset) != row.offset) {
      throw Hdf5Error("HDF5 placed a dataset elsewhere than it was told");
    }
  }

  // Returns where the elements lie.
  Extent write_table(const std::string& path, hid_t type, hsize_t count, const void* data) {
    make_groups(path.substr(0, path.rfind('/')));
    const Handle space(H5Screate_simple(1, &count, nullptr), "creating a dataspace");
    const Handle dataset(H5Dcreate2(file_, path.c_str(), type, space, links_, creation_, H5P_DEFAULT),
                         "creating a table");
    if (count == 0) return {0, 0};
    hdf5_check(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), "writing a table");
    return {H5Dget_offset(dataset), count * H5Tget_size(type)};
  }

 private:
  hid_t cell_type(Dtype dtype) {
    Handle& type = cell_types_[static_cast<std::size_t>(dtype)];
    if (type < 0) type = hdf5_cell_type(dtype);
    return type;
  }

  // Makes the groups of an absolute path that are not there yet, one by one: in those that HDF5 makes on the way to
  // another it writes the time of day.
  void make_groups(const std::string& path) {
    for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
      const std::string group = path.substr(0, end);
      if (made_.insert(group).second) {
        Handle(H5Gcreate2(file_, group.c_str(), links_, groups_, H5P_DEFAULT), "creating a group");
      }
      if (end == std::string::npos) return;
    }
  }

  // Returns the row's group. Rows come sorted by group, so one open group is enough.
  hid_t open_group(const IndexRow& row) {
    const std::string batch = row.microbatch == kNoMicrobatch ? "-" : fmt::format("{}", row.microbatch);
    const std::string path =
        fmt::format("/tensors/{}/{}/{}/{}/{}", row.iteration, batch, name_of(static_cast<Pass>(row.pass)),
                    name_of(static_cast<Kind>(row.kind)), row.chunk);
    if (path != path_) {
      make_groups(path);
      group_ = Handle(H5Gopen2(file_, path.c_str(), H5P_DEFAULT), "opening a group");
      path_ = path;
    }
    return group_;
  }

  hid_t file_;
  MemoryFile& memory_;
  Handle creation_ = properties(H5P_DATASET_CREATE);
  Handle groups_ = properties(H5P_GROUP_CREATE);
  Handle links_{H5Pcreate(H5P_LINK_CREATE), "creating properties"};
  std::array<Handle, kDtypeLast + 1> types_, cell_types_;
  std::set<std::string> made_;  // groups
  std::string path_;
  Handle group_;
};

// Returns the rows in the order in which their datasets are made, by group.
std::vector<const IndexRow*> by_group(const Index& index) {
  std::vector<const IndexRow*> rows;
  for (const IndexRow& row : index.rows) rows.push_back(&row);
  std::stable_sort(rows.begin(), rows.end(), [](const IndexRow* a, const IndexRow* b) {
    return std::tie(a->iteration, a->microbatch, a->pass, a->kind, a->chunk) <
           std::tie(b->iteration, b->microbatch, b->pass, b->kind, b->chunk);
  });
  return rows;
}

// HDF5 has no way back from a failed allocation: it leaves files that cannot be closed, and ends the program at its exit
// by SIGSEGV. So it is not called where there is less than the most that it was seen to take: 2,650 bytes a dataset where
// each has groups of its own, 3.5 times the names, and 1 MiB for the first.
void require_memory(const RunAttributes& run, const Index& index) {
  const std::size_t size =
      (std::size_t{64} << 20U) + index.rows.size() * 3072 + 4 * (index.text.size() + run.provenance.size());
  void* const room = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) throw std::bad_alloc();
  munmap(room, size);
}

// Builds the file in `memory` and returns its seal, which lacks the extent of the metadata and the checksum.
Seal build(hid_t driver, const std::shared_ptr<MemoryFile>& memory, const RunAttributes& run, const Index& index,
           bool complete) {
  Seal seal{};
  std::copy(kSealMagic.begin(), kSealMagic.end(), seal.magic);
  seal.version = static_cast<std::uint32_t>(run.version);
  seal.complete = complete;
  const Handle file = create_file(driver, memory);
  {
    Datasets datasets(file, *memory);
    for (const IndexRow* row : by_group(index)) datasets.adopt(index, *row);
    const std::string json = to_json(run);
    seal.run = datasets.write_table("/ttrace/run", H5T_STD_U8LE, json.size(), json.data());
    seal.index = datasets.write_table("/ttrace/index", hdf5_index_type(), index.rows.size(), index.rows.data());
    seal.text = datasets.write_table("/ttrace/text", H5T_STD_U8LE, index.text.size(), index.text.data());
    seal.shapes = datasets.write_table("/ttrace/shapes", H5T_STD_I64LE, index.shapes.size(), index.shapes.data());
  }
  write_attributes(file, run, complete);
  hdf5_check(H5Fflush(file, H5F_SCOPE_LOCAL), "writing the metadata");
  return seal;
}

}  // namespace

Hdf5Image build_image(const RunAttributes& run, const Index& index, std::uint64_t data_end, bool complete) {
  // HDF5 need not be thread-safe, and two recorders may close at once.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  require_memory(run, index);
  const SilentHdf5 silent;
  const auto memory = std::make_shared<MemoryFile>();
  memory->header.resize(kHeaderBytes);
  memory->metadata_offset = std::max(aligned(data_end), kHeaderBytes);
  memory->alignment = kDataAlignment;
  const Handle driver(register_memory_driver(), "registering the file driver");
  Seal seal = build(driver, memory, run, index, complete);
  // HDF5 expects the file to be as long as what it allocated, whether or not it wrote all of it.
  memory->metadata.resize(memory->end - memory->metadata_offset);
  seal.metadata = {memory->metadata_offset, memory->metadata.size()};
  put_seal(memory->header, seal, memory->metadata);
  return {std::move(memory->header), memory->metadata_offset, std::move(memory->metadata)};
}

}  // namespace ttrace
