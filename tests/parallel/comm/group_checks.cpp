#include "tests/parallel/comm/group_checks.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <thread>

#include "core/base/philox.h"
#include "parallel/comm/reduce.h"
#include "tests/support/ranks.h"

namespace anabranch::test {
namespace {

// On both sides of the border between the two ways to reduce.
constexpr int64_t kCounts[] = {0, 1, 4, 31, 33, 100, 5000, 20001};
constexpr DType kSums[] = {DType::kF32, DType::kBF16, DType::kF64, DType::kI64};

std::string label(const char* what, DType type, int64_t count) {
  return join(what, " of ", count, " ", name_of(type));
}

Tensor sum_of(int ranks, Shape shape, DType type) {
  return numbers(shape, type, [&](int64_t i) {
    int64_t sum = 0;
    for (int r = 0; r < ranks; ++r) sum += exact_number(r, i);
    return sum;
  });
}

void for_all(const std::function<void(DType, int64_t)>& f) {
  for (const DType type : kSums) {
    for (const int64_t count : kCounts) f(type, count);
  }
}

void all_reduce(Group& g, const TestDevice& on) {
  for_all([&](DType type, int64_t count) {
    Tensor x = on.place(exact({count}, type, g.rank()));
    g.all_reduce_sum(x).wait();
    expect_equal(x, sum_of(g.size(), {count}, type), label("sum", type, count));

    Tensor y = on.place(exact({count}, type, g.rank()));
    g.all_reduce_max(y).wait();
    expect_equal(y,
                 numbers({count}, type,
                         [&](int64_t i) {
                           int64_t most = exact_number(0, i);
                           for (int r = 1; r < g.size(); ++r)
                             most = std::max(most, exact_number(r, i));
                           return most;
                         }),
                 label("max", type, count));
  });
}

void gather_and_scatter(Group& g, const TestDevice& on) {
  for_all([&](DType type, int64_t count) {
    Tensor whole({g.size(), count}, type, on.pool);
    g.all_gather(whole, on.place(exact({count}, type, g.rank()))).wait();
    const Tensor want = numbers({g.size(), count}, type, [&](int64_t i) {
      return exact_number(static_cast<int>(i / count), i % count);
    });
    expect_equal(whole, want, label("all_gather", type, count));

    Tensor in_place({g.size(), count}, type, on.pool);
    Tensor mine = in_place.view(g.rank() * count, {count});
    mine.copy_from(exact({count}, type, g.rank()));
    g.all_gather(in_place, mine).wait();
    expect_equal(in_place, want, label("all_gather in place", type, count));

    Tensor part({count}, type, on.pool);
    g.reduce_scatter_sum(part, on.place(exact({g.size() * count}, type, g.rank()))).wait();
    const Tensor sum = sum_of(g.size(), {g.size() * count}, type);
    expect_equal(part, sum.view(g.rank() * count, {count}), label("reduce_scatter", type, count));
  });
}

// Parts of none, half and all of `count` elements.
void parts(Group& g, const TestDevice& on) {
  for_all([&](DType type, int64_t count) {
    std::vector<int64_t> begins{0};
    for (int r = 0; r < g.size(); ++r) begins.push_back(begins.back() + (r + 1) % 3 * count / 2);
    const int64_t all = begins.back(), first = begins[static_cast<size_t>(g.rank())];
    const int64_t own = begins[static_cast<size_t>(g.rank()) + 1] - first;
    const Tensor sum = sum_of(g.size(), {all}, type);
    Tensor whole = on.place(exact({all}, type, g.rank()));
    g.reduce_scatter_parts_sum(whole, begins).wait();
    expect_equal(whole.view(first, {own}), sum.view(first, {own}), label("parts", type, count));
    g.all_gather_parts(whole, begins).wait();
    expect_equal(whole, sum, label("all_gather of parts", type, count));
  });
}

void broadcast(Group& g, const TestDevice& on) {
  for (int root = 0; root < g.size(); ++root) {
    for_all([&](DType type, int64_t count) {
      Tensor x = on.place(exact({count}, type, g.rank()));
      g.broadcast(x, root).wait();
      expect_equal(x, exact({count}, type, root), label("broadcast", type, count));
    });
  }
}

// More than one segment of a reduction.
void large(Group& g, const TestDevice& on) {
  constexpr int64_t kCount = 2200000;
  Tensor x = on.place(exact({kCount}, DType::kF32, g.rank()));
  g.all_reduce_sum(x).wait();
  const Tensor sum = sum_of(g.size(), {kCount}, DType::kF32);
  expect_equal(x, sum, "large sum");
  const int64_t share = kCount / g.size();
  Tensor part({share}, DType::kF32, on.pool);
  const Tensor whole = on.place(exact({kCount}, DType::kF32, g.rank()));
  g.reduce_scatter_sum(part, whole.view(0, {g.size() * share})).wait();
  expect_equal(part, sum.view(g.rank() * share, {share}), "large reduce_scatter");
  // All of it to the last rank: the others have no part in any segment.
  std::vector<int64_t> begins(static_cast<size_t>(g.size()), 0);
  begins.push_back(kCount);
  Tensor last = on.place(exact({kCount}, DType::kF32, g.rank()));
  g.reduce_scatter_parts_sum(last, begins).wait();
  if (g.rank() == g.size() - 1) expect_equal(last, sum, "large sum to one rank");
}

// Rank s sends rows(s, r) rows to rank r, so some send nothing.
int64_t rows(int sender, int receiver) { return (3 * sender + 5 * receiver) % 4; }

void all_to_all(Group& g, const TestDevice& on) {
  for (const int64_t width : {1, 3, 3000}) {
    std::vector<int64_t> send, recv;
    std::vector<int64_t> sent, expected;  // a number per row that says whence and whither
    for (int r = 0; r < g.size(); ++r) {
      send.push_back(rows(g.rank(), r));
      recv.push_back(rows(r, g.rank()));
      for (int64_t i = 0; i < send.back(); ++i) sent.push_back(g.rank() * 64 + r * 4 + i);
      for (int64_t i = 0; i < recv.back(); ++i) expected.push_back(r * 64 + g.rank() * 4 + i);
    }
    const auto fill = [&](const std::vector<int64_t>& all) {
      return numbers({std::ssize(all), width}, DType::kF32,
                     [&](int64_t i) { return all[static_cast<size_t>(i / width)]; });
    };
    Tensor to({std::ssize(expected), width}, DType::kF32, on.pool);
    g.all_to_all(to, on.place(fill(sent)), send, recv).wait();
    expect_equal(to, fill(expected), "all_to_all");
  }
}

// The communication thread brings elements: if it waited for them, it would wait for itself.
void landing(Group& g, const TestDevice& on) {
  if (g.size() == 1) return;
  const auto never = [] { throw Error(Fault::kInternal, "the communication thread waits"); };
  const std::vector<int64_t> one(static_cast<size_t>(g.size()), 1);
  Tensor mine = on.place(exact({1}, DType::kF32, g.rank())), sum = mine.clone();
  Tensor row_each({g.size(), 1}, DType::kF32, on.pool);
  for (int r = 0; r < g.size(); ++r) {
    row_each.view(r, {1, 1}).copy_from(mine.reshape({1, 1}));
  }
  Tensor gathered({g.size()}, DType::kF32, on.pool), sent({g.size(), 1}, DType::kF32, on.pool);
  for (Tensor* t : {&mine, &sum, &row_each, &gathered, &sent}) t->expect(never);
  g.all_gather(gathered, mine).wait();
  g.all_to_all(sent, row_each, one, one).wait();
  g.all_reduce_sum(sum).wait();
  for (Tensor* t : {&mine, &sum, &row_each, &gathered, &sent}) t->expect(nullptr);
  const Tensor want = numbers({g.size()}, DType::kF32,
                              [](int64_t i) { return exact_number(static_cast<int>(i), 0); });
  expect_equal(gathered, want, "all_gather of what is on its way");
  expect_equal(sent.reshape({g.size()}), want, "all_to_all of what is on its way");
  expect_equal(sum, sum_of(g.size(), {1}, DType::kF32), "sum of what is on its way");
}

// Rows that lie by part, then by rank, go to where they lie by rank, then by part, and back.
void segments(Group& g, const TestDevice& on) {
  constexpr int kParts = 3;
  const int n = g.size();
  const auto rows_of = [](int from, int to, int part) { return (from + 2 * to + 5 * part) % 4; };
  std::vector<RowSegment> out, in;
  std::vector<int64_t> sent, expected;
  for (int part = 0; part < kParts; ++part) {
    for (int r = 0; r < n; ++r) {
      out.push_back({r, std::ssize(sent), rows_of(g.rank(), r, part)});
      for (int64_t i = 0; i < out.back().rows; ++i) {
        sent.push_back(((g.rank() * 16 + r) * kParts + part) * 4 + i);
      }
    }
  }
  for (int r = n - 1; r >= 0; --r) {
    for (int part = 0; part < kParts; ++part) {
      in.push_back({r, std::ssize(expected), rows_of(r, g.rank(), part)});
      for (int64_t i = 0; i < in.back().rows; ++i) {
        expected.push_back(((r * 16 + g.rank()) * kParts + part) * 4 + i);
      }
    }
  }
  for (const int64_t width : {1, 3000}) {
    const auto fill = [&](const std::vector<int64_t>& all) {
      return numbers({std::ssize(all), width}, DType::kF32,
                     [&](int64_t i) { return all[static_cast<size_t>(i / width)]; });
    };
    Tensor to({std::ssize(expected), width}, DType::kF32, on.pool);
    g.all_to_all_segments(to, on.place(fill(sent)), out, in).wait();
    expect_equal(to, fill(expected), "segments");
    Tensor back({std::ssize(sent), width}, DType::kF32, on.pool);
    g.all_to_all_segments(back, to, in, out).wait();
    expect_equal(back, fill(sent), "segments back");
  }
}

Tensor noise(int rank, DType type, int64_t count) {
  Tensor t({count}, type);
  dispatch(type, [&]<class T>() {
    for (int64_t i = 0; i < count; ++i) {
      const auto key = static_cast<uint64_t>(rank) + 7;
      t.data<T>()[i] = T(uniform_float(philox(key, static_cast<uint64_t>(i))[0]) - 0.5F);
    }
  });
  return t;
}

// parts[first] + .. + parts[first + count - 1], the left half of the tree being a power of two.
float tree_sum(const std::vector<float>& parts, size_t first, size_t count) {
  if (count == 1) return parts[first];
  const size_t left = std::bit_floor(count - 1);
  return tree_sum(parts, first, left) + tree_sum(parts, first + left, count - left);
}

// Sums that round: as one tree over the ranks, bf16 through fp32, whatever moved them.
void tree_order(Group& g, const TestDevice& /*on*/) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const int64_t count : {int64_t{5}, int64_t{50001}}) {
      Tensor want({count}, type);
      dispatch(type, [&]<class T>() {
        std::vector<Tensor> all;
        for (int r = 0; r < g.size(); ++r) all.push_back(noise(r, type, count));
        for (int64_t i = 0; i < count; ++i) {
          std::vector<float> parts;
          for (const Tensor& part : all) parts.push_back(static_cast<float>(part.data<T>()[i]));
          want.data<T>()[i] = T(tree_sum(parts, 0, parts.size()));
        }
      });
      Tensor x = noise(g.rank(), type, count);
      g.all_reduce_sum(x).wait();
      expect_equal(x, want, label("sum as a tree", type, count));
    }
  }
}

// Many at once, waited for in another order, their tensors held only by the works.
void asynchronous(Group& g, const TestDevice& on) {
  std::vector<Tensor> xs;
  std::vector<Work> works;
  for (int i = 0; i < 20; ++i) {
    xs.push_back(on.place(exact({1000 + i}, DType::kF32, g.rank())));
    works.push_back(g.all_reduce_sum(xs.back()));
    g.all_reduce_sum(on.place(exact({50}, DType::kF64, g.rank())));  // no one waits for it
  }
  for (size_t i = works.size(); i-- > 0;) {
    works[i].wait();
    EXPECT_TRUE(xs[i].unique());  // the communication thread has let go of it
    expect_equal(xs[i], sum_of(g.size(), xs[i].shape(), DType::kF32), "one of many");
    EXPECT_TRUE(works[i].done());
  }
}

void split(Group& g, const TestDevice& on) {
  const int half = (g.size() + 1) / 2;
  const int color = g.rank() < half ? 0 : 1;
  const auto part = g.split(color, -g.rank());  // reversed within each half
  const int size = color == 0 ? half : g.size() - half;
  const int first = color == 0 ? 0 : half;
  ASSERT_EQ(part->size(), size);
  EXPECT_EQ(part->rank(), size - 1 - (g.rank() - first));
  Tensor x = on.place(Tensor::of<int64_t>({1}, {g.rank()}));
  const Work inner = part->all_reduce_sum(x);
  Tensor y = on.place(Tensor::of<int64_t>({1}, {1}));
  g.all_reduce_sum(y).wait();
  inner.wait();
  int64_t want = 0;
  for (int r = first; r < first + size; ++r) want += r;
  expect_equal(x, Tensor::of<int64_t>({1}, {want}), "sum of a part");
  expect_equal(y, Tensor::of<int64_t>({1}, {g.size()}), "sum of all");
  const auto again = part->split(part->rank() % 2, 0);
  again->barrier();
}

void counts_and_spans(Group& g, const TestDevice& on) {
  Trace trace;
  trace.set_on(true);
  g.set_trace(&trace);
  const auto before = g.stats().of(CollectiveKind::kAllReduceSum);
  const Tensor x = on.place(exact({100}, DType::kF32, g.rank()));
  const Work work = g.all_reduce_sum(x);
  work.wait();
  while (!work.done()) std::this_thread::yield();
  g.barrier();
  EXPECT_EQ(work.seconds() > 0, g.size() > 1);
  // The end of what runs on a GPU is noticed now and then.
  const bool alone = g.size() == 1;
  for (int i = 0; i < 5000 && !alone && g.progress().starts > g.progress().finishes; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto after = g.stats().of(CollectiveKind::kAllReduceSum);
  g.set_trace(nullptr);
  EXPECT_EQ(after.calls - before.calls, alone ? 0 : 1);
  EXPECT_EQ(after.bytes - before.bytes, alone ? 0 : 400);
  EXPECT_EQ(trace.json(0).find("all_reduce_sum") != std::string::npos, !alone);
}

void refusals(Group& g, const TestDevice& on) {
  const auto make = [&](Shape shape, DType type) { return Tensor(shape, type, on.pool); };
  EXPECT_THROW(g.all_reduce_sum(make({3}, DType::kI32)), Error);
  EXPECT_THROW(g.all_gather(make({g.size() * 3 + 1}, DType::kF32), make({3}, DType::kF32)), Error);
  EXPECT_THROW(g.reduce_scatter_sum(make({3}, DType::kF32), make({g.size() * 3}, DType::kF64)),
               Error);
  EXPECT_THROW(g.broadcast(make({1}, DType::kF32), g.size()), Error);
  EXPECT_THROW(g.all_gather_parts(make({4}, DType::kF32), {0}), Error);
  EXPECT_THROW(g.reduce_scatter_parts_sum(make({4}, DType::kF32),
                                          std::vector<int64_t>(static_cast<size_t>(g.size()) + 1)),
               Error);
  EXPECT_THROW(g.all_to_all(make({1, 2}, DType::kF32), make({1, 2}, DType::kF32), {}, {}), Error);
  const Tensor rows = make({2, 1}, DType::kF32);
  EXPECT_THROW(g.all_to_all_segments(rows, rows, {{0, 0, 1}}, {{0, 0, 2}}), Error);
  EXPECT_THROW(g.all_to_all_segments(rows, rows, {{0, 1, 2}}, {{0, 0, 2}}), Error);
  EXPECT_THROW(g.all_to_all_segments(rows, rows, {{g.size(), 0, 2}}, {{0, 0, 2}}), Error);
  g.barrier();
}

}  // namespace

std::vector<GroupCheck> group_checks() {
  return {{"AllReduce", all_reduce},
          {"GatherAndScatter", gather_and_scatter},
          {"Parts", parts},
          {"Broadcast", broadcast},
          {"Large", large},
          {"AllToAll", all_to_all},
          {"Segments", segments},
          {"Landing", landing},
          {"SumsAsATree", tree_order, false},
          {"Asynchronous", asynchronous},
          {"Split", split},
          {"CountsAndSpans", counts_and_spans},
          {"Refusals", refusals}};
}

}  // namespace anabranch::test
