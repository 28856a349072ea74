// Quantiles of the distributions that chance factors are derived from.
#pragma once

namespace ttrace {

// The x that Fisher's F with so many degrees of freedom, above 0, exceeds with probability `p`, in (0, 1). The relative
// error is below 1e-9 up to a million degrees of freedom.
double fisher_quantile(double p, double numerator, double denominator);

// The t that Student's t exceeds in magnitude with probability `p`.
double student_quantile(double p, double degrees);

// The z that a standard normal variable exceeds with probability `p`, in (0, 0.5).
double normal_quantile(double p);

}  // namespace ttrace
