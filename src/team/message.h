// Puts values into messages between processes of one team, and takes them out again. All run the same build on machines
// of one kind, which the team has made sure of: numbers are copied as they lie in memory, and nothing has a name.
//
// A type says once how it is transferred, for both directions:
//
//   template <class Message, class Box>
//   void transfer_box(Message& message, Box& box) { auto& [start, size] = box; message(start, size); }
//
// The structured binding is what makes it whole: a member that is added to the type is a compile error there.
#pragma once

#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/shared_value.h"

namespace ttrace {

template <class T>
concept PlainValue = std::is_arithmetic_v<T> || std::is_enum_v<T>;

class Packer {
 public:
  template <class... Values>
  void operator()(const Values&... values) {
    (put(values), ...);
  }
  const std::string& bytes() const { return bytes_; }
  std::string take() { return std::move(bytes_); }

 private:
  template <PlainValue T>
  void put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put(std::string_view text) {
    put(text.size());
    bytes_.append(text);
  }
  void put(const std::string& text) { put(std::string_view(text)); }
  template <class T>
  void put(const SharedValue<T>& value) {
    put(value.get());
  }
  template <class T>
  void put(const std::vector<T>& values) {
    put(values.size());
    if constexpr (PlainValue<T>) {
      bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    } else {
      for (const T& value : values) put(value);
    }
  }
  template <class T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <class Key, class Value>
  void put(const std::map<Key, Value>& values) {
    put(values.size());
    for (const auto& [key, value] : values) (*this)(key, value);
  }

  std::string bytes_;
};

// Takes values in the order in which they were put. Throws std::logic_error where the message ends too soon.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : bytes_(bytes) {}

  template <class... Values>
  void operator()(Values&... values) {
    (take(values), ...);
  }
  template <class T>
  T next() {
    T value{};
    take(value);
    return value;
  }
  std::string_view next_view() { return cut(next<std::size_t>()); }  // of a text, inside the message
  bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view cut(std::size_t size) {
    if (size > bytes_.size()) throw std::logic_error("a message between processes ends too soon");
    const std::string_view part = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return part;
  }
  template <PlainValue T>
  void take(T& value) {
    cut(sizeof value).copy(reinterpret_cast<char*>(&value), sizeof value);
  }
  void take(std::string& text) { text = next_view(); }
  template <class T>
  void take(SharedValue<T>& value) {
    value = next<T>();
  }
  template <class T>
  void take(std::vector<T>& values) {
    const auto count = next<std::size_t>();
    if constexpr (PlainValue<T>) {
      const std::string_view part = cut(count * sizeof(T));
      values.resize(count);
      if (count > 0) std::memcpy(values.data(), part.data(), part.size());
    } else {
      values.resize(count);
      for (T& value : values) take(value);
    }
  }
  template <class T>
  void take(std::optional<T>& value) {
    value.reset();
    if (next<bool>()) take(value.emplace());
  }
  template <class Key, class Value>
  void take(std::map<Key, Value>& values) {
    values.clear();
    for (auto left = next<std::size_t>(); left > 0; --left) {
      Key key{};
      take(key);
      take(values[std::move(key)]);
    }
  }

  std::string_view bytes_;
};

// Sends or takes what may not be there; `transfer` does so with the value.
template <class Message, class Optional, class Transfer>
void transfer_optional(Message& message, Optional& value, const Transfer& transfer) {
  bool is_there = value.has_value();
  message(is_there);
  if constexpr (!std::is_const_v<Optional>) {
    value.reset();
    if (is_there) value.emplace();
  }
  if (is_there) transfer(*value);
}

}  // namespace ttrace
