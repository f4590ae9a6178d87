#include "parallel/dispatch.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/ops/gather_rows.h"
#include "core/ops/permute_rows.h"
#include "core/ops/rows.h"

namespace anabranch {
namespace {

// Behind the slots of each expert, what a rank tells another: how many rows it sends, and has.
constexpr int64_t kBesideExperts = 2;

Tensor ints(const Tensor& beside, int64_t count, const char* tag) {
  return beside.like({count}, DType::kI32, tag);
}

// 0, 1, ..
void count_up(Tensor& to) { std::iota(to.data<int32_t>(), to.data<int32_t>() + to.count(), 0); }

// Where `ranks` ranks' parts of some lengths begin.
std::vector<int64_t> begins(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> all(lengths.size(), 0);
  std::exclusive_scan(lengths.begin(), lengths.end(), all.begin(), int64_t{0});
  return all;
}

// Which of a rank's rows some slots of it take.
class Taken {
 public:
  Taken(std::span<const int32_t> rows_of_slots, int64_t rows)
      : place_(static_cast<size_t>(rows), -1) {
    for (const int32_t row : rows_of_slots) {
      AB_CHECK(row >= 0 && row < rows, "[dispatch] a slot takes row ", row, " of ", rows);
      place_[static_cast<size_t>(row)] = 0;
    }
    for (int32_t& place : place_) {
      if (place == 0) place = count_++;
    }
  }

  [[nodiscard]] int32_t count() const { return count_; }

  // Where the row is among those that are taken.
  [[nodiscard]] int32_t place(int32_t row) const { return place_[static_cast<size_t>(row)]; }

  // Calls each(place, row) for the rows that are taken, by index.
  template <class Each>
  void for_each(const Each& each) const {
    for (size_t row = 0; row < place_.size(); ++row) {
      if (place_[row] >= 0) each(place_[row], static_cast<int32_t>(row));
    }
  }

 private:
  std::vector<int32_t> place_;
  int32_t count_ = 0;
};

// What goes to each rank.
void fill_out(SlotRoute& route, const SlotPlan& plan, bool apart) {
  const Groups& groups = plan.groups;
  for (int d = 0; d < route.experts.ranks; ++d) {
    route.slots.out.push_back(groups.begin(route.experts.end(d)) -
                              groups.begin(route.experts.begin(d)));
  }
  if (apart) {
    route.rows.out = route.slots.out;
    route.sent = plan.source;
    return;
  }
  std::vector<int32_t> sent;
  std::span<const int32_t> sources = plan.source.span<int32_t>();
  for (const int64_t slots : route.slots.out) {
    const Taken taken(sources.first(static_cast<size_t>(slots)), plan.rows);
    sources = sources.subspan(static_cast<size_t>(slots));
    taken.for_each([&](int32_t /*place*/, int32_t row) { sent.push_back(row); });
    route.rows.out.push_back(taken.count());
  }
  route.sent = ints(plan.source, std::ssize(sent), "dispatch.sent");
  std::ranges::copy(sent, route.sent.data<int32_t>());
}

// What the other ranks tell of what will come.
struct CountsOnWay {
  Tensor heard;  // [ranks, local experts + kBesideExperts]
  Work work;
};

// Begins to tell the other ranks how much will come.
CountsOnWay tell_counts(const SlotRoute& route, const SlotPlan& plan, Group& group) {
  const int ranks = group.size();
  const int64_t mine = route.experts.count(group.rank()) + kBesideExperts;
  std::vector<int64_t> out, in(static_cast<size_t>(ranks), mine), told;
  for (int d = 0; d < ranks; ++d) {
    out.push_back(route.experts.count(d) + kBesideExperts);
    for (int64_t e = route.experts.begin(d); e < route.experts.end(d); ++e) {
      told.push_back(plan.groups.size(e));
    }
    told.push_back(route.rows.out[static_cast<size_t>(d)]);
    told.push_back(plan.rows);
  }
  const Tensor from = Tensor::of<int64_t>({std::ssize(told)}, told);
  const Tensor to({mine * ranks}, DType::kI64);
  return {to, group.all_to_all(to, from, out, in)};
}

// The one wait of a dispatch.
void hear_counts(SlotRoute& route, const CountsOnWay& counts) {
  counts.work.wait();
  const auto* heard = counts.heard.data<int64_t>();
  const int64_t mine = counts.heard.count() / route.experts.ranks;
  for (int r = 0; r < route.experts.ranks; ++r, heard += mine) {
    const int64_t* const beside = heard + mine - kBesideExperts;
    route.held.insert(route.held.end(), heard, beside);
    route.slots.in.push_back(std::accumulate(heard, beside, int64_t{0}));
    route.rows.in.push_back(beside[0]);
    route.rows_of.push_back(beside[1]);
  }
}

// The slots here, from the sender's row of each slot in the order of arrival.
Dispatched arrange(SlotRoute& route, const Tensor& lists, int rank) {
  const int ranks = route.experts.ranks;
  const int64_t experts = route.experts.count(rank);
  const std::vector<int64_t> first_row = begins(route.rows.in), first_of = begins(route.rows_of);
  std::vector<int64_t> next = begins(route.slots.in);  // slot of each rank to be placed
  Dispatched at;
  at.plan.rows = route.rows.received();
  at.group_row = ints(lists, at.plan.rows, "dispatch.group_row");
  at.plan.source = ints(lists, lists.count(), "dispatch.source");
  at.plan.gate = ints(lists, lists.count(), "dispatch.gate");
  route.arrived = ints(lists, lists.count(), "dispatch.arrived");
  std::vector<Taken> taken;
  for (int r = 0; r < ranks; ++r) {
    const auto i = static_cast<size_t>(r);
    taken.emplace_back(lists.span<int32_t>().subspan(static_cast<size_t>(next[i]),
                                                     static_cast<size_t>(route.slots.in[i])),
                       route.rows_of[i]);
    AB_CHECK(taken[i].count() == route.rows.in[i], "[dispatch] rank ", r, " sends ",
             route.rows.in[i], " rows but its slots take ", taken[i].count());
    taken[i].for_each([&](int32_t place, int32_t row) {
      at.group_row.data<int32_t>()[first_row[i] + place] = static_cast<int32_t>(first_of[i] + row);
    });
  }
  int64_t s = 0;
  for (int64_t e = 0; e < experts; ++e) {
    for (int r = 0; r < ranks; ++r) {
      const auto i = static_cast<size_t>(r);
      for (int64_t n = route.held[i * static_cast<size_t>(experts) + static_cast<size_t>(e)]; n > 0;
           --n, ++s) {
        const int64_t place = next[i]++;
        route.arrived.data<int32_t>()[s] = static_cast<int32_t>(place);
        at.plan.source.data<int32_t>()[s] =
            static_cast<int32_t>(first_row[i] + taken[i].place(lists.data<int32_t>()[place]));
      }
    }
    at.plan.groups.offsets.push_back(s);
  }
  count_up(at.plan.gate);
  return at;
}

// The way home of a row for each slot here: those of an expert and a rank lie together at both
// ends, so nothing is packed.
RowMoves way_home(const Dispatched& at) {
  const SlotRoute& route = *at.route;
  const std::vector<int64_t>& offsets = at.plan.groups.offsets;
  std::vector<int64_t> next(offsets.begin(), offsets.end() - 1);  // by local expert
  RowMoves moves;
  auto held = route.held.begin();
  for (int r = 0; r < route.experts.ranks; ++r) {
    for (int64_t& first : next) {
      if (*held > 0) moves.out.push_back({r, first, *held});
      first += *held++;
    }
    for (int64_t e = route.experts.begin(r); e < route.experts.end(r); ++e) {
      if (route.own.size(e) > 0) moves.in.push_back({r, route.own.begin(e), route.own.size(e)});
    }
  }
  return moves;
}

// The slots here, each with a row of its own, as they came.
Dispatched as_arrived(SlotRoute& route, const Tensor& lists, int rank) {
  const int64_t experts = route.experts.count(rank);
  const std::vector<int64_t> first_of = begins(route.rows_of);
  Dispatched at;
  at.plan.rows = lists.count();
  at.plan.source = ints(lists, lists.count(), "dispatch.source");
  count_up(at.plan.source);
  at.plan.gate = route.arrived = at.plan.source;
  at.group_row = ints(lists, lists.count(), "dispatch.group_row");
  int64_t s = 0;
  for (size_t i = 0; i < route.held.size(); ++i) {
    const int64_t before = first_of[i / static_cast<size_t>(experts)];
    for (int64_t n = route.held[i]; n > 0; --n, ++s) {
      at.group_row.data<int32_t>()[s] = static_cast<int32_t>(before + lists.data<int32_t>()[s]);
    }
    at.plan.groups.offsets.push_back(s);
  }
  return at;
}

// Rows and slots where they are.
Dispatched in_place(const Var& x, const SlotPlan& plan) {
  Dispatched at;
  at.rows = x;
  at.plan = plan;
  return at;
}

// The same with a row for each slot.
Dispatched with_own_rows(const Var& x, const SlotPlan& plan) {
  Dispatched at = in_place(x, plan);
  at.group_row = plan.source;
  at.plan.rows = plan.source.count();
  at.plan.source = plan.source.like("dispatch.source");
  count_up(at.plan.source);
  return at;
}

// What came from rank `source` of the group, whose rows and values are given.
Dispatched part_of(const Dispatched& at, int source, const Var& rows, const Var& values) {
  const int64_t experts = at.plan.groups.count() / at.group->size(), first = source * experts;
  Dispatched part = at;
  part.rows = rows;
  part.values = values;
  part.first_slot = at.plan.groups.begin(first);
  part.plan.rows = rows.dim(0);
  part.plan.groups.offsets.clear();
  for (int64_t e = 0; e <= experts; ++e) {
    part.plan.groups.offsets.push_back(at.plan.groups.begin(first + e) - part.first_slot);
  }
  const auto of = [&](const Tensor& all) { return all.view(part.first_slot, {part.plan.rows}); };
  part.plan.source = ints(at.plan.source, part.plan.rows, "dispatch.source");
  count_up(part.plan.source);
  part.plan.gate = of(at.plan.gate);
  part.group_row = of(at.group_row);
  return part;
}

}  // namespace

PendingDispatch dispatch_start(const Var& x, const SlotPlan& plan, int64_t experts,
                               const Regions& regions) {
  check_groups("dispatch", plan.groups, experts, plan.source.count());
  AB_CHECK(x.shape().rank() == 2 && x.dim(0) == plan.rows, "[dispatch] x is ", x.shape(),
           " but the slots are of ", plan.rows, " rows");
  PendingDispatch pending;
  pending.x = x;
  pending.plan = plan;
  pending.apart = regions.any_layout;
  Group* const group = regions.model;
  if (group == nullptr || group->size() == 1) {
    if (pending.apart) pending.x = gather_rows(x, plan.source);
    return pending;
  }
  pending.route = std::make_shared<SlotRoute>();
  SlotRoute& route = *pending.route;
  route.experts = {experts, group->size()};
  route.own = plan.groups;
  fill_out(route, plan, pending.apart);
  const CountsOnWay counts = tell_counts(route, plan, *group);
  const Var packed = gather_rows(x, route.sent);
  hear_counts(route, counts);
  pending.lists = ints(plan.source, route.slots.received(), "dispatch.lists");
  pending.work = group->all_to_all(pending.lists, plan.source, route.slots.out, route.slots.in);
  pending.rows = exchange_rows_start(packed, route.rows, group);
  return pending;
}

Dispatched dispatch_finish(const PendingDispatch& pending) {
  if (!pending.route && pending.apart) return with_own_rows(pending.x, pending.plan);
  if (!pending.route) return in_place(pending.x, pending.plan);
  pending.work.wait();
  const int rank = pending.rows.group->rank();
  Dispatched at = pending.apart ? as_arrived(*pending.route, pending.lists, rank)
                                : arrange(*pending.route, pending.lists, rank);
  at.route = pending.route;
  at.group = pending.rows.group;
  at.rows = exchange_rows_finish(pending.rows);
  return at;
}

void for_parts(const Dispatched& at, const Regions& regions,
               const std::function<void(const Dispatched& part)>& each) {
  if (regions.sources() == 1) return each(at);
  const bool valued = !at.values.value().empty();
  const std::vector<int64_t>& counts = at.route->slots.in;
  const std::vector<Var> rows = split_rows(at.rows, counts);
  const std::vector<Var> values = valued ? split_rows(at.values, counts) : std::vector<Var>();
  regions.for_sources(at.rows.tape(), [&](int source) {
    const auto i = static_cast<size_t>(source);
    each(part_of(at, source, rows[i], valued ? values[i] : Var()));
  });
}

PendingExchange dispatch_slots_start(const Var& values, const PendingDispatch& pending) {
  AB_CHECK(values.shape() == Shape{pending.plan.source.count()}, "[dispatch] ", values.shape(),
           " values for ", pending.plan.source.count(), " slots");
  if (!pending.route) return exchange_rows_start(values, RowMoves(), nullptr);
  return exchange_rows_start(values, pending.route->slots, pending.rows.group);
}

Var dispatch_slots_finish(const PendingExchange& pending, const Dispatched& at) {
  const Var values = exchange_rows_finish(pending);
  return at.route ? permute_rows(std::span(&values, 1), at.route->arrived) : values;
}

PendingExchange return_slots_start(std::span<const Var> z, const Dispatched& at,
                                   const Tensor& order) {
  if (order.empty() && z.size() == 1) {
    if (!at.route) return exchange_rows_start(z.front(), RowMoves(), nullptr);
    return exchange_rows_start(z.front(), way_home(at), at.group);
  }
  AB_CHECK(at.route || !order.empty(), "[dispatch] ", z.size(), " pieces have no order");
  const Tensor& slots = order.empty() ? at.plan.gate : order;  // gates of what travelled: 0, 1, ..
  AB_CHECK(slots.count() == at.plan.source.count(), "[dispatch] the order of ", slots.count(),
           " rows for ", at.plan.source.count(), " slots");
  // Which row of z leaves at each place.
  Tensor leaving = ints(slots, slots.count(), "dispatch.leaving");
  for (int64_t i = 0; i < slots.count(); ++i) {
    const int32_t s = slots.data<int32_t>()[i];
    const int32_t place = at.route ? at.route->arrived.data<int32_t>()[s] : s;
    leaving.data<int32_t>()[place] = static_cast<int32_t>(i);
  }
  const Var packed = permute_rows(z, leaving);
  if (!at.route) return exchange_rows_start(packed, RowMoves(), nullptr);
  return exchange_rows_start(packed, RowCounts{at.route->slots.in, at.route->slots.out}, at.group);
}

Var return_slots_finish(const PendingExchange& pending) { return exchange_rows_finish(pending); }

}  // namespace anabranch
