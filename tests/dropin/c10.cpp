// c10.cpp - a library like PyTorch's libc10.so, with one error in it: see c10.hpp.
#include "c10.hpp"

#include <utility>

namespace c10 {

int errors_made, errors_live;

Error::Error(SourceLocation where, std::string text)
    : text_(std::move(text)), where_(std::string(where.function) + " in " + where.file) {
    errors_made++;
    errors_live++;
}

Error::Error(const Error &other)
    : std::exception(other), text_(other.text_), context_(other.context_), where_(other.where_) {
    errors_live++;
}

Error::~Error() {
    errors_live--;
}

const char *Error::what() const noexcept {
    return text_.c_str();
}

#ifndef C10_INLINE
OutOfMemoryError::~OutOfMemoryError() = default;
#endif

} // namespace c10
