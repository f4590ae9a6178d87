#include "data/text/documents.h"

#include <zlib.h>
#include <zstd.h>

#include "data/text/byte_stream.h"
#include "data/text/sources.h"
#include "tests/data/folder.h"

namespace anabranch {
namespace {

using test::expect_error;
using test::Folder;
using Documents = std::vector<std::string>;

Documents read(const std::string& path, const TextFormat& format = {}) {
  const auto source = open_documents(path, format);
  Documents all;
  for (std::string document; source->next(document);) all.push_back(document);
  EXPECT_LE(source->bytes_read(), static_cast<int64_t>(std::filesystem::file_size(path)));
  return all;
}

std::string gzip(const std::string& text) {
  z_stream state{};
  EXPECT_EQ(deflateInit2(&state, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&state, text.size()), '\0');
  std::string in = text;
  state.next_in = reinterpret_cast<Bytef*>(in.data());
  state.avail_in = static_cast<uInt>(in.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&state, Z_FINISH), Z_STREAM_END);
  out.resize(state.total_out);
  deflateEnd(&state);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

TEST(Documents, PlainTextByFileLineAndParagraph) {
  const Folder folder;
  const std::string path = folder.path("a.txt");
  test::spill(path, "one\ntwo\r\n\n \t\r\nthree\xff\n\nfour");
  EXPECT_EQ(read(path), (Documents{"one\ntwo\r\n\n \t\r\nthree\xff\n\nfour"}));
  EXPECT_EQ(read(path, {.unit = TextUnit::kLine}),
            (Documents{"one", "two\r", " \t\r", "three\xff", "four"}));
  EXPECT_EQ(read(path, {.unit = TextUnit::kParagraph}),
            (Documents{"one\ntwo\r", "three\xff", "four"}));
}

TEST(Documents, JsonLinesPickTheField) {
  const Folder folder;
  const std::string path = folder.path("a.jsonl");
  test::spill(path,
              "{\"id\": 1, \"text\": \"a\\n\\u00e9\\ud83d\\ude00\"}\n\n"
              "{\"text\": \"\", \"meta\": {\"text\": \"no\", \"x\": [1, {\"text\": 2}]}}\r\n"
              "{\"meta\": [], \"text\": \"last\"}");
  EXPECT_EQ(read(path), (Documents{"a\n\xc3\xa9\xf0\x9f\x98\x80", "", "last"}));
}

TEST(Documents, BadJsonNamesFileAndLine) {
  const Folder folder;
  const std::string path = folder.path("a.jsonl"), good = "{\"text\": \"x\"}\n";
  const auto expect = [&](const std::string& line, const std::string& why) {
    test::spill(path, good + line + "\n");
    expect_error(Fault::kData, {path + ":2", why}, [&] { read(path); });
  };
  expect("{\"text\": \"x\"", "bad JSON");
  expect("{\"text\": \"x\"} {}", "bad JSON");
  expect("{\"text\": \"\xff\"}", "bad JSON");
  expect("{\"text\": \"\\ud800\"}", "bad JSON");
  expect("{\"txt\": \"x\"}", "no field 'text'");
  expect("{\"text\": 3}", "'text' is a number; expected a string");
  expect("{\"text\": null}", "'text' is null");
  expect("{\"text\": {\"text\": \"x\"}}", "'text' is an object");
  expect("{\"text\": \"x\", \"text\": \"y\"}", "twice");
  expect("[\"text\"]", "the line is an array; expected an object");
  expect("\"text\"", "the line is a string; expected an object");
  expect(std::string(1000000, '['), "the line is an array");
  expect("{\"a\": " + std::string(1000000, '['), "bad JSON");
}

TEST(Documents, ALineBeyondTheLimitIsRefused) {
  const Folder folder;
  const std::string path = folder.path("a.jsonl");
  test::spill(path, "{\"text\": \"x\"}\n{\"text\": \"" + std::string(5 << 20U, 'x') + "\"}\n");
  EXPECT_EQ(read(path).size(), 2U);
  expect_error(Fault::kData, {path + ":2", "longer than 1000000 bytes"},
               [&] { read(path, {.max_document_bytes = 1000000}); });
  expect_error(Fault::kData, {path, "more than 1000000 bytes"},
               [&] { read(path, {.kind = TextKind::kPlain, .max_document_bytes = 1000000}); });
}

TEST(Documents, CompressedFilesOfSeveralMembers) {
  const Folder folder;
  std::string lines;
  for (int i = 0; i < 200000; ++i) lines += join("{\"text\": \"document ", i, "\"}\n");
  const std::string half = lines.substr(0, lines.size() / 2), rest = lines.substr(half.size());
  test::spill(folder.path("a.jsonl.gz"), gzip(half) + gzip(rest));
  test::spill(folder.path("a.jsonl.zst"), zstd(half) + zstd(rest));
  for (const char* name : {"a.jsonl.gz", "a.jsonl.zst"}) {
    const Documents all = read(folder.path(name));
    ASSERT_EQ(all.size(), 200000U) << name;
    EXPECT_EQ(all.back(), "document 199999");
  }
}

TEST(Documents, BrokenCompressedFilesAreNamed) {
  const Folder folder;
  const std::string text(100000, 'x');
  const auto expect = [&](const std::string& name, const std::string& bytes,
                          const std::string& why) {
    test::spill(folder.path(name), bytes);
    expect_error(Fault::kData, {name, why}, [&] { read(folder.path(name)); });
  };
  const std::string gz = gzip(text), zst = zstd(text);
  expect("cut.gz", gz.substr(0, gz.size() - 4), "ends early");
  expect("cut.zst", zst.substr(0, zst.size() - 2), "ends early");
  expect("text.gz", "just text", "not gzip data");
  expect("text.zst", "just text", "not zstd data");
  std::string flipped = gz;
  flipped[flipped.size() - 6] ^= 1;
  expect("flipped.gz", flipped, "damaged");
  expect("more.gz", gz + "trailing", "damaged");
}

TEST(Documents, EmptyAndMissingFiles) {
  const Folder folder;
  test::spill(folder.path("empty.txt"), "");
  expect_error(Fault::kData, {"empty.txt is empty"}, [&] { read(folder.path("empty.txt")); });
  expect_error(Fault::kData, {"none.txt", "no such file"},
               [&] { (void)open_documents(folder.path("none.txt"), {}); });
}

TEST(Inputs, FoldersAndPatternsInSortedOrder) {
  const Folder folder;
  for (const char* name : {"b.txt", "a.txt", "sub/c.txt", ".hidden", "d.md"}) {
    test::spill(folder.path(name), name);
  }
  const auto names = [&](const std::vector<std::string>& patterns) {
    std::vector<std::string> all;
    for (const InputText& file : list_inputs(patterns)) {
      all.push_back(std::filesystem::relative(file.path, folder.path()).string());
    }
    return all;
  };
  EXPECT_EQ(names({folder.path()}), (Documents{"a.txt", "b.txt", "d.md", "sub/c.txt"}));
  EXPECT_EQ(names({folder.path("d.md"), folder.path("*.txt")}),
            (Documents{"d.md", "a.txt", "b.txt"}));
  expect_error(Fault::kData, {"*.gz", "no such file"}, [&] { names({folder.path("*.gz")}); });
  expect_error(Fault::kData, {"a.txt", "twice"}, [&] {
    names({folder.path("a.txt"), folder.path()});
  });
}

TEST(Utf8, ValidAndInvalid) {
  for (const std::string_view good :
       {"", "plain ascii text", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xed\x9f\xbf",
        "\xee\x80\x80", "\xf4\x8f\xbf\xbf", "12345678\xc3\xa9"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  for (const std::string_view bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80",
                                     "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
                                     "\xc3", "\xe2\x82", "12345678\xff", "\xe2\x28\xa1"}) {
    EXPECT_FALSE(is_utf8(bad)) << bad;
  }
}

TEST(Parquet, ReadsAColumnOrSaysHowToGetAReader) {
  const std::string path = std::string(AB_SOURCE_DIR) + "/tests/reference/documents.parquet";
  if (!has_parquet()) {
    expect_error(Fault::kData, {path, "no Parquet reader", "install.sh parquet"},
                 [&] { read(path); });
    return;
  }
  const Documents all = read(path);
  ASSERT_EQ(all.size(), 3000U);
  EXPECT_EQ(all[0], "document 0");
  EXPECT_EQ(all[2999], "document 2999");
  EXPECT_EQ(read(path, {.field = "large"})[2], "large 2");
  expect_error(Fault::kData, {path, "no column 'x'", "text"}, [&] { read(path, {.field = "x"}); });
  expect_error(Fault::kData, {path, "'number' is int64"}, [&] { read(path, {.field = "number"}); });
  expect_error(Fault::kData, {path, "row 7", "null"}, [&] { read(path, {.field = "holes"}); });
  const Folder folder;
  test::spill(folder.path("cut.parquet"), test::slurp(path).substr(0, 3000));
  expect_error(Fault::kData, {"cut.parquet", "damaged"}, [&] { read(folder.path("cut.parquet")); });
}

}  // namespace
}  // namespace anabranch
