// HDF5's handles and errors, made safe to use. The only users are record/ and load/.
#pragma once

#include <hdf5.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "numeric/dtype.h"

namespace ttrace {

// A failure of HDF5. The code that reads or writes a trace file translates it to InputError or RecordError.
class Hdf5Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Returns `result`, or throws Hdf5Error (`what` and HDF5's innermost reason) where it is negative.
hid_t hdf5_check(hid_t result, std::string_view what);

// Owns an HDF5 identifier of any class.
class Handle {
 public:
  Handle() = default;
  Handle(hid_t id, std::string_view what) : id_(hdf5_check(id, what)) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  ~Handle() {
    if (id_ >= 0) H5Idec_ref(id_);
  }
  operator hid_t() const { return id_; }  // NOLINT: every HDF5 function takes one

 private:
  hid_t id_ = -1;
};

// While one lives, HDF5 prints no error stacks from this thread. The traced program may use the same library, so its
// setting is restored afterwards.
class SilentHdf5 {
 public:
  SilentHdf5() {
    H5Eget_auto2(H5E_DEFAULT, &print_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~SilentHdf5() { H5Eset_auto2(H5E_DEFAULT, print_, data_); }
  SilentHdf5(const SilentHdf5&) = delete;
  SilentHdf5& operator=(const SilentHdf5&) = delete;

 private:
  H5E_auto2_t print_ = nullptr;
  void* data_ = nullptr;
};

// The stored type of a tensor's elements. bf16 and fp8 have exactly the bits of HDF5 2.0's predefined
// H5T_FLOAT_BFLOAT16LE, H5T_FLOAT_F8E4M3 and H5T_FLOAT_F8E5M2; bool is h5py's enumeration.
Handle hdf5_type(Dtype dtype);
Handle hdf5_cell_type(Dtype dtype);  // a cell of a sketch of elements of `dtype`
Handle hdf5_index_type();            // IndexRow
Handle hdf5_string_type();           // variable-length UTF-8

}  // namespace ttrace
