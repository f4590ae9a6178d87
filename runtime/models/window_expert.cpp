#include "runtime/models/window_expert.h"

#include "core/ops/add.h"
#include "core/ops/attention.h"
#include "core/ops/rope.h"
#include "core/ops/swiglu.h"

namespace anabranch {

WindowBlock::WindowBlock(const std::string& prefix, const std::string& attention,
                         const std::string& ffn, const WindowBlockSizes& o)
    : ln_1(prefix + "ln_1", o.width),
      qkv(prefix + attention + "qkv", o.width, 3 * o.width, false, Init::normal(kMoepInitStd)),
      proj(prefix + attention + "proj", o.width, o.width, false, Init::normal(kMoepInitStd)),
      ln_2(prefix + "ln_2", o.width),
      in(prefix + ffn + "in", o.width, 2 * o.ffn_width, false, Init::normal(kMoepInitStd)),
      out(prefix + ffn + "out", o.ffn_width, o.width, false, Init::normal(kMoepInitStd)),
      ln_3(prefix + "ln_3", o.width),
      heads(o.heads) {
  qkv.weight.matrices = 3;
  in.weight.matrices = 2;
}

Var WindowBlock::operator()(const Var& x, int64_t batch, const Tensor& positions,
                            const Tensor& first_key, const Tensor& last_key) {
  const RopeForm form{heads, heads, x.dim(1) / heads};
  const Var turned = rope(qkv(ln_1(x)), positions, form);
  const auto [h, u] = ln_2.add(x, proj(attention(turned, batch, heads, first_key, last_key)));
  return ln_3.add(h, out(swiglu(in(u)))).norm;
}

void WindowBlock::add_products(Products& products, const std::string& name, int64_t rows,
                               int64_t count) const {
  products.add(product_of(name + "qkv", qkv.weight, rows, count));
  products.add(product_of(name + "projection", proj.weight, rows, count));
  products.add(product_of(name + "feed-forward in", in.weight, rows, count));
  products.add(product_of(name + "feed-forward out", out.weight, rows, count));
}

}  // namespace anabranch
