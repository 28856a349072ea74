#include "record/hdf5.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

#include "format/format.h"
#include "sketch/cells.h"

namespace ttrace {
namespace {

// Keeps the last description: HDF5 describes a failure from the API function down to its cause, which is worth showing.
herr_t keep_description(unsigned, const H5E_error2_t* error, void* text) {
  if (error->desc != nullptr && *error->desc != '\0') *static_cast<std::string*>(text) = error->desc;
  return 0;
}

struct FloatLayout {
  std::size_t sign, exponent, exponent_bits, bias, fraction_bits;
};

// Defines a float type. The fields are set before the precision and the size shrink, because HDF5 refuses every step
// that leaves the type invalid.
Handle custom_float(FloatLayout layout) {
  const std::size_t bits = layout.sign + 1;
  Handle type(H5Tcopy(H5T_IEEE_F32LE), "copying a type");
  hdf5_check(H5Tset_fields(type, layout.sign, layout.exponent, layout.exponent_bits, 0, layout.fraction_bits),
             "defining a float type");
  hdf5_check(H5Tset_precision(type, bits), "defining a float type");
  hdf5_check(H5Tset_size(type, bits / 8), "defining a float type");
  hdf5_check(H5Tset_ebias(type, layout.bias), "defining a float type");
  return type;
}

Handle bool_type() {
  Handle type(H5Tenum_create(H5T_STD_I8LE), "defining the bool type");
  std::int8_t value = 0;
  hdf5_check(H5Tenum_insert(type, "FALSE", &value), "defining the bool type");
  value = 1;
  hdf5_check(H5Tenum_insert(type, "TRUE", &value), "defining the bool type");
  return type;
}

Handle copy_of(hid_t type) { return Handle(H5Tcopy(type), "copying a type"); }

}  // namespace

hid_t hdf5_check(hid_t result, std::string_view what) {
  if (result >= 0) return result;
  std::string reason = "unknown reason";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep_description, &reason);
  throw Hdf5Error(fmt::format("{}: {}", what, reason));
}

Handle hdf5_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat64:
      return copy_of(H5T_IEEE_F64LE);
    case Dtype::kFloat32:
      return copy_of(H5T_IEEE_F32LE);
    case Dtype::kFloat16:
      return custom_float({15, 10, 5, 15, 10});
    case Dtype::kBFloat16:
      return custom_float({15, 7, 8, 127, 7});
    case Dtype::kFloat8E4M3:
      return custom_float({7, 3, 4, 7, 3});
    case Dtype::kFloat8E5M2:
      return custom_float({7, 2, 5, 15, 2});
    case Dtype::kInt8:
      return copy_of(H5T_STD_I8LE);
    case Dtype::kInt16:
      return copy_of(H5T_STD_I16LE);
    case Dtype::kInt32:
      return copy_of(H5T_STD_I32LE);
    case Dtype::kInt64:
      return copy_of(H5T_STD_I64LE);
    case Dtype::kUInt8:
      return copy_of(H5T_STD_U8LE);
    case Dtype::kBool:
      return bool_type();
  }
  throw Hdf5Error("unknown dtype");
}

Handle hdf5_cell_type(Dtype dtype) {
  const std::size_t size = bytes_of_cell(dtype), number = (size - sizeof(double)) / (kCellSums + 2);
  const hid_t real = number == sizeof(double) ? H5T_IEEE_F64LE : H5T_IEEE_F32LE;
  const hsize_t count = kCellSums;
  const Handle sums(H5Tarray_create2(real, 1, &count), "defining the type of a cell");
  Handle type(H5Tcreate(H5T_COMPOUND, size), "defining the type of a cell");
  std::size_t at = 0;
  const auto add = [&](const char* name, hid_t member) {
    hdf5_check(H5Tinsert(type, name, at, member), "defining the type of a cell");
    at += H5Tget_size(member);
  };
  add("sums", sums);
  add("square", H5T_IEEE_F64LE);
  add("largest", real);
  add("nonfinite", number == sizeof(double) ? H5T_STD_U32LE : H5T_STD_U16LE);
  add("exponent", number == sizeof(double) ? H5T_STD_I32LE : H5T_STD_I16LE);
  return type;
}

Handle hdf5_index_type() {
  Handle type(H5Tcreate(H5T_COMPOUND, sizeof(IndexRow)), "defining the index type");
  const auto add = [&](const char* name, std::size_t offset, hid_t member) {
    hdf5_check(H5Tinsert(type, name, offset, member), "defining the index type");
  };
  add("iteration", offsetof(IndexRow, iteration), H5T_STD_I32LE);
  add("microbatch", offsetof(IndexRow, microbatch), H5T_STD_I32LE);
  add("chunk", offsetof(IndexRow, chunk), H5T_STD_I32LE);
  add("pass", offsetof(IndexRow, pass), H5T_STD_U8LE);
  add("kind", offsetof(IndexRow, kind), H5T_STD_U8LE);
  add("dtype", offsetof(IndexRow, dtype), H5T_STD_U8LE);
  add("ndim", offsetof(IndexRow, ndim), H5T_STD_U8LE);
  add("order", offsetof(IndexRow, order), H5T_STD_U64LE);
  add("offset", offsetof(IndexRow, offset), H5T_STD_U64LE);
  add("bytes", offsetof(IndexRow, bytes), H5T_STD_U64LE);
  add("checksum", offsetof(IndexRow, checksum), H5T_STD_U64LE);
  add("name", offsetof(IndexRow, name), H5T_STD_U64LE);
  add("module", offsetof(IndexRow, module), H5T_STD_U64LE);
  add("mapping", offsetof(IndexRow, mapping), H5T_STD_U64LE);
  add("shape", offsetof(IndexRow, shape), H5T_STD_U64LE);
  add("name_length", offsetof(IndexRow, name_length), H5T_STD_U32LE);
  add("module_length", offsetof(IndexRow, module_length), H5T_STD_U32LE);
  add("mapping_length", offsetof(IndexRow, mapping_length), H5T_STD_U32LE);
  return type;
}

Handle hdf5_string_type() {
  Handle type(H5Tcopy(H5T_C_S1), "defining a string type");
  hdf5_check(H5Tset_size(type, H5T_VARIABLE), "defining a string type");
  hdf5_check(H5Tset_cset(type, H5T_CSET_UTF8), "defining a string type");
  return type;
}

}  // namespace ttrace
