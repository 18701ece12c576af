// The part of std::vector that the runtime needs. The runtime is compiled before the first kernel can run, and <vector>
// would take longer to compile than all the rest. The items must be types that can be moved byte by byte, and for which
// zero bytes are a valid value. Destructors of items are never called.
#pragma once
#include <stdlib.h>
#include <string.h>

#include <initializer_list>  // for all files that loop over a list in braces

template <class T>
class List {
   public:
    List() = default;
    explicit List(size_t size) { resize(size); }
    List(const List&) = delete;
    ~List() { free(items_); }
    T* data() const { return items_; }
    size_t size() const { return size_; }
    T* begin() const { return items_; }
    T* end() const { return items_ + size_; }
    T& operator[](size_t i) const { return items_[i]; }
    void clear() { size_ = 0; }
    void pop() { size_--; }
    void push(const T& item) {
        const T copy = item;
        reserve(size_ + 1);
        items_[size_++] = copy;
    }
    void resize(size_t size) {  // new items are zero
        reserve(size);
        if (size > size_) memset(static_cast<void*>(items_ + size_), 0, (size - size_) * sizeof(T));
        size_ = size;
    }

   private:
    void reserve(size_t size) {
        if (size <= room_) return;
        room_ = size < 2 * room_ ? 2 * room_ : size;
        items_ = static_cast<T*>(realloc(static_cast<void*>(items_), room_ * sizeof(T)));
        if (!items_) abort();
    }
    T* items_ = nullptr;
    size_t size_ = 0, room_ = 0;
};
