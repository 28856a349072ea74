// Work on all threads of the process.
#pragma once

#include <cstddef>
#include <functional>

namespace ttrace {

// Returns how many threads somebody gets who asks for `threads`, of which 0 is OpenMP's default: fewer where a limit of
// processes or of memory allows no more.
int thread_count(int threads);

// Returns, inside `parallel_for`, the number of the thread that calls it, less than the `thread_count`.
std::size_t thread_number();

// Calls `body(i)` for every i below `count` on so many threads, 0 as above. An exception must not leave an OpenMP
// region, nor be lost in it: the first in order of i is thrown after all threads have finished. Once there is one, the
// calls of higher i may be left out.
void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& body);

// The same for small work: calls `body(begin, end)` for ranges of at most `most`, which make up [0, count).
void parallel_for_ranges(std::size_t count, std::size_t most, int threads,
                         const std::function<void(std::size_t, std::size_t)>& body);

}  // namespace ttrace
