#include "runtime/bench/ops_bench.h"

#include <functional>

#include "core/base/philox.h"
#include "core/nn/layers.h"
#include "core/ops/adamw.h"
#include "core/ops/add.h"
#include "core/ops/attention.h"
#include "core/ops/gelu.h"
#include "core/ops/gemm.h"
#include "core/ops/linear_cross_entropy.h"
#include "core/ops/squared_norm.h"
#include "runtime/bench/timing.h"
#include "runtime/models/registry.h"

namespace anabranch {
namespace {

constexpr int64_t kMeanDocument = 256;  // tokens

// Operations and bytes of a forward and of its backward.
struct Figures {
  double flops = 0, bytes = 0, backward_flops = 0, backward_bytes = 0;
};

class OpsBench {
 public:
  OpsBench(const Config& config, int64_t vocabulary, int64_t repeats, std::shared_ptr<Pool> pool)
      : model_(config.model),
        B_(config.train.micro_batch),
        N_(B_ * config.model.context),
        V_(vocabulary),
        repeats_(repeats),
        type_(compute_type(config.train.precision)),
        grads_(master_type(config.train.precision)),
        pool_(std::move(pool)) {}

  std::vector<OpTiming> run() {
    const int64_t C = model_.width, F = model_.ffn_width;
    products("qkv", C, 3 * C);
    products("projection", C, C);
    products("feed-forward in", C, F);
    products("feed-forward out", F, C);
    hidden_layer();
    attention_op();
    elementwise();
    embedding_op();
    head();
    optimizer();
    return std::move(all_);
  }

 private:
  [[nodiscard]] Tensor random(Shape shape, DType type) const {
    return random_values(shape, type, pool_);
  }

  [[nodiscard]] Tensor activations(int64_t columns) const { return random({N_, columns}, type_); }

  // Bytes of `elements` activations, or of parameters' gradients.
  [[nodiscard]] double bytes(int64_t elements) const {
    return static_cast<double>(elements * size_of(type_));
  }

  [[nodiscard]] double grad_bytes(int64_t elements) const {
    return static_cast<double>(elements * size_of(grads_));
  }

  void make(Param& w) const {
    set_compute(w, type_);
    allocate(w, grads_, pool_);
    initialise(w, 1);
    w.grad = Tensor(w.shape, grads_, pool_, "bench");
    w.grad.fill_zero();
    w.fresh = false;
  }

  void time(const std::string& name, double flops, double moved, const std::function<void()>& f) {
    all_.push_back({name, median(seconds_of(repeats_, f)), flops, moved});
  }

  // An op without a tape, and the backward of one with.
  //
  //   y_columns  of its output, whose gradient is random
  void both(const std::string& name, const Figures& cost, int64_t y_columns,
            const std::function<Var(Tape*)>& op) {
    time(name + " forward", cost.flops, cost.bytes, [&] { op(nullptr); });
    const Tensor dy = activations(y_columns);
    std::vector<double> seconds;
    for (int64_t i = 0; i <= repeats_; ++i) {
      Tape tape;
      const Var y = op(&tape);
      const Stopwatch watch;
      tape.backward(y, dy);
      if (i > 0) seconds.push_back(watch.seconds());
    }
    all_.push_back({name + " backward", median(seconds), cost.backward_flops, cost.backward_bytes});
  }

  static Var on(Tape* tape, const Tensor& x) { return tape != nullptr ? tape->input(x) : Var(x); }

  void products(const std::string& name, int64_t in, int64_t out) {
    Linear layer(name, in, out, true, Init::normal(0.02F));
    layer.visit([this](Param& w) { make(w); });
    const Tensor x = activations(in), dy = activations(out);
    Tensor dx = activations(in);
    const double flops = 2.0 * static_cast<double>(N_) * static_cast<double>(in * out);
    const double rows = bytes(N_ * (in + out));
    time(name + " y", flops, rows + bytes(in * out), [&] { layer(x); });
    time(name + " dx", flops, rows + bytes(in * out), [&] { gemm(dx, dy, layer.weight.value); });
    time(name + " dw", flops, rows + 2 * grad_bytes(in * out),
         [&] { gemm(layer.weight.grad, dy, x, {.transpose_a = true, .accumulate = true}); });
  }

  // The product whose epilogue is GELU, as a block runs it.
  void hidden_layer() {
    const int64_t C = model_.width, F = model_.ffn_width;
    Linear layer("hidden", C, F, true, Init::normal(0.02F));
    layer.visit([this](Param& w) { make(w); });
    const Tensor x = activations(C);
    const double flops = 2.0 * static_cast<double>(N_) * static_cast<double>(C * F);
    time("feed-forward in y + gelu", flops, bytes(N_ * (C + 2 * F) + C * F),
         [&] { linear_gelu(x, layer.weight, *layer.bias); });
  }

  void attention_op() {
    const int64_t C = model_.width, T = model_.context;
    const Tensor qkv = activations(3 * C);
    const double product = static_cast<double>(N_) * static_cast<double>((T + 1) * C);
    both("attention", {2 * product, bytes(4 * N_ * C), 5 * product, bytes(8 * N_ * C)}, C,
         [&](Tape* tape) { return attention(on(tape, qkv), B_, model_.heads); });
    const Tensor starts = document_starts();
    double pairs = 0;
    for (int64_t n = 0; n < N_; ++n) {
      pairs += static_cast<double>(n % T - starts.data<int32_t>()[n] + 1);
    }
    const double seen = 2 * pairs * static_cast<double>(C);
    both("attention in documents", {2 * seen, bytes(4 * N_ * C), 5 * seen, bytes(8 * N_ * C)}, C,
         [&](Tape* tape) { return attention(on(tape, qkv), B_, model_.heads, starts); });
  }

  // Sequences cut from documents of 1 to 2 kMeanDocument - 1 tokens, one after the other.
  [[nodiscard]] Tensor document_starts() const {
    const int64_t T = model_.context;
    Tensor starts({B_, T}, DType::kI32, pool_, "bench");
    int64_t start = 0, next = 0;
    for (int64_t n = 0; n < N_; ++n) {
      if (n % T == 0 || n == next) start = n % T;
      if (n == next) next += 1 + philox(2, static_cast<uint64_t>(n))[0] % (2 * kMeanDocument - 1);
      starts.data<int32_t>()[n] = static_cast<int32_t>(start);
    }
    return starts;
  }

  void elementwise() {
    const int64_t C = model_.width, F = model_.ffn_width;
    LayerNorm norm("norm", C, model_.gpt2.norm_eps);
    norm.visit([this](Param& w) { make(w); });
    const Tensor x = activations(C), delta = activations(C), hidden = activations(F);
    both("layer_norm", {0, bytes(2 * N_ * C), 0, bytes(3 * N_ * C)}, C,
         [&](Tape* tape) { return norm(on(tape, x)); });
    both("add_layer_norm", {0, bytes(4 * N_ * C), 0, bytes(3 * N_ * C)}, C,
         [&](Tape* tape) { return norm.add(on(tape, x), on(tape, delta)).norm; });
    both("gelu", {0, bytes(2 * N_ * F), 0, bytes(3 * N_ * F)}, F,
         [&](Tape* tape) { return gelu(on(tape, hidden), model_.gpt2.gelu); });
    time("add", 0, bytes(3 * N_ * C), [&] { add(x, delta); });
  }

  void embedding_op() {
    const int64_t C = model_.width, T = model_.context;
    Param tokens("tokens", {V_, C}, Init::normal(0.02F));
    Param positions("positions", {T, C}, Init::normal(0.02F));
    make(tokens);
    make(positions);
    const Tensor ids = random_ids({N_}, V_, 1, pool_);
    Tensor places({N_}, DType::kI32, pool_, "bench");
    for (int64_t n = 0; n < N_; ++n) places.data<int32_t>()[n] = static_cast<int32_t>(n % T);
    both("embedding", {0, bytes(3 * N_ * C), 0, bytes(N_ * C) + 4 * grad_bytes(N_ * C)}, C,
         [&](Tape* tape) { return embedding(tape, ids, tokens, places, &positions); });
  }

  void head() {
    const int64_t C = model_.width;
    Param table("head", {V_, C}, Init::normal(0.02F));
    make(table);
    const Tensor x = activations(C), targets = random_ids({N_}, V_, 2, pool_);
    const double product = 2.0 * static_cast<double>(N_) * static_cast<double>(C * V_);
    time("head and loss", product, bytes(N_ * C + V_ * C),
         [&] { linear_cross_entropy(x, table, targets, 1); });
    time("head, loss and gradients", 3 * product,
         bytes(2 * N_ * C + V_ * C) + 2 * grad_bytes(V_ * C), [&] {
           Tape tape;
           linear_cross_entropy(tape.input(x), table, targets, 1);
         });
  }

  void optimizer() {
    const int64_t n = model_.width * (4 * model_.width + 2 * model_.ffn_width);
    Tensor master = random({n}, grads_), m = random({n}, grads_), v = random({n}, grads_);
    v.fill_zero();
    const Tensor gradient = random({n}, grads_);
    Tensor value({n}, type_, pool_, "bench");
    const bool rounded = type_ != grads_;
    time("adamw of a block", 0, 7 * grad_bytes(n) + (rounded ? bytes(n) : 0),
         [&] { adamw(master, m, v, gradient, rounded ? &value : nullptr, {.lr = 1e-3}); });
    time("squared_norm of a block", 0, grad_bytes(n), [&] { squared_norm(gradient); });
  }

  const ModelConfig& model_;
  int64_t B_, N_, V_, repeats_;
  DType type_, grads_;
  std::shared_ptr<Pool> pool_;
  std::vector<OpTiming> all_;
};

}  // namespace

std::vector<OpTiming> bench_ops(const Config& config, int64_t vocabulary, int64_t repeats,
                                const std::shared_ptr<Pool>& pool) {
  if (config.model.type != ModelType::kGpt2) {
    throw config_error("model.type is ", word_of(config.model.type),
                       ", and the ops of a step are timed for gpt2 models alone");
  }
  return OpsBench(config, vocabulary, repeats, pool).run();
}

}  // namespace anabranch
