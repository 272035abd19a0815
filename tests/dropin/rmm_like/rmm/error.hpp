// error.hpp - as much of RMM's header as rmm_adaptor.hpp uses, declared by us.
#pragma once
#include <new>
#include <string>

namespace rmm {

class bad_alloc : public std::bad_alloc {
  public:
    explicit bad_alloc(std::string const &text) : text_("rmm: " + text) {
    }
    const char *what() const noexcept override {
        return text_.c_str();
    }

  private:
    std::string text_;
};

class out_of_memory : public bad_alloc {
  public:
    using bad_alloc::bad_alloc;
};

} // namespace rmm
