// XXH3. The library is built for any x86; its faster variants, which its second header chooses among at run time, are
// two to three times as fast. All give the same bits.
#pragma once

#if __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif
