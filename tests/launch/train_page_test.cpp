// The pages of a run's endpoint in a browser, Debian's Chromium.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "tests/data/folder.h"
#include "tests/launch/train_job.h"
#include "tests/support/http.h"

namespace anabranch {
namespace {
namespace fs = std::filesystem;

using testing::HasSubstr;
using testing::Not;

// The URLs that a page asked for, by Chromium's log of its network. What it asks for on its own
// account has no origin there.
std::vector<std::string> asked_by_pages(const fs::path& net_log) {
  std::ifstream in(net_log);
  const auto events = nlohmann::json::parse(in).at("events");
  std::set<int64_t> requests;
  const auto text_of = [](const nlohmann::json& event, const char* name) {
    const auto params = event.find("params");
    const bool there = params != event.end() && params->is_object() && params->contains(name);
    return there && params->at(name).is_string() ? params->at(name).get<std::string>() : "";
  };
  for (const auto& event : events) {
    if (text_of(event, "initiator").starts_with("http")) {
      requests.insert(event.at("source").at("id").get<int64_t>());
    }
  }
  std::vector<std::string> urls;
  for (const auto& event : events) {
    const std::string url = text_of(event, "url");
    if (!url.empty() && requests.contains(event.at("source").at("id"))) urls.push_back(url);
  }
  return urls;
}

class TrainPage : public TrainJobs {
 protected:
  void SetUp() override {
    if (std::system("command -v chromium > /dev/null") != 0) {
      GTEST_SKIP() << "chromium is not installed: launch/install.sh test";
    }
    TrainJobs::SetUp();
  }

  struct View {
    std::string text;  // the document, and what the browser says
    std::vector<std::string> urls;

    // An attribute of the document; empty if it is not there.
    [[nodiscard]] std::string attribute(const std::string& name) const {
      std::smatch found;
      return std::regex_search(text, found, std::regex(name + "=\"([^\"]*)\"")) ? found[1].str()
                                                                                : std::string();
    }
  };

  // What a browser shows some seconds after it was sent to a page. It finds no other host.
  View look(const std::string& url, int width) {
    const fs::path folder = path(join("browser-", ++looks_));
    const fs::path net_log = folder / "net.json";
    fs::create_directory(folder);
    test::Process browser(
        {"chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
         "--no-first-run", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--disable-extensions", "--user-data-dir=" + folder.string(),
         join("--window-size=", width, ",800"), "--virtual-time-budget=7000",
         "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--enable-logging=stderr",
         "--log-net-log=" + net_log.string(), "--dump-dom", url},
        (folder / "out.txt").string(), {{"HOME", folder.string()}});
    EXPECT_EQ(browser.wait(), 0) << browser.output();
    View view{browser.output(), asked_by_pages(net_log)};
    EXPECT_THAT(view.text, Not(HasSubstr("CONSOLE")));
    return view;
  }

 private:
  int looks_ = 0;
};

TEST_F(TrainPage, ShowsTheRunAsItGoes) {
  const auto job = train("run", 2,
                         {kEndless, "--set=metrics.listen=127.0.0.1:0",
                          "--set=metrics.peak_tflops=0.1", "--set=eval.every_steps=5"});
  ASSERT_TRUE(has_come_to("run", 12)) << job->output();
  const auto targets = nlohmann::json::parse(text_of("run/targets.json"));
  const std::string host = "http://" + targets.at(0).at("targets").at(0).get<std::string>();

  const View first = look(host + "/", 1100);
  for (const char* text :
       {"<h1>run</h1>", "of 1000000", "Time left", "Tokens/s", "Loss, nats/token",
        "Where a step's time goes", "MFU, 0 to 1", ">validation<"}) {
    EXPECT_THAT(first.text, HasSubstr(text));
  }
  EXPECT_THAT(first.text, HasSubstr("Live: as of "));  // its script has exchanged the figures
  EXPECT_THAT(first.text, Not(HasSubstr("not known yet")));
  EXPECT_EQ(first.attribute("data-overflow"), "0");

  // Its windows are no narrower than 500 pixels; ShowsAllOnAPhone looks at less.
  const View phone = look(host + "/", 500);
  EXPECT_EQ(phone.attribute("data-overflow"), "0");
  EXPECT_GT(std::stoll(phone.attribute("data-step")), std::stoll(first.attribute("data-step")));

  const View use = look(host + "/utilisation", 500);
  EXPECT_EQ(use.attribute("data-overflow"), "0");
  for (const char* text :
       {"Waiting for data", "Resident memory of a rank", "<th>all_reduce</th>"}) {
    EXPECT_THAT(use.text, HasSubstr(text));
  }
  EXPECT_THAT(use.text, Not(HasSubstr("GPU")));

  for (const View* view : {&first, &phone, &use}) {
    EXPECT_FALSE(view->urls.empty());
    for (const std::string& url : view->urls) EXPECT_TRUE(url.starts_with(host + "/")) << url;
  }
  test::spill(path("run") / "stop", "");
  EXPECT_EQ(finish(*job).exit_code, 130) << job->output();
}

// In a frame of a phone's width, from files: the pages themselves let nobody frame them.
TEST_F(TrainPage, ShowsAllOnAPhone) {
  const auto job = train("run", 2, {kEndless, "--set=metrics.listen=127.0.0.1:0"});
  ASSERT_TRUE(has_come_to("run", 12)) << job->output();
  const auto targets = nlohmann::json::parse(text_of("run/targets.json"));
  const std::string address = targets.at(0).at("targets").at(0);
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  for (const char* name : {"/", "/utilisation"}) {
    const std::string page = test::http_get(port, name);
    test::spill(path("page.html"), page.substr(page.find("<!DOCTYPE")));
    test::spill(path("frame.html"),
                "<!DOCTYPE html><body><iframe src=\"page.html\" width=\"390\" height=\"800\" "
                "style=\"border:0\"></iframe><script>onload = () => {"
                "const root = frames[0].document.documentElement;"
                "document.body.dataset.inside = root.clientWidth + ' ' + root.scrollWidth;"
                "};</script></body>");
    test::Process browser(
        {"chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         "--allow-file-access-from-files", "--user-data-dir=" + path("phone").string(),
         "--dump-dom", "file://" + path("frame.html").string()},
        path("phone.txt").string());
    EXPECT_EQ(browser.wait(), 0) << browser.output();
    EXPECT_THAT(browser.output(), HasSubstr("data-inside=\"390 390\"")) << name;
  }
  test::spill(path("run") / "stop", "");
  EXPECT_EQ(finish(*job).exit_code, 130) << job->output();
}

TEST_F(TrainPage, SaysThatTheRunHasEnded) {
  const auto job = train("run", 0, {kEndless, "--set=metrics.listen=127.0.0.1:0"});
  ASSERT_TRUE(has_come_to("run", 3)) << job->output();
  const auto targets = nlohmann::json::parse(text_of("run/targets.json"));
  const std::string address = targets.at(0).at("targets").at(0);
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  const std::string page = test::http_get(port, "/"), script = test::http_get(port, "/page.js");
  test::spill(path("run") / "stop", "");
  ASSERT_EQ(finish(*job).exit_code, 130) << job->output();
  // The page as it was, of a host that is gone: a file, which may not ask for pages either.
  std::string saved = page.substr(page.find("<!DOCTYPE"));
  const std::string tag = "<script src=\"/page.js\" defer=\"defer\">";
  saved.replace(saved.find(tag), tag.size(), "<script src=\"page.js\" defer=\"defer\">");
  test::spill(path("page.html"), saved);
  test::spill(path("page.js"), script.substr(script.find("\r\n\r\n") + 4));
  const fs::path folder = path("gone");
  test::Process browser({"chromium", "--headless", "--no-sandbox", "--disable-gpu",
                         "--user-data-dir=" + folder.string(), "--virtual-time-budget=5000",
                         "--dump-dom", "file://" + path("page.html").string()},
                        path("gone.txt").string());
  EXPECT_EQ(browser.wait(), 0) << browser.output();
  EXPECT_THAT(browser.output(), HasSubstr("No answer. The run has ended"));
  EXPECT_THAT(browser.output(), HasSubstr("class=\"late\""));
}

}  // namespace
}  // namespace anabranch
