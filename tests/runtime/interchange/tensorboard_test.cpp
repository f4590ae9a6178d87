#include "runtime/interchange/tensorboard.h"

#include <bit>
#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "runtime/interchange/series_csv.h"

namespace anabranch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

// A reading of our own, which knows nothing of the writer: checksums bit by bit.
uint32_t masked(const std::string& bytes) {
  uint32_t crc = 0xFFFFFFFFU;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78U : 0);
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xA282EAD8U;
}

template <class T>
T take(const std::string& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

std::vector<std::string> records_of(const std::string& file) {
  std::vector<std::string> records;
  for (size_t at = 0; at < file.size();) {
    const std::string length = file.substr(at, 8);
    EXPECT_EQ(take<uint32_t>(file, at + 8), masked(length));
    const auto bytes = static_cast<size_t>(take<uint64_t>(length, 0));
    records.push_back(file.substr(at + 12, bytes));
    EXPECT_EQ(take<uint32_t>(file, at + 12 + bytes), masked(records.back()));
    at += 16 + bytes;
  }
  return records;
}

RunSeries made_series() {
  RunSeries series;
  for (const int64_t step : {10, 20}) {
    StepReport report;
    report.step = step;
    report.tokens = 8 * step;
    report.loss = 5 - static_cast<double>(step) / 10;
    report.tokens_per_second = 4;
    series.steps.push_back(report);
  }
  series.steps[1].grad_norm = std::nan("");
  EvalReport eval;
  eval.step = 20;
  eval.loss = 2.5;
  eval.perplexity = 12.25;
  series.evals.push_back(eval);
  eval.looks_ahead = true;
  eval.loss = 2;
  eval.perplexity = eval.bits_per_byte = std::nan("");
  series.evals.push_back(eval);
  series.mixture.push_back({20,
                            {{"stream_load", {{0.25, 0.75}, {0.5, 0.5}}},
                             {"effective_streams", {{std::nan("")}, {2}}},
                             {"auxiliary_loss", {{0.125}}}}});
  return series;
}

// By hand: 09 and the double 2.5; 10 and the step 300 as a varint; 2a and 13 bytes of summary: 0a
// and 11 bytes of value: 0a and "loss", 15 and the float 1.5.
TEST(TensorBoard, AnEventIsTheseBytes) {
  EXPECT_EQ(hex(event_message({"loss", 300, 2.5, 1.5F})),
            "090000000000000440"
            "10ac02"
            "2a0d0a0b0a046c6f7373150000c03f");
}

// Checksums of the length and of "abc", by an independent implementation.
TEST(TensorBoard, ARecordIsTheseBytes) {
  EXPECT_EQ(hex(tf_record("abc")),
            "0300000000000000"
            "b099490e"
            "616263"
            "6e57f121");
}

TEST(TensorBoard, AFileReadsBack) {
  const std::vector<ScalarEvent> events = scalar_events(made_series());
  const std::vector<std::string> records = records_of(event_file(events));
  ASSERT_EQ(records.size(), events.size() + 1);
  EXPECT_EQ(records[0].substr(9), std::string("\x1a\x0d") + "brain.Event:2");
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_THAT(records[i + 1], HasSubstr(events[i].tag));
    EXPECT_EQ(take<float>(records[i + 1], records[i + 1].size() - 4), events[i].value);
  }
}

TEST(TensorBoard, TagsAreMetrics) {
  const std::vector<ScalarEvent> events = scalar_events(made_series());
  const auto found = [&events](const std::string& tag) {
    std::vector<std::pair<int64_t, float>> values;
    for (const ScalarEvent& e : events) {
      if (e.tag == tag) values.emplace_back(e.step, e.value);
    }
    return values;
  };
  using Pair = std::pair<int64_t, float>;
  EXPECT_THAT(found("loss"), ElementsAre(Pair{10, 4.0F}, Pair{20, 3.0F}));
  EXPECT_THAT(found("gradient_norm"), ElementsAre(Pair{10, 0.0F}));  // not-a-number has none
  EXPECT_THAT(found("validation_loss"), ElementsAre(Pair{20, 2.5F}));
  EXPECT_THAT(found("validation_loss_looking_ahead"), ElementsAre(Pair{20, 2.0F}));
  EXPECT_THAT(found("stream_load/0/1"), ElementsAre(Pair{20, 0.75F}));
  EXPECT_THAT(found("effective_streams/0"), ElementsAre());
  EXPECT_THAT(found("effective_streams/1"), ElementsAre(Pair{20, 2.0F}));
  EXPECT_THAT(found("auxiliary_loss"), ElementsAre(Pair{20, 0.125F}));
  EXPECT_EQ(events.back().seconds, 40);
}

TEST(SeriesCsv, ColumnsAreMetrics) {
  const RunSeries series = made_series();
  EXPECT_EQ(steps_csv(series),
            "step,tokens_total,loss,learning_rate,gradient_norm,step_seconds,tokens_per_second,"
            "flop_per_second,mfu_ratio,skipped\n"
            "10,80,4,0,0,0,4,0,,\n"
            "20,160,3,0,,0,4,0,,\n");
  EXPECT_EQ(evals_csv(series),
            "step,source,looks_ahead,validation_loss,validation_perplexity,validation_bpb,"
            "validation_loss_looking_ahead,tokens,seconds\n"
            "20,all,false,2.5,12.25,0,,0,0\n"
            "20,all,true,,,,2,0,0\n");
  EXPECT_EQ(mixture_csv(series),
            "step,layer,part,auxiliary_loss,effective_streams,stream_load\n"
            "20,0,0,0.125,,0.25\n"
            "20,0,1,,,0.75\n"
            "20,1,0,,2,0.5\n"
            "20,1,1,,,0.5\n");
  EXPECT_EQ(csv_cell(std::string("a,\"b\"")), "\"a,\"\"b\"\"\"");
}

}  // namespace
}  // namespace anabranch
