#include "workflow/keyed_seal.h"

#include <fmt/format.h>
#include <sodium.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "files/regular_file.h"
#include "files/tolerance_file.h"
#include "files/tolerance_seal.h"
#include "host/launch.h"
#include "host/write_file.h"

namespace ttrace {
namespace {

constexpr std::size_t kFewestCharacters = 16;  // the file is no secret: a shorter key is found by trying

using Hash = std::array<unsigned char, crypto_generichash_BYTES>;
static_assert(crypto_generichash_BYTES == crypto_generichash_KEYBYTES);

std::optional<std::string> seal_key() {
  const char* const value = std::getenv(kSealKeyVariable);
  if (value == nullptr) return std::nullopt;
  std::string key = value;
  if (key.size() < kFewestCharacters) {
    throw InputError(fmt::format("{}: {}; expected {} characters or more, or no such variable", kSealKeyVariable,
                                 key.empty() ? "empty, as where a CI keeps secrets from a job" : "too short a key",
                                 kFewestCharacters));
  }
  return key;
}

Hash hash_of(std::string_view bytes, const Hash* key) {
  if (sodium_init() < 0) throw InputError("libsodium cannot be initialized");
  Hash hash;
  crypto_generichash(hash.data(), hash.size(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                     key == nullptr ? nullptr : key->data(), key == nullptr ? 0 : key->size());
  return hash;
}

std::string line_of(std::string_view sealed, std::string_view key) {
  const Hash of_key = hash_of(key, nullptr);
  const Hash hash = hash_of(sealed, &of_key);
  std::string digits(2 * hash.size() + 1, '\0');
  sodium_bin2hex(digits.data(), digits.size(), hash.data(), hash.size());
  digits.pop_back();  // what ends a C string
  return fmt::format("{} k{}\n", kSealByKey, digits);
}

// Where the last line begins.
std::size_t last_line_of(std::string_view text) {
  const std::size_t end = text.size() < 2 ? text.npos : text.rfind('\n', text.size() - 2);
  return end == text.npos ? 0 : end + 1;
}

bool is_equal(std::string_view a, std::string_view b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

bool has_seal_key() { return seal_key().has_value(); }

std::string sealed_by_key(std::string text) {
  const auto key = seal_key();
  if (!key) return text;
  const std::size_t last = last_line_of(text);
  if (text.compare(last, kSealByKey.size(), kSealByKey) == 0) text.resize(last);
  if (!text.ends_with('\n')) text += '\n';
  return text + line_of(text, *key);
}

ToleranceFile read_sealed_tolerances(const std::filesystem::path& path) {
  std::string text = read_text_file(path, kToleranceFile);
  if (const auto key = seal_key()) {
    const std::size_t last = last_line_of(text);
    const std::string_view sealed = std::string_view(text).substr(0, last), line = std::string_view(text).substr(last);
    if (!is_equal(line, line_of(sealed, *key))) {
      throw InputError(fmt::format(
          "{}: {}; expected tolerances that were sealed with the key in {}: by `ttrace estimate-tolerance`, or after "
          "an edit by `ttrace estimate-tolerance --seal -o FILE`",
          path.string(), line.starts_with(kSealByKey) ? "sealed with another key, or changed since" : "not sealed",
          kSealKeyVariable));
    }
  }
  return parse_tolerances(std::move(text), path.string());
}

void seal_anew(const std::filesystem::path& path) {
  if (!has_seal_key()) {
    throw InputError(fmt::format("--seal: {} is not in the environment; expected the key there", kSealKeyVariable));
  }
  const std::string text = read_text_file(path, kToleranceFile);
  parse_tolerances(text, path.string());
  write_file(path, sealed_by_key(text));
}

}  // namespace ttrace
