// A value that many hold and nobody changes. Copies share it.
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace ttrace {

// Reads as the container T that it holds, `T{}` at first. Assigning gives it another one and changes no copy.
template <class T>
class SharedValue {
 public:
  SharedValue() = default;
  template <class Value>
    requires(std::convertible_to<Value, T> && !std::same_as<std::remove_cvref_t<Value>, SharedValue>)
  // NOLINTNEXTLINE(misc-explicit-constructor): what holds one is given a T
  SharedValue(Value&& value) : value_(std::make_shared<const T>(std::forward<Value>(value))) {}
  SharedValue(std::initializer_list<typename T::value_type> values) : value_(std::make_shared<const T>(values)) {}

  const T& get() const {
    if (value_) return *value_;
    static const T none{};
    return none;
  }
  operator const T&() const { return get(); }  // NOLINT(misc-explicit-constructor): it reads as one
  operator std::string_view() const            // NOLINT(misc-explicit-constructor): so does a text
    requires std::same_as<T, std::string>
  {
    return get();
  }

  std::size_t size() const { return get().size(); }
  bool empty() const { return get().empty(); }
  auto data() const { return get().data(); }
  auto begin() const { return get().begin(); }
  auto end() const { return get().end(); }
  const typename T::value_type& back() const { return get().back(); }
  const typename T::value_type& operator[](std::size_t i) const { return get()[i]; }

  friend bool operator==(const SharedValue& a, const SharedValue& b) {
    return a.value_ == b.value_ || a.get() == b.get();
  }
  friend bool operator==(const SharedValue& a, const T& b) { return a.get() == b; }
  template <class Text>
    requires(std::same_as<T, std::string> && std::convertible_to<const Text&, std::string_view> &&
             !std::same_as<Text, SharedValue> && !std::same_as<Text, T>)
  friend bool operator==(const SharedValue& a, const Text& b) {
    return a.get() == std::string_view(b);
  }
  friend auto operator<=>(const SharedValue& a, const SharedValue& b) {
    return a.value_ == b.value_ ? std::strong_ordering::equal : a.get() <=> b.get();
  }

 private:
  std::shared_ptr<const T> value_;  // null: T{}
};

}  // namespace ttrace
