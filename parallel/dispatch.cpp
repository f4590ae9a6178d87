#include "parallel/dispatch.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/base/range.h"
#include "core/ops/gather_rows.h"
#include "core/ops/permute_rows.h"
#include "core/ops/rows.h"
#include "core/ops/slot_lists.h"

namespace anabranch {
namespace {

Tensor ints(const Tensor& beside, int64_t count, const char* tag) {
  return beside.like({count}, DType::kI32, tag);
}

// 0, 1, ..
void count_up(Tensor& to) { std::iota(to.data<int32_t>(), to.data<int32_t>() + to.count(), 0); }

// What the ranks have told each other, in the host's memory: of each rank the slots of its experts,
// the rows that go to it and the rows here; of each rank the slots of the experts here, the rows
// that come from it and the rows there.
void read_counts(SlotRoute& route, const Tensor& both, int rank) {
  const auto* count = both.data<int64_t>();
  const auto slots = [&count](int64_t experts, std::vector<int64_t>& to) {
    to.insert(to.end(), count, count + experts);
    count += experts;
    return std::reduce(to.end() - experts, to.end());
  };
  std::vector<int64_t> own;
  for (int r = 0; r < route.experts.ranks; ++r) {
    route.slots.out.push_back(slots(route.experts.count(r), own));
    route.rows.out.push_back(count[0]);
    count += kCountsBesideExperts;
  }
  for (const int64_t n : own) route.own.offsets.push_back(route.own.rows() + n);
  for (int r = 0; r < route.experts.ranks; ++r) {
    route.slots.in.push_back(slots(route.experts.count(rank), route.held));
    route.rows.in.push_back(count[0]);
    route.rows_of.push_back(count[1]);
    count += kCountsBesideExperts;
  }
}

// The one wait of a dispatch.
std::shared_ptr<SlotRoute> hear(const PendingCounts& counts) {
  const Range range("dispatch counts");
  auto route = std::make_shared<SlotRoute>();
  route->experts = counts.experts;
  counts.work.wait();
  const Tensor both = counts.both.wait();
  counts.group->check();  // what a GPU brought may be of a collective that has failed
  read_counts(*route, both, counts.group->rank());
  if (counts.apart) {
    route->rows = route->slots;
    route->sent = counts.plan.source;
  } else {
    route->sent = counts.sent.view(0, {route->rows.sent()});
  }
  return route;
}

// The slots that are used, of which the host now knows how many they are.
SlotPlan used_of(const SlotPlan& plan, const Groups& groups) {
  const Shape used{groups.rows()};
  return {plan.rows, groups, plan.source.view(0, used), plan.gate.view(0, used)};
}

// The slots here, from the sender's row of each slot in the order of arrival.
Dispatched arrange(SlotRoute& route, const Tensor& lists) {
  const ArrivedSlots slots = arrived_slots(lists, {route.held, route.rows.in, route.rows_of});
  route.arrived = slots.place;
  Dispatched at;
  at.plan = slots.plan;
  at.group_row = slots.group_row;
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
  const std::vector<int64_t> first_of = begins_of(route.rows_of);
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

PendingCounts dispatch_counts(const SlotPlan& plan, int64_t experts, const Regions& regions) {
  check_groups("dispatch", plan.groups, experts, plan.source.count());
  PendingCounts pending;
  pending.plan = plan;
  pending.apart = regions.any_layout;
  AB_CHECK(!pending.apart || plan.source.device().is_cpu(),
           "[dispatch] a run of any layout computes on the CPU");
  if (regions.model_size() == 1) return pending;
  Group& group = *regions.model;
  pending.group = &group;
  pending.experts = {experts, group.size()};
  std::vector<int64_t> first_expert{0}, out;
  for (int r = 0; r < group.size(); ++r) {
    first_expert.push_back(pending.experts.end(r));
    out.push_back(pending.experts.count(r) + kCountsBesideExperts);
  }
  const int64_t mine = out[static_cast<size_t>(group.rank())];
  const std::vector<int64_t> in(out.size(), mine);
  const Shape told{experts + kCountsBesideExperts * group.size()}, heard{mine * group.size()};
  const Tensor both =
      plan.source.like({told.count() + heard.count()}, DType::kI64, "dispatch.counts");
  pending.sent = rows_to_send(both.view(0, told), plan, first_expert);
  pending.work = group.all_to_all(both.view(told.count(), heard), both.view(0, told), out, in);
  // A GPU's stream waits for the counts at once, so that what is put there from now on runs while
  // the host reads them.
  if (both.device().is_cuda()) pending.work.wait();
  pending.both = Download(both);
  return pending;
}

PendingDispatch dispatch_start(const Var& x, const PendingCounts& counts) {
  AB_CHECK(x.shape().rank() == 2 && x.dim(0) == counts.plan.rows, "[dispatch] x is ", x.shape(),
           " but the slots are of ", counts.plan.rows, " rows");
  PendingDispatch pending;
  pending.x = x;
  pending.plan = counts.plan;
  pending.apart = counts.apart;
  if (counts.group == nullptr) {
    if (pending.apart) pending.x = gather_rows(x, counts.plan.source);
    return pending;
  }
  pending.route = hear(counts);
  const SlotRoute& route = *pending.route;
  pending.plan = used_of(counts.plan, route.own);
  pending.lists = ints(pending.plan.source, route.slots.received(), "dispatch.lists");
  pending.work =
      counts.group->all_to_all(pending.lists, pending.plan.source, route.slots.out, route.slots.in);
  pending.rows = exchange_rows_start(gather_rows(x, route.sent), route.rows, counts.group);
  return pending;
}

Dispatched dispatch_finish(const PendingDispatch& pending) {
  if (!pending.route && pending.apart) return with_own_rows(pending.x, pending.plan);
  if (!pending.route) return in_place(pending.x, pending.plan);
  pending.work.wait();
  const int rank = pending.rows.group->rank();
  Dispatched at = pending.apart ? as_arrived(*pending.route, pending.lists, rank)
                                : arrange(*pending.route, pending.lists);
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
  const int64_t used = pending.plan.source.count(), unused = values.value().count() - used;
  AB_CHECK(values.shape().rank() == 1 && (unused == 0 || (unused > 0 && pending.route)),
           "[dispatch] ", values.shape(), " values for ", used, " slots");
  if (!pending.route) return exchange_rows_start(values, RowMoves(), nullptr);
  const Var sent = unused == 0 ? values : split_rows(values, {used, unused}).front();
  return exchange_rows_start(sent, pending.route->slots, pending.rows.group);
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
  const Tensor leaving = inverse_order(slots, at.route ? at.route->arrived : Tensor());
  const Var packed = permute_rows(z, leaving);
  if (!at.route) return exchange_rows_start(packed, RowMoves(), nullptr);
  return exchange_rows_start(packed, RowCounts{at.route->slots.in, at.route->slots.out}, at.group);
}

Var return_slots_finish(const PendingExchange& pending) { return exchange_rows_finish(pending); }

}  // namespace anabranch
