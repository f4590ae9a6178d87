#include "runtime/config/yaml.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/support/refusal.h"

namespace anabranch {

namespace {

using testing::HasSubstr;

std::string refusal(const std::string& text) {
  return test::refusal([&] { parse_yaml(text, "f.yaml"); });
}

TEST(Yaml, KeepsValuesWithTheirLines) {
  const YamlNode root = parse_yaml("a: 1\nb:\n  c: \"2\"\n  d: [x, {e: ~}]\n", "f.yaml");
  ASSERT_EQ(root.kind, YamlNode::Kind::kMap);
  EXPECT_EQ(root.find("a")->value, "1");
  EXPECT_FALSE(root.find("a")->quoted);
  const YamlNode& b = *root.find("b");
  EXPECT_TRUE(b.find("c")->quoted);
  EXPECT_EQ(b.find("c")->where, "f.yaml:3");
  const YamlNode& list = *b.find("d");
  ASSERT_EQ(list.items.size(), 2U);
  EXPECT_EQ(list.items[1].find("e")->kind, YamlNode::Kind::kNull);
  EXPECT_EQ(root.find("none"), nullptr);
}

TEST(Yaml, RefusesWhatHidesOrGrows) {
  EXPECT_THAT(refusal("a: 1\nb: 2\na: 3\n"), HasSubstr("f.yaml:3: key \"a\" is given twice"));
  EXPECT_THAT(refusal("a: &x [1]\nb: *x\n"), HasSubstr("f.yaml:1: anchors"));
  EXPECT_THAT(refusal("a: !!str 1\n"), HasSubstr("f.yaml:1: tags"));
  EXPECT_THAT(refusal("a: 1\n---\nb: 2\n"), HasSubstr("second document"));
  EXPECT_THAT(refusal("? [a, b]\n: 1\n"), HasSubstr("a key must be a plain word"));
  EXPECT_THAT(refusal("? {a: b}\n: 1\n"), HasSubstr("a key must be a plain word"));
  EXPECT_THAT(refusal("~: 1\n"), HasSubstr("a key is empty"));
}

TEST(Yaml, RefusesBombs) {
  std::string bomb = "a: &a [x, x]\n";
  for (char c = 'b'; c < 'z'; ++c) {
    bomb += std::string(1, c) + ": &" + c + " [*" + static_cast<char>(c - 1) + "]\n";
  }
  EXPECT_THAT(refusal(bomb), HasSubstr("anchors"));
  EXPECT_THAT(refusal(std::string(40, '[') + std::string(40, ']')), HasSubstr("levels"));
  EXPECT_THAT(refusal(std::string(100000, '[')), HasSubstr("f.yaml:1: "));
  EXPECT_THAT(refusal("a: " + std::string(100000, '{')), HasSubstr("f.yaml:1: "));
  std::string deep;
  for (int i = 0; i < 300; ++i) deep += std::string(static_cast<size_t>(i), ' ') + "a:\n";
  EXPECT_THAT(refusal(deep), HasSubstr("levels"));
  std::string wide = "[";
  for (int i = 0; i < 30000; ++i) wide += "1,";
  EXPECT_THAT(refusal(wide + "1]"), HasSubstr("more than 20000 values"));
  EXPECT_THAT(refusal(std::string((size_t{1} << 20) + 1, '#')), HasSubstr("at most 1048576"));
}

TEST(Yaml, RefusesBrokenText) {
  EXPECT_THAT(refusal("a: 1\nb: [1, 2\n"), HasSubstr("not valid YAML"));
  EXPECT_THAT(refusal("a: \"open\nb: 1\n"), HasSubstr("not valid YAML"));
  EXPECT_THAT(refusal("a: 1\n b: 2\n"), HasSubstr("f.yaml:2"));
  EXPECT_THAT(refusal("\ta: 1\n"), HasSubstr("f.yaml:1"));
  EXPECT_THAT(refusal(std::string("a: 1\nb: \0\n", 10)), HasSubstr("f.yaml:2: control character"));
  EXPECT_THAT(refusal("a: 1\nb: \xff\n"), HasSubstr("f.yaml:2: not valid UTF-8"));
  EXPECT_THAT(refusal("a: \xed\xa0\x80\n"), HasSubstr("not valid UTF-8"));
}

TEST(Yaml, SetReplacesAndAdds) {
  YamlNode root = parse_yaml("a:\n  b: 1\n", "f.yaml");
  set_yaml(root, "a.b=2");
  set_yaml(root, "a.c=[1, 2]");
  set_yaml(root, "d=x=y");
  EXPECT_EQ(root.find("a")->find("b")->value, "2");
  EXPECT_EQ(root.find("a")->find("b")->where, "--set a.b=2");
  EXPECT_EQ(root.find("a")->find("c")->items.size(), 2U);
  EXPECT_EQ(root.find("d")->value, "x=y");
  for (const char* bad : {"a.b", "=1", "a..b=1", ".a=1", "a.=1"}) {
    try {
      set_yaml(root, bad);
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kUsage) << bad;
      EXPECT_THAT(error.what(), HasSubstr(bad));
    }
  }
}

}  // namespace

}  // namespace anabranch
