#include "policy/methods.h"

namespace rkv::policy {

Method FullMethod() {
  return {.info = {.name = "full",
                   .keeps = "everything",
                   .reads = "everything",
                   .state = "none",
                   .source = "exact attention"},
          .make = [] { return Parts{}; }};
}

}  // namespace rkv::policy
