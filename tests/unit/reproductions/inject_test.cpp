#include "reproductions/inject.h"

#include <doctest/doctest.h>

#include <cmath>

#include "support/products.h"

namespace {

using namespace ttrace;
using namespace ttrace::abft;
using namespace ttrace::reproductions;

TEST_SUITE("reproductions") {
  TEST_CASE("each kind of fault changes the one element that it names, the same for the same seed") {
    for (const Dtype dtype : {Dtype::kFloat64, Dtype::kFloat32, Dtype::kFloat16, Dtype::kBFloat16, Dtype::kFloat8E4M3,
                              Dtype::kFloat8E5M2}) {
      for (int kind = 0; kind < 5; ++kind) {
        Random random(11);
        Matrix matrix = zeros(dtype, 6, 7, Layout::kTransposed);
        fill(matrix, Distribution::kUniform, 1, random);
        const Matrix before = matrix;
        Matrix again = matrix;
        again.view.data = again.bytes.data();
        const Injection fault = inject(matrix.writable(), static_cast<FaultKind>(kind), 42);
        inject(again.writable(), static_cast<FaultKind>(kind), 42);
        CHECK(matrix.bytes == again.bytes);
        int changed = 0;
        for (std::size_t i = 0; i < matrix.bytes.size(); ++i) changed += matrix.bytes[i] != before.bytes[i];
        CHECK(changed > 0);
        CHECK(changed <= size_of(dtype));
        const double after = element(matrix.view, fault.row, fault.col);
        CHECK((after == fault.after || (std::isnan(after) && std::isnan(fault.after))));
      }
    }
  }

  TEST_CASE("a fault is what its kind says") {
    Matrix matrix = zeros(Dtype::kFloat32, 1, 2);
    const InjectionChoice second{.row = 0, .col = 1, .bit = 31};
    set(matrix, 0, 1, -1.5);
    CHECK(inject(matrix.writable(), FaultKind::kBitFlip, 1, second).after == 1.5);
    CHECK(inject(matrix.writable(), FaultKind::kNearInfinity, 1, second).after == 1.5 * 0x1p126);
    CHECK(std::isinf(inject(matrix.writable(), FaultKind::kInfinity, 1, second).after));
    CHECK(std::isnan(inject(matrix.writable(), FaultKind::kNan, 1, second).after));
    const double random = inject(matrix.writable(), FaultKind::kRandomValue, 1, second).after;
    CHECK(std::isfinite(random));
    CHECK(element(matrix.view, 0, 0) == 0);
  }
}

}  // namespace
