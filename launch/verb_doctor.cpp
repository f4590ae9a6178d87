#include <algorithm>
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "launch/doctor.h"
#include "launch/program.h"
#include "parallel/topology.h"
#include "runtime/config/config.h"
#include "runtime/config/validate.h"
#include "runtime/config/validate_parallel.h"

namespace anabranch {

namespace {

struct DoctorWish {
  std::string config, folder = ".";
  std::vector<std::string> sets;
  bool json = false;
};

void print(const std::vector<Finding>& findings, bool json) {
  if (json) {
    nlohmann::ordered_json document = nlohmann::ordered_json::object();
    for (const Finding& finding : findings) {
      document[finding.name] = {{"good", finding.good}, {"what", finding.what}};
    }
    std::cout << document.dump(2) << "\n";
    return;
  }
  for (const Finding& finding : findings) {
    std::cout << (finding.good ? "  ok    " : "  BAD   ") << finding.name << ": " << finding.what
              << "\n";
  }
}

int code_of(const std::vector<Finding>& findings) {
  const auto bad = std::ranges::find(findings, false, &Finding::good);
  return bad == findings.end() ? 0 : static_cast<int>(bad->fault);
}

// The exit code is that of the first finding that is not good, on all ranks.
int examine(DoctorWish wish, RankProcess& process) {
  if (!wish.config.empty()) {
    const Config config = load_config(wish.config, wish.sets);
    validate(config);
    check_ranks(config, process.world().size());
    process.take_device(device_wish(config));
    wish.folder = nearest_folder(config.run.dir);
  }
  wish.folder = gather_text(process.world(), wish.folder)[0];
  std::vector<Finding> findings;
  for (const std::string& line : build_lines()) findings.push_back({"build", true, line});
  const std::vector<Finding> mine = examine_host(wish.folder);
  findings.insert(findings.end(), mine.begin(), mine.end());
  findings.push_back(time_left());
  if (process.world().size() == 1) {
    findings.push_back({"ranks", true, "one; start under mpirun or srun for more"});
  } else {
    const std::vector<Finding> together = examine_ranks(process, wish.folder, mine);
    findings.insert(findings.end(), together.begin(), together.end());
  }
  if (process.first()) print(findings, wish.json);
  return std::stoi(gather_text(process.world(), std::to_string(code_of(findings)))[0]);
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  auto wish = std::make_shared<DoctorWish>();
  CLI::App* verb = app.add_subcommand(
      "doctor", "checks this machine, or under mpirun or srun all that a job was given");
  verb->add_option("CONFIG", wish->config,
                   "YAML file of the run to come: its folder, devices, ranks");
  verb->add_option("--set", wish->sets, "a.b=c: overrides a key")->allow_extra_args(false);
  verb->add_flag("--json", wish->json, "machine-readable");
  verb->add_option("--dir", wish->folder, "folder that runs are to be written to");
  verb->callback([wish, &exit_code] {
    exit_code = run_rank([&](RankProcess& process) { return examine(*wish, process); });
  });
}

}  // namespace anabranch
