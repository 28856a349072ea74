// A value that many hold and nobody changes. Copies share it.
#pragma once

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>

namespace ttrace {

// Reads as the container T that it holds, `T{}` at first. Assigning gives it another one and changes no copy.
template <class T>
class SharedValue {
 public:
  SharedValue() = default;
  template <class Value>
    requires std::convertible_to<Value, T>
  // NOLINTNEXTLINE(misc-explicit-constructor): what holds one is given a T
  SharedValue(Value&& value) : value_(std::make_shared<const T>(std::forward<Value>(value))) {}
  SharedValue(std::initializer_list<typename T::value_type> values) : value_(std::make_shared<const T>(values)) {}

  const T& get() const {
    static const T none{};
    return value_ ? *value_ : none;
  }
  operator const T&() const { return get(); }  // NOLINT(misc-explicit-constructor): it reads as one

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

 private:
  std::shared_ptr<const T> value_;  // null: T{}
};

}  // namespace ttrace
