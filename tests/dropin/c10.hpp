// c10.hpp - stands in for what PyTorch throws: classes by the names, and with the layout, that its
// libc10.so has (c10/util/Exception.h), and counts of them. With -DC10_INLINE each library has the
// derived class for itself.
#ifndef ASHLAR_TESTS_C10_HPP
#define ASHLAR_TESTS_C10_HPP

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace c10 {

struct SourceLocation {
    const char *function;
    const char *file;
    std::uint32_t line;
};

extern int errors_made, errors_live;

class Error : public std::exception {
  public:
    Error(SourceLocation where, std::string text);
    Error(const Error &other);
    ~Error() override;
    const char *what() const noexcept override;

  private:
    std::string text_;
    std::vector<std::string> context_;
    std::string where_;
};

class OutOfMemoryError : public Error {
  public:
    using Error::Error;
#ifndef C10_INLINE
    ~OutOfMemoryError() override;
#endif
};

} // namespace c10

#endif // ASHLAR_TESTS_C10_HPP
